# Groups, handles and library memory through the public functions, in both places.
# Not under TSan: ranks share vectors of the test, in turns on one thread.
if(TARGET nccl_ep AND NOT "${SWL_SANITIZE}" STREQUAL thread)
    foreach(test calls create destroy failure handle memory)
        swl_test(group_${test}_test SOURCES group_${test}_test.cc LIBS ${swl_ranks_comm} swl_support nccl_ep
                 LABELS ${swl_ranks_label} TIMEOUT 300)
        swl_one_at_a_time(group_${test}_test)
    endforeach()
endif()
