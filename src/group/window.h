/* window.h: memory that all ranks of a node map: a rank's symmetric window, and swimlaneMemAlloc.
 *
 * Layer: src/group, below group. Owns the own allocation and the mappings of the peers' ones. Used
 * in three steps, between which the ranks exchange and agree: open, map, close. */
#ifndef SWL_WINDOW_H
#define SWL_WINDOW_H

#include "kernels/common/layout.h"
#include "src/group/topology.h"
#include "src/runtime/runtime.h"

#include <nccl.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_window_map {
    char *base;     /* own memory, NULL = none */
    uint64_t bytes; /* as asked for */
    struct swl_gpu_share share;
    char **peer; /* [nlocal] local index -> address here; own included; NULL before map */
    uint32_t nlocal, local;
};

/* Own memory, zeroed. */
ncclResult_t swl_window_open(struct swl_window_map *map, uint64_t bytes);
/* Map the peers of the node of `rank`; shares[r] is the share of rank r. */
ncclResult_t swl_window_peers(struct swl_window_map *map, const struct swl_topology *topology,
                              uint32_t rank, const struct swl_gpu_share *shares);
/* Undo the mappings, then free. Safe after a failure of either step; an all-zero map is a no-op. */
ncclResult_t swl_window_unmap(struct swl_window_map *map);
ncclResult_t swl_window_free(struct swl_window_map *map);

/* First values of the words that a NIC adds to; blocks the host at most timeout_ns. */
ncclResult_t swl_window_start(const struct swl_window_map *map, const struct swl_shape *shape,
                              cudaStream_t stream, uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
