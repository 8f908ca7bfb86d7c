# Pure parts of groups: who serves whom, sizes and roles, sentences of faults.
if(SWL_PLACE STREQUAL sim)
    set(core "${PROJECT_SOURCE_DIR}/src")
    swl_test(topology_test SOURCES topology_test.cc ${core}/group/topology.c LIBS swl_runtime
             LABELS unit)
    swl_test(plan_test SOURCES plan_test.cc ${core}/group/plan.c ${core}/group/plan_ht.c
             ${core}/group/topology.c LIBS swl_runtime LABELS unit)
    swl_test(alarm_test SOURCES alarm_test.cc ${core}/failure/alarm.c ${core}/group/topology.c
             LIBS swl_runtime LABELS unit)
    swl_test(mend_test SOURCES mend_test.cc ${core}/failure/mend.c LIBS swl_runtime LABELS unit)
    swl_test(fault_test SOURCES fault_test.cc ${core}/failure/fault.c
             ${PROJECT_SOURCE_DIR}/transport/nic.c LIBS swl_runtime LABELS unit)
endif()
