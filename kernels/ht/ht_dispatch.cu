/* ht_dispatch.cu: the dispatch kernel, high throughput, layout FLAT. Layer: kernels.
 *
 * Role map of a channel (counts in struct swl_roles, numbers = enum swl_dispatch_role):
 *   odd SM   SEND, SEND_COORD, WRITE, RECEIVE     even SM   FORWARD, FORWARD_COORD, WRITE, RECEIVE
 * With one node only WRITE and RECEIVE exist. kernels/README.md has the table of roles. */
#include "kernels/common/kernels.h"
#include "kernels/common/nic.cuh"
#include "kernels/ht/ht_dispatch.cuh"
#include "kernels/ht/ht_dispatch_forward.cuh"
#include "kernels/ht/ht_dispatch_receive.cuh"
#include "kernels/ht/ht_dispatch_send.cuh"
#include "kernels/ht/ht_dispatch_write.cuh"

/* All threads: the group's description into the block, where acquires do not push it out of a
 * cache. */
SWL_DEV const struct swl_device_group *group_into_block(const struct swl_dispatch_args *a)
{
    const uint64_t *from = (const uint64_t *)a->group;
    uint64_t *to = (uint64_t *)((char *)block_shared() + a->shared.group);

    for (uint32_t i = (uint32_t)(warp_id() * 32 + lane_id()); i < sizeof(*a->group) / 8;
         i += (uint32_t)warp_count() * 32)
        to[i] = from[i];
    block_sync();
    return (const struct swl_device_group *)to;
}

SWL_DEV struct dispatch_block dispatch_block_of(const struct swl_dispatch_args *a,
                                                const struct swl_device_group *g,
                                                const struct warp_job *job)
{
    struct dispatch_block b;
    char *shared = (char *)block_shared();
    const uint32_t list = side_rings(g, RINGS_OUT); /* that of the own node */

    b.a = a;
    b.g = g;
    b.common = block_common_of();
    b.h = handle_view_at(b.g, a->handle, &a->at, a->topk);
    b.shared = a->shared;
    b.own_list = b.h.list_start[list]; /* passes while the call begins */
    b.own_list_end = b.h.list_start[list + 1];
    b.h.place = (const uint32_t *)(shared + b.shared.places);
    b.rings = ring_words_of((uint64_t *)(shared + b.shared.out_words),
                            (uint64_t *)(shared + b.shared.in_words), a->block.nrings);
    b.channel = job->channel;
    b.waiter = waiter_of(&b.common->watch, SWL_WARP_SENDER + job->role, job->channel);
    b.slot_row_at = swl_slot_row_at(a->topk);
    return b;
}

/* A warp, before call_begin: places of the ranks. */
SWL_DEV void places_begin(const struct dispatch_block *b)
{
    uint32_t *place = (uint32_t *)((char *)block_shared() + b->shared.places);

    for (uint32_t r = lane_id(); r < b->g->shape.nranks; r += 32)
        place[r] = b->g->rank_location[r];
}

SWL_DEV struct row_writer row_writer_of(const struct dispatch_block *b, const struct warp_job *job,
                                        struct copier *copier, struct warp_scratch *list)
{
    const struct swl_roles *roles = &b->a->roles;
    const uint32_t nforward = role_warps(roles, SWL_D_FORWARD);
    const bool forwards = job->role == SWL_D_FORWARD;
    struct row_writer rw;

    rw.g = b->g;
    rw.copier = copier;
    rw.list = list;
    rw.local = local_rings_of(&b->shared, b->g->shape.max_local);
    rw.target = local_targets_of(&b->shared);
    rw.own_rows = b->a->out_tokens;
    rw.gen_call = b->common->gen_call;
    /* receivers share the rings out by this number: those of one kind of writer lie side by side */
    rw.q = (forwards ? job->index : nforward + job->index) * b->g->shape.nchannels + job->channel;
    rw.row_bytes = b->a->row_bytes;
    rw.row_at = swl_local_row_at(b->a->topk);
    rw.publish_every = rw.unmarked = rw.marked = rw.mark_piece = 0; /* row_write_begin */
    rw.waiter = b->waiter;
    return rw;
}

