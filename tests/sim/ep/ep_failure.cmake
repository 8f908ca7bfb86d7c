# Failures made on purpose: shards of about equal length.
# Under TSan, where they take longest, in one shape and without those that draw or repeat a lot.
if(SWL_PLACE STREQUAL sim AND TARGET nccl_ep_static)
    set(shards 6)
    set(choice "")
    if(SWL_SANITIZE STREQUAL thread)
        set(choice ";GTEST_FILTER=Calls/*:EpFailures.CallsQueued*:EpFailures.FailuresInARow*")
    endif()
    math(EXPR last "${shards} - 1")
    foreach(shard RANGE ${last})
        math(EXPR half "${shard} % 2")
        set(env "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard}${choice}")
        if(shard EQUAL 0)
            swl_test(ep_failure_test SOURCES ep_failure_test.cc ep_failure_random_test.cc
                             ep_failure_schedules_test.cc ep_error_page_test.cc
                     LIBS swl_support nccl_ep_static LABELS sim half_${half} TIMEOUT 600 ENV ${env})
        else()
            add_test(NAME ep_failure_test_${shard} COMMAND ep_failure_test)
            swl_shard(ep_failure_test_${shard} ${half} 600 "${env}")
        endif()
    endforeach()
    # Queue pairs connected anew over the other NICs that run here.
    add_test(NAME ep_failure_tcp COMMAND ep_failure_test)
    set_tests_properties(ep_failure_tcp PROPERTIES TIMEOUT 5400 LABELS sim ENVIRONMENT
        "SWIMLANE_TRANSPORT=peer,tcp;GTEST_FILTER=Calls/EpLost.*ErrorEntryInDispatch")
    add_test(NAME ep_failure_blocks COMMAND ep_failure_test)
    set_tests_properties(ep_failure_blocks PROPERTIES TIMEOUT 5400 LABELS sim ENVIRONMENT
        "SWIMLANE_SOFT_EXECUTOR=blocks;GTEST_FILTER=Calls/EpLost.*DeadNicInCombine")
    swl_test(ep_poison_test SOURCES ep_poison_test.cc LIBS swl_support nccl_ep_static LABELS sim)
    if(NOT SWL_SANITIZE STREQUAL thread) # a wrong count is a race there, and rightly so
        swl_test(ep_nonsense_test SOURCES ep_nonsense_test.cc LIBS swl_support nccl_ep_static
                 LABELS sim TIMEOUT 600)
    endif()
    if(SWL_SANITIZE)
        foreach(name ep_failure_test ep_poison_test ep_nonsense_test)
            if(TARGET ${name})
                target_compile_definitions(${name} PRIVATE SWL_SANITIZED=1)
            endif()
        endforeach()
    endif()
    if(SWL_SANITIZE STREQUAL thread)
        target_compile_definitions(ep_failure_test PRIVATE SWL_ONE_SHAPE=1)
    endif()
endif()
if(SWL_PLACE STREQUAL cuda AND TARGET nccl_ep_static)
    swl_test(ep_failure_test SOURCES ep_failure_test.cc
             LIBS ${swl_ranks_comm} nccl_ep_static swl_support LABELS gpu TIMEOUT 400)
    swl_with_standin(ep_failure_test)
    swl_one_at_a_time(ep_failure_test)
endif()
