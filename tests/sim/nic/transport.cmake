# The software NIC, queue pairs and the network of a rank, in the emulator.
if(SWL_PLACE STREQUAL sim)
    swl_test(transport_sim_test
             SOURCES nic_test.cc nic_errors_test.cc nic_faults_test.cc qp_ring_test.cc qp_test.cc rdma_test.cc
                     ../proxy/proxy_test.cc ../tcp/tcp_strangers_test.cc ../tcp/tcp_test.cc
                     ${swl_test_support}/loop_wire.cc ${swl_test_support}/proxies.cc
                     ${swl_test_support}/rails.cc
             LIBS swl_transport LABELS sim TIMEOUT 300)
    # what it notes of all ranks is the test's own: it must not look like something they share
    swl_without_tsan("${swl_test_support}/rails.cc")
    target_link_options(transport_sim_test PRIVATE -Wl,--wrap=swl_soft_ops)
    swl_test(control_test SOURCES control_test.cc LIBS swl_transport LABELS sim)
    swl_test(choice_test SOURCES choice_test.cc LIBS swl_transport LABELS sim)
endif()
