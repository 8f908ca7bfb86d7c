// device.h: the device under mlx5_test.cc: the real one or the fake.
#pragma once

#include "transport/nic.h"

enum class Driver { gpu, host }; // where its rings are

ncclResult_t device_open(struct swl_nic **nic_p, Driver driver,
                         const struct swl_nic_config *config);
void device_run(); // let it execute what was posted; a real one does so by itself
