# The verbs wire over a fake of libibverbs, in the emulator.
if(SWL_PLACE STREQUAL sim)
    swl_test(verbs_wire_test SOURCES fake_verbs.cc verbs_flush_test.cc verbs_wire_test.cc
             $<TARGET_OBJECTS:swl_transport>
             $<TARGET_OBJECTS:swl_base> LIBS swl_sim LABELS sim)
endif()
