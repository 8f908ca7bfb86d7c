// real_device.cc: the device of this machine, by rdma-core.
#include "tests/hw/device.h"

#include "transport/mlx5/devx.h"
#include "transport/mlx5/verbs.h"

ncclResult_t device_open(struct swl_nic **nic_p, Driver driver, const struct swl_nic_config *config)
{
    return (driver == Driver::devx ? swl_devx_ops() : swl_mlv_ops())->create(nic_p, config);
}

void device_run()
{
}
