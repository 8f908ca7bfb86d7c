/* verbs.h: rdma-core, loaded at run time.
 *
 * Layer: transport/rdma_core, below the drivers of hardware NICs. The table belongs to whoever
 * loaded it and lies in that one's memory; a NIC keeps a copy of its own until it is destroyed.
 * Nothing here logs or fails by itself: a machine without rdma-core is an ordinary machine. */
#ifndef SWL_VERBS_H
#define SWL_VERBS_H

#include "transport/rdma_core/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Functions of both libraries under the names of their symbols. */
struct swl_verbs {
#define VERBS_FIELD(result, symbol, arguments) result(*symbol) arguments;
    VERBS_CALLS(VERBS_FIELD)
    VERBS_LATER_CALLS(VERBS_FIELD)
    MLX5_CALLS(VERBS_FIELD)
    MLX5_LATER_CALLS(VERBS_FIELD)
#undef VERBS_FIELD
    void *ibverbs_library, *mlx5_library; /* from dlopen; NULL = not loaded by us */
};

/* Where to look; tests name others. */
struct swl_verbs_files {
    const char *ibverbs, *mlx5;
};

/* Load libibverbs, and libmlx5 unless with_mlx5 is false. files: NULL = by soname. On failure
 * nothing stays loaded and `why` (of why_bytes) names the library or symbol that is missing. */
bool swl_verbs_load(struct swl_verbs *verbs, bool with_mlx5, const struct swl_verbs_files *files,
                    char *why, size_t why_bytes);
/* Also of a table that was never loaded. */
void swl_verbs_unload(struct swl_verbs *verbs);

#ifdef __cplusplus
}
#endif
#endif
