/* ht_dispatch.cuh: what the warp roles of the dispatch kernel share. Layer: kernels. */
#pragma once

#include "kernels/channel.cuh"
#include "kernels/row_writer.cuh"

/* Words of the block's rings in shared memory, [nrings] each. Ring r of channel c is ring
 * c + r * C of the source or gateway side. */
struct dispatch_rings {
    uint64_t *out_window; /* source: slots filled; senders -> send coordinator */
    uint64_t *in_claim;   /* gateway: first slot that no forwarder has taken */
    uint64_t *in_window;  /* gateway: slots read; forwarders -> forward coordinator */
};

struct dispatch_block { /* equal in all threads */
    const struct swl_dispatch_args *a;
    const struct swl_device_group *g;
    struct block_common *common;
    struct handle_view h;
    struct swl_block shared;
    struct dispatch_rings rings;
    uint32_t channel;
    uint32_t slot_row_at; /* of the row in a network slot */
};

SWL_DEV struct wait_at dispatch_at(const struct dispatch_block *b, uint32_t kind, uint32_t role,
                                   uint32_t peer)
{
    const struct wait_at at = {kind, role, b->channel, peer};

    return at;
}
