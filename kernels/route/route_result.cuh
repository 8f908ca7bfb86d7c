/* route_result.cuh: what an update tells the user and the later calls. Layer: kernels.
 *
 * Run by block 0 after the rows are final. When the rows of one source cross this rank's budget,
 * only that source knows which experts its surviving tokens chose: it sends these counts (third
 * trip). */
#pragma once

#include "kernels/route/route_exchange.cuh"

/* Source: counts for the crossing destinations of remote node n; true if there are any. */
SWL_DEV bool overflow_build(const struct route_block *b, uint32_t n)
{
    const struct swl_device_group *g = b->g;
    const struct swl_shape *s = &g->shape;
    const uint32_t *ranks = g->node_rank + (uint64_t)g->out[n].node * s->max_local;
    const uint32_t words = s->max_local * s->nlocal_experts;
    bool any = false;

    for (uint32_t i = 0; i < s->max_local; i++)
        any = any || (ranks[i] != SWL_NO_PEER && bin_crosses_budget(g, ranks[i]));
    for (uint32_t i = block_thread(); any && i < words; i += block_threads()) {
        const uint32_t rank = ranks[i / s->nlocal_experts];

        *own_u32(g, g->at.overflow_out, (uint64_t)n * words + i) =
            rank == SWL_NO_PEER
                ? 0
                : g->overflow_count[(uint64_t)rank * s->nlocal_experts + i % s->nlocal_experts];
    }
    return any;
}

/* Source: to crossing destinations of the own node directly, of other nodes to their gateways. */
SWL_DEV void send_overflow_counts(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct swl_shape *s = &g->shape;

    for (uint32_t n = 0; n < swl_remote_nodes(s); n++) {
        const bool any = overflow_build(b, n);

        block_sync();
        if (any && first_thread() &&
            !message_out(b, n, g->at.overflow_out, g->at.overflow_in, g->at.overflow_tail,
                         s->max_local * s->nlocal_experts))
            b->common->step_failed = 1;
    }
    for (uint32_t i = 0; i < s->nlocal; i++) {
        const uint32_t rank = g->local_rank[i];

        if (!bin_crosses_budget(g, rank))
            continue;
        for (uint32_t e = block_thread(); e < s->nlocal_experts; e += block_threads())
            *peer_u32(g, i, g->at.overflow_table, (uint64_t)s->local * s->nlocal_experts + e) =
                g->overflow_count[(uint64_t)rank * s->nlocal_experts + e];
        block_sync();
        if (first_thread())
            publish_to_peer(peer_word(g, i, g->at.overflow_ready, s->local), b->common->gen_call);
    }
}

/* Gateway: counts of served sources that cross the budget, to the local ranks where they do. */
SWL_DEV bool forward_overflow_counts(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct swl_shape *s = &g->shape;

    for (uint32_t j = 0; j < s->nserved; j++) {
        const uint32_t *crossing = g->crossing + (uint64_t)j * s->nlocal;
        bool any = false;

        for (uint32_t i = 0; i < s->nlocal; i++)
            any = any || crossing[i];
        if (!any)
            continue;
        if (first_thread()) {
            const struct route_sent counts = {RINGS_OUT, 0, 1};

            if (!await_message(b, own_word(g, g->at.overflow_tail, j), g->overflow_seen[j],
                               wait_for(b->waiter, SWL_FAULT_OVERFLOW_COUNTS, g->in[j].rank),
                               connection_of(g, RINGS_IN, j * s->nrings), &counts))
                b->common->step_failed = 1;
            g->overflow_seen[j]++;
        }
        block_sync();
        if (read_in_block(&b->common->step_failed))
            return false;
        for (uint32_t i = 0; i < s->nlocal; i++) {
            if (!crossing[i])
                continue;
            for (uint32_t e = block_thread(); e < s->nlocal_experts; e += block_threads())
                *peer_u32(g, i, g->at.overflow_table, (uint64_t)s->local * s->nlocal_experts + e) =
                    message_number(
                        b,
                        *own_u32(g, g->at.overflow_in,
                                 ((uint64_t)j * s->max_local + i) * s->nlocal_experts + e),
                        s->max_tokens, SWL_FAULT_OVERFLOW_COUNTS, g->in[j].rank);
            block_sync();
            if (first_thread())
                publish_to_peer(peer_word(g, i, g->at.overflow_ready, s->local),
                                b->common->gen_call);
        }
    }
    return true;
}

/* Column sums of this destination, source by source in rank order. */
struct arriving {
    uint32_t total;           /* rows before dropping */
    uint32_t crossing_source; /* source whose rows cross the budget, or SWL_NO_PEER */
};

SWL_DEV struct arriving arriving_of(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    struct arriving a = {0, SWL_NO_PEER};

    for (uint32_t s = 0; s < g->shape.nranks; s++) {
        const uint32_t count = *own_u32(g, g->at.counts_table, table_row(b, s));

        if (rows_cross_budget(&g->shape, a.total, count))
            a.crossing_source = s;
        a.total += count;
    }
    return a;
}

