# Groups, handles and library memory through the public functions, in both places.
if(TARGET nccl_ep)
    foreach(test calls create destroy failure handle memory setup)
        swl_test(group_${test}_test SOURCES group_${test}_test.cc LIBS ${swl_ranks_comm} swl_support nccl_ep
                 LABELS ${swl_ranks_label} TIMEOUT 300)
        swl_with_standin(group_${test}_test)
        swl_one_at_a_time(group_${test}_test)
        if(SWL_SANITIZE)
            target_compile_definitions(group_${test}_test PRIVATE SWL_SANITIZED=1)
        endif()
    endforeach()
endif()
# Calls that fail on purpose: the program is before the runtime and NCCL, and wraps the tables of NICs.
if(SWL_PLACE STREQUAL sim AND TARGET nccl_ep_static)
    # what it counts for all ranks is the test's own: it must not look like something they share
    swl_without_tsan("${swl_test_support}/failing_calls.cc")
    swl_test(group_broken_test SOURCES group_broken_test.cc ${swl_test_support}/failing_calls.cc
             LIBS nccl_ep_static swl_support LABELS sim TIMEOUT 300)
    swl_test(group_meet_test SOURCES group_meet_test.cc ${swl_test_support}/failing_calls.cc
             LIBS nccl_ep_static swl_support LABELS sim TIMEOUT 300)
    # what a rank leaves in a communicator whose calls fail is given up, by intent
    swl_test(group_dead_test SOURCES group_dead_test.cc ${swl_test_support}/failing_calls.cc
             LIBS nccl_ep_static swl_support LABELS sim TIMEOUT 300
             ENV ASAN_OPTIONS=detect_leaks=0)
    foreach(test broken dead meet)
        target_link_options(group_${test}_test PRIVATE
                            -Wl,--wrap=swl_soft_ops,--wrap=swl_tcp_ops)
    endforeach()
endif()
if(SWL_PLACE STREQUAL cuda AND TARGET nccl_ep)
    swl_test(group_destroy_nccl_test SOURCES group_destroy_test.cc LIBS swl_support nccl_ep
             LABELS gpu TIMEOUT 120)
    swl_one_at_a_time(group_destroy_nccl_test)
endif()
