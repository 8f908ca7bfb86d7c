# swimlane-bench itself. Not under TSan, as ep_failure.cmake: calls are given up here.
if(TARGET nccl_ep AND SWL_PLACE STREQUAL sim AND NOT "${SWL_SANITIZE}" STREQUAL thread)
    swl_test(bench_test SOURCES bench_test.cc LIBS swl_bench LABELS sim)
    add_test(NAME bench_variables COMMAND "${CMAKE_CURRENT_LIST_DIR}/bench_variables.sh"
                                          $<TARGET_FILE:swimlane-bench>)
    set_tests_properties(bench_variables PROPERTIES LABELS sim TIMEOUT 1200)
endif()
