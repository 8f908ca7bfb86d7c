/* ht_combine_serve.cuh: both SMs of a channel, rows of this rank's tensor for its peers. Layer: kernels.
 *
 * ht_combine_serve (server warps): copy requested rows into the landing slots of gatherers.
 * Reads:    fetch requests, the user's input tensor     Writes: landing slots at the gatherers
 * Waits:    fetch_request                               Signals: fetch_done at the gatherer
 * Order:    acquire.sys of a request, warp_sync; bulk stores complete, warp_sync, before fetch_done is
 *           released
 * Progress: the request is the credit; waits for nobody but the gatherers
 * Ends:     every row was asked for, or read in place by this rank's own gatherers (each exactly
 *           once)
 *
 * With a peer-addressable tensor nobody serves: the server warps are summers in that call
 * (src/plan.c), and the first warp of the rank ends when all local peers have sent exit words. */
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

/* A server's view of its units: two banks of as many units as it has copying lanes. Lane i of them
 * loads every n-th piece of the rows at hand into its unit of one bank, while the other is stored. */
struct serve_lanes {
    struct units units;
    struct serve_row *rows; /* shared: [SWL_SERVE_ROWS] the rows at hand */
    uint32_t n;             /* copying lanes */
    uint32_t phases;        /* of this lane: bit i is the parity of its unit of bank i */
};
struct serve_row {
    const char *src;
    char *dst;
};
#define SWL_SERVE_ROWS 64u
static_assert(sizeof(struct serve_row) * SWL_SERVE_ROWS <= SWL_SCRATCH_BYTES, "scratch of a warp");

struct serve_piece { /* of a lane; bytes 0: none */
    char *dst;
    struct unit_turn turn;
    uint32_t bytes;
};

/* One lane: start loading piece number `piece` of a row. */
SWL_DEV struct serve_piece serve_load(const struct combine_block *b, const struct serve_lanes *s,
                                      uint32_t row, uint32_t piece, uint32_t bank)
{
    const uint32_t from = piece * s->units.bytes;
    const struct serve_piece p = {s->rows[row].dst + from,
                                  {bank * s->n + lane_id(), s->phases >> bank & 1},
                                  swl_min_u32(b->a->row_bytes - from, s->units.bytes)};

    bulk_wait_read<0>(); /* this lane's store before the last has read the unit */
    unit_load(&s->units, p.turn, s->rows[row].src + from, p.bytes);
    return p;
}

/* All lanes: copy the first n rows at hand. Complete on return, also when the call is given up; lane by
 * lane, a release after a warp_sync publishes the stores. False: a load did not complete. */
SWL_DEV bool serve_copy(const struct combine_block *b, struct serve_lanes *s, uint32_t n)
{
    const struct wait_at at = combine_at(b, SWL_FAULT_STAGE, SWL_WARP_SERVER, SWL_NO_PEER);
    const uint32_t pieces = (b->a->row_bytes + s->units.bytes - 1) / s->units.bytes;
    const uint32_t lane = lane_id();
    uint32_t row = lane < s->n ? lane / pieces : n, piece = lane % pieces;
    struct serve_piece before = {0, {0, 0}, 0};
    bool ok = true;

    for (uint32_t bank = 0; row < n || before.bytes; bank ^= 1) {
        struct serve_piece now = {0, {0, 0}, 0};

        if (row < n)
            now = serve_load(b, s, row, piece, bank);
        if (before.bytes) {
            s->phases ^= 2u >> bank; /* of the other bank */
            if (await_unit(&s->units, before.turn, &b->common->watch, at)) {
                bulk_store(before.dst, unit_at(&s->units, before.turn), before.bytes);
                bulk_commit();
            } else {
                ok = false;
            }
        }
        before = now;
        for (piece += s->n; piece >= pieces; piece -= pieces)
            row++;
    }
    bulk_wait<0>(); /* complete at the gatherer before the word says so */
    ok = warp_all(ok);
    warp_sync();
    return ok;
}

/* Request number `position` of ring x, if it has been made: 1 and its row, 0 not yet, -1 = a row that this
 * rank does not have. */
SWL_DEV int serve_request(const struct combine_block *b, uint32_t x, uint64_t position,
                          struct serve_row *row)
{
    const struct swl_device_group *g = b->g;
    const uint32_t local = x / g->shape.ngatherers, number = x % g->shape.ngatherers;
    const uint32_t slots = g->shape.fetch_slots;
    const uint64_t there = (uint64_t)g->shape.local * g->shape.ngatherers + number;
    const uint64_t slot = position & (slots - 1);
    const uint64_t word = /* acquire: pairs with the fence of gather_ask */
        read_from_peer(own_word(g, g->at.fetch_request, (uint64_t)x * slots + slot));
    const uint32_t at = (uint32_t)word;

