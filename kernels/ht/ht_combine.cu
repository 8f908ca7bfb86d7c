/* ht_combine.cu: the combine kernel, high throughput, layout FLAT, forward. Layer: kernels.
 *
 * Role map of a channel (counts in struct swl_roles, numbers = enum swl_combine_role):
 *   odd SM   REQUEST, SOURCE_COORD, SUM, SERVE        even SM   SUM, GATEWAY, GATEWAY_COORD, SERVE
 * With one node only SUM and SERVE exist. kernels/README.md has the table of roles. */
#include "kernels/common/kernels.h"
#include "kernels/common/nic.cuh"
#include "kernels/ht/ht_combine.cuh"
#include "kernels/ht/ht_combine_gateway.cuh"
#include "kernels/ht/ht_combine_serve.cuh"
#include "kernels/ht/ht_combine_source.cuh"

SWL_DEV struct combine_block combine_block_of(const struct swl_combine_args *a,
                                              const struct warp_job *job)
{
    struct combine_block b;
    char *shared = (char *)block_shared();

    b.a = a;
    b.g = a->group;
    b.common = block_common_of();
    b.h = handle_view_of(b.g, a->handle, a->topk);
    b.shared = swl_combine_block_of(&a->shared);
    b.rings = ring_words_of((uint64_t *)(shared + b.shared.out_words),
                            (uint64_t *)(shared + b.shared.in_words), a->shared.nrings);
    b.channel = job->channel;
    b.waiter = waiter_of(&b.common->watch, SWL_WARP_REQUESTER + job->role, job->channel);
    b.partial_bytes = a->row_bytes * (b.g->shape.wire_fp32 && a->dtype != SWL_FP32 ? 2 : 1);
    return b;
}

/* What a summer or gateway warp starts from; `number` among the gatherers of its channel. */
SWL_DEV struct gather_pipe gather_pipe_of(const struct combine_block *b,
                                          struct warp_scratch *scratch, uint32_t number)
{
    const struct swl_combine_shape *s = &b->a->shared;
    struct gather_pipe p = {};

    p.ga.g = b->g;
    p.ga.scratch = scratch;
    p.ga.tokens = b->a->tokens;
    p.ga.gen_call = b->common->gen_call;
    p.ga.number = b->channel + number * b->g->shape.nchannels;
    p.ga.row_bytes = b->a->row_bytes;
    p.ga.dtype = b->a->dtype;
    p.ga.waiter = b->waiter;
    p.vectors = b->a->row_bytes / sizeof(struct vec16);
    p.lists = (char *)scratch + SWL_KEY_BYTES;
    p.list_bytes = swl_list_bytes(s->contributions);
    p.nlists = s->nlists;
    return p;
}

SWL_DEV void combine_role(const struct combine_block *b, const struct warp_job *job,
                          const struct serve_stages *stages, struct warp_scratch *scratch)
{
    const struct swl_roles *roles = &b->a->roles;
    const uint32_t nsum = role_warps(roles, SWL_C_SUM);
    struct gather_pipe pipe;

    switch (job->role) {
    case SWL_C_REQUEST:
        ht_combine_request(b, job->index, scratch);
        break;
    case SWL_C_SOURCE_COORD:
        if (lane_id() == 0)
            ht_combine_source_coord(b);
        break;
    case SWL_C_SUM:
        pipe = gather_pipe_of(b, scratch, job->index);
        ht_combine_sum(b, &pipe, job->index, nsum);
        break;
    case SWL_C_GATEWAY:
        pipe = gather_pipe_of(b, scratch, nsum + job->index);
        ht_combine_gateway(b, &pipe, job->index);
        break;
    case SWL_C_GATEWAY_COORD:
        if (lane_id() == 0)
            ht_combine_gateway_coord(b);
        break;
    case SWL_C_SERVE:
        ht_combine_serve(b, stages, scratch, job->index, role_warps(roles, SWL_C_SERVE));
        break;
    default:
        break;
    }
}

SWL_KERNEL void swl_ht_combine_kernel(struct swl_combine_args args)
{
    if (nic_role(args.group, SWL_OP_COMBINE, args.nic_blocks))
        return;

    const struct warp_job job = warp_job_of(&args.roles);
    const struct combine_block b = combine_block_of(&args, &job);
    const struct serve_stages stages = serve_stages_of(&b, &job);

    if (call_begin(b.g, SWL_OP_COMBINE)) {
        if (block_id() == 0 && warp_id() == 0)
            open_record_post(b.g, &args.entry, b.common->gen, b.common->call);
        if (warp_id() == 0)
            ring_words_begin(b.rings, b.g, &b.h, b.channel, b.g->ht.now.request_sent,
                             b.g->ht.now.request_recv);
        if (last_warp() && lane_id() == 0) { /* while warp 0 tells the peers */
            if (!handle_check(b.g, &b.h, args.fingerprint, args.ntokens, &b.common->watch))
                b.common->go = 0;
            else if (block_id() == 0 && b.h.head->recv_rows > args.in_rows)
                /* the gatherers of the missing rows flag them too, each at its own rank */
                or_in_gpu(&b.g->state->async_bits, SWL_ASYNC_OVERFLOW);
        }
        block_sync();
        if (b.common->go) {
            combine_role(
                &b, &job, &stages,
                warp_scratch_at(b.shared.scratch, swl_combine_scratch_bytes(&args.shared)));
            if (args.entry.direct && block_id() == 0 && warp_id() == 0)
                await_exits(&b);
        }
        bulk_wait<0>(); /* no store may outlive the block's shared memory */
    }
    call_end(b.g);
}

SWL_KERNEL_DESC(swl_ht_combine, swl_ht_combine_kernel, struct swl_combine_args)