/* The last warp, a receiver: the peers hear that this rank's tensor is open (block 0), and the
 * writers of the block when those of the peers are. */
SWL_DEV void local_targets_begin(const struct dispatch_block *b)
{
    bool ok;

    if (block_id() == 0)
        open_record_post(b->g, &b->a->entry, b->common->gen, b->common->call);
    ok = await_open_records(b->g, waiter_of(&b->common->watch, SWL_WARP_WRITER, b->channel));
    if (ok)
        local_targets_fill(b->g, &b->common->watch, b->a->out_tokens, local_targets_of(&b->shared));
    if (lane_id() == 0)
        b->common->local_targets_open = ok;
    /* each lane releases what it wrote; pairs with local_targets_await */
    stage_arrive(&b->common->local_targets);
}

/* All threads. A handle that does not fit fails the call, on all ranks. */
SWL_DEV bool dispatch_fits(const struct dispatch_block *b, bool fits)
{
    if (!fits && first_thread())
        handle_refuse(b->g, &b->h, b->a->ntokens, &b->common->watch);
    return fits;
}

/* cursor: of a writer. */
SWL_DEV void dispatch_role(const struct dispatch_block *b, const struct warp_job *job,
                           struct copier *copier, struct warp_scratch *list,
                           struct token_cursor *cursor)
{
    const struct swl_roles *roles = &b->a->roles;
    struct row_writer rw = row_writer_of(b, job, copier, list);

    switch (job->role) {
    case SWL_D_SEND:
        ht_dispatch_send(b, job->index, copier, list);
        break;
    case SWL_D_SEND_COORD:
        if (lane_id() == 0)
            ht_dispatch_send_coord(b);
        break;
    case SWL_D_FORWARD:
        ht_dispatch_forward(b, &rw, job->index);
        break;
    case SWL_D_FORWARD_COORD:
        if (lane_id() == 0)
            ht_dispatch_forward_coord(b);
        break;
    case SWL_D_WRITE:
        ht_dispatch_write(b, &rw, cursor);
        break;
    case SWL_D_RECEIVE:
        ht_dispatch_receive(b, copier, job->index, role_warps(roles, SWL_D_RECEIVE));
        break;
    default:
        break;
    }
}

SWL_KERNEL void swl_ht_dispatch_kernel(struct swl_dispatch_args args)
{
    if (nic_role(args.group, SWL_OP_DISPATCH, args.nic_blocks))
        return;

    const struct warp_job job = warp_job_of(&args.roles);
    const struct dispatch_block b = dispatch_block_of(&args, group_into_block(&args), &job);
    const bool fits = handle_fits(&b.h, args.fingerprint, args.ntokens);
    struct token_cursor cursor = {};
    struct copier copier;

    copier_init(&copier, &b.shared, &args.block);
    if (warp_id() == warp_count() - 2) { /* the last one begins the call */
        if (lane_id() == 0) {            /* before a block_sync that all users pass */
            stage_init(&b.common->local_targets, 32);
            stage_init_done();
        }
        places_begin(&b);
    }
    if (job.role == SWL_D_WRITE)
        cursor = token_cursor_of(&b, job.index, role_warps(&args.roles, SWL_D_WRITE), fits);
    if (call_begin(b.g, SWL_OP_DISPATCH) && dispatch_fits(&b, fits)) {
        if (b.g->shape.nnodes > 1) {
            if (warp_id() == 0)
                ring_words_begin(b.rings, b.g, &b.h, b.channel, b.g->ht.now.sent, b.g->ht.now.recv);
            block_sync();
        }
        if (last_warp())
            local_targets_begin(&b);
        dispatch_role(&b, &job, &copier, warp_scratch_of(&b.shared), &cursor);
        /* no load or store may outlive the block's shared memory */
        copier_drain(&copier, waiter_of(&b.common->watch, SWL_WARP_EPILOGUE, b.channel));
        bulk_wait<0>();
    }
    call_end(b.g);
}

SWL_KERNEL_DESC(swl_ht_dispatch, swl_ht_dispatch_kernel, struct swl_dispatch_args)
