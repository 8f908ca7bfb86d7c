# Groups, handles and library memory through the public functions.
# Not under TSan: ranks share vectors of the test, in turns on one thread.
if(SWL_PLACE STREQUAL sim AND TARGET nccl_ep AND NOT "${SWL_SANITIZE}" STREQUAL thread)
    foreach(test calls create destroy failure handle memory)
        swl_test(group_${test}_test SOURCES group_${test}_test.cc LIBS swl_support nccl_ep
                 LABELS sim TIMEOUT 300)
    endforeach()
endif()
