// fake_device.cc: the fake device of tests/support, so that the test of the real one is tested.
#include "tests/hw/device.h"
#include "tests/support/fake_mlx5.h"
#include "transport/mlx5/nic.h"

ncclResult_t device_open(struct swl_nic **nic_p, Driver driver, const struct swl_nic_config *config)
{
    const struct swl_verbs verbs = fake_verbs();

    fake.ports.resize(1);
    return swl_mlx5_make(nic_p, config, &verbs,
                         driver == Driver::gpu ? &swl_devx_maker : &swl_mlx5_verbs_maker);
}

void device_run()
{
    fake_run();
}
