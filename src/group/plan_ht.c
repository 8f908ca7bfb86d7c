/* plan_ht.c: rings, roles and shared memory of the high-throughput kernels. Layer: src/group; owns
 * no memory. */
#include "src/group/plan_ht.h"

#include "kernels/common/block.h"
#include "src/base/error.h"
#include "src/base/util.h"

#include <inttypes.h>
#include <string.h>

/* Warps per channel on its {odd, even} block. The odd block faces the network as a source, the even
 * one as a gateway; both take a share of the work inside the node. */
static const struct swl_roles dispatch_nodes = {
    .count = {[SWL_D_SEND] = {4, 0},
              [SWL_D_SEND_COORD] = {1, 0},
              [SWL_D_FORWARD] = {0, 5},
              [SWL_D_FORWARD_COORD] = {0, 1},
              [SWL_D_WRITE] = {3, 2},
              [SWL_D_RECEIVE] = {4, 4}},
};
static const struct swl_roles dispatch_node = {
    .count = {[SWL_D_WRITE] = {8, 8}, [SWL_D_RECEIVE] = {4, 4}},
};
static const struct swl_roles combine_nodes = {
    .count = {[SWL_C_REQUEST] = {3, 0},
              [SWL_C_SOURCE_COORD] = {1, 0},
              [SWL_C_SUM] = {6, 3},
              [SWL_C_GATEWAY] = {0, 6},
              [SWL_C_GATEWAY_COORD] = {0, 1},
              [SWL_C_SERVE] = {2, 2}},
};
static const struct swl_roles combine_node = {
    .count = {[SWL_C_SUM] = {14, 14}, [SWL_C_SERVE] = {2, 2}},
};

/* The same with fewer warps, where both halves share a block: the registers of an SM bound its
 * threads. */
static const struct swl_roles dispatch_nodes_narrow = {
    .count = {[SWL_D_SEND] = {2, 0},
              [SWL_D_SEND_COORD] = {1, 0},
              [SWL_D_FORWARD] = {0, 3},
              [SWL_D_FORWARD_COORD] = {0, 1},
              [SWL_D_WRITE] = {2, 2},
              [SWL_D_RECEIVE] = {2, 3}},
};
static const struct swl_roles dispatch_node_narrow = {
    .count = {[SWL_D_WRITE] = {5, 5}, [SWL_D_RECEIVE] = {3, 3}},
};
static const struct swl_roles combine_nodes_narrow = {
    .count = {[SWL_C_REQUEST] = {1, 0},
              [SWL_C_SOURCE_COORD] = {1, 0},
              [SWL_C_SUM] = {3, 3},
              [SWL_C_GATEWAY] = {0, 3},
              [SWL_C_GATEWAY_COORD] = {0, 1},
              [SWL_C_SERVE] = {2, 2}},
};
static const struct swl_roles combine_node_narrow = {
    .count = {[SWL_C_SUM] = {6, 6}, [SWL_C_SERVE] = {2, 2}},
};

#define SWL_DIRECT_WRITERS 6u

static uint32_t warps_of(const struct swl_roles *roles, uint32_t role)
{
    return (uint32_t)roles->count[role][0] + roles->count[role][1];
}

/* Warps of a block: those of the fuller half, or of both halves if they share the block. */
static uint32_t block_warps(const struct swl_roles *roles)
{
    uint32_t odd = 0, even = 0;

    for (uint32_t r = 0; r < SWL_ROLES; r++) {
        odd += roles->count[r][0];
        even += roles->count[r][1];
    }
    if (roles->halves == 1)
        return odd + even;
    return odd > even ? odd : even;
}

/* Roles whose block fits the registers of every device, also where some rank's SMs make both halves
 * share a block (halves 1). The choice is the same on all ranks, since warps own rings. */
static ncclResult_t choose_roles(struct swl_roles *roles_p, const struct swl_roles *wide,
                                 const struct swl_roles *narrow, uint32_t halves,
                                 uint32_t most_threads)
{
    *roles_p = *wide;
    roles_p->halves = (uint8_t)halves;
    if (32 * block_warps(roles_p) <= most_threads)
        return ncclSuccess;
    *roles_p = *narrow;
    roles_p->halves = (uint8_t)halves;
    if (32 * block_warps(roles_p) <= most_threads)
        return ncclSuccess;
    return swl_fail(ncclInvalidUsage,
                    "a block of %" PRIu32 " threads needs more registers than the smallest device "
                    "has for it: %" PRIu32 " threads fit",
                    32 * block_warps(roles_p), most_threads);
}

