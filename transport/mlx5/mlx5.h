/* mlx5.h: the driver of ConnectX NICs that the GPU drives, for choice.c. One driver, two ways to
 * make its queue pairs (SWIMLANE_MLX5_RINGS): by firmware commands, with rings in memory of the GPU
 * (devx.h), or by public calls, with rings in host memory (verbs.h). Ends of both ways connect with
 * each other.
 *
 * Layer: transport/mlx5, behind nic.h. */
#ifndef SWL_MLX5_H
#define SWL_MLX5_H

#include "transport/nic.h"
#include "transport/rdma_core/port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Its create makes a NIC with the operations of its way. */
const struct swl_nic_ops *swl_mlx5_ops(void);
/* false: `why` is half a sentence that says why not. */
bool swl_mlx5_usable(const struct swl_nic_config *config, char *why, size_t why_bytes);

/* With these functions in place of those of the machine's rdma-core: one way; what the setting
 * allows; create, which on success owns what the table holds. */
bool swl_mlx5_way_usable(const struct swl_verbs *verbs, bool devx,
                         const struct swl_nic_config *config, char *why, size_t why_bytes);
bool swl_mlx5_usable_on(const struct swl_verbs *verbs, const struct swl_nic_config *config,
                        char *why, size_t why_bytes);
ncclResult_t swl_mlx5_create_on(struct swl_nic **nic_p, const struct swl_nic_config *config,
                                const struct swl_verbs *verbs);

#ifdef __cplusplus
}
#endif
#endif
