/* ht_dispatch_local.cuh: both SMs of a channel, rows inside the node. Layer: kernels.
 *
 * ht_dispatch_write (writer warps): this rank's own tokens for ranks of its node.
 * Reads:    handle list of the own node, user tokens and weights    Writes: link rings, tensors
 * Waits:    entry words, link credit       Signals: link tails -> ht_dispatch_receive there
 * Ends:     every listed token is written
 *
 * ht_dispatch_receive (receiver warps): take the records of the link rings of this rank.
 * Reads:    own link rings                 Writes: user weights and ids, rows of plain tensors
 * Waits:    link tails                     Signals: link heads at the writers
 * Order:    acquire.sys of the tail by the ring's lane, warp_sync, proxy fence in the loading lane;
 *           loads complete before the head is released
 * Progress: waits for nobody but the writers
 * Ends:     rows of this call == rows that the handle promises. Counting over all rings is right,
 *           since no row of a later call can be here before this rank's next entry word */
#pragma once

#include "kernels/ht_dispatch.cuh"

SWL_ROLE void ht_dispatch_write(const struct dispatch_block *b, struct row_writer *rw,
                                uint32_t index, uint32_t nwriters)
{
    const struct swl_device_group *g = b->g;
    const uint32_t list = out_rings(g);
    const uint32_t tokens = list_length(&b->h, list);
    const uint32_t *token = b->h.list + b->h.list_start[list];
    const uint32_t step = nwriters * g->shape.nchannels;

    uint32_t i = index * g->shape.nchannels + b->channel;
    struct row_target before;

    before.slot = 0;
    if (!await_entries(g, rw->w, rw->at))
        return;
    if (i < tokens)
        row_copy_begin(rw->copier, b->a->tokens + (uint64_t)token[i] * rw->row_bytes,
                       rw->row_bytes);
    for (; i < tokens; i += step) {
        const char *src = b->a->tokens + (uint64_t)token[i] * rw->row_bytes;
        const uint32_t n = select_in_node(g, &b->h, token[i], g->shape.node, SWL_ID_VALID,
                                          b->a->weights, rw->list);

        if (!row_write(rw, src, n, &before))
            return;
        if (i + step < tokens) /* the next row loads while this one is being stored */
            row_copy_begin(rw->copier, b->a->tokens + (uint64_t)token[i + step] * rw->row_bytes,
                           rw->row_bytes);
    }
    warp_sync(); /* see row_write_publish: no load of a next row has ordered the lanes */
    row_write_publish(rw, &before);
}

struct receiver {
    const struct dispatch_block *b;
    struct copier *copier;
    uint32_t link_row_at, link_stride;
};

SWL_DEV void write_index(const struct swl_dispatch_args *a, uint64_t place, int64_t value)
{
    if (a->idx_bytes == 8)
        ((int64_t *)a->out_idx)[place] = value;
    else
        ((int32_t *)a->out_idx)[place] = (int32_t)value;
}

/* Weights 0 and ids -1 behind the last row, up to the end of the given tensors. */
SWL_DEV void receive_fill(const struct dispatch_block *b, uint32_t worker, uint32_t nworkers)
{
    const struct swl_dispatch_args *a = b->a;
    const uint64_t from = (uint64_t)b->h.head->recv_rows * a->topk;
    const uint64_t step = (uint64_t)nworkers * 32;

    for (uint64_t i = from + worker * 32 + lane_id(); i < (uint64_t)a->out_weight_rows * a->topk;
         i += step)
        a->out_weights[i] = 0.0f;
    for (uint64_t i = from + worker * 32 + lane_id(); i < (uint64_t)a->out_idx_rows * a->topk;
         i += step)
        write_index(a, i, -1);
}

/* All lanes: one record of writer `local`. The row first, if it travels in the slot. */
SWL_DEV bool receive_record(const struct receiver *rc, const char *slot, uint32_t local)
{
    const struct dispatch_block *b = rc->b;
    const struct swl_dispatch_args *a = b->a;
    const struct swl_record *record = (const struct swl_record *)slot;
    const struct swl_pick *pick = (const struct swl_pick *)(record + 1);
    const uint32_t row = record->row, n = record->n;
    struct wait_at at =
        dispatch_at(b, SWL_FAULT_WRONG_CALL, SWL_WARP_RECEIVER, b->g->local_rank[local]);

    if (record->gen_call != b->common->gen_call || n > a->topk) {
        if (lane_id() == 0)
            watch_fault(&b->common->watch, at, b->common->gen_call, record->gen_call,
                        SWL_ASYNC_TIMEOUT);
        return false;
    }
    if (row < a->out_weight_rows)
        for (uint32_t k = lane_id(); k < a->topk; k += 32)
            a->out_weights[(uint64_t)row * a->topk + k] = k < n ? pick[k].weight : 0.0f;
    if (row < a->out_idx_rows)
        for (uint32_t k = lane_id(); k < a->topk; k += 32)
            write_index(a, (uint64_t)row * a->topk + k,
                        k < n ? (int64_t)pick[k].expert + a->idx_base : -1);
    /* never beyond the caller's tensors */
    if (row >= swl_min_u32(a->out_rows, swl_min_u32(a->out_weight_rows, a->out_idx_rows)) &&
        lane_id() == 0)
        or_in_gpu(&b->g->state->async_bits, SWL_ASYNC_OVERFLOW);
    if (row >= a->out_rows || a->entry.direct)
        return true;
    return row_copy(rc->copier, slot + rc->link_row_at, a->row_bytes,
                    lane_id() == 0 ? a->out_tokens + (uint64_t)row * a->row_bytes : 0,
                    &b->common->watch, at);
}

