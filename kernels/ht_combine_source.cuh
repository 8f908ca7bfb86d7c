/* ht_combine_source.cuh: odd SM, what the source of the tokens does. Layer: kernels.
 *
 * ht_combine_request (one warp): tell the gateways which rows to add, in the order of the lists.
 * Reads:    handle                          Writes: slots of its own request rings
 * Waits:    request_credit                  Signals: window bits -> ht_combine_source_coord
 * Progress: never waits for partial sums
 *
 * ht_combine_source_coord (one lane): posts requests, returns credit of partial sums.
 * Waits:    window bits of requests, windows of consumed partial sums
 * Signals:  request_tail, partial_credit at the gateway
 * Ends:     every request is posted and every partial sum credited
 *
 * ht_combine_sum (summer warps): output row of a token = sum over its nodes.
 * Reads:    rows of the own node (loads, or fetched), partial_in     Writes: user output
 * Waits:    entry words, fetched rows, partial_tail    Signals: partial_used bits, exit words
 * Order:    acquire.sys of partial_tail by the term's lane, warp_sync, plain loads; all lanes' loads,
 *           warp_sync, release of the used bit
 * Progress: tokens are taken in order, so the first unfinished token finds every older partial sum of
 *           its rings consumed, hence credit for the gateway (chunk <= ring / 2) */
#pragma once

#include "kernels/ht_combine.cuh"

SWL_DEV bool await_request_credit(const struct combine_block *b, uint32_t x, uint64_t position)
{
    const struct swl_device_group *g = b->g;
    const uint64_t *word = own_word(g, g->at.request_credit, x);
    const struct wait_at at =
        combine_at(b, SWL_FAULT_SEND_CREDIT, SWL_WARP_REQUESTER, g->out[x / g->shape.nrings].rank);

    for (;;) {
        const uint64_t credit = read_from_nic(word);

        if (position - credit < g->shape.ring_slots)
            return true;
        if (!wait_again(&b->common->watch, at, position, credit,
                        SWL_PAUSE("request credit of rank", at.peer, b->channel)))
            return false;
    }
}

/* All lanes: the request of one token for ring x. */
SWL_DEV bool request_token(const struct combine_block *b, struct warp_scratch *list, uint32_t x,
                           uint64_t position, uint32_t token)
{
    const struct swl_device_group *g = b->g;
    const uint32_t node = g->out[x / g->shape.nrings].node;
    const uint32_t n =
        select_in_node(g, &b->h, token, node, SWL_ID_VALID | SWL_ID_FIRST_RANK, 0, list);
    const uint64_t ring = (uint64_t)x * g->shape.ring_slots + position % g->shape.ring_slots;
    struct swl_request *to =
        (struct swl_request *)(g->window + g->at.request_out + ring * swl_request_bytes(&g->shape));
    struct swl_request_row *row = (struct swl_request_row *)(to + 1);
    bool ok = true;

    if (lane_id() == 0)
        ok = await_request_credit(b, x, position);
    if (!warp_all(ok))
        return false;
    warp_sync();
    if (lane_id() == 0) {
        const struct vec16 v = {
            {(uint32_t)b->common->gen_call, (uint32_t)(b->common->gen_call >> 32), token, n}};

        store_data((struct vec16 *)to, v);
    }
    for (uint32_t i = lane_id(); i < n; i += 32) {
        row[i].row = list->sel[i].row;
        row[i].gpu = list->sel[i].gpu;
    }
    warp_sync();
    if (lane_id() == 0) /* pairs with read_in_block in request_post */
        window_finish_in_block(&b->rings.request_out[x / g->shape.nchannels], position);
    return true;
}

SWL_ROLE void ht_combine_request(const struct combine_block *b, uint32_t index, uint32_t nwarps,
                                 struct warp_scratch *list)
{
    const struct channel_items items = channel_items_of(b->g, &b->h, b->channel);

    for (uint32_t item = index; item < channel_item_count(&items); item += nwarps) {
        uint32_t x, i;

        if (channel_item(&items, item, &x, &i) &&
            !request_token(b, list, x, b->g->now.request_sent[x] + i,
                           b->h.list[b->h.list_start[x] + i]))
            return;
    }
}

