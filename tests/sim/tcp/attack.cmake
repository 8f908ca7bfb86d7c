# Attacks of other users of a host, in the emulator.
if(SWL_PLACE STREQUAL sim)
    swl_test(attack_test SOURCES attack_test.cc $<TARGET_OBJECTS:swl_transport>
             $<TARGET_OBJECTS:swl_base> LIBS swl_sim LABELS sim TIMEOUT 300)
endif()
