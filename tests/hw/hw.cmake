# Real NICs, without a GPU: built everywhere, skips with the reason where there is none. The same test
# runs over the fake device (library fake_mlx5 of tests/unit/transport.cmake).
set(mlx5 "${PROJECT_SOURCE_DIR}/transport/mlx5")
set(verbs "${PROJECT_SOURCE_DIR}/transport/rdma_core")
swl_test(hw_mlx5_test
         SOURCES mlx5_test.cc host_gpu.cc real_device.cc ${mlx5}/commands.c ${mlx5}/device.c ${mlx5}/devx.c
                 ${mlx5}/devx_memory.c ${mlx5}/devx_qp.c ${mlx5}/mlx5.c ${mlx5}/nic.c ${verbs}/path.c ${mlx5}/region.c ${verbs}/tune.c
                 ${mlx5}/verbs.c ${mlx5}/verbs_memory.c ${mlx5}/verbs_qp.c "${PROJECT_SOURCE_DIR}/transport/nic.c"
                 ${verbs}/load.c ${verbs}/pkey.c ${verbs}/port.c ${verbs}/rc.c ${PROJECT_SOURCE_DIR}/transport/sysfs.c
                 ${PROJECT_SOURCE_DIR}/src/runtime/result.c
         LIBS swl_base ${CMAKE_DL_LIBS} LABELS hw)
swl_test(hw_mlx5_fake_test SOURCES mlx5_test.cc fake_device.cc LIBS swl_base fake_mlx5 ${CMAKE_DL_LIBS}
         LABELS unit)
