# swimlane-bench itself.
if(TARGET nccl_ep AND SWL_PLACE STREQUAL sim)
    swl_test(bench_test SOURCES bench_test.cc LIBS swl_bench LABELS sim)
endif()
