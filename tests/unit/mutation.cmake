# Every mutation of tests/mutation still finds its text and its runs; once, as it reads sources only.
if(SWL_PLACE STREQUAL sim AND NOT SWL_SANITIZE)
    add_test(NAME mutation_texts COMMAND ${PROJECT_SOURCE_DIR}/tests/mutation/run --check)
    set_tests_properties(mutation_texts PROPERTIES TIMEOUT 600 LABELS unit)
endif()
