/* ht_dispatch_receive.cuh: both SMs of a channel, rows that arrive from this node. Layer: kernels.
 *
 * ht_dispatch_receive (receiver warps): take the records of the local rings of this rank.
 * Reads:    own local rings                 Writes: user weights and ids, rows of plain tensors
 * Waits:    local tails                     Signals: local heads at the writers
 * Order:    acquire.sys of the tail by every lane of the ring, proxy fence in the loading lane;
 *           loads complete before the head is released
 * Progress: waits for nobody but the writers
 * Ends:     rows of this call == rows that the handle promises. Counting over all rings is right,
 *           since no row of a later call can be here before this rank's next open record. Rows
 *           count when they are taken: whoever takes them has them in the tensor when the kernel
 *           ends
 *
 * The lanes of a receiver share out its rings, `span` lanes each; every ring with news gives up to
 * SWL_RECEIVE_MAX records a pass, whose selections are shared out over all lanes. */
#pragma once

#include "kernels/ht/ht_dispatch.cuh"

#define SWL_RECEIVE_MAX 16u

struct receiver { /* equal in all lanes, but for the lane's ring */
    const struct dispatch_block *b;
    struct copier *copier;
    uint32_t row_at;
    uint32_t span; /* lanes of a ring, power of two */
    uint32_t first, step, nrings;
    bool credit_flushed;          /* nothing was taken since receive_flush_credit */
    struct lane_assignment lanes; /* of the selections of records to lanes */
    /* of the lane */
    uint32_t ring;           /* x, or nrings: none */
    uint32_t local;          /* writer's rank */
    uint32_t nslots, stride; /* a power of two; bytes */
    bool rows_in_slots;
    char *slots;
    uint64_t from, to; /* positions taken in this pass */
    uint64_t told;     /* position that the writer knows */
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

/* The lane's ring number `number` of this receiver. */
SWL_DEV void receive_open(struct receiver *rc, uint32_t number)
{
    const struct swl_device_group *g = rc->b->g;
    const uint64_t ring_bytes = (uint64_t)g->shape.local_slots * swl_local_slot_bytes(&g->shape);

    rc->ring = rc->first + number * rc->step;
    rc->from = rc->to = rc->told = 0;
    rc->rows_in_slots = false;
    rc->nslots = 1;
    if (rc->ring >= rc->nrings) {
        rc->ring = rc->nrings;
        return;
    }
    rc->from = rc->to = rc->told = g->ht.local_taken[rc->ring];
    rc->local = rc->ring / g->shape.nwriters;
    rc->rows_in_slots = !rc->b->a->entry.direct && rc->local != g->shape.local;
    rc->slots = g->window + g->at.ht.local_ring + rc->ring * ring_bytes;
    rc->nslots = rc->rows_in_slots ? g->shape.local_slots : swl_record_slots(&g->shape);
    rc->stride = rc->rows_in_slots ? swl_local_slot_bytes(&g->shape) : swl_record_bytes(&g->shape);
}

SWL_DEV const struct swl_record *receive_slot(const struct receiver *rc, uint64_t position)
{
    return (const struct swl_record *)(rc->slots +
                                       (uint32_t)(position & (rc->nslots - 1)) * rc->stride);
}

/* All lanes: what their rings have. True if any has something. */
SWL_DEV bool receive_look(struct receiver *rc)
{
    const struct swl_device_group *g = rc->b->g;
    const int leader = lane_id() & ~(int)(rc->span - 1);
    const uint64_t gen = rc->b->common->gen;
    /* half a ring at most: its credit goes back while the other half is copied */
    const uint32_t most = swl_min_u32(rc->nslots / 2, SWL_RECEIVE_MAX);
    uint64_t tail = rc->from;

    if (rc->ring < rc->nrings)
        tail = word_position(load_relaxed_from_peer(own_word(g, g->at.ht.local_tail, rc->ring)),
                             gen, g->shape.start_low);
    tail = warp_shfl(tail, leader);
    if (!warp_any(tail > rc->from))
        return false;
    warp_sync(); /* the leader's look was before: the acquires of all its lanes see at least that */
    if (tail > rc->from)
        (void)read_from_peer(own_word(g, g->at.ht.local_tail, rc->ring));
    rc->to = tail - rc->from < most ? tail : rc->from + most;
    return true;
}

/* One selection of a record, or none: its weight and id, at the record's row. False for a foreign
 * record. */
SWL_DEV bool receive_selection(const struct receiver *rc, const struct swl_record *record,
                               uint32_t k, uint32_t local)
{
    const struct swl_dispatch_args *a = rc->b->a;
    const struct swl_record head = *record;
    const struct swl_selection *sel = (const struct swl_selection *)(record + 1) + k;
    const uint64_t place = (uint64_t)head.row * a->topk + k;

    if (head.gen_call != rc->b->common->gen_call || head.n > a->topk) {
        const struct waiter w =
            wait_for(rc->b->waiter, SWL_FAULT_WRONG_CALL, rc->b->g->local_rank[local]);

        wait_fault(w, rc->b->common->gen_call, head.gen_call, SWL_ASYNC_TIMEOUT);
        return false;
    }
    if (head.row < a->out_weight_rows)
        a->out_weights[place] = k < head.n ? sel->weight : 0.0f;
    if (head.row < a->out_idx_rows)
        write_index(a, place, k < head.n ? (int64_t)sel->expert + a->idx_base : -1);
    /* never beyond the caller's tensors */
    if (k == 0 &&
        head.row >= swl_min_u32(a->out_rows, swl_min_u32(a->out_weight_rows, a->out_idx_rows)))
        or_in_gpu(&rc->b->g->state->async_bits, SWL_ASYNC_OVERFLOW);
    return true;
}

/* All lanes: weights and ids of the records of this pass, a selection each. False: one was
 * foreign. */
SWL_DEV bool receive_records(const struct receiver *rc)
{
    const bool leads = ((uint32_t)lane_id() & (rc->span - 1)) == 0;
    uint32_t leaders = warp_ballot(leads && rc->to > rc->from);
    bool ok = true;

    for (; leaders; leaders &= leaders - 1) {
        const int lane = first_bit(leaders);
        const uint64_t from = warp_shfl(rc->from, lane), to = warp_shfl(rc->to, lane);
        const char *slots = (const char *)warp_shfl((uint64_t)(uintptr_t)rc->slots, lane);
        const uint32_t wrap = warp_shfl(rc->nslots, lane) - 1, stride = warp_shfl(rc->stride, lane);
        const uint32_t local = warp_shfl(rc->local, lane);

        for (uint64_t at = from + rc->lanes.r; ok && rc->lanes.r < rc->lanes.tokens && at < to;
             at += rc->lanes.tokens) {
            const struct swl_record *record =
                (const struct swl_record *)(slots + (uint32_t)(at & wrap) * stride);

            for (uint32_t k = rc->lanes.k; ok && k < rc->b->a->topk; k += 32)
                ok = receive_selection(rc, record, k, local);
        }
    }
    return warp_all(ok);
}

/* Rows of this pass that travel in slots, one after the other. Equal in all lanes. */
struct drain {
    uint32_t leaders; /* lanes whose rings are still to come */
    int lane;         /* of the present ring */
    uint64_t at, to;
    struct copy_row row; /* the present one, begun; src NULL: none is left */
    char *dst;           /* its place in the caller's tensor */
};

/* All lanes: the next row within the caller's tensor and its place there; src NULL: none is
 * left. */
SWL_DEV char *drain_next(const struct receiver *rc, struct drain *d, struct copy_row *row)
{
    const struct swl_dispatch_args *a = rc->b->a;

    row->src = 0;
    row->begun = 0;
    for (;;) {
        const struct swl_record *record;

        if (d->at == d->to) {
            if (!d->leaders)
                return 0;
            d->lane = first_bit(d->leaders);
            d->leaders &= d->leaders - 1;
            d->at = warp_shfl(rc->from, d->lane);
            d->to = warp_shfl(rc->to, d->lane);
        }
        record = (const struct swl_record *)warp_shfl((uint64_t)(uintptr_t)receive_slot(rc, d->at),
                                                      d->lane);
        d->at++;
        if (record->row < a->out_rows) {
            row->src = (const char *)record + rc->row_at;
            return a->out_tokens + (uint64_t)record->row * a->row_bytes;
        }
    }
}

/* All lanes: begin to copy the rows of this pass out of their slots. */
SWL_DEV void drain_begin(const struct receiver *rc, struct drain *d)
{
    const bool leads = ((uint32_t)lane_id() & (rc->span - 1)) == 0;

    *d = (struct drain){0, 0, 0, 0, {0, 0}, 0};
    d->leaders = warp_ballot(leads && rc->rows_in_slots && rc->to > rc->from);
    if (!d->leaders)
        return;
    if (lane_id() == 0)
        order_before_bulk_load(); /* after the acquire of the tails: a peer wrote the slots */
    d->dst = drain_next(rc, d, &d->row);
    if (d->row.src)
        row_copy_begin(rc->copier, &d->row, d->row.src, rc->b->a->row_bytes);
}

/* All lanes: copy the rest. On true they have been loaded. */
SWL_DEV bool drain_end(const struct receiver *rc, struct drain *d)
{
    const struct dispatch_block *b = rc->b;
    struct copy_row next;
    char *next_dst;

    while (d->row.src) {
        next_dst = drain_next(rc, d, &next);
        if (!row_copy_end(rc->copier, &d->row, &next, b->a->row_bytes, lane_id() == 0 ? d->dst : 0,
                          b->waiter))
            return false;
        d->row = next;
        d->dst = next_dst;
    }
    return true;
}

/* Leaders: credit of what has been taken goes back when it is a good part of the ring. The release
 * waits for all that the SM has under way, so it is best done while rows are being loaded. */
SWL_DEV void receive_credit(struct receiver *rc, uint32_t least)
{
    const struct swl_device_group *g = rc->b->g;
    const bool leads = ((uint32_t)lane_id() & (rc->span - 1)) == 0;

    if (leads && rc->from - rc->told >= least) {
        const uint64_t mine =
            (uint64_t)g->shape.local * g->shape.nwriters + rc->ring % g->shape.nwriters;

        publish_to_peer(peer_word(g, rc->local, g->at.ht.local_head, mine),
                        gen_word(rc->b->common->gen, rc->from));
        g->ht.local_taken[rc->ring] = rc->told = rc->from;
    }
}

/* All lanes: look once at the open rings, take what is there. 1 moved, 0 nothing, -1 failed. */
SWL_DEV int receive_pass(struct receiver *rc)
{
    const bool leads = ((uint32_t)lane_id() & (rc->span - 1)) == 0;
    struct drain d;

    if (!receive_look(rc))
        return 0;
    warp_sync(); /* what a ring's lanes acquired is every lane's */
    if (leads && rc->to > rc->from)
        add_relaxed_in_gpu(&rc->b->g->state->received, (uint32_t)(rc->to - rc->from));
    drain_begin(rc, &d); /* meanwhile: credit of passes before, and the rest of the records */
    receive_credit(rc, rc->nslots > 4 ? rc->nslots / 4 : 1);
    if (!receive_records(rc) || !drain_end(rc, &d))
        return -1;
    warp_sync(); /* every lane has read its part of the slots */
    rc->from = rc->to;
    rc->credit_flushed = false;
    return 1;
}

/* All lanes, with nothing to do: return all credit. */
SWL_DEV void receive_flush_credit(struct receiver *rc)
{
    if (rc->credit_flushed)
        return;
    rc->credit_flushed = true;
    receive_credit(rc, 1);
    warp_sync();
}

/* Leaders, when all rows of the call have been taken: the writers know that rings are empty
 * then. */
SWL_DEV void receive_end(const struct receiver *rc)
{
    const bool leads = ((uint32_t)lane_id() & (rc->span - 1)) == 0;

    if (leads && rc->from != rc->told) /* then a pass lies behind the lanes' look at the word */
        rc->b->g->ht.local_taken[rc->ring] = rc->from;
}

SWL_DEV struct receiver receiver_of(const struct dispatch_block *b, struct copier *copier,
                                    uint32_t index, uint32_t nreceivers)
{
    const struct swl_device_group *g = b->g;
    struct receiver rc;
    uint32_t rings;

    rc.b = b;
    rc.copier = copier;
    rc.row_at = swl_local_row_at(b->a->topk);
    rc.step = nreceivers * g->shape.nchannels;
    rc.first = index * g->shape.nchannels + b->channel;
    rc.nrings = g->shape.nlocal * g->shape.nwriters;
    rings = rc.nrings > rc.first ? (rc.nrings - rc.first + rc.step - 1) / rc.step : 0;
    rc.span = 32;
    while (rc.span > 1 && 32 / rc.span < rings)
        rc.span /= 2;
    rc.ring = rc.nrings;
    rc.local = 0;
    rc.nslots = 1;
    rc.stride = 0;
    rc.rows_in_slots = false;
    rc.slots = g->window;
    rc.from = rc.to = rc.told = 0;
    rc.credit_flushed = true;
    rc.lanes = lane_assignment_of(b->a->topk, 32);
    return rc;
}

SWL_ROLE void ht_dispatch_receive(const struct dispatch_block *b, struct copier *copier,
                                  uint32_t index, uint32_t nreceivers)
{
    const struct swl_device_group *g = b->g;
    struct receiver rc = receiver_of(b, copier, index, nreceivers);
    const uint32_t want = b->h.head->recv_rows;
    const bool one_set =
        rc.span > 1 || rc.first + 32 * rc.step >= rc.nrings; /* all rings are open */
    const struct waiter w = wait_for(b->waiter, SWL_FAULT_LINK_ARRIVAL, SWL_NO_PEER);

    receive_fill(b, rc.first, rc.step);
    receive_open(&rc, (uint32_t)lane_id() / rc.span);
    for (;;) {
        /* under way together with the looks at the tails; rows taken meanwhile are seen the next
         * time */
        const uint32_t taken = lane_id() == 0 ? load_relaxed_in_gpu(&g->state->received) : 0u;
        const uint64_t poison = load_relaxed_from_peer(b->common->watch.poison);
        bool moved = false;
        uint32_t have;

        for (uint32_t n = 0; rc.first + n * rc.step < rc.nrings; n += 32 / rc.span) {
            int got;

            if (!one_set)
                receive_open(&rc, n + (uint32_t)lane_id() / rc.span);
            got = receive_pass(&rc);
            if (got < 0)
                return;
            moved = moved || got > 0;
            if (!one_set)
                receive_flush_credit(&rc);
        }
        if (moved)
            continue;
        have = warp_shfl(taken, 0);
        if (have >= want)
            break;
        receive_flush_credit(&rc);
        if (!warp_all(wait_again_seen(w, want, have, poison,
                                      SWL_PAUSE("rows from local writers", b->channel, index))))
            return;
    }
    receive_end(&rc);
}