/* Largest power of two that is not above `value` (at least 1). */
static uint32_t floor_pow2(uint32_t value)
{
    uint32_t power = 1;

    while (power <= value / 2)
        power *= 2;
    return power;
}

uint32_t swl_plan_hint(const struct swl_rank_capabilities *ranks, uint32_t nranks, size_t offset)
{
    uint32_t least = 0;

    for (uint32_t r = 0; r < nranks; r++) {
        uint32_t hint;

        memcpy(&hint, (const char *)&ranks[r] + offset, sizeof(hint));
        if (hint != 0 && (least == 0 || hint < least))
            least = hint;
    }
    return least;
}

uint32_t swl_plan_halves(const struct swl_shape *s, uint32_t sms)
{
    return sms >= 2 * s->nchannels ? 2 : 1;
}

/* Rings of a source toward one node. Other nodes, or other sources of the other node, have rings of
 * their own; where there are none a channel has two, since the slots of one are too few for what is
 * under way. */
static void plan_ring_count(struct swl_shape *s, const struct swl_rank_capabilities *ranks)
{
    const uint32_t hint =
        swl_plan_hint(ranks, s->nranks, offsetof(struct swl_rank_capabilities, qp_hint));

    s->nrings = 1;
    if (s->nnodes == 2 && s->max_served == 1)
        s->nrings = 2 * s->nchannels;
    else if (s->nnodes > 1)
        s->nrings = swl_clamp_u32(8ull * s->nchannels / s->nnodes, 1, s->nchannels);
    if (hint != 0 && hint < s->nrings)
        s->nrings = hint;
}

/* Slots of network rings and chunks, powers of two. A slot is free again two trips and several
 * queues after it was sent, so that a few nodes need 64 to keep the wire busy; many nodes have many
 * rings. */
static void plan_rings(struct swl_shape *s, uint32_t chunk_hint)
{
    s->ring_slots = s->nnodes > 16 ? 16 : s->nnodes > 4 ? 32 : 64;
    s->chunk_slots = 8;
    if (chunk_hint != 0) {
        s->chunk_slots = SWL_RING_SLOTS_MAX / 2;
        if (chunk_hint < s->chunk_slots)
            s->chunk_slots = floor_pow2(chunk_hint);
        if (s->ring_slots < 2 * s->chunk_slots)
            s->ring_slots = 2 * s->chunk_slots;
    }
    while (s->ring_slots > 4 &&
           (uint64_t)s->ring_slots * swl_slot_bytes(s) > SWL_NETWORK_RING_BYTES)
        s->ring_slots /= 2;
    if (s->chunk_slots > s->ring_slots / 2)
        s->chunk_slots = s->ring_slots / 2;
    s->fetch_slots = s->max_local > 16 ? 2 : 4;
}

/* Local rings: the more slots, the longer a writer runs before it needs credit; two are least. */
static void plan_local_rings(struct swl_shape *s)
{
    const uint64_t rings = (uint64_t)s->max_local * s->nwriters, slot = swl_local_slot_bytes(s);

    s->local_slots = s->max_local > 16 ? 4 : s->nnodes > 1 ? 8 : 16;
    while (s->local_slots > 8 && rings * s->local_slots * slot > SWL_LOCAL_RINGS_AIM)
        s->local_slots /= 2;
    while (s->local_slots > 2 && s->local_slots * slot > SWL_LOCAL_RING_AIM)
        s->local_slots /= 2;
}

/* Tests run rings out on purpose. */
static void plan_sizes(struct swl_shape *s, const struct swl_ring_sizes *sizes)
{
    s->record_slots = SWL_RECORD_SLOTS_MAX;
    if (sizes->slots == 0)
        return;
    s->ring_slots = sizes->slots;
    s->chunk_slots = sizes->chunk;
    s->fetch_slots = sizes->landing;
    s->local_slots = s->record_slots = sizes->link;
}

/* Threads and shared memory of dispatch or combine; some rank's device may be the smaller one, so
 * that all ranks refuse together. */
static ncclResult_t plan_shared(const struct swl_plan_kernel *kernel, const struct swl_plan *plan,
                                uint64_t shared_bytes)
{
    if (kernel->piece_bytes == 0 || kernel->shared_bytes > shared_bytes)
        return swl_fail(ncclInvalidUsage,
                        "a block of %" PRIu32 " warps and %" PRIu32
                        " rings needs more than the %" PRIu64
                        " bytes of shared memory that the smallest device has",
                        kernel->threads / 32, plan->ht.rings_per_block, shared_bytes);
    return ncclSuccess;
}

