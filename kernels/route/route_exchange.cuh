/* route_exchange.cuh: the part of route that talks to other ranks. Layer: kernels.
 *
 * Run by block 0. Two one-way trips between nodes give every source the first row of its tokens at
 * every destination: counts to the gateways, over to the destinations, prefix sums in rank order
 * there, bases back the same way. A third trip only when a source's share crosses the budget.
 *
 * Reuse of the buffers: counts_in, bases_of, bases_in are single, since a source starts the next
 * update only with all bases of this one in hand, and these need its counts forwarded and the bases
 * read. counts_table is double by parity of the epoch: a destination may still read epoch u while a
 * fast source is in u + 1, but nobody is in u + 2 before the destination's own u + 1.
 * Model: tests/model/update.pml. */
#pragma once

#include "kernels/route/route.cuh"
#include "kernels/route/route_local.cuh"

SWL_DEV uint32_t *own_u32(const struct swl_device_group *g, uint64_t region, uint64_t index)
{
    return (uint32_t *)(g->window + region) + index;
}

SWL_DEV uint32_t *peer_u32(const struct swl_device_group *g, uint32_t local, uint64_t region,
                           uint64_t index)
{
    return (uint32_t *)(g->peer_window[local] + region) + index;
}

/* Row of source `rank` in a destination's table: tok, sel[L]. */
SWL_DEV uint64_t table_row(const struct route_block *b, uint32_t rank)
{
    const struct swl_shape *s = &b->g->shape;

    return ((b->common->call & 1) * s->nranks + rank) * (uint64_t)(1 + s->nlocal_experts);
}

/* Queue pairs of one side, of which a lane looks at every `stride`-th from `first`. Between two
 * block barriers it alone uses them. */
struct route_sent {
    enum ring_side side;
    uint32_t first, stride;
};

/* Are the messages of this update there whole? What was lost on its way, the rank at the other end
 * waits for, and this rank for that one. */
SWL_DEV bool sent_poll(const struct route_block *b, const struct route_sent *sent, struct waiter w)
{
    const struct swl_shape *s = &b->g->shape;
    const uint32_t n = sent->side == RINGS_OUT ? swl_remote_nodes(s) : s->nserved;

    for (uint32_t i = sent->first; i < n; i += sent->stride)
        if (!connection_poll(connection_of(b->g, sent->side, i * s->nrings), w))
            return false;
    return true;
}

/* A word of a NIC counter that must grow past `seen`. One lane, which alone uses the queue pair of
 * `from` between two block barriers, and those of `sent`. */
SWL_DEV bool await_message(const struct route_block *b, const uint64_t *word, uint64_t seen,
                           struct waiter w, const struct connection &from,
                           const struct route_sent *sent)
{
    for (;;) {
        const uint64_t now = read_from_nic(word);

        if (now > seen)
            return true;
        if (!connection_poll(from, w) || !sent_poll(b, sent, w) ||
            !wait_again(w, seen + 1, now,
                        SWL_PAUSE("route message of rank", w.peer, swl_fault_place(w.kind))))
            return false;
    }
}

/* All threads of block 0: words [array][local] of all local ranks show this epoch. */
SWL_DEV bool await_locals(const struct route_block *b, uint64_t array, uint32_t kind)
{
    const struct swl_device_group *g = b->g;
    bool ok = true;

    for (uint32_t i = block_thread(); ok && i < g->shape.nlocal; i += block_threads())
        for (;;) {
            const uint64_t seen = read_from_peer(own_word(g, array, i));
            const struct waiter w = wait_for(b->waiter, kind, g->local_rank[i]);
            const struct route_sent counts = {RINGS_OUT, i, g->shape.nlocal};

            if (seen == b->common->gen_call)
                break;
            ok = sent_poll(b, &counts, w) &&
                 wait_again(w, b->common->gen_call, seen,
                            SWL_PAUSE("route word of rank", w.peer, swl_fault_place(kind)));
            if (!ok)
                break;
        }
    if (!ok)
        or_in_block(&b->common->step_failed, 1u);
    block_sync();
    return read_in_block(&b->common->step_failed) == 0;
}

/* All threads of block 0, after their stores: set word [array][own local] at all local ranks. */
SWL_DEV void tell_locals(const struct route_block *b, uint64_t array)
{
    const struct swl_device_group *g = b->g;

    block_sync();
    for (uint32_t i = block_thread(); i < g->shape.nlocal; i += block_threads())
        publish_to_peer(peer_word(g, i, array, g->shape.local), b->common->gen_call);
}

