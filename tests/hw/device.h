// device.h: the device under devx_test.cc: the real one or the fake.
#pragma once

#include "transport/mlx5/devx.h"

ncclResult_t device_open(struct swl_nic **nic_p, const struct swl_nic_config *config);
void device_run(); // let it execute what was posted; a real one does so by itself
