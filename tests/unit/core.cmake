# Pure parts of groups: who serves whom, sizes and roles, sentences of faults.
if(SWL_PLACE STREQUAL sim)
    set(core "${PROJECT_SOURCE_DIR}/src")
    swl_test(topology_test SOURCES topology_test.cc ${core}/group/topology.c LIBS swl_runtime
             LABELS unit)
    swl_test(plan_test SOURCES plan_test.cc ${core}/group/plan.c ${core}/group/plan_ht.c
             ${core}/group/topology.c LIBS swl_runtime LABELS unit)
    swl_test(error_page_test SOURCES error_page_test.cc ${core}/failure/error_page.c ${core}/group/topology.c
             LIBS swl_runtime LABELS unit)
    swl_test(qp_recovery_test SOURCES qp_recovery_test.cc ${core}/failure/qp_recovery.c LIBS swl_runtime LABELS unit)
    swl_test(fault_test SOURCES fault_test.cc ${core}/failure/fault.c
             ${PROJECT_SOURCE_DIR}/transport/nic.c LIBS swl_runtime LABELS unit)
endif()
