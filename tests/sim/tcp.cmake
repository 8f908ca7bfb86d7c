# Whole calls over TCP between emulated nodes, a process each. Not under TSan, as bench.cmake.
if(TARGET nccl_ep AND SWL_PLACE STREQUAL sim AND NOT "${SWL_SANITIZE}" STREQUAL thread)
    add_executable(tcp_hosts "${CMAKE_CURRENT_LIST_DIR}/tcp_hosts.c")
    target_link_libraries(tcp_hosts PRIVATE swl_bench)
    swl_test(tcp_silence_test SOURCES tcp_silence_test.cc LIBS swl_bench LABELS sim TIMEOUT 120)
    foreach(case loopback namespaces killed)
        add_test(NAME tcp_hosts_${case} COMMAND "${CMAKE_CURRENT_LIST_DIR}/tcp_hosts.sh"
                                                $<TARGET_FILE:tcp_hosts> ${case})
        set_tests_properties(tcp_hosts_${case} PROPERTIES LABELS sim TIMEOUT 120 SKIP_RETURN_CODE 77)
    endforeach()
endif()
