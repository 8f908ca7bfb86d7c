/* plan.h: the sizes and roles of a group, from what all ranks have told each other.
 *
 * Layer: src/group, below group. Pure: every rank computes the same shape from the same ranks; only
 * the own place (rank, node, SMs per channel, pieces) differs. Owns no memory. */
#ifndef SWL_PLAN_H
#define SWL_PLAN_H

#include "kernels/common/args.h"
#include "kernels/common/kernels.h"
#include "src/base/options.h"
#include "src/group/topology.h"

#include <nccl.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_BUILTIN_SMS         16u
#define SWL_BUILTIN_QUEUES      8u /* CUDA's own */
#define SWL_BUILTIN_TIMEOUT_NS  UINT64_C(100000000000)
#define SWL_BUILTIN_SETUP_NS    UINT64_C(60000000000)
#define SWL_MOST_TIMEOUT_NS     (UINT64_C(1) << 62) /* added to a time of day it still fits */
#define SWL_ROUTE_BLOCKS        4u
#define SWL_ROUTE_WARPS         8u
#define SWL_ROUTE_TOKENS        16u /* of a full batch, for each warp */
#define SWL_ROUTE_SCRATCH_BYTES (UINT64_C(16) << 20)
#define SWL_NETWORK_RING_BYTES  (UINT64_C(1) << 20) /* aim for one ring, more for huge rows */
#define SWL_LOCAL_RING_AIM      (UINT64_C(256) << 10)
#define SWL_LOCAL_RINGS_AIM     (UINT64_C(128) << 20) /* of a rank; more for eight slots a ring */

/* What one rank tells about its device and its hints; 0 in a hint = none. */
struct swl_rank_capabilities {
    uint8_t uuid[16];
    uint64_t process;
    uint64_t shared_bytes;  /* dynamic shared memory of a block */
    uint32_t block_threads; /* most threads of a block of any of our kernels */
    uint32_t queues;        /* of work that the rank's process has on the device, 0 = any number */
    uint32_t most_queues;   /* that it could have */
    uint32_t nsms;
    uint32_t sm_cap;    /* most SMs that this rank's kernels may use */
    uint32_t route_cap; /* most SMs of the route kernel, 0 = built-in */
    uint32_t channel_hint, qp_hint, chunk_hint;
    /* that run the rank's software NIC, if there are several nodes */
    uint32_t nic_blocks;
    uint32_t nic_blocks_multi_process; /* the same if ranks are in several processes */
    uint32_t files_left;               /* descriptors that its process may still open */
};

/* What is equal on all ranks after the agreement. */
struct swl_plan_config {
    uint32_t nexperts, max_tokens, recv_rows, max_token_bytes;
    uint32_t max_topk; /* bound of K, never 0 */
    bool wire_fp32;
    uint32_t start_low;
    struct swl_ring_sizes ring_sizes; /* all 0: as the shape wants them */
};

/* One kernel's shape of a launch. */
struct swl_plan_kernel {
    struct swl_roles roles; /* route: zero */
    uint32_t blocks, threads;
    uint32_t piece_bytes;
    uint64_t shared_bytes;
};

/* Of high throughput. [1]: the own tensor is peer-addressable. */
struct swl_ht_plan {
    struct swl_plan_kernel dispatch, combine[2];
    struct swl_roles dispatch_direct; /* dispatch into a tensor that peers can address */
    struct swl_block_shape dispatch_block[2];
    struct swl_combine_shape combine_shared[2]; /* of a block */
    uint32_t rings_per_block;
};

struct swl_plan {
    struct swl_shape shape;
    struct swl_window at;
    struct swl_plan_kernel route;
    struct swl_ht_plan ht;
    uint64_t shared_bytes[SWL_KERNELS]; /* most that a block of each kernel takes */
    /* most SMs that one of our kernels takes on this rank, ... */
    uint32_t nsms;
    uint32_t nic_blocks; /* ... beside these, which run the software NIC */
};

/* Facts of all ranks, [topology->nranks]. */
ncclResult_t swl_plan_make(struct swl_plan *plan, const struct swl_plan_config *config,
                           const struct swl_topology *topology,
                           const struct swl_rank_capabilities *ranks, uint32_t rank);

/* What the bytes of handle memory depend on, besides K, which the kernels compare themselves. */
uint64_t swl_plan_fingerprint(const struct swl_plan *plan, const struct swl_topology *topology,
                              uint32_t layout);

#ifdef __cplusplus
}
#endif
#endif
