/* route.cu: the kernel of UpdateHandle: exact rows of every token at every destination. Layer:
 * kernels.
 *
 * All blocks count, place and finish the rows of their tokens; block 0 also talks to the other
 * ranks. Cost grows with the own tokens, the ranks and the experts. docs/protocol.md §1 has the
 * steps. */
#include "kernels/common/kernels.h"
#include "kernels/common/nic.cuh"
#include "kernels/route/route_exchange.cuh"
#include "kernels/route/route_local.cuh"
#include "kernels/route/route_result.cuh"

SWL_DEV struct route_block route_block_of(const struct swl_route_args *a)
{
    struct route_block b;
    const struct swl_device_group *g = a->group;
    const struct swl_handle_layout l = swl_handle_layout_of(&g->shape, a->topk);
    const struct swl_block_shape shape = {(uint32_t)warp_count(), 1, 0, 0, 0, 0, 0};
    const struct swl_block shared = swl_block_of(&shape);
    const uint32_t chunks = g->route_blocks * g->route_warps;
    const uint32_t chunk = (uint32_t)block_id() * g->route_warps + (uint32_t)warp_id();

    b.a = a;
    b.g = g;
    b.common = block_common_of();
    b.waiter = waiter_of(&b.common->watch, SWL_WARP_ROUTE, 0);
    b.head = (struct swl_handle_head *)(a->handle + l.head);
    b.row = (uint32_t *)(a->handle + l.row);
    b.id = (uint32_t *)(a->handle + l.id);
    b.at = (uint32_t *)(a->handle + l.at);
    b.list = (uint32_t *)(a->handle + l.list);
    b.list_start = (uint32_t *)(a->handle + l.list_start);
    b.recv_n = (uint32_t *)(a->handle + l.recv_n);
    b.scratch = warp_scratch_of(&shared);
    b.nbins = swl_route_bins(&g->shape);
    b.histogram = g->histogram + (uint64_t)chunk * b.nbins;
    b.first_token = (uint32_t)((uint64_t)a->tokens * chunk / chunks);
    b.end_token = (uint32_t)((uint64_t)a->tokens * (chunk + 1) / chunks);
    b.seq = block_id() == 0 && first_thread() ? mailbox_seq(a) : 0;
    return b;
}

/* The steps between begin and end; false = given up. Every block passes the same barriers. */
SWL_DEV bool route_steps(const struct route_block *b)
{
    bool ok = true;

    if (block_id() == 0 && first_thread())
        mailbox_open(b);
    route_count(b);
    if (!grid_sync(b, 1))
        return false;
    route_scan(b);
    if (!grid_sync(b, 2))
        return false;
    if (block_id() == 0) {
        send_counts(b);
        if (first_thread())
            route_list_starts(b);
    }
    if (!grid_sync(b, 3))
        return false;
    route_place(b);
    if (block_id() == 0)
        ok = route_exchange(b);
    if (!ok || !grid_sync(b, 4))
        return false;
    route_rows(b);
    if (!grid_sync(b, 5))
        return false;
    return block_id() == 0 ? route_result(b) : true;
}

SWL_KERNEL void swl_route_kernel(struct swl_route_args args)
{
    if (nic_role(args.group, SWL_OP_UPDATE, args.nic_blocks))
        return;

    const struct route_block b = route_block_of(&args);
    const uint32_t nselected = b.g->shape.nranks * b.g->shape.nlocal_experts;

    if (first_thread()) {
        b.common->step_failed = 0; /* set when a step of block 0 fails */
        /* a failed update leaves no valid handle, also if block 0 alone has given it up */
        if (block_id() == 0)
            b.head->complete = 0;
    }
    if (call_begin(b.g, SWL_OP_UPDATE))
        route_steps(&b);
    if (call_end(b.g)) /* counters of the next update start at zero */
        for (uint32_t i = block_thread(); i < nselected; i += block_threads())
            b.g->selected[i] = b.g->overflow_count[i] = 0;
}

SWL_KERNEL_DESC(swl_route, swl_route_kernel, struct swl_route_args)
