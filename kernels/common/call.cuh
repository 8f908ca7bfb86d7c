/* call.cuh: begin and end of every kernel of a group. Layer: kernels.
 *
 * Begin: fill the block's watch, recover after a failure if the host cleared one, refuse to start
 * when the group is poisoned. End: the last block to finish tells hosts and other nodes if this
 * rank gave up, advances the state for the next kernel, and publishes error bits to the host. Every
 * block runs begin and end exactly once, whatever happens between. */
#pragma once

#include "kernels/common/args.h"
#include "kernels/common/block.h"
#include "kernels/common/connection.cuh"
#include "kernels/common/resync.cuh"
#include "kernels/device/wait.cuh"

struct block_common { /* at offset 0 of shared memory; written by one thread at a time */
    struct swl_watch watch;
    uint64_t gen, call; /* of this kernel: call, or route epoch */
    uint64_t gen_call;  /* what slots and records carry */
    uint32_t go;        /* roles run */
    uint32_t recover;
    uint32_t last;        /* this block ends the kernel */
    uint32_t given_up;    /* the last block's answer */
    uint32_t step_failed; /* update: a step of this block has failed; counts in block 0 */
    /* dispatch, once `local_targets` says: writers may write to ranks of the node */
    uint32_t local_targets_open;
    mbarrier local_targets; /* dispatch: the last warp has opened them, or cannot */
};
static_assert(sizeof(struct block_common) <= SWL_COMMON_BYTES, "shared memory picture of block.h");

SWL_DEV struct block_common *block_common_of()
{
    return (struct block_common *)block_shared();
}

SWL_DEV bool first_thread()
{
    return warp_id() == 0 && lane_id() == 0;
}

/* Begins the call, as the first warps have roles that begin beside it. */
SWL_DEV bool last_warp()
{
    return warp_id() == warp_count() - 1;
}

/* Blocks of the grid that do the kernel's own work; the software NIC's come behind them. */
SWL_DEV uint32_t work_blocks(const struct swl_device_group *g)
{
    return (uint32_t)block_count() - g->net.nic_blocks;
}

SWL_DEV void watch_fill(struct swl_watch *w, const struct swl_device_group *g, uint32_t op)
{
    w->poison = own_word(g, g->at.poison, 0);
    w->gen = ~0ull >> 16; /* nothing poisons until the generation is known */
    w->host_stop = g->host_stop;
    w->claimed = &g->state->claimed;
    w->async_bits = &g->state->async_bits;
    w->record = g->record;
    w->peer_window = g->peer_window;
    w->poison_at = g->at.poison;
    w->entry = own_word(g, g->at.entry, 0);
    w->local_rank = g->local_rank;
    w->started_ns = clock_ns();
    w->deadline_ns = w->started_ns + g->timeout_ns;
    w->call = 0;
    w->nlocal = g->shape.nlocal;
    w->op = op;
    w->rank = g->shape.rank;
}

SWL_DEV void call_number(struct block_common *c, uint64_t gen, uint64_t call)
{
    c->gen = gen;
    c->call = call;
    c->gen_call = gen_word(gen, call);
    c->watch.gen = gen;
    c->watch.call = call;
}

/* Generation and number of this call, once the state is settled. */
SWL_DEV void call_settled(struct block_common *c, const struct swl_device_group *g)
{
    const struct swl_state *s = g->state;

    call_number(c, s->gen, c->watch.op == SWL_OP_UPDATE ? s->epoch : s->call);
}

/* Blocks other than 0 wait until block 0 has brought the rings back in step. */
SWL_DEV bool await_resynced(const struct swl_device_group *g, struct swl_watch *w)
{
    const struct waiter waiter = wait_for(waiter_of(w, SWL_WARP_PROLOGUE, (uint32_t)block_id()),
                                          SWL_FAULT_RESYNC, g->shape.rank);
    const uint64_t want = g->state->clears;
    /* Block 0 decides on the generation, and always answers. Poison of older generations may still
     * be on its way here and overwrite the word; it must not end this wait. */
    w->gen = newest_given_up(g->state, w, read_in_gpu(&g->state->gen)) + 1;
    for (;;) {
        const uint64_t seen = read_in_gpu(&g->state->resynced); /* pairs with block 0's publish */

        if ((seen & ~SWL_RESYNC_FAILED) == want)
            return !(seen & SWL_RESYNC_FAILED);
        if (!wait_again(waiter, want, seen, SWL_PAUSE("recovery by block 0", 0, 0)))
            return false;
    }
}