    if (word != fetch_word(b->common->gen, position, at))
        return 0;
    if (at >= b->a->in_rows) {
        watch_fault(&b->common->watch,
                    combine_at(b, SWL_FAULT_WRONG_CALL, SWL_WARP_SERVER, g->local_rank[local]),
                    b->a->in_rows, at, SWL_ASYNC_TIMEOUT);
        return -1;
    }
    row->src = b->a->tokens + (uint64_t)at * b->a->row_bytes;
    row->dst =
        g->peer_window[local] + g->at.fetch_row + (there * slots + slot) * g->shape.row_bytes;
    return 1;
}

/* All lanes: put the rows that are asked for into s->rows; x: ring of a lane that has one, `from` the
 * first request that it has not served; *n_p: how many of it are in the list. Rows in all, or -1. */
SWL_DEV int serve_look(const struct combine_block *b, struct serve_lanes *s, bool has, uint32_t x,
                       uint64_t from, uint32_t *n_p)
{
    uint32_t rows = 0, all, n = 0;

    do {
        struct serve_row row = {0, 0};
        const int got =
            has && n < b->g->shape.fetch_slots ? serve_request(b, x, from + n, &row) : 0;
        const uint32_t mask = warp_ballot(got > 0);

        if (warp_any(got < 0))
            return -1;
        has = got > 0; /* later ones were made later */
        all = (uint32_t)count_bits(mask);
        if (has) {
            s->rows[rows + count_bits(mask & ((1u << lane_id()) - 1))] = row;
            n++;
        }
        rows += all;
    } while (all && rows + 32 <= SWL_SERVE_ROWS);
    *n_p = n;
    warp_sync(); /* rows, and what their lanes acquired, are every lane's */
    return (int)rows;
}

/* All lanes: look once at the fetch rings first, first + step, …, one of each lane. The rings of this
 * rank's own gatherers have no requests. 1 moved, 0 nothing, -1 failed. */
SWL_DEV int serve_pass(const struct combine_block *b, struct serve_lanes *s, uint32_t first,
                       uint32_t step, uint32_t nrings)
{
    const struct swl_device_group *g = b->g;
    const uint32_t per = g->shape.ngatherers;
    const uint32_t i = first + (uint32_t)lane_id() * step;
    const uint32_t x = i < g->shape.local * per ? i : i + per;
    const uint64_t from = i < nrings ? g->fetch_given[x] : 0;
    uint32_t n;
    const int rows = serve_look(b, s, i < nrings, x, from, &n);

    if (rows <= 0)
        return rows;
    order_before_bulk_load(); /* the landing slots were read by their gatherers: overwrite after that */
    if (!serve_copy(b, s, (uint32_t)rows))
        return -1;
    if (n) {
        const uint64_t there = (uint64_t)g->shape.local * per + x % per;

        /* release.sys: complete stores of all lanes, passed on by warp_sync, before the word */
        publish_to_peer(peer_word(g, x / per, g->at.fetch_done, there),
                        gen_word(b->common->gen, from + n));
        g->fetch_given[x] = from + n;
    }
    if (lane_id() == 0)
        add_in_gpu(&g->state->served, (uint32_t)rows);
    warp_sync();
    return 1;
}

/* Rows of a plain tensor, until every row was asked for or read in place. */
SWL_DEV void serve_rows(const struct combine_block *b, struct serve_lanes *s, uint32_t first,
                        uint32_t step)
{
    const struct swl_device_group *g = b->g;
    const uint32_t nrings = (g->shape.nlocal - 1) * g->shape.ngatherers;
    const uint32_t want = swl_min_u32(b->h.head->recv_rows, b->a->in_rows);
    const struct wait_at at = combine_at(b, SWL_FAULT_SERVE, SWL_WARP_SERVER, SWL_NO_PEER);

    for (;;) {
        bool moved = false, ok = true;
        uint32_t have;

        for (uint32_t x = first; x < nrings; x += 32 * step) {
            const int n = serve_pass(b, s, x, step, nrings);

            if (n < 0)
                return;
            moved = moved || n > 0;
        }
        if (moved)
            continue;
        have = warp_shfl(lane_id() == 0 ? read_in_gpu(&g->state->served) : 0u, 0);
        if (have >= want)
            return;
        ok = wait_again(&b->common->watch, at, want, have,
                        SWL_PAUSE("row requests of local ranks", b->channel, (int)first));
        if (!warp_all(ok))
            return;
    }
}

SWL_ROLE void ht_combine_serve(const struct combine_block *b, const struct units *units,
                               struct warp_scratch *scratch, uint32_t index, uint32_t nservers)
{
    const struct swl_device_group *g = b->g;
    const uint32_t first = index * g->shape.nchannels + b->channel;
    struct serve_lanes s = {*units, (struct serve_row *)scratch, units->n / 2, 0};

    serve_rows(b, &s, first, nservers * g->shape.nchannels);
}
