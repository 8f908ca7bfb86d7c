/* plan.c: channels, sizes and the route kernel of a group. Layer: src/group; owns no memory. */
#include "src/group/plan.h"

#include "kernels/common/block.h"
#include "src/base/error.h"
#include "src/base/util.h"
#include "src/group/plan_ht.h"

#include <inttypes.h>
#include <string.h>

/* A kernel starts when those before it in its queue have ended, and kernels of ranks wait for each
 * other: ranks that share a device in a process need a queue each. */
static ncclResult_t check_queues(const struct swl_rank_capabilities *own, uint32_t r,
                                 uint32_t sharing)
{
    if (own->queues == 0 || sharing <= own->queues)
        return ncclSuccess;
    if (sharing <= own->most_queues)
        return swl_fail(ncclInvalidUsage,
                        "%" PRIu32 " ranks of a process share the device of rank %" PRIu32
                        " and need a queue of work each, CUDA has %" PRIu32
                        " there: set CUDA_DEVICE_MAX_CONNECTIONS to %" PRIu32
                        " before its first use",
                        sharing, r, own->queues, own->most_queues);
    return swl_fail(ncclInvalidUsage,
                    "%" PRIu32 " ranks of a process share the device of rank %" PRIu32
                    " and need a queue of work each, it has %" PRIu32
                    " for a process: start more processes, or use more devices",
                    sharing, r, own->most_queues);
}

/* SMs for rank r: its cap, and no more than its even part of a device that ranks of one process
 * share, since all blocks of all of them must be resident together, those of NICs too. */
static ncclResult_t sms_of(const struct swl_rank_capabilities *ranks, const struct swl_shape *s,
                           uint32_t r, uint32_t *sms_p)
{
    const struct swl_rank_capabilities *own = &ranks[r];
    const uint32_t nranks = s->nranks, nic = s->nnodes > 1 ? own->nic_blocks : 0;
    uint32_t sharing = 1, part;

    for (uint32_t i = 0; i < nranks; i++)
        sharing += i != r && ranks[i].process == own->process &&
                   memcmp(ranks[i].uuid, own->uuid, sizeof(own->uuid)) == 0;
    SWL_TRY(check_queues(own, r, sharing));
    part = own->nsms / sharing;
    *sms_p = (uint32_t)swl_min_u64(own->sm_cap, part > nic ? part - nic : 0);
    if (*sms_p == 0 && sharing == 1)
        return swl_fail(ncclInvalidUsage,
                        "the device of rank %" PRIu32 " has %" PRIu32
                        " SMs; the rank needs at least one, and %" PRIu32 " for its software NIC",
                        r, own->nsms, nic);
    if (*sms_p == 0)
        return swl_fail(ncclInvalidUsage,
                        "%" PRIu32 " ranks share the device of rank %" PRIu32 ", which has %" PRIu32
                        " SMs; each rank needs at least one, and %" PRIu32 " for its software NIC",
                        sharing, r, own->nsms, nic);
    return ncclSuccess;
}

/* Channels: the rank with the fewest SMs decides for all, since rings belong to channels. */
static ncclResult_t plan_channels(struct swl_shape *s, const struct swl_rank_capabilities *ranks,
                                  uint32_t *own_sms_p, uint32_t *least_sms_p)
{
    uint32_t channels, hint, sms = 0;

    *least_sms_p = UINT32_MAX;
    for (uint32_t r = 0; r < s->nranks; r++) {
        SWL_TRY(sms_of(ranks, s, r, &sms));
        *least_sms_p = (uint32_t)swl_min_u64(*least_sms_p, sms);
        if (r == s->rank)
            *own_sms_p = sms;
    }
    channels = *least_sms_p / 2;
    hint = swl_plan_hint(ranks, s->nranks, offsetof(struct swl_rank_capabilities, channel_hint));
    if (hint != 0 && hint < channels)
        channels = hint;
    s->nchannels = channels > 0 ? channels : 1;
    return ncclSuccess;
}

static void plan_place(struct swl_shape *s, const struct swl_topology *t, uint32_t rank)
{
    s->nranks = t->nranks;
    s->nnodes = t->nnodes;
    s->max_local = t->max_local;
    s->max_served = t->max_served;
    s->rank = rank;
    s->node = t->rank_node[rank];
    s->local = t->rank_local[rank];
    s->nlocal = swl_topology_nlocal(t, s->node);
    s->nserved = swl_topology_served(t, rank, NULL);
}