/* Refused: a late word of a peer may overwrite the poison before the last block looks at it, hence
 * a bit. */
SWL_DEV bool call_refuse(const struct swl_watch *w)
{
    or_in_gpu(w->async_bits, SWL_ASYNC_TIMEOUT); /* pairs with the look in call_end */
    return false;
}

/* All threads of the block. False: the group is poisoned or could not recover; run no role. */
SWL_DEV bool call_begin(const struct swl_device_group *g, uint32_t op)
{
    struct block_common *c = block_common_of();
    bool go;

    if (last_warp() && lane_id() == 0) { /* all loads are under way together */
        const struct swl_state *s = g->state;
        const uint64_t clears = s->clears, cleared = s->cleared;
        /* block 0 may be recovering: then these are not used */
        const uint64_t gen = load_relaxed_in_gpu(&s->gen);
        const uint64_t epoch = load_relaxed_in_gpu(&s->epoch), call = load_relaxed_in_gpu(&s->call);
        bool given_up;

        watch_fill(&c->watch, g, op);
        given_up = watch_given_up_in(&c->watch, gen);
        c->recover = clears != cleared;
        c->go = c->recover || !given_up || call_refuse(&c->watch);
        if (!c->recover)
            call_number(c, gen, op == SWL_OP_UPDATE ? epoch : call);
    }
    block_sync();
    if (c->recover) {
        if (block_id() == 0) {
            if (warp_id() == 0)
                resync(g, &c->watch);
        } else if (first_thread()) {
            c->go = await_resynced(g, &c->watch);
        }
        block_sync();
        if (first_thread() && c->go) { /* a block that gave up has not acquired the state */
            call_settled(c, g);
            if (block_id() == 0)
                c->go = !(g->state->resynced & SWL_RESYNC_FAILED);
        }
        if (first_thread() && watch_given_up(&c->watch))
            c->go = call_refuse(&c->watch);
        block_sync();
    }
    go = c->go;
    block_sync(); /* all have read it before the kernel's own checks change it */
    return go;
}

/* What a rank that gave up says: with the rank that is missing, as far as it is known. */
SWL_DEV uint64_t poison_to_tell(const struct swl_watch *w)
{
    const uint64_t seen = read_from_peer(w->poison);

    return swl_poison_gen(seen) >= w->gen ? seen
                                          : swl_poison_word(w->gen, swl_poison_missing(seen));
}

/* Poison and error word of the rank at the other end. A queue that is full or in error is skipped:
 * that peer times out itself. */
SWL_DEV void tell_other_end(const struct connection &c, uint64_t word, struct waiter w)
{
    const struct swl_rdma_remote *r = c.remote;

    if (!connection_poll(c, w))
        return;
    w.peer = c.rank;
    if (qp_write_inline(c.qp, w, &word, 8, {r->base + c.g->at.poison, r->signal_rkey}) &&
        r->error_word != 0)
        (void)qp_write_inline(c.qp, w, &word, 8, {r->error_word, r->error_word_rkey});
    qp_ring(c.qp);
}

/* A rank that gave up tells the hosts of its node, and kernels and hosts of the other nodes. All
 * other warps of the kernel have ended, so the queue pairs are this warp's alone. It stays until
 * the writes have landed, or for a short while: who knows that all ranks have ended may count on
 * their error words. */
SWL_DEV void tell_everybody(const struct swl_device_group *g, const struct swl_watch *w)
{
    const uint64_t word = poison_to_tell(w), since = clock_ns();
    const struct waiter waiter = waiter_of(w, SWL_WARP_EPILOGUE, 0);

    if (lane_id() == 0)
        publish_to_host(g->error_word, word); /* pairs with error_page.c */
    for (uint32_t x = lane_id(); x < g->net.nconnections; x += 32)
        tell_other_end(connection_at(g, x), word, waiter);
    for (uint32_t x = lane_id(); x < g->net.nconnections; x += 32) {
        const struct connection c = connection_at(g, x);

        while (connection_poll(c, waiter) && c.qp->done != c.qp->rung &&
               wait_to_tell(w, since, SWL_PAUSE("poison on its way to rank", c.rank, 0)))
            continue;
    }
    warp_sync(); /* lane 0 publishes the errors of all lanes */
}