/* Count message for remote node n: tok[max_local], sel[max_local][L], ring_n[P]. */
SWL_DEV void counts_build(const struct route_block *b, uint32_t n)
{
    const struct swl_device_group *g = b->g;
    const struct swl_shape *s = &g->shape;
    const uint32_t *ranks = g->node_rank + (uint64_t)g->out[n].node * s->max_local;
    uint32_t *to = own_u32(g, g->at.counts_out, (uint64_t)n * swl_count_words(s));
    const uint32_t sel = s->max_local * s->nlocal_experts;

    for (uint32_t i = block_thread(); i < s->max_local; i += block_threads())
        to[i] = ranks[i] == SWL_NO_PEER ? 0 : g->totals[ranks[i]];
    for (uint32_t i = block_thread(); i < sel; i += block_threads()) {
        const uint32_t rank = ranks[i / s->nlocal_experts];

        to[s->max_local + i] =
            rank == SWL_NO_PEER
                ? 0
                : g->selected[(uint64_t)rank * s->nlocal_experts + i % s->nlocal_experts];
    }
    for (uint32_t p = block_thread(); p < s->nrings; p += block_threads())
        to[s->max_local + sel + p] = g->totals[list_bin(g, n * s->nrings + p)];
}

/* Message to the gateway of remote node n and its count word; one lane. */
SWL_DEV bool message_out(const struct route_block *b, uint32_t n, uint64_t from, uint64_t to,
                         uint64_t counter, uint32_t words)
{
    const struct swl_device_group *g = b->g;
    const uint32_t x = n * g->shape.nrings;
    const struct connection conn = connection_of(g, RINGS_OUT, x);
    const uint32_t j = g->out[n].index;
    const struct waiter w = wait_for(b->waiter, SWL_FAULT_QUEUE, g->out[n].rank);

    if (!connection_write(conn, {from + 4ull * n * words, to + 4ull * j * words, 4 * words}, w) ||
        !qp_add(conn.qp, w, conn.remote->base + counter + 8ull * j, conn.remote->signal_rkey, 1))
        return false;
    qp_ring(conn.qp);
    return true;
}

/* Trip 1: counts to the gateways of other nodes, and straight to the ranks of the own node. */
SWL_DEV void send_counts(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct swl_shape *s = &g->shape;
    const uint32_t columns = 1 + s->nlocal_experts;

    for (uint32_t n = 0; n < swl_remote_nodes(s); n++)
        counts_build(b, n);
    block_sync();
    if (first_thread())
        for (uint32_t n = 0; n < swl_remote_nodes(s); n++)
            if (!message_out(b, n, g->at.counts_out, g->at.counts_in, g->at.counts_tail,
                             swl_count_words(s)))
                b->common->step_failed = 1;
    for (uint32_t i = block_thread(); i < s->nlocal * columns; i += block_threads()) {
        const uint32_t local = i / columns, e = i % columns, rank = g->local_rank[local];

        *peer_u32(g, local, g->at.counts_table, table_row(b, s->rank) + e) =
            e == 0 ? g->totals[rank] : g->selected[(uint64_t)rank * s->nlocal_experts + e - 1];
    }
}

/* One thread: a number from rank `rank` of another node. If it is above `most` the call is given
 * up, and goes to its end with 0. Sums of numbers within bounds stay within 32 bits. */
SWL_DEV uint32_t message_number(const struct route_block *b, uint32_t number, uint32_t most,
                                uint32_t kind, uint32_t rank)
{
    if (number <= most)
        return number;
    wait_bounds(wait_for(b->waiter, kind, rank), most, number);
    return 0;
}

/* Gateway: counts of the served sources to the ranks of this node. */
SWL_DEV bool forward_counts(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct swl_shape *s = &g->shape;
    const uint32_t columns = 1 + s->nlocal_experts;

    for (uint32_t j = block_thread(); j < s->nserved; j += block_threads()) {
        const struct route_sent counts = {RINGS_OUT, j, s->nserved};

        if (!await_message(b, own_word(g, g->at.counts_tail, j), g->counts_seen[j],
                           wait_for(b->waiter, SWL_FAULT_COUNTS, g->in[j].rank),
                           connection_of(g, RINGS_IN, j * s->nrings), &counts))
            or_in_block(&b->common->step_failed, 1u);
        g->counts_seen[j]++;
    }
    block_sync();
    if (read_in_block(&b->common->step_failed))
        return false;
    for (uint32_t j = 0; j < s->nserved; j++) {
        const uint32_t *in = own_u32(g, g->at.counts_in, (uint64_t)j * swl_count_words(s));

        for (uint32_t i = block_thread(); i < s->nlocal * columns; i += block_threads()) {
            const uint32_t local = i / columns, e = i % columns;
            const uint32_t number =
                e == 0 ? in[local] : in[s->max_local + local * s->nlocal_experts + e - 1];

            *peer_u32(g, local, g->at.counts_table, table_row(b, g->in[j].rank) + e) =
                message_number(b, number, s->max_tokens, SWL_FAULT_COUNTS, g->in[j].rank);
        }
        for (uint32_t p = block_thread(); p < s->nrings; p += block_threads())
            b->recv_n[j * s->nrings + p] =
                message_number(b, in[s->max_local * (1 + s->nlocal_experts) + p], s->max_tokens,
                               SWL_FAULT_COUNTS, g->in[j].rank);
    }
    tell_locals(b, g->at.counts_ready);
    return true;
}

