// real_device.cc: the device of this machine, by rdma-core.
#include "tests/hw/device.h"

ncclResult_t device_open(struct swl_nic **nic_p, const struct swl_nic_config *config)
{
    return swl_devx_ops()->create(nic_p, config);
}

void device_run()
{
}
