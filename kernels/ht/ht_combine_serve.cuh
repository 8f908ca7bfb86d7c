/* ht_combine_serve.cuh: both SMs of a channel, rows of this rank's tensor for its peers. Layer:
 * kernels.
 *
 * ht_combine_serve (server warps): copy requested rows into the landing slots of gatherers.
 * Reads:    fetch requests, the user's input tensor     Writes: landing slots at the gatherers
 * Waits:    fetch_request                               Signals: fetch_done at the gatherer
 * Order:    acquire.sys of a request, warp_sync, proxy fence; bulk stores complete, warp_sync,
 *           before fetch_done is released
 * Progress: the request is the credit; waits for nobody but the gatherers
 * Ends:     every row was asked for, or read in place by this rank's own gatherers (each exactly
 *           once)
 *
 * With a peer-addressable tensor nobody serves: the server warps are summers in that call
 * (plan.c), and the first warp of the rank ends when all local peers have sent exit words. */
#pragma once

#include "kernels/common/ring.cuh"
#include "kernels/ht/ht_combine.cuh"

SWL_DEV bool await_exit(const struct combine_block *b, uint32_t local)
{
    const struct swl_device_group *g = b->g;
    const uint64_t *word = own_word(g, g->at.exit, local);
    const uint64_t want = gen_word(b->common->gen, b->common->call);
    const struct waiter w = wait_for(waiter_of(&b->common->watch, SWL_WARP_SERVER, b->channel),
                                     SWL_FAULT_EXIT, g->local_rank[local]);

    for (;;) {
        const uint64_t seen = read_from_peer(word); /* pairs with gatherer_exit there */

        if (seen == want)
            return true;
        if (!wait_again(w, want, seen, SWL_PAUSE("exit of rank", w.peer, 0)))
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

struct
    /* of a lane: rows of its ring are there when the word `done` at the peer is `upto` */
    serve_mark {
    uint64_t *done; /* 0: no word */
    uint64_t upto;
};

struct serve_stages {
    char *at;         /* shared: [n][bytes] */
    mbarrier *loaded; /* shared: [n] */
    uint32_t bytes, n;
};

/* All lanes: the stages of this warp, if it is a server; those are the last warps of their half. A
 * block barrier must follow before the first load. */
SWL_DEV struct serve_stages serve_stages_of(const struct combine_block *b,
                                            const struct warp_job *job)
{
    const struct swl_combine_shape *shape = &b->a->shared;
    const struct swl_roles *roles = &b->a->roles;
    const bool even = roles->halves == 2 && (uint32_t)block_id() % 2 == 1;
    const uint32_t server = job->index - (even ? roles->count[SWL_C_SERVE][0] : 0);
    const uint32_t n = job->role == SWL_C_SERVE ? shape->nstages : 0;
    char *shared = (char *)block_shared();
    const struct serve_stages s = {shared + b->shared.stages + server * n * shape->stage_bytes,
                                   (mbarrier *)(shared + b->shared.barriers) + server * n,
                                   shape->stage_bytes, n};

    for (uint32_t i = lane_id(); i < n; i += 32) {
        stage_init(&s.loaded[i], 1);
        stage_init_done();
    }
    return s;
}

/* A server warp. Rows pass through its stages in two banks: lane i loads a piece into its stage of
 * one bank, while its piece in the other is stored. */
struct server {
    const struct combine_block *b;
    struct serve_stages stages;
    struct serve_row *rows; /* shared: the batch at hand, [most] */
    uint32_t n;             /* stages of a bank, lanes that copy */
    uint32_t pieces;        /* of a row */
    uint32_t most;          /* rows of a batch */
    uint32_t phases;        /* of this lane: bit i is the parity of its stage of bank i */
    uint32_t first, step;   /* its rings: first, first + step, ... */
    uint32_t group, turn;   /* rings group * 32 ... are looked at next, from lane `turn` on */
    uint32_t ring;          /* of this lane in that group, or SERVE_NONE */
    uint64_t given;         /* of that ring: rows taken from it */
    uint32_t uncounted;     /* rows copied since the rank's count of them was told */
    struct serve_mark told; /* what this lane writes next: stored in the last `untold` steps */
    uint32_t untold;
};
struct serve_row {
    const char *src;
    char *dst;
};
#define SERVE_NONE       ~0u
#define SERVE_STEPS_TOLD 4u
static_assert(sizeof(struct serve_row) * SWL_STEP_MAX <= SWL_SCRATCH_BYTES, "scratch of a warp");

struct serve_piece { /* of a lane */
    char *dst;
    uint32_t bytes; /* 0: none */
    uint32_t bank;
};

SWL_DEV uint32_t serve_rings(const struct combine_block *b)
{
    return (b->g->shape.nlocal - 1) * b->g->shape.ngatherers;
}

/* The ring of this lane in the group. The rings of this rank's own gatherers have no requests. */
SWL_DEV void serve_turn_to(struct server *s, uint32_t group)
{
    const struct swl_device_group *g = s->b->g;
    const uint32_t per = g->shape.ngatherers;
    const uint32_t i = s->first + (group * 32 + (uint32_t)lane_id()) * s->step;

    s->group = group;
    s->ring = i >= serve_rings(s->b) ? SERVE_NONE : i < g->shape.local * per ? i : i + per;
    if (s->ring != SERVE_NONE)
        s->given = g->ht.fetch_given[s->ring];
}

/* The next request of this lane's ring, if it has been made: 1 and its row, 0 not yet, -1 = a row
 * that this rank does not have. */
SWL_DEV int serve_request(const struct server *s, struct serve_row *row)
{
    const struct combine_block *b = s->b;
    const struct swl_device_group *g = b->g;
    const uint32_t x = s->ring;
    const uint32_t local = x / g->shape.ngatherers, number = x % g->shape.ngatherers;
    const uint32_t slots = g->shape.fetch_slots;
    const uint64_t there = (uint64_t)g->shape.local * g->shape.ngatherers + number;
    const uint64_t slot = s->given & (slots - 1);
    const uint64_t word = /* acquire: pairs with the fence of gather_ask */
        read_from_peer(own_word(g, g->at.ht.fetch_request, (uint64_t)x * slots + slot));
    const uint32_t at = (uint32_t)word;

    if (word != fetch_word(b->common->gen, s->given, at))
        return 0;
    if (at >= b->a->in_rows) {
        wait_fault(wait_for(b->waiter, SWL_FAULT_WRONG_CALL, g->local_rank[local]), b->a->in_rows,
                   at, SWL_ASYNC_TIMEOUT);
        return -1;
    }
    row->src = b->a->tokens + (uint64_t)at * b->a->row_bytes;
    row->dst =
        g->peer_window[local] + g->at.ht.fetch_row + (there * slots + slot) * g->shape.row_bytes;
    return 1;
}

/* All lanes, where `row` is a request of this lane if it has one: put a batch of them into s->rows,
 * one of a ring, in turns. The word of a ring that is served goes to mark. Rows of the batch. */
SWL_DEV uint32_t serve_take(struct server *s, uint32_t mask, const struct serve_row *row,
                            struct serve_mark *mark)
{
    const struct swl_device_group *g = s->b->g;
    const uint32_t per = g->shape.ngatherers, lane = (uint32_t)lane_id();
    const uint32_t turned = s->turn ? mask >> s->turn | mask << (32 - s->turn) : mask;
    const uint32_t place = (uint32_t)count_bits(turned & ((1u << ((lane - s->turn) & 31)) - 1));
    const uint32_t n = swl_min_u32((uint32_t)count_bits(mask), s->most);
    const bool taken = (mask >> lane & 1) && place < n;

    mark->done = 0;
    warp_sync(); /* every lane has read the rows of the batch before */
    if (taken) {
        const uint64_t there = (uint64_t)g->shape.local * per + s->ring % per;

        s->rows[place] = *row;
        s->given++;
        g->ht.fetch_given[s->ring] = s->given;
        mark->done = peer_word(g, s->ring / per, g->at.ht.fetch_done, there);
        mark->upto = gen_word(s->b->common->gen, s->given);
    }
    s->turn = ((uint32_t)first_bit(warp_ballot(taken && place == n - 1)) + 1) & 31;
    s->uncounted += n;
    warp_sync(); /* rows, and what their lanes acquired, are every lane's */
    /* the landing slots were read by their gatherers: overwrite after that */
    order_before_bulk_load();
    return n;
}

/* All lanes: look for requests, once at each ring if there are none. Rows of the next batch, 0 =
 * none asked for, -1 = failed. */
SWL_DEV int serve_look(struct server *s, struct serve_mark *mark)
{
    const uint32_t rings = serve_rings(s->b), all = 32 * s->step;
    const uint32_t mine = rings > s->first ? rings - s->first : 0;
    const uint32_t groups = (mine + all - 1) / all;

    for (uint32_t i = 0; i < groups; i++) {
        struct serve_row row = {0, 0};
        int got;
        uint32_t mask;

        if (groups > 1)
            serve_turn_to(s, s->group + 1 == groups ? 0 : s->group + 1);
        got = s->ring != SERVE_NONE ? serve_request(s, &row) : 0;
        if (warp_any(got < 0))
            return -1;
        mask = warp_ballot(got > 0);
        if (mask)
            return (int)serve_take(s, mask, &row, mark);
    }
    return 0;
}

/* One lane: the stage of a piece, which is in a bank of its own. */
SWL_DEV uint32_t serve_stage(const struct server *s, const struct serve_piece *p)
{
    return p->bank * s->n + (uint32_t)lane_id();
}

/* This lane's piece of a step that begins at piece `from` of `all`, if it has one: start to load
 * it. */
SWL_DEV void serve_load(struct server *s, uint32_t from, uint32_t all, struct serve_piece *p)
{
    const uint32_t lane = (uint32_t)lane_id(), piece = from + lane;
    const uint32_t row = piece / s->pieces;
    const uint32_t at = (piece - row * s->pieces) * s->stages.bytes;
    const uint32_t stage = serve_stage(s, p);

    if (lane >= s->n || piece >= all)
        return;
    p->dst = s->rows[row].dst + at;
    p->bytes = swl_min_u32(s->b->a->row_bytes - at, s->stages.bytes);
    bulk_wait_read<0>(); /* this lane's store before the last has read the stage */
    stage_expect(&s->stages.loaded[stage], p->bytes);
    bulk_load(s->stages.at + stage * s->stages.bytes, s->rows[row].src + at, p->bytes,
              &s->stages.loaded[stage]);
}

/* One lane: wait for its piece. A load completes without anybody's help, and it must before the
 * block may end, so that a given-up call waits for it too; only an expired deadline (plus a second)
 * ends the wait. */
SWL_DEV bool serve_await(const struct server *s, const struct serve_piece *p)
{
    const struct waiter w = s->b->waiter;
    const uint64_t deadline = w.watch->deadline_ns + 1000000000ull;
    const uint32_t stage = serve_stage(s, p), parity = s->phases >> p->bank & 1;

    while (!stage_test(&s->stages.loaded[stage], parity)) {
        if (clock_ns() >= deadline) {
            wait_fault(wait_for(w, SWL_FAULT_STAGE, SWL_NO_PEER), stage, 0, SWL_ASYNC_TIMEOUT);
            return false;
        }
        pause_lane(SWL_PAUSE("bulk load in flight", (int)stage, (int)s->first), deadline);
    }
    return true;
}

/* Store the piece of this lane, if there is one. A group of stores for every step. False: not
 * loaded. */
SWL_DEV bool serve_store(struct server *s, const struct serve_piece *p)
{
    bool ok = true;

    if (p->bytes) {
        ok = serve_await(s, p);
        s->phases ^= 1u << p->bank;
        if (ok)
            bulk_store(p->dst, s->stages.at + serve_stage(s, p) * s->stages.bytes, p->bytes);
    }
    bulk_commit();
    return ok;
}

/* Nothing is asked for or on its way: has every row been served? 1 yes, 0 not yet, -1 = given
 * up. */
SWL_DEV int serve_idle(struct server *s)
{
    const struct combine_block *b = s->b;
    const uint32_t want = swl_min_u32(b->h.head->recv_rows, b->a->in_rows);
    uint32_t have = 0;
    bool ok;

    if (lane_id() == 0 && s->uncounted)
        add_in_gpu(&b->g->state->served, s->uncounted);
    s->uncounted = 0;
    have = warp_shfl(lane_id() == 0 ? read_in_gpu(&b->g->state->served) : 0u, 0);
    if (have >= want)
        return 1;
    ok = wait_again(wait_for(b->waiter, SWL_FAULT_SERVE, SWL_NO_PEER), want, have,
                    SWL_PAUSE("row requests of local ranks", b->channel, (int)s->first));
    return warp_all(ok) ? 0 : -1;
}

/* All lanes: announce rows whose stores are not of the newest group. */
SWL_DEV void serve_tell(struct server *s)
{
    bulk_wait<1>(); /* complete at the gatherer before the word says so */
    warp_sync();    /* ... of all lanes */
    if (s->told.done)
        publish_to_peer(s->told.done, s->told.upto); /* release.sys: pairs with contribution_seen */
    s->told.done = 0;
    s->untold = 0;
}

/* All lanes: a step was stored, but for the newest group. A release at system scope takes
 * microseconds while the lane's words before it are on their way, so one is made for several
 * steps. */
SWL_DEV void serve_stored(struct server *s, const struct serve_mark *mark, bool more)
{
    if (warp_any(mark->done && s->told.done && s->told.done != mark->done))
        serve_tell(s); /* of another ring */
    if (mark->done)
        s->told = *mark;
    s->untold++;
    if (!more || s->untold >= SERVE_STEPS_TOLD)
        serve_tell(s);
}

/* Rows of a plain tensor, until every row was asked for or read in place. In each turn the pieces
 * of one step are loaded, and those of the step before stored. */
SWL_DEV void serve_run(struct server *s)
{
    struct serve_piece before = {0, 0, 0};
    struct serve_mark asked = {0, 0}, loading = asked, storing = asked;
    uint32_t next = 0, all = 0, busy = 0;

    for (uint32_t bank = 0;; bank ^= 1) {
        struct serve_mark mark = {0, 0};
        struct serve_piece now = {0, 0, bank};
        int n = 0;

        if (next >= all) {
            n = serve_look(s, &asked);
            next = 0;
            all = n > 0 ? (uint32_t)n * s->pieces : 0;
        }
        busy = (busy << 1 | (next < all)) & 7;
        if (!busy && n == 0)
            n = serve_idle(s);
        if (n < 0 || !busy) {
            if (n)
                break;
            continue;
        }
        if (next < all) {
            serve_load(s, next, all, &now);
            next += s->n;
            if (next >= all) /* the last step of the batch */
                mark = asked;
        }
        if (!warp_all(serve_store(s, &before))) {
            before = now;
            break;
        }
        serve_stored(s, &storing, busy & 1);
        storing = loading;
        loading = mark;
        before = now;
    }
    if (before.bytes) /* no load may outlive the block */
        serve_await(s, &before);
}

SWL_ROLE void ht_combine_serve(const struct combine_block *b, const struct serve_stages *stages,
                               struct warp_scratch *scratch, uint32_t index, uint32_t nservers)
{
    const uint32_t c = b->g->shape.nchannels;
    struct server s = {b,
                       *stages,
                       (struct serve_row *)scratch,
                       stages->n / 2,
                       1,
                       1,
                       0,
                       index * c + b->channel,
                       nservers * c,
                       0,
                       0,
                       SERVE_NONE,
                       0,
                       0,
                       {0, 0},
                       0};

    s.pieces = (b->a->row_bytes + stages->bytes - 1) / stages->bytes;
    if (s.n > s.pieces)
        s.most = s.n / s.pieces;
    serve_turn_to(&s, 0);
    serve_run(&s);
}
