/* nic.cuh: blocks at the end of a grid that run the rank's software NIC. Layer: kernels.
 *
 * With no such NIC nic_blocks is 0 and no block takes this path. The blocks neither begin nor end
 * the call: they serve also the recovery, and end last, when everybody else has and nothing is left
 * to send. */
#pragma once

#include "kernels/common/call.cuh"
#include "transport/soft/blocks.cuh"

static_assert(NIC_ROOM_BYTES <= SWL_SCRATCH_BYTES, "every warp has scratch, teams have more warps");

/* All threads of a block. True: it was one of the NIC's and its work is over. `blocks`: of the NIC,
 * which the other blocks learn without a look at the group. */
SWL_DEV bool nic_role(const struct swl_device_group *g, uint32_t op, uint32_t blocks)
{
    const uint32_t block = (uint32_t)block_id() - ((uint32_t)block_count() - blocks);
    struct block_common *c = block_common_of();
    struct swl_state *s;

    if (block >= blocks) /* wraps for the others */
        return false;
    s = g->state;
    if (first_thread())
        watch_fill(&c->watch, g, op);
    block_sync();
    nic_serve(g->net.nic, {block, blocks, &c->watch, &s->nic_closing, &s->gen},
              {(char *)block_shared() + SWL_COMMON_BYTES, block_shared_bytes() - SWL_COMMON_BYTES});
    block_sync();
    /* the last one: the words are zero again for the next kernel */
    if (first_thread() && add_in_gpu(&s->nic_ticket, 1u) == blocks - 1)
        s->nic_closing = s->nic_ticket = 0;
    return true;
}
