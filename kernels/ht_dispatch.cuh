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
    uint32_t near, near_end; /* of the list of the own node; not valid before handle_fits */
    uint32_t channel;
    uint32_t slot_row_at; /* of the row in a network slot */
};

#define SWL_LINKS_BARRIER 1

/* Threads that meet when the links are open: those of the block's writers and forwarders, and the last
 * warp, which waits for the entry words meanwhile. */
SWL_DEV int links_threads(const struct swl_roles *r)
{
    const uint32_t half = (uint32_t)block_id() % r->halves;
    const uint8_t *f = r->count[SWL_D_FORWARD], *w = r->count[SWL_D_WRITE];

    return 32 * (1 + (r->halves == 1 ? f[0] + w[0] + f[1] + w[1] : f[half] + w[half]));
}

/* All lanes of a writer or forwarder. False: the call was given up. */
SWL_DEV bool links_await(const struct dispatch_block *b)
{
    named_sync(SWL_LINKS_BARRIER, links_threads(&b->a->roles));
    return b->common->links_open != 0;
}

SWL_DEV struct wait_at dispatch_at(const struct dispatch_block *b, uint32_t kind, uint32_t role,
                                   uint32_t peer)
{
    const struct wait_at at = {kind, role, b->channel, peer};

    return at;
}
