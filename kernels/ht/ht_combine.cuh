/* ht_combine.cuh: what the warp roles of the combine kernel share. Layer: kernels. */
#pragma once

#include "kernels/common/channel.cuh"
#include "kernels/ht/gather.cuh"

/* Words of the block's rings in shared memory, [nrings] each. */
struct combine_rings {
    uint64_t *request_out;  /* source: requests written; requester -> source coordinator */
    uint64_t *request_room; /* source: [ROOM_WORDS][nrings], struct ring_room */
    uint64_t *claim;        /* gateway: first request that no gateway warp has taken */
    uint64_t *request_in;   /* gateway: requests read -> gateway coordinator */
    uint64_t *partial_out;  /* gateway: partial sums written -> gateway coordinator */
};

struct combine_block { /* equal in all threads, but for `waiter` */
    const struct swl_combine_args *a;
    const struct swl_device_group *g;
    struct block_common *common;
    struct waiter waiter; /* of this warp */
    struct handle_view h;
    struct swl_combine_block shared;
    struct combine_rings rings;
    uint32_t channel;
    uint32_t partial_bytes; /* of one partial sum of this call */
};

/* Warps that sum, of a channel and of the rank. */
SWL_DEV uint32_t channel_gatherers(const struct combine_block *b)
{
    return role_warps(&b->a->roles, SWL_C_SUM) + role_warps(&b->a->roles, SWL_C_GATEWAY);
}

SWL_DEV uint32_t rank_gatherers(const struct combine_block *b)
{
    return b->g->shape.nchannels * channel_gatherers(b);
}
