/* ht_combine_source.cuh: odd SM, what the source of the tokens does. Layer: kernels.
 *
 * ht_combine_request (few warps): tell the gateways which rows to add, in the order of the lists.
 * Reads:    handle                          Writes: slots of its own request rings
 * Waits:    request_credit of any ring      Signals: mask bits -> ht_combine_source_coord
 * Order:    acquire.sys of request_credit by a lane of the block, limit word, warp_sync, stores
 * Progress: never waits for partial sums, nor for one ring while another has room: the summers free
 *           partial sums in token order over all rings, so that the request of the oldest token
 *           must not stand behind a ring that is full
 *
 * ht_combine_source_coord (one lane): posts requests, returns credit of partial sums.
 * Waits:    mask bits of requests and of consumed partial sums
 * Signals:  request_tail, partial_credit at the gateway
 * Ends:     every request is posted and every partial sum credited
 *
 * ht_combine_sum (summer warps): output row of a token = sum over its nodes.
 * Reads:    rows of the own node (in place, or fetched), partial_in     Writes: user output
 * Waits:    open record, fetched rows, partial_tail    Signals: partial_used bits, exit words
 * Order:    acquire.sys of partial_tail by the contribution's lane, warp_sync, loads of all lanes;
 *           warp_sync, release of the used bit
 * Progress: tokens are taken in order and a warp waits only for its oldest one, so the first
 *           unfinished token finds every older partial sum of its rings consumed, hence credit for
 *           the gateway (chunk <= ring / 2) */
#pragma once

#include "kernels/ht/ht_combine.cuh"

/* All lanes: the request of one token for ring x. */
SWL_DEV void request_token(const struct combine_block *b, struct warp_scratch *list, uint32_t x,
                           uint64_t position, uint32_t token)
{
    const struct swl_device_group *g = b->g;
    const uint32_t node = ring_end(g, RINGS_OUT, x)->node;
    const uint32_t n = select_in_node(&b->h, token, node, SWL_ID_VALID | SWL_ID_FIRST_ROW, 0, list);
    const uint64_t slot = slot_number(&g->shape, x, position);
    struct swl_request *to = (struct swl_request *)(g->window + g->at.ht.request_out +
                                                    slot * swl_request_bytes(&g->shape));
    struct swl_request_row *row = (struct swl_request_row *)(to + 1);

    if (lane_id() == 0) {
        const struct vec16 v = {{(uint32_t)b->common->gen_call,
                                 (uint32_t)(b->common->gen_call >> 32), token,
                                 n | swl_call_tag(&b->a->entry)}};

        store_data((struct vec16 *)to, v);
    }
    for (uint32_t i = lane_id(); i < n; i += 32) {
        row[i].row = list->sel[i].row;
        row[i].gpu = list->sel[i].gpu;
    }
    warp_sync();
    if (lane_id() == 0) /* pairs with read_in_block in duty_turn */
        mask_finish_in_block(&b->rings.filled[x / g->shape.nchannels], position);
}

SWL_ROLE void ht_combine_request(const struct combine_block *b, uint32_t index,
                                 struct warp_scratch *list)
{
    const struct ring_room room = {b->g, b->h.list, b->rings, b->g->at.ht.request_credit,
                                   b->waiter};
    uint32_t turn = index, x, token;
    uint64_t position;

    while (room_take(room, &turn, &x, &position, &token))
        request_token(b, list, x, position, token);
}

/* Lane 0 of its warp. */
SWL_ROLE void ht_combine_source_coord(const struct combine_block *b)
{
    const struct swl_device_group *g = b->g;
    const uint32_t bytes = swl_request_bytes(&g->shape);
    const struct waiter w = wait_for(b->waiter, SWL_FAULT_PARTIAL, g->shape.rank);
    struct coordinator c = {g,  &b->h, RINGS_OUT, w, "requests and partial sums of own warps",
                            {}, {}};

    c.first = duty_of(DUTY_POST, b->rings.filled, g->ht.now.request_sent, g->ht.next.request_sent,
                      g->at.ht.request_tail);
    c.first.slots = {g->at.ht.request_out, g->at.ht.request_in, bytes, bytes};
    c.second = duty_of(DUTY_CREDIT, g->ht.partial_used, g->ht.now.partial_recv,
                       g->ht.next.partial_recv, g->at.ht.partial_credit);
    c.second.in_gpu = true;
    c.second.credited = g->ht.next.partial_credited;
    coordinate(c);
}

/* Key of a contribution: node << 16 | local rank; the contributions of a token are sorted by it. */
SWL_DEV uint32_t contribution_key(const struct combine_block *b, const struct gatherer *ga,
                                  uint64_t place)
{
    const uint32_t id = b->h.id[place], row = b->h.row[place];
    uint32_t key;

    if (!(id & SWL_ID_VALID))
        return SWL_KEY_NONE;
    key = b->h.place[expert_rank(b->h.per_expert, id & SWL_ID_MASK)];
    if (key >> 16 != b->g->shape.node)
        return id & SWL_ID_FIRST_NODE ? key & 0xffff0000u : SWL_KEY_NONE;
    return id & SWL_ID_FIRST_ROW && row != SWL_ROW_NONE &&
                   contribution_exists(ga, key & 0xffff, row)
               ? key
               : SWL_KEY_NONE;
}

/* Ring and position of the partial sum of `token` from node `node`. */
SWL_DEV uint32_t partial_ring(const struct combine_block *b, uint32_t token, uint32_t node)
{
    const uint32_t n = node < b->g->shape.node ? node : node - 1;

    return n * b->g->shape.nrings + token % b->g->shape.nrings;
}

