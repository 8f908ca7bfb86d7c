# Field reports: one test for each, with its number in the name; in both places.
if(TARGET swl_bench)
    foreach(test counts nodes sizes sums time)
        swl_test(field_${test}_test SOURCES field_${test}_test.cc
                 LIBS ${swl_ranks_comm} swl_bench
                 LABELS ${swl_ranks_label} TIMEOUT 300)
        swl_with_standin(field_${test}_test)
        swl_one_at_a_time(field_${test}_test)
    endforeach()
endif()
if(SWL_PLACE STREQUAL sim AND TARGET swl_bench)
    swl_test(field_network_test SOURCES field_network_test.cc LIBS swl_bench LABELS sim TIMEOUT 300)
    # what an exchange that never ends may still touch is given up, by intent
    swl_test(field_lost_test SOURCES field_lost_test.cc LIBS swl_support nccl_ep LABELS sim
             ENV ASAN_OPTIONS=detect_leaks=0)
    target_link_libraries(field_lost_test PRIVATE ${CMAKE_DL_LIBS})
    swl_test(field_limits_test SOURCES field_limits_test.cc ${swl_test_support}/failing_calls.cc
             LIBS nccl_ep_static swl_support LABELS sim TIMEOUT 300)
    target_link_options(field_limits_test PRIVATE -Wl,--wrap=swl_soft_ops,--wrap=swl_tcp_ops)
    swl_test(field_reorder_test SOURCES field_reorder_test.cc LIBS swl_bench LABELS sim TIMEOUT 3600)
    foreach(shard RANGE 4) # the long run takes hours
        math(EXPR half "${shard} % 2")
        set(env "GTEST_TOTAL_SHARDS=5;GTEST_SHARD_INDEX=${shard}")
        if(shard EQUAL 0)
            swl_test(field_repeat_test SOURCES field_repeat_test.cc LIBS swl_bench
                     LABELS sim half_${half} TIMEOUT 10800 ENV ${env})
        else()
            add_test(NAME field_repeat_test_${shard} COMMAND field_repeat_test)
            swl_shard(field_repeat_test_${shard} ${half} 10800 "${env}")
        endif()
    endforeach()
    if(SWL_SANITIZE)
        foreach(test counts limits nodes reorder repeat sizes sums time)
            target_compile_definitions(field_${test}_test PRIVATE SWL_SANITIZED=1)
        endforeach()
    endif()
endif()
