// real_device.cc: the device of this machine, by rdma-core.
#include "tests/hw/device.h"

#include "transport/mlx5/mlx5.h"

ncclResult_t device_open(struct swl_nic **nic_p, Driver driver, const struct swl_nic_config *config)
{
    struct swl_nic_config one = *config;

    one.settings.rings = driver == Driver::gpu ? SWL_MLX5_RINGS_GPU : SWL_MLX5_RINGS_HOST;
    return swl_mlx5_ops()->create(nic_p, &one);
}

void device_run()
{
}
