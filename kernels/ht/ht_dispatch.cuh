/* ht_dispatch.cuh: what the warp roles of the dispatch kernel share. Layer: kernels. */
#pragma once

#include "kernels/common/coordinator.cuh"
#include "kernels/ht/row_writer.cuh"

struct dispatch_block { /* equal in all threads, but for `waiter` */
    const struct swl_dispatch_args *a;
    const struct swl_device_group *g;
    struct block_common *common;
    struct waiter waiter; /* of this warp */
    struct handle_view h;
    struct swl_block shared;
    struct ring_words rings;         /* of the channel */
    uint32_t own_list, own_list_end; /* of the list of the own node; not valid before handle_fits */
    uint32_t channel;
    uint32_t slot_row_at; /* of the row in a network slot */
};

/* All lanes of a writer or forwarder: wait for local_targets_begin, which always comes to its end.
 * An mbarrier and not a named barrier, because sanitizers lose count of barriers that a part of a
 * block meets at. False: the call was given up. */
SWL_DEV bool local_targets_await(const struct dispatch_block *b)
{
    const uint64_t deadline = b->common->watch.deadline_ns + 1000000000ull;
    bool came = true;

    /* acquires local_targets_open and the targets; pairs with the arrival in local_targets_begin */
    while (came && !stage_test(&b->common->local_targets, 0)) {
        came = clock_ns() < deadline;
        if (came)
            pause_lane(SWL_PAUSE("targets opened by the block's last warp", 0, 0), deadline);
        else
            wait_fault(wait_for(b->waiter, SWL_FAULT_STAGE, SWL_NO_PEER), 1, 0, SWL_ASYNC_TIMEOUT);
    }
    return warp_all(came) && b->common->local_targets_open != 0;
}
