# Helpers of the tools.
swl_test(oracle_test SOURCES oracle_test.cc LIBS swl_support LABELS unit)
swl_test(support_test SOURCES support_test.cc LIBS swl_support LABELS unit)
swl_test(launch_test SOURCES launch_test.cc LIBS swl_support LABELS unit)