static ncclResult_t plan_route(struct swl_plan *plan, uint32_t sms, uint32_t cap,
                               uint64_t shared_bytes)
{
    const struct swl_shape *s = &plan->shape;
    const uint64_t chunk_bytes = 4ull * swl_route_bins(s);
    struct swl_plan_kernel *route = &plan->route;
    uint32_t warps = SWL_ROUTE_WARPS;

    /* a warp takes its tokens one after the other: as many warps as a full batch keeps busy */
    if (cap == 0)
        cap = (uint32_t)swl_max_u64(SWL_ROUTE_BLOCKS,
                                    s->max_tokens / (SWL_ROUTE_WARPS * SWL_ROUTE_TOKENS));
    route->blocks = swl_clamp_u32(cap, 1, sms);
    while (warps > 1 && (uint64_t)route->blocks * warps * chunk_bytes > SWL_ROUTE_SCRATCH_BYTES)
        warps /= 2;
    route->threads = 32 * warps;
    route->shared_bytes =
        swl_block_of(&(struct swl_block_shape){.nwarps = warps, .nrings = 1}).bytes;
    if (route->shared_bytes > shared_bytes)
        return swl_fail(ncclInvalidUsage,
                        "the route kernel needs %" PRIu64 " bytes of shared memory, the smallest "
                        "device has %" PRIu64,
                        route->shared_bytes, shared_bytes);
    plan->shared_bytes[SWL_K_route] = route->shared_bytes;
    return ncclSuccess;
}

static void plan_shape(struct swl_shape *s, const struct swl_plan_config *config)
{
    s->nexperts = config->nexperts;
    s->nlocal_experts = (uint32_t)swl_div_up(config->nexperts, s->nranks);
    s->max_tokens = config->max_tokens;
    s->max_topk = config->max_topk;
    s->max_rows = config->recv_rows;
    s->row_bytes = config->max_token_bytes;
    s->wire_fp32 = config->wire_fp32;
    s->start_low = config->start_low;
}

ncclResult_t swl_plan_make(struct swl_plan *plan, const struct swl_plan_config *config,
                           const struct swl_topology *topology,
                           const struct swl_rank_capabilities *ranks, uint32_t rank)
{
    struct swl_plan p;
    struct swl_shape *s = &p.shape;
    uint64_t shared = UINT64_MAX;
    uint32_t sms = 0, least_sms;

    memset(&p, 0, sizeof(p));
    plan_place(s, topology, rank);
    plan_shape(s, config);
    SWL_TRY(plan_channels(s, ranks, &sms, &least_sms));
    SWL_TRY(swl_plan_ht_shape(&p, config, ranks, least_sms));
    p.at = swl_window_of(s);
    for (uint32_t r = 0; r < s->nranks; r++)
        shared = swl_min_u64(shared, ranks[r].shared_bytes);
    SWL_TRY(plan_route(&p, sms, ranks[rank].route_cap, shared));
    SWL_TRY(swl_plan_ht_kernels(&p, swl_plan_halves(s, sms), shared));
    p.nsms = (uint32_t)swl_max_u64(p.ht.dispatch.blocks, p.route.blocks);
    p.nic_blocks = s->nnodes > 1 ? ranks[rank].nic_blocks : 0;
    *plan = p;
    return ncclSuccess;
}

uint64_t swl_plan_fingerprint(const struct swl_plan *plan, const struct swl_topology *topology,
                              uint32_t layout)
{
    const struct swl_shape *s = &plan->shape;
    const uint32_t fields[] = {
        SWL_HANDLE_FORMAT, layout,       s->nranks,         s->nnodes,     s->max_local,
        s->max_served,     s->nexperts,  s->nlocal_experts, s->max_tokens, s->max_rows,
        s->nrings,         s->nchannels, s->rank,           s->node,       s->local,
    };
    uint64_t hash = swl_hash(SWL_HASH_START, fields, sizeof(fields));

    return swl_hash(hash, topology->rank_node, topology->nranks * sizeof(uint32_t));
}