SWL_DEV void advance_positions(const struct swl_device_group *g)
{
    const uint32_t out = side_rings(g, RINGS_OUT) * SWL_POSITION_ARRAYS_OUT;
    const uint32_t in = side_rings(g, RINGS_IN) * SWL_POSITION_ARRAYS_IN;
    const uint32_t me = warp_id() * 32 + lane_id(), all = warp_count() * 32;

    /* the arrays of a kind lie behind each other, in the order of swl_positions */
    for (uint32_t i = me; i < out; i += all)
        g->ht.now.sent[i] = g->ht.next.sent[i];
    for (uint32_t i = me; i < in; i += all)
        g->ht.now.recv[i] = g->ht.next.recv[i];
}

/* `bits`: errors that anybody has reported. */
SWL_DEV void publish_errors(const struct swl_device_group *g, const struct swl_watch *w,
                            bool given_up, uint32_t bits)
{
    struct swl_state *s = g->state;

    if (given_up) {
        const struct waiter waiter = wait_for(waiter_of(w, SWL_WARP_EPILOGUE, 0), SWL_FAULT_POISON,
                                              swl_poison_missing(read_from_peer(w->poison)));

        wait_fault(waiter, 0, 0, SWL_ASYNC_TIMEOUT); /* fills the record only if nobody has */
        bits = s->async_bits;
    }
    if (bits) {
        publish_to_host(g->host_bits, read_from_host(g->host_bits) | bits);
        publish_to_host(g->host_dropped, s->dropped);
        s->async_bits = 0;
    }
}

/* All threads of the block, after their roles. True in the block that ends the kernel: it may do
 * the kernel's own cleaning after this. */
SWL_DEV bool call_end(const struct swl_device_group *g)
{
    struct block_common *c = block_common_of();
    struct swl_state *s = g->state;
    uint64_t clears = 0, cleared = 0; /* of the first thread */
    uint32_t bits = 0;

    block_sync();
    if (first_thread()) { /* acq_rel: the last block sees all that the others did */
        c->last = add_in_gpu(&s->ticket, 1u) == work_blocks(g) - 1;
        if (c->last) { /* all loads are under way together */
            const struct watch_look look = watch_look_at(&c->watch);

            clears = s->clears;
            cleared = s->cleared;
            call_settled(c, g);
            /* poison may arrive at this moment: one answer for all that follows */
            c->given_up = watch_look_bad(look, c->gen);
            bits = look.bits;
        }
    }
    block_sync();
    if (!c->last)
        return false;
    if (warp_id() == 0 && c->given_up)
        tell_everybody(g, &c->watch);
    advance_positions(g);
    if (first_thread()) {
        publish_errors(g, &c->watch, c->given_up, bits);
        if (c->watch.op == SWL_OP_UPDATE)
            s->epoch = c->call + 1;
        else
            s->call = c->call + 1;
        if (cleared != clears) /* from now on the host counts error words of this generation */
            publish_to_host(g->host_settled, swl_settled_word(clears, c->gen));
        s->cleared = clears;
        s->ticket = s->barrier = 0;
        s->received = s->served = s->gathered = 0;
        s->turns[0] = s->turns[1] = 0;
        /* releases the last doorbells, poison included; pairs with the acquire in nic_next */
        if (g->net.nic_blocks)
            publish_in_gpu(&s->nic_closing, c->given_up ? 2u : 1u);
    }
    return true;
}

/* Warp `index` of role `role` in channel `channel`; role SWL_ROLES = no role for this warp. */
struct warp_job {
    uint32_t role, index, channel;
};

SWL_DEV struct warp_job warp_job_of(const struct swl_roles *r)
{
    const uint32_t half = (uint32_t)block_id() % r->halves;
    struct warp_job job = {SWL_ROLES, 0, (uint32_t)block_id() / r->halves};
    uint32_t w = (uint32_t)warp_id();

    for (uint32_t i = 0; i < SWL_ROLES; i++) {
        const uint32_t odd = r->count[i][0], even = r->count[i][1];
        /* two blocks: the even block's warps come after the odd block's in the role's numbering */
        const uint32_t mine = r->halves == 1 ? odd + even : half == 0 ? odd : even;

        if (w < mine) {
            job.role = i;
            job.index = w + (half == 1 ? odd : 0);
            return job;
        }
        w -= mine;
    }
    return job;
}
