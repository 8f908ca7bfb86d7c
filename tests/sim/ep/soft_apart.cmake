# Emulated ranks in several processes, over the software NIC. TSan sees each process by itself.
if(TARGET nccl_ep AND SWL_PLACE STREQUAL sim)
    swl_test(soft_apart_test SOURCES soft_apart_test.cc LIBS swl_bench LABELS sim TIMEOUT 600)
endif()
