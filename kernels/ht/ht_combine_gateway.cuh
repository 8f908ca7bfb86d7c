/* ht_combine_gateway.cuh: even SM, what a rank does for sources of other nodes. Layer: kernels.
 *
 * ht_combine_gateway (gateway warps): take requests, add the rows of this node, return partial
 * sums.
 * Reads:    request_in, rows of local ranks        Writes: slots of its own partial rings
 * Waits:    open record, request_tail and partial_credit together, fetched rows
 * Signals:  mask bits of requests and of partial sums -> ht_combine_gateway_coord; exit words
 * Order:    acquire.sys of request_tail, warp_sync; the request is read before its bit of the
 *           completion mask
 * Progress: a request is taken only when its partial sum has a free slot, and a warp that holds one
 *           takes more only if they are there; so it waits for servers only, and these wait for
 *           nobody: no cycle over several gateways
 *
 * ht_combine_gateway_coord (one lane): posts partial sums in chunks, smaller ones when the call
 * begins; returns credit of requests.
 * Ends:     every promised request is credited and its partial sum posted */
#pragma once

#include "kernels/ht/ht_combine.cuh"

struct requests {
    const struct combine_block *b;
};

SWL_DEV uint32_t requests_ring(const struct requests &from, uint32_t r)
{
    return channel_ring(from.b->g, from.b->channel, r);
}

SWL_DEV uint64_t *claim_word(const struct requests &from, uint32_t r)
{
    return &from.b->rings.taken[r];
}

SWL_DEV uint64_t claim_end(const struct requests &from, uint32_t r)
{
    const uint32_t y = requests_ring(from, r);

    return from.b->g->ht.now.request_recv[y] + from.b->h.recv_n[y];
}

/* Requests that have arrived and whose partial sums have a slot. */
SWL_DEV uint64_t claim_limit(const struct requests &from, uint32_t r)
{
    const struct swl_device_group *g = from.b->g;
    const uint32_t y = requests_ring(from, r);
    const uint64_t tail = read_from_nic(own_word(g, g->at.ht.request_tail, y));
    const uint64_t credit = read_from_nic(own_word(g, g->at.ht.partial_credit, y));
    /* positions of requests and partial sums run in step, from different starts */
    const uint64_t space =
        credit + g->shape.ring_slots - g->ht.now.partial_sent[y] + g->ht.now.request_recv[y];

    return tail < space ? tail : space;
}

SWL_DEV bool claim_idle(const struct requests &from)
{
    (void)from; /* a gateway warp holds nothing back */
    return false;
}

SWL_DEV bool claim_await(const struct requests &from, uint32_t r)
{
    const struct combine_block *b = from.b;
    const uint32_t rank = ring_end(b->g, RINGS_IN, requests_ring(from, r))->rank;

    return wait_again(wait_for(b->waiter, SWL_FAULT_REQUEST, rank), claim_end(from, r),
                      claim_limit(from, r),
                      SWL_PAUSE("requests or partial credit of rank", rank, b->channel));
}

/* One lane: row i of a request is of a rank of this node, behind that of the row before: one of
 * each at most, as there is one landing slot for it. */
SWL_DEV bool request_row_ok(const struct combine_block *b, const struct swl_request_row *row,
                            uint32_t i, struct waiter w)
{
    const struct swl_shape *s = &b->g->shape;
    const bool in_node = row[i].gpu < s->nlocal && (i == 0 || row[i - 1].gpu < row[i].gpu);

    if (in_node && row[i].row < s->max_rows)
        return true;
    wait_bounds(w, (in_node ? s->max_rows : s->nlocal) - 1, in_node ? row[i].row : row[i].gpu);
    return false;
}

/* All lanes: read the request into contributions; false = a foreign request. */
SWL_DEV bool request_contributions(const struct combine_block *b, struct gatherer *ga,
                                   const struct swl_request *request, uint32_t source,
                                   struct sum_list *list)
{
    const struct swl_request_row *row = (const struct swl_request_row *)(request + 1);
    const struct waiter w = wait_for(b->waiter, SWL_FAULT_WRONG_CALL, source);
    const int count =
        tagged_count(&b->a->entry, b->common->gen_call, request->gen_call, request->n, w);
    const uint32_t n = count < 0 ? 0 : (uint32_t)count;
    uint32_t ncontributions = 0;
    bool waits = false;

