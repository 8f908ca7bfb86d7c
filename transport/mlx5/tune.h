/* tune.h: the user's settings on an open port, for drivers of RDMA hardware. Layer: transport/mlx5. */
#ifndef SWL_MLX5_TUNE_H
#define SWL_MLX5_TUNE_H

#include "transport/mlx5/path.h"
#include "transport/verbs/port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Logs a remark, if there is one. A setting out of range is named with its port. */
ncclResult_t swl_mlx5_tune(struct mlx5_tuning *tuning, uint32_t rank, const struct swl_nic_ib *ib,
                           const struct swl_port *port);

#ifdef __cplusplus
}
#endif
#endif