/* Post finished requests of ring x: a chunk, or all that is left. Number posted, or -1. */
SWL_DEV int request_post(const struct combine_block *b, uint32_t x, uint64_t sent, uint64_t end)
{
    const struct swl_device_group *g = b->g;
    uint64_t *window = &b->rings.request_out[x / g->shape.nchannels];
    const uint32_t ready = window_run(read_in_block(window), sent); /* pairs with request_token */
    const uint32_t room = slots_before_wrap(sent, g->shape.ring_slots);
    const uint32_t n = swl_min_u32(ready, swl_min_u32(room, g->shape.chunk_slots));
    const uint32_t bytes = swl_request_bytes(&g->shape);
    const uint64_t slot = sent % g->shape.ring_slots;
    const struct wait_at at =
        combine_at(b, SWL_FAULT_QUEUE, SWL_WARP_SOURCE_COORDINATOR, SWL_NO_PEER);

    if (n == 0 || (n < g->shape.chunk_slots && n < room && sent + n < end))
        return 0;
    and_in_block(window, ~window_bits(sent, n));
    if (!out_write(g, x, g->at.request_out + ((uint64_t)x * g->shape.ring_slots + slot) * bytes,
                   g->at.request_in +
                       ((uint64_t)out_index(g, x) * g->shape.ring_slots + slot) * bytes,
                   n * bytes, &b->common->watch, at) ||
        !out_add(g, x, g->at.request_tail, n, &b->common->watch, at))
        return -1;
    qp_ring(out_qp(g, x));
    return (int)n;
}

/* Return credit of ring x for consumed partial sums. Number credited, or -1. */
SWL_DEV int partial_credit(const struct combine_block *b, uint32_t x, uint64_t from, uint64_t end)
{
    const struct swl_device_group *g = b->g;
    const uint32_t n =
        window_run(read_in_gpu(&g->partial_used[x]), from); /* pairs with sum_token */
    const struct wait_at at =
        combine_at(b, SWL_FAULT_QUEUE, SWL_WARP_SOURCE_COORDINATOR, SWL_NO_PEER);

    if (n == 0 || (n < g->shape.chunk_slots && from + n < end))
        return 0;
    and_in_gpu(&g->partial_used[x], ~window_bits(from, n));
    if (!out_add(g, x, g->at.partial_credit, n, &b->common->watch, at))
        return -1;
    qp_ring(out_qp(g, x));
    return (int)n;
}

/* Both duties for ring x: 1 moved, 0 nothing, -1 failed; *open_p: something is left. */
SWL_DEV int source_turn(const struct combine_block *b, uint32_t x, bool *open_p)
{
    const struct swl_device_group *g = b->g;
    const uint32_t count = list_length(&b->h, x);
    const uint64_t sent_end = g->now.request_sent[x] + count;
    const uint64_t used_end = g->now.partial_recv[x] + count;
    const int posted = request_post(b, x, g->next.request_sent[x], sent_end);
    int credited;

    if (posted < 0)
        return -1;
    g->next.request_sent[x] += (uint32_t)posted;
    credited = partial_credit(b, x, g->next.partial_recv[x], used_end);
    if (credited < 0)
        return -1;
    g->next.partial_recv[x] += (uint32_t)credited;
    g->next.partial_credited[x] += (uint32_t)credited;
    *open_p = g->next.request_sent[x] != sent_end || g->next.partial_recv[x] != used_end;
    return posted > 0 || credited > 0;
}

/* Lane 0 of its warp. */
SWL_ROLE void ht_combine_source_coord(const struct combine_block *b)
{
    const struct swl_device_group *g = b->g;
    const uint32_t c = g->shape.nchannels;
    const uint32_t nrings = channel_rings(out_rings(g), b->channel, c);
    const struct wait_at at =
        combine_at(b, SWL_FAULT_PARTIAL, SWL_WARP_SOURCE_COORDINATOR, g->shape.rank);
    uint32_t open = nrings;

    while (open) {
        bool moved = false;

        open = 0;
        for (uint32_t r = 0; r < nrings; r++) {
            bool more;
            const int n = source_turn(b, b->channel + r * c, &more);

            if (n < 0)
                return;
            moved = moved || n > 0;
            open += more;
        }
        if (open && !moved &&
            (!out_poll_channel(g, b->channel, &b->common->watch, at) ||
             !wait_again(&b->common->watch, at, open, 0,
                         SWL_PAUSE("requests and partial sums of own warps", b->channel, open))))
            return;
    }
}

/* Key of a term: node << 16 | local rank; the terms of a token are sorted by it. */
SWL_DEV uint32_t term_key(const struct combine_block *b, uint64_t place)
{
    const struct swl_device_group *g = b->g;
    const uint32_t id = b->h.id[place];
    const uint32_t rank = (id & SWL_ID_MASK) / g->shape.nlocal_experts;
    uint32_t node;

    if (!(id & SWL_ID_VALID))
        return SWL_KEY_NONE;
    node = g->rank_node[rank];
    if (node == g->shape.node)
        return id & SWL_ID_FIRST_RANK && b->h.row[place] != SWL_ROW_NONE
                   ? node << 16 | g->rank_local[rank]
                   : SWL_KEY_NONE;
    return id & SWL_ID_FIRST_NODE ? node << 16 : SWL_KEY_NONE;
}

