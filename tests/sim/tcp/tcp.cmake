# Whole calls over TCP between emulated nodes, a process each. TSan sees each by itself.
if(TARGET nccl_ep AND SWL_PLACE STREQUAL sim)
    add_executable(tcp_hosts "${CMAKE_CURRENT_LIST_DIR}/tcp_hosts.c")
    target_link_libraries(tcp_hosts PRIVATE swl_bench ${CMAKE_DL_LIBS})
    swl_test(tcp_silence_test SOURCES tcp_silence_test.cc LIBS swl_bench LABELS sim TIMEOUT 300)
    find_package(GTest REQUIRED)
    add_executable(attacker "${CMAKE_CURRENT_LIST_DIR}/attacker.cc")
    target_link_libraries(attacker PRIVATE swl_flags swl_sim GTest::gtest)
    set(cases loopback namespaces interfaces apart attacked)
    if(NOT SWL_SANITIZE STREQUAL thread) # calls are given up, as in bench.cmake
        list(APPEND cases killed)
    endif()
    foreach(case ${cases})
        add_test(NAME tcp_hosts_${case} COMMAND "${CMAKE_CURRENT_LIST_DIR}/tcp_hosts.sh"
                                                $<TARGET_FILE:tcp_hosts> ${case}
                                                $<TARGET_FILE:attacker>)
        set_tests_properties(tcp_hosts_${case} PROPERTIES LABELS sim TIMEOUT 3000 SKIP_RETURN_CODE 77)
    endforeach()
endif()