/* All lanes: slots [from, to) of link ring x; then the head goes back to the writer. */
SWL_DEV bool receive_ring(const struct receiver *rc, uint32_t x, uint64_t from, uint64_t to)
{
    const struct dispatch_block *b = rc->b;
    const struct swl_device_group *g = b->g;
    const uint32_t local = x / g->shape.nwriters, q = x % g->shape.nwriters;

    if (lane_id() == 0)
        order_before_bulk_load(); /* after the acquire of the tail: a peer wrote the slots */
    for (uint64_t at = from; at < to; at++) {
        const uint64_t slot = (uint64_t)x * g->shape.link_slots + at % g->shape.link_slots;

        if (!receive_record(rc, g->window + g->at.link_ring + slot * rc->link_stride, local))
            return false;
    }
    warp_sync(); /* every lane has read its part of the slots */
    if (lane_id() == 0) {
        const uint64_t mine = (uint64_t)g->shape.local * g->shape.nwriters + q;

        bulk_wait<0>(); /* rows are in the tensor before they count */
        publish_to_peer(peer_word(g, local, g->at.link_head, mine), gen_word(b->common->gen, to));
        g->link_taken[x] = to;
        add_in_gpu(&g->state->received, (uint32_t)(to - from));
    }
    warp_sync();
    return true;
}

/* All lanes: look once at the rings [first, first + 32 * step). 1 moved, 0 nothing, -1 failed. */
SWL_DEV int receive_pass(const struct receiver *rc, uint32_t first, uint32_t step, uint32_t nrings)
{
    const struct swl_device_group *g = rc->b->g;
    const uint32_t x = first + (uint32_t)lane_id() * step;
    uint64_t from = 0, tail = 0;
    uint32_t ready;

    if (x < nrings) {
        from = g->link_taken[x];
        tail = word_position(read_from_peer(own_word(g, g->at.link_tail, x)), rc->b->common->gen,
                             g->shape.start_low);
    }
    ready = warp_ballot(tail > from);
    if (!ready)
        return 0;
    warp_sync(); /* what the ring lanes acquired is every lane's */
    for (uint32_t m = ready; m; m &= m - 1) {
        const int lane = first_bit(m);
        const uint32_t ring = first + (uint32_t)lane * step;

        if (!receive_ring(rc, ring, g->link_taken[ring], warp_shfl(tail, lane)))
            return -1;
    }
    return 1;
}

SWL_ROLE void ht_dispatch_receive(const struct dispatch_block *b, struct copier *copier,
                                  uint32_t index, uint32_t nreceivers)
{
    const struct swl_device_group *g = b->g;
    const struct receiver rc = {b, copier, swl_link_row_at(b->a->topk),
                                swl_link_slot_bytes(&g->shape)};
    const uint32_t step = nreceivers * g->shape.nchannels;
    const uint32_t first = index * g->shape.nchannels + b->channel;
    const uint32_t nrings = g->shape.nlocal * g->shape.nwriters;
    const uint32_t want = b->h.head->recv_rows;
    const struct wait_at at =
        dispatch_at(b, SWL_FAULT_LINK_ARRIVAL, SWL_WARP_RECEIVER, SWL_NO_PEER);

    receive_fill(b, first, step);
    for (;;) {
        const uint32_t have = warp_shfl(lane_id() == 0 ? read_in_gpu(&g->state->received) : 0u, 0);
        bool moved = false, ok = true;

        if (have >= want)
            return;
        for (uint32_t x = first; x < nrings; x += 32 * step) {
            const int n = receive_pass(&rc, x, step, nrings);

            if (n < 0)
                return;
            moved = moved || n > 0;
        }
        if (!moved)
            ok = wait_again(&b->common->watch, at, want, have,
                            SWL_PAUSE("rows from local writers", b->channel, index));
        if (!warp_all(ok))
            return;
    }
}
