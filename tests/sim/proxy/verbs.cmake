# The verbs wire over a fake of libibverbs, in the emulator.
if(SWL_PLACE STREQUAL sim)
    swl_test(verbs_wire_test SOURCES fake_verbs.cc verbs_flush_test.cc verbs_wire_test.cc
             LIBS swl_transport LABELS sim)
endif()
