# Field reports through the public functions, end to end.
if(SWL_PLACE STREQUAL sim AND TARGET nccl_ep)
    swl_test(api_cases_test SOURCES api_cases_test.cc LIBS swl_support nccl_ep LABELS sim
             TIMEOUT 300)
endif()
