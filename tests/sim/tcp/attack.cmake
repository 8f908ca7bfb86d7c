# Attacks of other users of a host, in the emulator.
if(SWL_PLACE STREQUAL sim)
    swl_test(attack_test SOURCES attack_test.cc
             LIBS swl_transport LABELS sim TIMEOUT 300)
endif()
