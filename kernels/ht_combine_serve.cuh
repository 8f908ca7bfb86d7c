/* ht_combine_serve.cuh: both SMs of a channel, rows of this rank's plain tensor. Layer: kernels.
 *
 * ht_combine_serve (server warps): copy requested rows into the landing slots of gatherers.
 * Reads:    fetch requests, the user's input tensor     Writes: landing slots at the gatherers
 * Waits:    fetch_tail                                  Signals: fetch_done at the gatherer
 * Order:    acquire.sys of fetch_tail, warp_sync; bulk stores complete before fetch_done is released
 * Progress: the request is the credit; waits for nobody but the gatherers
 * Ends:     every row was asked for (each is, exactly once); with a peer-addressable tensor: warp 0
 *           of the rank when all local peers have sent their exit words */
#pragma once

#include "kernels/ht_combine.cuh"
#include "kernels/ring.cuh"

SWL_DEV bool await_exit(const struct combine_block *b, uint32_t local)
{
    const struct swl_device_group *g = b->g;
    const uint64_t *word = own_word(g, g->at.exit, local);
    const uint64_t want = gen_word(b->common->gen, b->common->call);
    const struct wait_at at = combine_at(b, SWL_FAULT_EXIT, SWL_WARP_SERVER, g->local_rank[local]);

    for (;;) {
        const uint64_t seen = read_from_peer(word); /* pairs with gatherer_exit there */

        if (seen == want)
            return true;
        if (!wait_again(&b->common->watch, at, want, seen, SWL_PAUSE("exit of rank", at.peer, 0)))
            return false;
    }
}

SWL_DEV void await_exits(const struct combine_block *b)
{
    bool ok = true;

    for (uint32_t i = lane_id(); ok && i < b->g->shape.nlocal; i += 32)
        ok = await_exit(b, i);
    warp_sync();
}

/* All lanes: requests [from, to) of fetch ring x = local * gatherers + gatherer. */
SWL_DEV bool serve_ring(const struct combine_block *b, struct copier *copier, uint32_t x,
                        uint64_t from, uint64_t to)
{
    const struct swl_device_group *g = b->g;
    const uint32_t local = x / g->shape.ngatherers, number = x % g->shape.ngatherers;
    const uint64_t there = (uint64_t)g->shape.local * g->shape.ngatherers + number;
    const struct wait_at at = combine_at(b, SWL_FAULT_STAGE, SWL_WARP_SERVER, g->local_rank[local]);

    for (uint64_t p = from; p < to; p++) {
        const uint64_t slot = p % g->shape.fetch_slots;
        const struct fetch_entry *entry =
            (const struct fetch_entry *)(g->window + g->at.fetch_request) +
            (uint64_t)x * g->shape.fetch_slots + slot;
        char *landing = g->peer_window[local] + g->at.fetch_row +
                        (there * g->shape.fetch_slots + slot) * g->shape.row_bytes;

        if (entry->gen_call != b->common->gen_call || entry->row >= b->a->in_rows) {
            struct wait_at wrong = at;

            wrong.kind = SWL_FAULT_WRONG_CALL;
            if (lane_id() == 0)
                watch_fault(&b->common->watch, wrong, b->common->gen_call, entry->gen_call,
                            SWL_ASYNC_TIMEOUT);
            return false;
        }
        if (lane_id() == 0) /* the landing slot was read by its gatherer: overwrite after that */
            order_before_bulk_load();
        if (!row_copy(copier, b->a->tokens + entry->row * b->a->row_bytes, b->a->row_bytes,
                      lane_id() == 0 ? landing : 0, &b->common->watch, at))
            return false;
        if (lane_id() == 0) {
            bulk_wait<0>(); /* complete at the gatherer before the word says so */
            publish_to_peer(peer_word(g, local, g->at.fetch_done, there),
                            gen_word(b->common->gen, p + 1));
        }
    }
    if (lane_id() == 0) {
        g->fetch_given[x] = to;
        add_in_gpu(&g->state->served, (uint32_t)(to - from));
    }
    warp_sync();
    return true;
}

/* All lanes: look once at fetch rings first, first + step, … 1 moved, 0 nothing, -1 failed. */
SWL_DEV int serve_pass(const struct combine_block *b, struct copier *copier, uint32_t first,
                       uint32_t step, uint32_t nrings)
{
    const struct swl_device_group *g = b->g;
    const uint32_t x = first + (uint32_t)lane_id() * step;
    uint64_t from = 0, tail = 0;
    uint32_t ready;

    if (x < nrings) {
        from = g->fetch_given[x];
        tail = word_position(read_from_peer(own_word(g, g->at.fetch_tail, x)), b->common->gen,
                             g->shape.start_low);
    }
    ready = warp_ballot(tail > from);
    if (!ready)
        return 0;
    warp_sync(); /* what the ring lanes acquired is every lane's */
    for (uint32_t m = ready; m; m &= m - 1) {
        const int lane = first_bit(m);
        const uint32_t ring = first + (uint32_t)lane * step;

        if (!serve_ring(b, copier, ring, g->fetch_given[ring], warp_shfl(tail, lane)))
            return -1;
    }
    return 1;
}

SWL_ROLE void ht_combine_serve(const struct combine_block *b, struct copier *copier, uint32_t index,
                               uint32_t nservers)
{
    const struct swl_device_group *g = b->g;
    const uint32_t step = nservers * g->shape.nchannels;
    const uint32_t first = index * g->shape.nchannels + b->channel;
    const uint32_t nrings = g->shape.nlocal * g->shape.ngatherers;
    const uint32_t want = swl_min_u32(b->h.head->recv_rows, b->a->in_rows);
    const struct wait_at at = combine_at(b, SWL_FAULT_SERVE, SWL_WARP_SERVER, SWL_NO_PEER);

    /* the gatherers of the missing rows flag them too, each at its own rank */
    if (first == 0 && lane_id() == 0 && b->h.head->recv_rows > b->a->in_rows)
        or_in_gpu(&g->state->async_bits, SWL_ASYNC_OVERFLOW);
    if (b->a->entry.direct) {
        if (first == 0)
            await_exits(b);
        return;
    }
    for (;;) {
        const uint32_t have = warp_shfl(lane_id() == 0 ? read_in_gpu(&g->state->served) : 0u, 0);
        bool moved = false, ok = true;

        if (have >= want)
            return;
        for (uint32_t x = first; x < nrings; x += 32 * step) {
            const int n = serve_pass(b, copier, x, step, nrings);

            if (n < 0)
                return;
            moved = moved || n > 0;
        }
        if (!moved)
            ok = wait_again(&b->common->watch, at, want, have,
                            SWL_PAUSE("row requests of local ranks", b->channel, index));
        if (!warp_all(ok))
            return;
    }
}