SWL_DEV void store_counter(const struct swl_route_args *a, void *to, uint64_t index, uint32_t value)
{
    if (!to)
        return;
    if (a->int_bytes == 8)
        ((int64_t *)to)[index] = value;
    else
        ((int32_t *)to)[index] = (int32_t)value;
}

/* Rows delivered per source, for the user. One thread. */
SWL_DEV void store_sources(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    uint32_t base = 0;

    for (uint32_t s = 0; b->a->src_counters && s < g->shape.nranks; s++) {
        const uint32_t count = *own_u32(g, g->at.counts_table, table_row(b, s));

        store_counter(b->a, b->a->src_counters, s, rows_within(&g->shape, base, count));
        base += count;
    }
}

/* Selections delivered to local expert e. */
SWL_DEV uint32_t expert_rows(const struct route_block *b, const struct arriving *in, uint32_t e)
{
    const struct swl_device_group *g = b->g;
    uint32_t base = 0, sum = 0;

    for (uint32_t s = 0; s < g->shape.nranks; s++) {
        const uint64_t row = table_row(b, s);
        const uint32_t count = *own_u32(g, g->at.counts_table, row);

        if (s == in->crossing_source)
            sum += *own_u32(g, g->at.overflow_table,
                            (uint64_t)g->gateway_local[s] * g->shape.nlocal_experts + e);
        else if (base + count <= g->shape.max_rows)
            sum += *own_u32(g, g->at.counts_table, row + 1 + e);
        base += count;
    }
    return sum;
}

SWL_DEV bool await_overflow_counts(const struct route_block *b, uint32_t crossing_source)
{
    const struct swl_device_group *g = b->g;
    const uint64_t *word = own_word(g, g->at.overflow_ready, g->gateway_local[crossing_source]);

    for (;;) {
        const uint64_t seen = read_from_peer(word);

        if (seen == b->common->gen_call)
            return true;
        if (!wait_again(wait_for(b->waiter, SWL_FAULT_OVERFLOW_COUNTS, crossing_source),
                        b->common->gen_call, seen,
                        SWL_PAUSE("expert counts of rank", crossing_source, 0)))
            return false;
    }
}

/* The number under which the host expects the count. That of a captured update was taken when it
 * was captured; the host may have enqueued others since, whose numbers are in the word (they have
 * ended). */
SWL_DEV uint32_t mailbox_seq(const struct swl_route_args *a)
{
    if (!a->mailbox || !a->captured)
        return a->seq;
    const uint32_t last = (uint32_t)(read_from_host(a->mailbox) >> 32);

    return (int32_t)(last - a->seq) > 0 ? last : a->seq;
}

/* The host does not know of replays, so a replay takes the last count back. */
SWL_DEV void mailbox_open(const struct route_block *b)
{
    if (b->a->mailbox && b->a->captured)
        publish_to_host(b->a->mailbox, (uint64_t)b->seq << 32 | SWL_ROWS_UNKNOWN);
}

/* Header of the handle and the numbers that go to the host. One thread, last of all. */
SWL_DEV void store_head(const struct route_block *b, const struct arriving *in)
{
    const struct swl_device_group *g = b->g;
    const struct swl_route_args *a = b->a;
    const uint32_t rows = swl_min_u32(in->total, g->shape.max_rows);
    struct swl_handle_head *h = b->head;

    h->magic = SWL_HANDLE_MAGIC;
    h->format = SWL_HANDLE_FORMAT;
    h->fingerprint = a->fingerprint;
    h->id_bytes = a->id_bytes;
    h->topk = a->topk;
    h->tokens = a->tokens;
    h->alignment = a->alignment;
    h->recv_rows = rows;
    h->recv_total = in->total;
    h->complete = 1;
    store_counter(a, a->recv_total, 0, in->total);
    if (in->total > rows) {
        g->state->dropped += in->total - rows;
        publish_to_host(g->host_dropped, g->state->dropped);
        if (g->trap)
            or_in_gpu(&g->state->async_bits, SWL_ASYNC_OVERFLOW);
    }
    if (a->mailbox)
        publish_to_host(a->mailbox, (uint64_t)b->seq << 32 | rows);
}

/* All threads of block 0. */
SWL_DEV bool route_result(const struct route_block *b)
{
    const struct arriving in = arriving_of(b);

    send_overflow_counts(b);
    if (!forward_overflow_counts(b))
        return false;
    if (in.crossing_source != SWL_NO_PEER) {
        if (first_thread() && !await_overflow_counts(b, in.crossing_source))
            b->common->step_failed = 1;
        block_sync();
        if (read_in_block(&b->common->step_failed))
            return false;
    }
    for (uint32_t e = block_thread(); b->a->expert_counters && e < b->g->shape.nlocal_experts;
         e += block_threads())
        store_counter(b->a, b->a->expert_counters, e, expert_rows(b, &in, e));
    if (first_thread() && !watch_given_up(&b->common->watch)) { /* by a number out of bounds, say */
        store_sources(b);
        store_head(b, &in);
    }
    return true;
}
