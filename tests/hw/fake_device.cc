// fake_device.cc: the fake device of tests/support, so that the test of the real one is tested.
#include "tests/hw/device.h"
#include "tests/support/fake_mlx5.h"
#include "transport/mlx5/devx.h"
#include "transport/mlx5/verbs.h"

ncclResult_t device_open(struct swl_nic **nic_p, Driver driver, const struct swl_nic_config *config)
{
    const struct swl_verbs verbs = fake_verbs();

    fake.ports.resize(1);
    return driver == Driver::gpu ? swl_devx_create_on(nic_p, config, &verbs)
                                 : swl_mlv_create_on(nic_p, config, &verbs);
}

void device_run()
{
    fake_run();
}
