/* devx.h: queue pairs of an mlx5 NIC by raw firmware commands (DevX).
 *
 * Layer: transport/mlx5, behind nic.h; private to devx*.c. Who owns what. The NIC owns, and gives
 * back in reverse order, behind its device: a page of doorbell registers (UAR) with its mapping
 * into the GPU, one piece of memory for all rings with its registration (umem), and the queue pairs
 * with their completion queues. Each command returns when the firmware has answered. */
#ifndef SWL_MLX5_DEVX_H
#define SWL_MLX5_DEVX_H

#include "transport/mlx5/nic.h"

#ifdef __cplusplus
extern "C" {
#endif

/* devx.c: a page of doorbell registers: one of our own, uncached; write-combining as the last
 * choice. NULL: the device gives none, errno says why. Given back by mlx5dv_devx_free_uar. */
struct mlx5_uar *swl_devx_take_page(const struct swl_verbs *verbs, struct ibv_context *context,
                                    uint32_t *kind_p);

/* devx_memory.c */
ncclResult_t swl_devx_open_rings(struct mlx5_nic *nic);
ncclResult_t swl_devx_close_rings(struct mlx5_nic *nic);
/* Offsets of queue pair i; pure in max_qps and depth. */
struct devx_layout swl_devx_layout(const struct mlx5_nic *nic, uint32_t i);
/* Copy `bytes` to (from) offset `at` of the rings and wait. */
ncclResult_t swl_devx_put(struct mlx5_nic *nic, uint64_t at, const void *from, size_t bytes);
ncclResult_t swl_devx_get(struct mlx5_nic *nic, uint64_t at, void *to, size_t bytes);

/* devx_qp.c: what struct mlx5_maker says of each. */
ncclResult_t swl_devx_open_qp(struct mlx5_nic *nic, struct mlx5_qp *q, uint32_t i);
ncclResult_t swl_devx_close_qp(struct mlx5_nic *nic, struct mlx5_qp *q);
struct rc_end swl_devx_end(const struct mlx5_nic *nic, const struct mlx5_qp *q);
ncclResult_t swl_devx_connect(struct mlx5_nic *nic, struct mlx5_qp *q, struct rc_path *path);
ncclResult_t swl_devx_look(struct mlx5_nic *nic, struct mlx5_qp *q, bool *sends_p);
ncclResult_t swl_devx_stop(struct mlx5_nic *nic, struct mlx5_qp *q);
ncclResult_t swl_devx_restart(struct mlx5_nic *nic, struct mlx5_qp *q);
void swl_devx_view(const struct mlx5_nic *nic, const struct mlx5_qp *q, struct swl_qp *view_p);

#ifdef __cplusplus
}
#endif
#endif