/* One lane: the partial sum of `token` from another node; `place` of its selection. */
SWL_DEV void contribution_of_node(const struct combine_block *b, uint32_t token, uint64_t place,
                                  uint32_t node, struct contribution *contribution)
{
    const struct swl_device_group *g = b->g;
    const uint32_t x = partial_ring(b, token, node);
    const uint64_t position = g->ht.now.partial_recv[x] + b->h.at[place];

    contribution->kind = SUM_PARTIAL;
    contribution->ring = x;
    contribution->position = (uint32_t)position;
    contribution->wide = g->shape.wire_fp32 && b->a->dtype != SWL_FP32;
    contribution->at = g->window + g->at.ht.partial_in +
                       slot_number(&g->shape, x, position) * swl_partial_bytes(&g->shape);
}

/* Tokens that a warp lists together: `width` lanes each, a power of two and not less than K; with
 * width 64 one token in two rounds. The keys of the tokens are in ga->scratch. */
struct token_batch {
    uint32_t width, first, step, n;
};

struct token_place {       /* of a selection in its token */
    uint32_t place, count; /* contributions before it, and in all */
    bool first;            /* another node than the contribution before */
};

SWL_DEV struct token_place token_place_of(const uint32_t *key, uint32_t topk, uint32_t own)
{
    struct token_place p = {0, 0, true};

    for (uint32_t j = 0; j < topk; j++) {
        p.count += key[j] != SWL_KEY_NONE;
        p.place += key[j] < own;
        p.first = p.first && !(key[j] < own && key[j] >> 16 == own >> 16);
    }
    p.first = p.first && p.place > 0;
    return p;
}

/* All lanes: the lists of a batch, token `prepared` and later of the pipe. */
SWL_DEV void batch_lists(const struct combine_block *b, struct gather_pipe *p,
                         const struct token_batch *batch)
{
    const struct swl_combine_args *a = b->a;
    const uint32_t t = lane_id() / batch->width, k0 = lane_id() % batch->width;
    const uint32_t lanes = batch->width < 32 ? (1u << batch->width) - 1 : ~0u;
    const uint32_t token = batch->first + t * batch->step;
    const uint64_t first = (uint64_t)token * a->topk;
    uint32_t *key = p->ga.scratch->key + t * batch->width;
    struct sum_list *list = gather_list(p, p->prepared + t);
    bool waits = false, mixed = false;
    struct token_place at = {0, 0, false};

    for (uint32_t k = k0; k < batch->width; k += 32)
        key[k] =
            t < batch->n && k < a->topk ? contribution_key(b, &p->ga, first + k) : SWL_KEY_NONE;
    warp_sync();
    for (uint32_t k = k0; k < batch->width && t < batch->n; k += 32) {
        at = token_place_of(key, a->topk, key[k]);
        if (key[k] != SWL_KEY_NONE) {
            struct contribution *contribution = &list_contributions(list)[at.place];

            contribution->first = at.first;
            if (key[k] >> 16 == b->g->shape.node)
                contribution_of_local(&p->ga, key[k] & 0xffff, b->h.row[first + k], contribution);
            else
                contribution_of_node(b, token, first + k, key[k] >> 16, contribution);
            waits = waits || contribution_waits(contribution);
            mixed = mixed || at.first || contribution->wide;
        }
    }
    waits = (warp_ballot(waits) >> (lane_id() - k0 % 32) & lanes) != 0;
    mixed = (warp_ballot(mixed) >> (lane_id() - k0 % 32) & lanes) != 0;
    if (t < batch->n && k0 == 0) {
        list->out = a->out_tokens + (uint64_t)token * a->row_bytes;
        list->ncontributions = at.count;
        list->waits = waits;
        list->mixed = mixed;
    }
    warp_sync();
}

struct sum_source { /* of tokens, gather.cuh */
    const struct combine_block *b;
    uint32_t width; /* of a token in a batch */
    uint32_t token, step, left;
};

SWL_DEV uint32_t source_ahead(const struct sum_source *)
{
    return ~0u; /* as many as there are lists for */
}

SWL_DEV int source_prepare(struct sum_source *s, struct gather_pipe *p, uint32_t most, bool)
{
    const uint32_t fit = s->width < 32 ? 32 / s->width : 1;
    const struct token_batch batch = {s->width, s->token, s->step,
                                      swl_min_u32(swl_min_u32(most, fit), s->left)};

    if (batch.n == 0)
        return 0;
    batch_lists(s->b, p, &batch);
    s->token += batch.n * s->step;
    s->left -= batch.n;
    return (int)batch.n;
}

/* The partial sums are read: pairs with read_in_gpu in duty_turn. */
SWL_DEV void source_finish(struct sum_source *s, struct sum_list *list)
{
    for (uint32_t i = lane_id(); i < list->ncontributions; i += 32) {
        const struct contribution *contribution = &list_contributions(list)[i];

        if (contribution->kind == SUM_PARTIAL)
            mask_finish_in_gpu(&s->b->g->ht.partial_used[contribution->ring],
                               contribution->position);
    }
}

SWL_ROLE void ht_combine_sum(const struct combine_block *b, struct gather_pipe *pipe,
                             uint32_t index, uint32_t nsummers)
{
    const uint32_t c = b->g->shape.nchannels, first = index * c + b->channel, step = nsummers * c;
    const uint32_t n = b->a->ntokens;
    struct sum_source from = {b, 1, first, step, n > first ? (n - first + step - 1) / step : 0};

    while (from.width < b->a->topk)
        from.width *= 2;
    pipe->out_fp32 = false;
    if (await_open_records(b->g, pipe->ga.waiter) && gather_run(pipe, &from))
        gatherer_exit(&pipe->ga, rank_gatherers(b));
}