/* Ring and position of the partial sum of `token` from node `node`. */
SWL_DEV uint32_t partial_ring(const struct combine_block *b, uint32_t token, uint32_t node)
{
    const uint32_t n = node < b->g->shape.node ? node : node - 1;

    return n * b->g->shape.nrings + token % b->g->shape.nrings;
}

SWL_DEV bool await_partial(const struct combine_block *b, uint32_t x, uint64_t position,
                           const char **at_p)
{
    const struct swl_device_group *g = b->g;
    const uint64_t *word = own_word(g, g->at.partial_tail, x);
    const struct wait_at at =
        combine_at(b, SWL_FAULT_PARTIAL, SWL_WARP_SUMMER, g->out[x / g->shape.nrings].rank);

    for (;;) {
        const uint64_t tail = read_from_nic(word); /* acquire: pairs with the gateway's add */

        if (tail > position)
            break;
        if (!wait_again(&b->common->watch, at, position + 1, tail,
                        SWL_PAUSE("partial sum of rank", at.peer, b->channel)))
            return false;
    }
    *at_p = g->window + g->at.partial_in +
            ((uint64_t)x * g->shape.ring_slots + position % g->shape.ring_slots) *
                swl_partial_bytes(&g->shape);
    return true;
}

/* One lane: term of selection k with key `key`. */
SWL_DEV bool token_term(const struct combine_block *b, const struct gatherer *ga, uint32_t token,
                        uint64_t place, uint32_t key, struct sum_term *term)
{
    const uint32_t node = key >> 16;
    uint32_t x;

    if (node == b->g->shape.node) {
        term->fp32 = 0;
        return term_of_local(ga, key & 0xffff, b->h.row[place], &term->at);
    }
    x = partial_ring(b, token, node);
    term->fp32 = b->g->shape.wire_fp32;
    return await_partial(b, x, b->g->now.partial_recv[x] + b->h.at[place], &term->at);
}

/* All lanes: the sorted terms of `token`; false = given up. */
SWL_DEV bool token_terms(const struct combine_block *b, const struct gatherer *ga, uint32_t token,
                         uint32_t *count_p)
{
    struct warp_scratch *s = ga->list;
    const uint64_t first = (uint64_t)token * b->a->topk;
    bool ok = true;

    for (uint32_t k = lane_id(); k < b->a->topk; k += 32)
        s->key[k] = term_key(b, first + k);
    warp_sync();
    *count_p = 0;
    for (uint32_t k = lane_id(); k < b->a->topk || k == (uint32_t)lane_id(); k += 32) {
        const uint32_t key = k < b->a->topk ? s->key[k] : SWL_KEY_NONE;
        const uint32_t place = key_place(s, b->a->topk, key, count_p);
        struct sum_term *term = &s->term[place < SWL_TOPK_MAX ? place : 0];

        if (key == SWL_KEY_NONE || !ok)
            continue;
        ok = token_term(b, ga, token, first + k, key, term);
        term->first_of_node = 1;
        for (uint32_t j = 0; j < b->a->topk; j++)
            if (s->key[j] < key && s->key[j] >> 16 == key >> 16)
                term->first_of_node = 0;
    }
    ok = warp_all(ok);
    warp_sync(); /* what the term lanes acquired is every lane's */
    return ok;
}

SWL_DEV bool sum_token(const struct combine_block *b, const struct gatherer *ga, uint32_t token)
{
    const uint64_t first = (uint64_t)token * b->a->topk;
    uint32_t n;

    if (!token_terms(b, ga, token, &n))
        return false;
    sum_terms(ga, n, b->a->out_tokens + (uint64_t)token * b->a->row_bytes, false);
    warp_sync(); /* all lanes have read the partial sums and the landing slots */
    for (uint32_t k = lane_id(); k < b->a->topk; k += 32) {
        const uint32_t key = ga->list->key[k];

        if (key != SWL_KEY_NONE && key >> 16 != b->g->shape.node) {
            const uint32_t x = partial_ring(b, token, key >> 16);

            window_finish_in_gpu(&b->g->partial_used[x],
                                 b->g->now.partial_recv[x] + b->h.at[first + k]);
        }
    }
    warp_sync();
    return true;
}

SWL_ROLE void ht_combine_sum(const struct combine_block *b, const struct gatherer *ga,
                             uint32_t index, uint32_t nsummers)
{
    const uint32_t step = nsummers * b->g->shape.nchannels;

    if (!await_entries(b->g, ga->w, ga->at))
        return;
    for (uint32_t t = index * b->g->shape.nchannels + b->channel; t < b->a->ntokens; t += step)
        if (!sum_token(b, ga, t))
            return;
    gatherer_exit(ga);
}