/* Number of warps of a block. */
static uint32_t plan_grid(struct swl_plan_kernel *kernel, const struct swl_plan *plan,
                          const struct swl_roles *roles, uint32_t halves)
{
    kernel->roles = *roles;
    kernel->roles.halves = (uint8_t)halves;
    kernel->blocks = plan->shape.nchannels * halves;
    kernel->threads = 32 * block_warps(&kernel->roles);
    return kernel->threads / 32;
}

/* Warps of a block before those of role `role`. */
static uint32_t warps_before(const struct swl_roles *roles, uint32_t role)
{
    struct swl_roles before = *roles;

    for (uint32_t r = role; r < SWL_ROLES; r++)
        before.count[r][0] = before.count[r][1] = 0;
    return block_warps(&before);
}

/* Where receivers copy no rows: as many writers as can have four stages of half a usual row. More
 * contend for the copy engine of the SM and for the link. */
static struct swl_roles direct_roles(const struct swl_roles *roles, uint32_t nnodes)
{
    struct swl_roles r = *roles;

    for (uint32_t half = 0; nnodes == 1 && r.halves == 2 && half < 2; half++)
        r.count[SWL_D_WRITE][half] =
            (uint8_t)swl_min_u32(r.count[SWL_D_WRITE][half], SWL_DIRECT_WRITERS);
    return r;
}

/* Receivers, the last warps with a role, copy rows only if the rank's own tensor is plain. */
static ncclResult_t plan_dispatch(struct swl_plan *plan, const struct swl_roles *roles,
                                  uint32_t halves, uint64_t shared_bytes)
{
    struct swl_plan_kernel *kernel = &plan->ht.dispatch;
    const uint32_t warps = plan_grid(kernel, plan, roles, halves);

    plan->ht.dispatch_direct = direct_roles(&kernel->roles, plan->shape.nnodes);
    for (uint32_t direct = 0; direct < 2; direct++) {
        struct swl_block_shape *block = &plan->ht.dispatch_block[direct];

        *block = (struct swl_block_shape){
            .nwarps = warps,
            .nrings = plan->ht.rings_per_block,
            .nlocal_rings = plan->shape.max_local,
            .nplaces = plan->shape.nranks,
            .ncopiers = warps,
        };
        if (direct && halves == 2) /* else the roles of both halves lie mixed in one block */
            block->ncopiers = warps_before(&plan->ht.dispatch_direct, SWL_D_RECEIVE);
        swl_block_fit(block, plan->shape.row_bytes, shared_bytes);
        kernel->piece_bytes = block->nstages ? block->piece_bytes : 0;
        kernel->shared_bytes = swl_max_u64(kernel->shared_bytes, swl_block_of(block).bytes);
        SWL_TRY(plan_shared(kernel, plan, shared_bytes));
    }
    return ncclSuccess;
}

/* Most warps of a block that have role `role` with SMs per channel as in roles. */
static uint32_t block_warps_of(const struct swl_roles *roles, uint32_t role)
{
    struct swl_roles one = {.halves = roles->halves};

    memcpy(one.count[role], roles->count[role], sizeof(one.count[role]));
    return block_warps(&one);
}

/* Lists of a gatherer, a power of two: a warp lists 32 / K tokens at once; two times that where
 * they fit well. Where rows have to be asked for, no more than it has landing slots. */
static uint32_t combine_lists(const struct swl_shape *s, bool direct)
{
    const uint32_t lists = s->max_topk > 32 ? 2 : s->max_topk > 16 ? 4 : 8;

    return direct ? lists : swl_min_u32(lists, s->fetch_slots);
}

/* Where nobody needs a server they are summers. */
static void roles_without_servers(struct swl_roles *roles)
{
    for (uint32_t half = 0; half < 2; half++) {
        roles->count[SWL_C_SUM][half] =
            (uint8_t)(roles->count[SWL_C_SUM][half] + roles->count[SWL_C_SERVE][half]);
        roles->count[SWL_C_SERVE][half] = 0;
    }
}