    if (count < 0)
        return false;
    for (uint32_t first = 0; first < n; first += 32) {
        const uint32_t i = first + lane_id();
        const bool ok = i >= n || request_row_ok(b, row, i, w);
        const bool exists = ok && i < n && contribution_exists(ga, row[i].gpu, row[i].row);
        const uint32_t mask = warp_ballot(exists);
        struct contribution *contribution =
            &list_contributions(list)[ncontributions + count_bits(mask & ((1u << lane_id()) - 1))];

        if (exists) {
            contribution_of_local(ga, row[i].gpu, row[i].row, contribution);
            contribution->first = 0;
            waits = waits || contribution_waits(contribution);
        }
        ncontributions += (uint32_t)count_bits(mask);
        if (!warp_all(ok))
            return false;
    }
    waits = warp_any(waits);
    if (lane_id() == 0) {
        list->ncontributions = ncontributions;
        list->waits = waits;
        list->mixed = 0;
    }
    warp_sync();
    return true;
}

/* Counted anew for each request: it would cost the sums a register. */
SWL_DEV uint32_t gateway_rings(const struct combine_block *b)
{
    return channel_rings(side_rings(b->g, RINGS_IN), b->channel, b->g->shape.nchannels);
}

struct gateway_source { /* of tokens, gather.cuh */
    const struct combine_block *b;
    uint32_t turn;
};

/* Partial sums leave in the order of their requests: who holds many keeps the others' back. */
SWL_DEV uint32_t source_ahead(const struct gateway_source *)
{
    return 2;
}

SWL_DEV int source_prepare(struct gateway_source *s, struct gather_pipe *p, uint32_t most,
                           bool idle)
{
    const struct combine_block *b = s->b;
    const struct swl_device_group *g = b->g;
    const struct requests from = {b};
    struct sum_list *list = gather_list(p, p->prepared);
    uint32_t r = 0;
    uint64_t position = 0;
    const uint32_t turn = s->turn++, nrings = gateway_rings(b);
    const int got = idle ? claim_take(from, nrings, turn, &r, &position)
                         : claim_try(from, claim_look_at(from, nrings, turn), &r, &position);
    const uint32_t y = requests_ring(from, r);
    const uint64_t sum = g->ht.now.partial_sent[y] + (position - g->ht.now.request_recv[y]);
    const uint64_t in = slot_number(&g->shape, y, position);
    const uint64_t out = slot_number(&g->shape, y, sum);

    (void)most; /* one at a time */
    if (got != 1)
        return got == 2 ? 0 : got;
    if (lane_id() == 0) {
        list->out = g->window + g->at.ht.partial_out + out * swl_partial_bytes(&g->shape);
        list->ring = r;
        list->position = sum;
    }
    if (!request_contributions(b, &p->ga,
                               (const struct swl_request *)(g->window + g->at.ht.request_in +
                                                            in * swl_request_bytes(&g->shape)),
                               ring_end(g, RINGS_IN, y)->rank, list))
        return -1;
    if (lane_id() == 0) /* every lane has read it; pairs with read_in_block in duty_turn */
        mask_finish_in_block(&b->rings.read[r], position);
    return 1;
}

/* The sum is written, the landing slots are read; pairs with read_in_block in duty_turn. */
SWL_DEV void source_finish(struct gateway_source *s, struct sum_list *list)
{
    if (lane_id() == 0)
        mask_finish_in_block(&s->b->rings.answered[list->ring], list->position);
}

SWL_ROLE void ht_combine_gateway(const struct combine_block *b, struct gather_pipe *pipe,
                                 uint32_t index)
{
    struct gateway_source from = {b, index};

    pipe->out_fp32 = b->g->shape.wire_fp32;
    if (!await_open_records(b->g, pipe->ga.waiter))
        return;
    if (gateway_rings(b) == 0 || gather_run(pipe, &from))
        gatherer_exit(&pipe->ga, rank_gatherers(b));
}

/* Lane 0 of its warp. */
SWL_ROLE void ht_combine_gateway_coord(const struct combine_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct waiter w = wait_for(b->waiter, SWL_FAULT_REQUEST, g->shape.rank);
    struct coordinator c = {g,  &b->h, RINGS_IN, w, "requests and sums of own gateway warps",
                            {}, {}};

    c.first = duty_of(DUTY_CREDIT, b->rings.read, g->ht.now.request_recv, g->ht.next.request_recv,
                      g->at.ht.request_credit);
    c.first.credited = g->ht.next.request_credited;
    c.second = duty_of(DUTY_POST, b->rings.answered, g->ht.now.partial_sent,
                       g->ht.next.partial_sent, g->at.ht.partial_tail);
    c.second.slots = {g->at.ht.partial_out, g->at.ht.partial_in, swl_partial_bytes(&g->shape),
                      b->partial_bytes};
    coordinate(c);
}
