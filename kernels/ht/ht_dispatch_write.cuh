/* ht_dispatch_write.cuh: both SMs of a channel, this rank's tokens for its node. Layer: kernels.
 *
 * ht_dispatch_write (writer warps): some write the tokens that stay on this rank, the others those
 * for its peers, so that a slow link holds up nothing else and few warps share it.
 * Reads:    handle list of the own node, user tokens and weights    Writes: local rings, tensors
 * Waits:    open record, local credit       Signals: local tails -> ht_dispatch_receive there
 * Ends:     every listed token is written
 *
 * Tokens are taken in turns of a few, as many as the warp has lanes for their selections; the last
 * ones one by one. Warps take turns as they come: SMs differ by half in how fast they reach a peer.
 * The list is read three turns ahead: numbers, then selections, then the first row are on their way
 * while the present batch is sorted and stored. */
#pragma once

#include "kernels/ht/ht_dispatch.cuh"

#define SWL_TURNS_OF_ONE 8u /* turns of one token for each writer, at the end */

/* A writer's cursor over the tokens listed for its node. */
struct token_cursor {
    const uint32_t *token; /* [tokens] */
    uint32_t tokens;
    uint32_t whole;  /* turns before this one are of lanes.tokens tokens */
    uint32_t first;  /* turns of all writers that nobody has to take */
    uint32_t turn;   /* the next one; lane 0's */
    uint32_t *turns; /* counts those taken of this part */
    enum select_part part;
    struct lane_assignment lanes;
    uint32_t coming; /* this lane's token of the batch after that, SWL_NO_TOKEN = none */
    uint32_t loaded; /* its token of the batch whose selections are in `ahead` */
    struct select_ahead ahead;
};

#define SWL_NO_TOKEN 0xffffffffu

/* A batch of tokens with something for this writer. */
struct write_batch {
    uint32_t token; /* this lane's */
    struct select_ahead sel;
    uint32_t kept; /* lanes that have something of it, as bits; 0: the cursor is at its end */
};

/* Writers of a channel that serve the own rank: its share of the node, at least one. */
SWL_DEV uint32_t self_writers(const struct swl_device_group *g, uint32_t nwriters)
{
    const uint32_t n = nwriters / g->shape.nlocal;

    return n > 0 ? n : 1;
}

/* All lanes: start loading the numbers of this turn, and the selections of the turn before. */
SWL_DEV void cursor_load(const struct dispatch_block *b, struct token_cursor *k, uint32_t turn)
{
    const uint32_t n = k->lanes.tokens, ones = turn < k->whole ? 0 : turn - k->whole;
    const uint32_t i = (turn - ones) * n + ones + k->lanes.r;

    k->loaded = k->coming;
    k->coming =
        k->lanes.r < (turn < k->whole ? n : 1) && i < k->tokens ? k->token[i] : SWL_NO_TOKEN;
    k->ahead = select_load(&b->h, &k->lanes, k->loaded != SWL_NO_TOKEN, k->loaded, b->a->weights);
}

/* All lanes: the next batch with something for this part; loads the selections of the one after
 * it. */
SWL_DEV struct write_batch cursor_next(const struct dispatch_block *b, struct token_cursor *k)
{
    const struct swl_device_group *g = b->g;
    struct write_batch batch;
    uint32_t turn;

    do {
        batch.token = k->loaded;
        batch.sel = k->ahead;
        batch.kept = 0;
        turn = warp_shfl(k->turn, 0);
        if (!warp_any(batch.token != SWL_NO_TOKEN)) {
            batch.sel.key[0] = batch.sel.key[1] = SWL_KEY_NONE;
            break;
        }
        if (lane_id() == 0) /* passes until the next batch */
            k->turn = k->first + add_relaxed_in_gpu(k->turns, 1u);
        cursor_load(b, k, turn);
        batch.kept =
            select_filter(&b->h, &batch.sel, g->shape.node, g->shape.local, SWL_ID_VALID, k->part);
    } while (!batch.kept);
    return batch;
}