/* Destination: exclusive prefix of the token column in rank order; each base goes to the local rank
 * that brings that source's rows. Warp 0. */
SWL_DEV void send_bases(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct swl_shape *s = &g->shape;
    uint32_t sum = 0;

    for (uint32_t first = 0; first < s->nranks; first += 32) {
        const uint32_t rank = first + lane_id();
        const uint32_t count =
            rank < s->nranks ? *own_u32(g, g->at.counts_table, table_row(b, rank)) : 0;
        const uint32_t upto = warp_prefix(count);

        if (rank < s->nranks)
            *peer_u32(g, g->gateway_local[rank], g->at.bases_of,
                      (uint64_t)s->local * s->nranks + rank) = sum + upto - count;
        sum += warp_shfl(upto, 31);
    }
}

/* Trip 2: bases back to the served sources; own bases. Who crosses a budget is noted before: a
 * source that has its bases may send the counts of its next update. */
SWL_DEV bool forward_bases(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct swl_shape *s = &g->shape;

    for (uint32_t i = block_thread(); i < s->nserved * s->nlocal; i += block_threads()) {
        const uint32_t j = i / s->nlocal, local = i % s->nlocal;
        const uint32_t base =
            *own_u32(g, g->at.bases_of, (uint64_t)local * s->nranks + g->in[j].rank);

        *own_u32(g, g->at.bases_out, (uint64_t)j * s->max_local + local) = base;
        g->crossing[i] = rows_cross_budget(
            s, base, *own_u32(g, g->at.counts_in, (uint64_t)j * swl_count_words(s) + local));
    }
    for (uint32_t i = block_thread(); i < s->nlocal; i += block_threads())
        g->base[g->local_rank[i]] = *own_u32(g, g->at.bases_of, (uint64_t)i * s->nranks + s->rank);
    block_sync();
    if (!first_thread())
        return true;
    for (uint32_t j = 0; j < s->nserved; j++) {
        const uint32_t y = j * s->nrings, n = g->in[j].index;
        const struct connection conn = connection_of(g, RINGS_IN, y);
        const struct waiter w = wait_for(b->waiter, SWL_FAULT_QUEUE, g->in[j].rank);

        if (!connection_write(conn,
                              {g->at.bases_out + 4ull * j * s->max_local,
                               g->at.bases_in + 4ull * n * s->max_local, 4 * s->max_local},
                              w) ||
            !qp_add(conn.qp, w, conn.remote->base + g->at.bases_tail + 8ull * n,
                    conn.remote->signal_rkey, 1))
            return false;
        qp_ring(conn.qp);
    }
    return true;
}

/* Source: bases of all other nodes. */
SWL_DEV bool take_bases(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct swl_shape *s = &g->shape;

    block_sync(); /* the queue pairs that the bases of others went into are anybody's now */
    for (uint32_t n = block_thread(); n < swl_remote_nodes(s); n += block_threads()) {
        const struct route_sent bases = {RINGS_IN, n, swl_remote_nodes(s)};

        if (!await_message(b, own_word(g, g->at.bases_tail, n), g->bases_seen[n],
                           wait_for(b->waiter, SWL_FAULT_BASES, g->out[n].rank),
                           connection_of(g, RINGS_OUT, n * s->nrings), &bases))
            or_in_block(&b->common->step_failed, 1u);
        g->bases_seen[n]++;
        for (uint32_t i = 0; i < s->max_local; i++) {
            const uint32_t rank = g->node_rank[(uint64_t)g->out[n].node * s->max_local + i];

            if (rank != SWL_NO_PEER)
                g->base[rank] =
                    message_number(b, *own_u32(g, g->at.bases_in, (uint64_t)n * s->max_local + i),
                                   s->nranks * s->max_tokens, SWL_FAULT_BASES, g->out[n].rank);
        }
    }
    block_sync();
    return read_in_block(&b->common->step_failed) == 0;
}

/* All threads of block 0. Afterwards every base of this rank is in g->base. */
SWL_DEV bool route_exchange(const struct route_block *b)
{
    const uint32_t kind = b->g->shape.nnodes > 1 ? SWL_FAULT_FORWARDED : SWL_FAULT_COUNTS;

    if (!forward_counts(b) || !await_locals(b, b->g->at.counts_ready, kind))
        return false;
    if (warp_id() == 0)
        send_bases(b);
    tell_locals(b, b->g->at.base_ready);
    if (!await_locals(b, b->g->at.base_ready, SWL_FAULT_BASES))
        return false;
    if (!forward_bases(b))
        or_in_block(&b->common->step_failed, 1u);
    return take_bases(b);
}
