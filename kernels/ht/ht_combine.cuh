/* ht_combine.cuh: what the warp roles of the combine kernel share. Layer: kernels. */
#pragma once

#include "kernels/common/coordinator.cuh"
#include "kernels/ht/gather.cuh"

struct combine_block { /* equal in all threads, but for `waiter` */
    const struct swl_combine_args *a;
    const struct swl_device_group *g;
    struct block_common *common;
    struct waiter waiter; /* of this warp */
    struct handle_view h;
    struct swl_combine_block shared;
    struct ring_words rings; /* of the channel */
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