/* All lanes, while the call begins: handle and tokens are read-only, and turns count from 0
 * whatever comes of the call. Nothing is read of memory that is no handle for this call. */
SWL_DEV struct token_cursor token_cursor_of(const struct dispatch_block *b, uint32_t index,
                                            uint32_t nwriters, bool fits)
{
    const struct swl_device_group *g = b->g;
    const uint32_t nself = self_writers(g, nwriters);
    struct token_cursor k = {};
    uint32_t ones;

    k.token = b->h.list + b->own_list;
    k.tokens = fits ? b->own_list_end - b->own_list : 0;
    k.lanes = lane_assignment_of(b->a->topk, SELECT_TOKENS_MAX);
    k.part = SELECT_ALL;
    if (nwriters > nself && g->shape.nlocal > 1) {
        k.part = index < nself ? SELECT_SELF : SELECT_PEERS;
        nwriters = index < nself ? nself : nwriters - nself;
        index = index < nself ? index : index - nself;
    }
    k.turns = &g->state->turns[k.part == SELECT_SELF];
    nwriters *= g->shape.nchannels;
    index = index * g->shape.nchannels + b->channel;
    ones = SWL_TURNS_OF_ONE * nwriters;
    k.whole = k.tokens > ones ? (k.tokens - ones) / k.lanes.tokens : 0;
    k.coming = SWL_NO_TOKEN;
    cursor_load(b, &k, index);
    cursor_load(b, &k, nwriters + index);
    k.first = 2 * nwriters;
    if (lane_id() == 0)
        k.turn = k.first + add_relaxed_in_gpu(k.turns, 1u);
    return k;
}

/* All lanes: the row of token r of the batch. */
SWL_DEV void write_row(const struct dispatch_block *b, const struct write_batch *batch, uint32_t r,
                       struct copy_row *row)
{
    const uint32_t token = warp_shfl(batch->token, (int)(r * b->a->topk) & 31);

    row->src = b->a->tokens + (uint64_t)token * b->a->row_bytes;
    row->begun = 0;
}

/* All lanes: the first row of the batch that has an entry; src NULL: the cursor is at its end. */
SWL_DEV void write_first_row(const struct dispatch_block *b, const struct token_cursor *k,
                             const struct write_batch *batch, struct copy_row *row)
{
    row->src = 0;
    row->begun = 0;
    if (batch->kept)
        write_row(b, batch, warp_shfl(k->lanes.r, first_bit(batch->kept)), row);
}

/* The next batch is made ready before the last row of the present one, which loads ahead for it. */
SWL_ROLE void ht_dispatch_write(const struct dispatch_block *b, struct row_writer *rw,
                                struct token_cursor *cursor)
{
    struct write_batch batch = cursor_next(b, cursor);
    struct copy_row row, next;
    bool open = false;

    write_first_row(b, cursor, &batch, &row);
    if (row.src) /* the row may pass while its destinations are not open yet */
        row_copy_begin(rw->copier, &row, row.src, rw->row_bytes);
    row_write_prepare(rw);
    do { /* once at least: a writer without rows begins and ends its rings as well */
        const struct row_list list =
            row_list_of(rw, select_sort(&b->h, &cursor->lanes, &batch.sel, rw->list));

        if (!open) {
            if (!local_targets_await(b))
                return;
            row_write_begin(rw);
            open = true;
        }
        for (uint32_t rows = list.entries.rows; rows; rows &= rows - 1) {
            const uint32_t rest = rows & (rows - 1);

            if (rest) {
                write_row(b, &batch, (uint32_t)first_bit(rest), &next);
            } else {
                batch = cursor_next(b, cursor);
                write_first_row(b, cursor, &batch, &next);
            }
            if (!row_write(rw, &list, (uint32_t)first_bit(rows), &row, &next))
                return;
            row = next;
        }
    } while (batch.kept);
    row_write_end(rw);
}
