/* route.cuh: what the parts of the route kernel share. Layer: kernels.
 *
 * A *chunk* of tokens is one warp's; bins are those of rows (rows.cuh) and the lists (tokens
 * per ring toward another node, and of the own node). Counting a bin over the chunks in order gives
 * every token its place among this rank's tokens for that destination, the same on every run. */
#pragma once

#include "kernels/common/channel.cuh"

struct route_block { /* equal in all threads of a warp */
    const struct swl_route_args *a;
    const struct swl_device_group *g;
    struct block_common *common;
    struct waiter waiter;
    struct swl_handle_head *head;
    uint32_t *row, *id, *at, *list, *list_start, *recv_n;
    struct warp_scratch *scratch;
    uint32_t *histogram; /* of this warp's chunk: [nbins] */
    uint32_t nbins;
    uint32_t first_token, end_token;
    uint32_t seq; /* of the mailbox; thread 0 of block 0 only */
};

SWL_DEV uint32_t block_thread()
{
    return (uint32_t)warp_id() * 32 + (uint32_t)lane_id();
}

SWL_DEV uint32_t block_threads()
{
    return (uint32_t)warp_count() * 32;
}

/* All lanes: sum of the values of this lane and those before it. */
SWL_DEV uint32_t warp_prefix(uint32_t value)
{
    for (int d = 1; d < 32; d *= 2) {
        const uint32_t before = warp_shfl_up(value, d);

        value += lane_id() >= d ? before : 0;
    }
    return value;
}

/* All threads of all blocks; `number` counts the barriers of the kernel from 1. */
SWL_DEV bool grid_sync(const struct route_block *b, uint32_t number)
{
    struct swl_state *s = b->g->state;
    const uint32_t want = number * work_blocks(b->g);

    block_sync();
    if (first_thread()) {
        const struct waiter w = wait_for(b->waiter, SWL_FAULT_GRID, b->g->shape.rank);

        add_in_gpu(&s->barrier, 1u); /* releases what the block wrote */
        while (b->common->go) {
            const uint32_t seen = read_in_gpu(&s->barrier); /* acquires what the others wrote */

            if (seen >= want)
                break;
            b->common->go = wait_again(w, want, seen, SWL_PAUSE("grid barrier", number, 0));
        }
    }
    block_sync();
    return b->common->go;
}

/* List of a token for node `node`: of this rank's lists toward other nodes, or of the own node. */
SWL_DEV uint32_t list_of(const struct swl_device_group *g, uint32_t token, uint32_t node)
{
    const uint32_t n = node < g->shape.node ? node : node - 1;

    if (node == g->shape.node)
        return side_rings(g, RINGS_OUT);
    return n * g->shape.nrings + token % g->shape.nrings;
}

/* Bin of a list. */
SWL_DEV uint32_t list_bin(const struct swl_device_group *g, uint32_t list)
{
    return swl_row_bins(&g->shape) + list;
}
