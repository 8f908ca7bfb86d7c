# Every mutation of tests/mutation still finds its text and its runs.
add_test(NAME mutation_texts COMMAND ${PROJECT_SOURCE_DIR}/tests/mutation/run --check)
set_tests_properties(mutation_texts PROPERTIES TIMEOUT 60 LABELS unit)
