# Whole steps against the oracle, in both places.
# Not under TSan: see field.cmake.
if(TARGET nccl_ep AND NOT "${SWL_SANITIZE}" STREQUAL thread)
    swl_test(exchange_test SOURCES exchange_test.cc LIBS ${swl_ranks_comm} swl_support nccl_ep
             LABELS ${swl_ranks_label} TIMEOUT 580)
    swl_with_standin(exchange_test)
    # with the stand-in, so that ranks may share a GPU, and with NCCL itself
    set(field_tests exchange_field_test)
    swl_test(exchange_field_test SOURCES exchange_field_test.cc access_matrix.cc
             LIBS ${swl_ranks_comm} nccl_ep_static swl_support LABELS ${swl_ranks_label} TIMEOUT 240)
    swl_with_standin(exchange_field_test)
    if(SWL_PLACE STREQUAL cuda)
        list(APPEND field_tests exchange_field_nccl_test)
        swl_test(exchange_field_nccl_test SOURCES exchange_field_test.cc access_matrix.cc
                 LIBS nccl_ep_static swl_support LABELS gpu TIMEOUT 240)
    endif()
    foreach(test ${field_tests})
        target_link_options(${test} PRIVATE
                            -Wl,--wrap=swl_gpu_shared_malloc,--wrap=swl_gpu_shared_map)
    endforeach()
    foreach(test exchange_test ${field_tests})
        swl_one_at_a_time(${test})
        if(SWL_SANITIZE)
            target_compile_definitions(${test} PRIVATE SWL_SANITIZED=1)
        endif()
    endforeach()
endif()

# Tests of the cuda place. Those of the GPU itself skip without one and say so; the others look at
# what nvcc made of the kernels and at NCCL's header.
if(SWL_PLACE STREQUAL cuda)
    swl_test(exchange_nccl_test SOURCES exchange_test.cc LIBS swl_support nccl_ep LABELS gpu
             TIMEOUT 240)
    swl_one_at_a_time(exchange_nccl_test)
    swl_test(process_test SOURCES process_test.cc LIBS nccl_ep_static swl_support LABELS gpu
             TIMEOUT 240)
    swl_one_at_a_time(process_test)
    swl_test(process_standin_test SOURCES process_test.cc LIBS swl_nccl nccl_ep_static swl_support
             LABELS gpu TIMEOUT 240)
    swl_with_standin(process_standin_test)
    swl_one_at_a_time(process_standin_test)

    swl_test(gpu_device_test SOURCES device_test.cu LIBS swl_runtime LABELS gpu)
    target_include_directories(gpu_device_test BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/kernels/device/cuda)
    swl_test(gpu_grids_test SOURCES grids_test.cu LIBS swl_runtime LABELS gpu)
    target_include_directories(gpu_grids_test BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/kernels/device/cuda)
    swl_test(gpu_cuda_test SOURCES gpu_cuda_test.cc LIBS swl_runtime LABELS gpu)
    swl_test(gpu_cuda_share_test SOURCES gpu_cuda_share_test.cc
                                         ${PROJECT_SOURCE_DIR}/src/runtime/cuda/share.c
             LIBS swl_place LABELS unit)
    swl_test(gpu_cuda_fd_test SOURCES gpu_cuda_fd_test.cc LIBS swl_runtime LABELS unit)

    add_executable(gpu_nic_bench ${CMAKE_CURRENT_LIST_DIR}/nic_bench.cu)
    target_link_libraries(gpu_nic_bench PRIVATE swl_transport)
    target_include_directories(gpu_nic_bench BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/kernels/device/cuda)
    add_test(NAME gpu_nic_bench COMMAND gpu_nic_bench --quick)
    set_tests_properties(gpu_nic_bench PROPERTIES TIMEOUT 1200 LABELS gpu)
    swl_one_at_a_time(gpu_nic_bench)

    add_library(gpu_team_check OBJECT ${CMAKE_CURRENT_LIST_DIR}/team_check.cu)
    set_target_properties(gpu_team_check PROPERTIES CUDA_ARCHITECTURES 90-real)

    add_test(NAME gpu_ptx_check COMMAND ${CMAKE_CURRENT_LIST_DIR}/ptx_check
                                        ${CMAKE_CUDA_COMPILER})
    set_tests_properties(gpu_ptx_check PROPERTIES TIMEOUT 3000 LABELS nvcc)
endif()
