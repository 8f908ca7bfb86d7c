# Pure parts of transport/.
swl_test(wqe_test SOURCES wqe_test.cc LABELS unit)
swl_test(soft_faults_test SOURCES soft_faults_test.cc ${PROJECT_SOURCE_DIR}/transport/host/faults.c
         LABELS unit)
set(verbs "${PROJECT_SOURCE_DIR}/transport/rdma_core")
set(mlx5 "${PROJECT_SOURCE_DIR}/transport/mlx5")
swl_test(verbs_load_test SOURCES verbs_load_test.cc ${verbs}/load.c LIBS ${CMAKE_DL_LIBS} LABELS unit)
swl_test(mlx5_commands_test SOURCES mlx5_commands_test.cc ${mlx5}/commands.c LABELS unit)
swl_test(rc_path_test SOURCES rc_path_test.cc ${verbs}/path.c
         ${PROJECT_SOURCE_DIR}/src/base/util.c LIBS swl_place LABELS unit)
swl_test(mlx5_reach_test SOURCES mlx5_reach_test.cc LABELS unit)
swl_test(verbs_port_test SOURCES verbs_port_test.cc ${verbs}/pkey.c ${verbs}/port.c
         ${PROJECT_SOURCE_DIR}/transport/sysfs.c ${PROJECT_SOURCE_DIR}/src/base/util.c
         LIBS swl_place LABELS unit)
swl_test(sysfs_test SOURCES sysfs_test.cc ${PROJECT_SOURCE_DIR}/transport/sysfs.c
         ${PROJECT_SOURCE_DIR}/src/base/util.c LIBS swl_place LABELS unit)

swl_test(tcp_socket_test SOURCES tcp_socket_test.cc ${PROJECT_SOURCE_DIR}/transport/proxy/tcp/frame.c
         ${PROJECT_SOURCE_DIR}/transport/tcp_endpoint.c ${PROJECT_SOURCE_DIR}/src/base/socket.c
         LIBS swl_flags LABELS unit)
if(SWL_PLACE STREQUAL sim) # the log asks the emulator for its slot of a thread
    swl_test(tcp_interface_test SOURCES tcp_interface_test.cc
             ${PROJECT_SOURCE_DIR}/transport/interface.c
             ${PROJECT_SOURCE_DIR}/transport/tcp_endpoint.c ${PROJECT_SOURCE_DIR}/transport/sysfs.c
             LIBS swl_runtime LABELS unit)
endif()

# The thread that serves a proxy, in real time and without a GPU.
set(proxy "${PROJECT_SOURCE_DIR}/transport/proxy")
set(host "${PROJECT_SOURCE_DIR}/transport/host")
swl_test(proxy_thread_test
         SOURCES proxy_thread_test.cc "${PROJECT_SOURCE_DIR}/tests/hw/host_gpu.cc" ${proxy}/front.c
                 ${proxy}/queue.c ${proxy}/serve_cuda.cc ${host}/faults.c ${host}/queue_pair.c
                 ${host}/executor_cuda.c ${host}/probe.c ${PROJECT_SOURCE_DIR}/transport/nic.c
                 ${PROJECT_SOURCE_DIR}/src/runtime/result.c
         LIBS swl_base swl_place LABELS unit)
set_tests_properties(proxy_thread_test PROPERTIES RUN_SERIAL ON)

# The mlx5 NIC over a fake of rdma-core, device and GPU.
add_library(fake_mlx5 OBJECT "${swl_test_support}/fake_mlx5.cc"
            "${swl_test_support}/fake_mlx5_commands.cc"
            "${swl_test_support}/fake_mlx5_engine.cc"
            "${swl_test_support}/fake_mlx5_gpu.cc"
            "${swl_test_support}/fake_mlx5_verbs.cc" ${mlx5}/commands.c ${mlx5}/device.c ${mlx5}/devx.c
            ${mlx5}/devx_memory.c ${mlx5}/devx_qp.c ${verbs}/path.c ${mlx5}/region.c ${verbs}/tune.c
            ${mlx5}/mlx5.c ${mlx5}/nic.c ${mlx5}/verbs.c ${mlx5}/verbs_memory.c ${mlx5}/verbs_qp.c
            ${verbs}/rc.c ${PROJECT_SOURCE_DIR}/transport/nic.c ${verbs}/load.c ${verbs}/pkey.c ${verbs}/port.c ${PROJECT_SOURCE_DIR}/transport/sysfs.c
            ${PROJECT_SOURCE_DIR}/src/runtime/result.c)
target_link_libraries(fake_mlx5 PRIVATE swl_flags swl_place GTest::gtest)
foreach(test mlx5_devx mlx5_devx_qp mlx5_failures mlx5_verbs)
    swl_test(${test}_test SOURCES ${test}_test.cc LIBS swl_base fake_mlx5 ${CMAKE_DL_LIBS}
             LABELS unit)
endforeach()

# Our bytes and declarations against the structs of libibverbs-dev; the headers alone, no library.
find_path(SWL_MLX5DV_DIR infiniband/mlx5dv.h)
if(SWL_MLX5DV_DIR)
    swl_test(wqe_mlx5dv_test SOURCES wqe_mlx5dv_test.cc LABELS unit mlx5dv)
    swl_test(verbs_abi_test SOURCES verbs_abi_test.cc LABELS unit mlx5dv)
    target_include_directories(wqe_mlx5dv_test SYSTEM PRIVATE ${SWL_MLX5DV_DIR})
    target_include_directories(verbs_abi_test SYSTEM PRIVATE ${SWL_MLX5DV_DIR})
elseif("$ENV{CI}" STREQUAL true)
    message(FATAL_ERROR "infiniband/mlx5dv.h is missing (package libibverbs-dev)")
else()
    message(STATUS "not built: wqe_mlx5dv_test, verbs_abi_test (infiniband/mlx5dv.h, package libibverbs-dev)")
endif()
