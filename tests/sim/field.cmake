# Field reports: one test for each, with its number in the name.
if(SWL_PLACE STREQUAL sim AND TARGET swl_bench)
    foreach(test counts time)
        swl_test(field_${test}_test SOURCES field_${test}_test.cc LIBS swl_bench LABELS sim
                 TIMEOUT 300)
    endforeach()
    if(SWL_SANITIZE)
        foreach(test counts time)
            target_compile_definitions(field_${test}_test PRIVATE SWL_SANITIZED=1)
        endforeach()
    endif()
endif()
