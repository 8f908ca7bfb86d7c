/* usable.h: would an mlx5 driver work here? For select.c; see usable.c. Layer: transport/mlx5. */
#ifndef SWL_MLX5_USABLE_H
#define SWL_MLX5_USABLE_H

#include "transport/nic.h"
#include "transport/verbs/port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* false: `why` is half a sentence that says why not. */
bool swl_devx_usable(const struct swl_nic_config *config, char *why, size_t why_bytes);
bool swl_mlv_usable(const struct swl_nic_config *config, char *why, size_t why_bytes);
/* Either, with these functions in place of those of the machine's rdma-core. */
bool swl_mlx5_usable(const struct swl_verbs *verbs, bool devx, const struct swl_nic_config *config,
                     char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