static ncclResult_t plan_combine(struct swl_plan *plan, const struct swl_roles *roles,
                                 uint32_t halves, uint64_t shared_bytes)
{
    for (uint32_t direct = 0; direct < 2; direct++) {
        struct swl_plan_kernel *kernel = &plan->ht.combine[direct];
        struct swl_combine_shape *shared = &plan->ht.combine_shared[direct];
        struct swl_roles own = *roles;
        uint32_t warps;

        if (direct)
            roles_without_servers(&own);
        warps = plan_grid(kernel, plan, &own, halves);
        *shared = (struct swl_combine_shape){
            .nwarps = warps,
            .nrings = plan->ht.rings_per_block,
            .nlists = combine_lists(&plan->shape, direct),
            .contributions = plan->shape.max_topk,
            .nservers = block_warps_of(&kernel->roles, SWL_C_SERVE),
        };
        kernel->piece_bytes = swl_combine_fit(shared, plan->shape.row_bytes, shared_bytes)
                                  ? swl_round_up(plan->shape.row_bytes, 16)
                                  : 0;
        kernel->shared_bytes = swl_combine_block_of(shared).bytes;
        SWL_TRY(plan_shared(kernel, plan, shared_bytes));
    }
    return ncclSuccess;
}

static ncclResult_t plan_roles(const struct swl_shape *s, const struct swl_rank_capabilities *ranks,
                               uint32_t least_sms, struct swl_roles *dispatch,
                               struct swl_roles *combine)
{
    const bool nodes = s->nnodes > 1;
    const uint32_t halves = swl_plan_halves(s, least_sms);
    uint32_t threads = UINT32_MAX;

    for (uint32_t r = 0; r < s->nranks; r++)
        threads = (uint32_t)swl_min_u64(threads, ranks[r].block_threads);
    SWL_TRY(choose_roles(dispatch, nodes ? &dispatch_nodes : &dispatch_node,
                         nodes ? &dispatch_nodes_narrow : &dispatch_node_narrow, halves, threads));
    return choose_roles(combine, nodes ? &combine_nodes : &combine_node,
                        nodes ? &combine_nodes_narrow : &combine_node_narrow, halves, threads);
}

/* Rings and gatherers belong to warps. */
static void plan_owners(struct swl_shape *s, const struct swl_roles *dispatch,
                        const struct swl_roles *combine)
{
    s->nwriters =
        s->nchannels * (warps_of(dispatch, SWL_D_FORWARD) + warps_of(dispatch, SWL_D_WRITE));
    s->ngatherers =
        s->nchannels * (warps_of(combine, SWL_C_SUM) + warps_of(combine, SWL_C_GATEWAY) +
                        warps_of(combine, SWL_C_SERVE)); /* they sum where nobody needs a server */
}

ncclResult_t swl_plan_ht_shape(struct swl_plan *plan, const struct swl_plan_config *config,
                               const struct swl_rank_capabilities *ranks, uint32_t least_sms)
{
    struct swl_shape *s = &plan->shape;
    struct swl_ht_plan *ht = &plan->ht;
    uint64_t rings;

    plan_ring_count(s, ranks);
    SWL_TRY(plan_roles(s, ranks, least_sms, &ht->dispatch.roles, &ht->combine[0].roles));
    plan_rings(s,
               swl_plan_hint(ranks, s->nranks, offsetof(struct swl_rank_capabilities, chunk_hint)));
    plan_owners(s, &ht->dispatch.roles, &ht->combine[0].roles);
    plan_local_rings(s);
    plan_sizes(s, &config->ring_sizes);
    rings = swl_max_u64(swl_remote_nodes(s), s->max_served) * s->nrings;
    ht->rings_per_block = (uint32_t)swl_max_u64(1, swl_div_up(rings, s->nchannels));
    return ncclSuccess;
}

ncclResult_t swl_plan_ht_kernels(struct swl_plan *plan, uint32_t halves, uint64_t shared_bytes)
{
    const struct swl_ht_plan *ht = &plan->ht;
    const struct swl_roles dispatch = ht->dispatch.roles, combine = ht->combine[0].roles;

    SWL_TRY(plan_dispatch(plan, &dispatch, halves, shared_bytes));
    SWL_TRY(plan_combine(plan, &combine, halves, shared_bytes));
    plan->shared_bytes[SWL_K_ht_dispatch] = ht->dispatch.shared_bytes;
    plan->shared_bytes[SWL_K_ht_combine] =
        swl_max_u64(ht->combine[0].shared_bytes, ht->combine[1].shared_bytes);
    return ncclSuccess;
}
