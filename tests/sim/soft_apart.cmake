# Emulated ranks in several processes, over the software NIC. Not under TSan, as tcp.cmake.
if(TARGET nccl_ep AND SWL_PLACE STREQUAL sim AND NOT "${SWL_SANITIZE}" STREQUAL thread)
    swl_test(soft_apart_test SOURCES soft_apart_test.cc LIBS swl_bench LABELS sim TIMEOUT 300)
endif()
