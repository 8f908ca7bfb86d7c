# The software NIC, queue pairs and the network of a rank, in the emulator.
if(SWL_PLACE STREQUAL sim)
    swl_test(transport_sim_test
             SOURCES loop_wire.cc nic_test.cc nic_errors_test.cc nic_faults_test.cc proxies.cc
                     proxy_test.cc qp_ring_test.cc qp_test.cc rdma_test.cc tcp_strangers_test.cc tcp_test.cc
                     $<TARGET_OBJECTS:swl_transport> $<TARGET_OBJECTS:swl_base>
             LIBS swl_sim LABELS sim TIMEOUT 300)
    swl_test(oob_test SOURCES oob_test.cc $<TARGET_OBJECTS:swl_transport>
             $<TARGET_OBJECTS:swl_base> LIBS swl_sim LABELS sim)
    swl_test(select_test SOURCES select_test.cc $<TARGET_OBJECTS:swl_transport>
             $<TARGET_OBJECTS:swl_base> LIBS swl_sim LABELS sim)
    swl_test(verbs_wire_test SOURCES fake_verbs.cc verbs_flush_test.cc verbs_wire_test.cc
             $<TARGET_OBJECTS:swl_transport>
             $<TARGET_OBJECTS:swl_base> LIBS swl_sim LABELS sim)
endif()
