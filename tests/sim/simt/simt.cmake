# The emulator's own tests.
if(SWL_PLACE STREQUAL sim)
    swl_test(
        sim_simt_test
        SOURCES simt_warp_test.cc simt_schedule_test.cc simt_scope_test.cc simt_bulk_test.cc
                simt_host_test.cc
        LIBS swl_sim
        LABELS sim tsan)
    if(SWL_SANITIZE STREQUAL thread)
        swl_test(
            sim_race_test
            SOURCES simt_race_test.cc
            LIBS swl_sim
            LABELS sim tsan
            ENV TSAN_OPTIONS=atexit_sleep_ms=0)
    endif()
endif()
