# Real verbs: programs that run in a virtual machine with Soft-RoCE (rxe-vm, run). One
# machine at a time: it has as many processors as it needs.
find_path(SWL_IBVERBS_DIR infiniband/verbs.h)
find_library(SWL_IBVERBS ibverbs)
function(swl_vm_test name)
    add_test(NAME ${name} COMMAND "${PROJECT_SOURCE_DIR}/tests/verbs/run" -- ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS verbs TIMEOUT 3000 SKIP_RETURN_CODE 77
                                            RESOURCE_LOCK rxe_vm)
endfunction()

if(SWL_PLACE STREQUAL sim AND NOT SWL_SANITIZE)
    if(SWL_IBVERBS_DIR AND SWL_IBVERBS)
        add_executable(ops_check "${CMAKE_CURRENT_LIST_DIR}/ops_check.c")
        set_target_properties(ops_check PROPERTIES C_EXTENSIONS ON)
        target_include_directories(ops_check SYSTEM PRIVATE ${SWL_IBVERBS_DIR})
        target_link_libraries(ops_check PRIVATE ${SWL_IBVERBS})
        swl_vm_test(verbs_ops_roce_test $<TARGET_FILE:ops_check> rxe0 1)
    elseif("$ENV{CI}" STREQUAL true)
        message(FATAL_ERROR "infiniband/verbs.h is missing (package libibverbs-dev)")
    else()
        message(STATUS "not built: ops_check (infiniband/verbs.h, package libibverbs-dev)")
    endif()
    # The NIC's conformance over rxe0, adds by atomics and by messages; then whole calls of two processes
    # in both ways.
    swl_vm_test(verbs_nic_test env SIMT_THREADS=1 $<TARGET_FILE:transport_sim_test>
                --gtest_brief=1 --gtest_filter=Nic.*:NicErrors.*:Qp.*)
    swl_vm_test(verbs_ep_test "${CMAKE_CURRENT_LIST_DIR}/ep" $<TARGET_FILE:swimlane-bench>
                rxe0:atomics rxe0:messages)
endif()
