/* gather.cuh: a gatherer's pipeline: rows flow through its units into sums. Layer: kernels.
 *
 * The units are loaded in one order, token by token, piece of columns by piece, term by term, and
 * consumed in the same order. The lanes start loads together, one each, as soon as half of the units
 * are free, as far ahead as there are units, also into the next tokens, whose lists were made while
 * older units were in flight. Nothing ahead is waited for: a token whose terms have not all arrived
 * stops the loads, and the warp waits only for its oldest token, when everything older is consumed
 * and its slots are given back.
 *
 * A unit holds a piece of one term, so that the sums of a piece stay in registers. */
#pragma once

#include "kernels/sum.cuh"
#include "kernels/terms.cuh"
#include "kernels/units.cuh"

struct gather_cursor { /* the next unit to load */
    uint32_t token, from, term;
};

struct gather_pipe { /* equal in all lanes, but for ga.own */
    struct gatherer ga;
    struct units units;
    char *lists;                    /* shared: [nlists] of list_bytes */
    uint32_t list_bytes, nlists;    /* nlists: a power of two */
    uint32_t prepared, ready, done; /* tokens: listed; all terms there; consumed */
    uint32_t busy;                  /* units being loaded or loaded */
    struct unit_turn load, take;
    struct gather_cursor next;
    bool out_fp32; /* sums leave as fp32 */
};

SWL_DEV struct sum_list *gather_list(const struct gather_pipe *p, uint32_t token)
{
    return (struct sum_list *)(p->lists + (token & (p->nlists - 1)) * p->list_bytes);
}

/* All lanes, without waiting: more tokens whose terms have arrived? */
SWL_DEV bool gather_look(struct gather_pipe *p)
{
    const uint32_t before = p->ready;

    while (p->ready != p->prepared && list_ready(&p->ga, gather_list(p, p->ready)))
        p->ready++;
    return p->ready != before;
}

/* Bytes of a piece of this list's terms. Where several nodes are added, half a unit: the sums of a
 * node and of all nodes take twice the registers, and a term may have come as fp32. */
SWL_DEV uint32_t gather_step(const struct gather_pipe *p, const struct sum_list *list)
{
    return list->mixed ? p->units.bytes / 2 : p->units.bytes;
}

/* One lane: load the piece of term t at column byte `from`, at most `most` of them, into unit `turn`. */
SWL_DEV void gather_load(const struct gather_pipe *p, const struct sum_term *t, uint32_t from,
                         uint32_t most, struct unit_turn turn)
{
    const uint32_t bytes = swl_min_u32(p->ga.row_bytes - from, most);

    unit_load(&p->units, turn, t->at + ((uint64_t)from << t->wide), bytes << t->wide);
}

/* All lanes, after a warp_sync that follows their reads of free units: start as many loads as units
 * and arrived terms allow. */
SWL_DEV void gather_fill(struct gather_pipe *p)
{
    struct gather_cursor *c = &p->next;

    while (p->busy < p->units.n && (c->token != p->ready || gather_look(p))) {
        struct sum_list *list = gather_list(p, c->token);
        const uint32_t n = list->nterms, step = gather_step(p, list);
        const uint32_t i = c->term + lane_id();
        const uint32_t piece = n ? i / n : 0, term = i - piece * n;
        const uint32_t from = c->from + piece * step;
        const uint32_t fits = count_bits(warp_ballot(n != 0 && from < p->ga.row_bytes));
        const uint32_t loads = swl_min_u32(p->units.n - p->busy, fits);

        if ((uint32_t)lane_id() < loads)
            gather_load(p, &list_terms(list)[term], from, step,
                        unit_ahead(&p->units, p->load, lane_id()));
        p->load = unit_ahead(&p->units, p->load, loads);
        p->busy += loads;
        if (loads == fits && fits < 32) { /* to the end of the token */
            c->token++;
            c->from = c->term = 0;
        } else { /* units.n < 32: lane `loads` has not loaded what comes next */
            c->term = warp_shfl(term, (int)loads);
            c->from = warp_shfl(from, (int)loads);
        }
    }
}

/* All lanes have read the unit at `take`. */
SWL_DEV void gather_taken(struct gather_pipe *p)
{
    p->take = unit_ahead(&p->units, p->take, 1);
    p->busy--;
    if (2 * p->busy <= p->units.n) {
        warp_sync(); /* plain loads of all lanes before the next bulk load into their units */
        gather_fill(p);
    }
}

/* All lanes: a piece of `bytes` of n terms of one node. False: a load did not complete. */
SWL_DEV bool gather_piece(struct gather_pipe *p, uint32_t n, char *out, uint32_t from,
                          uint32_t bytes)
{
    const bool whole = bytes == SWL_UNIT_BYTES && p->ga.dtype == SWL_BF16 && !p->out_fp32;
    struct accumulator sum[SWL_SUM_VECTORS];
    bool ok = true;

    piece_clear(sum, SWL_SUM_VECTORS);
    for (uint32_t i = 0; i < n; i++) {
        const char *unit = unit_at(&p->units, p->take);

        ok = await_unit(&p->units, p->take, p->ga.w, p->ga.at) && ok;
        if (whole)
            piece_take_bf16(sum, unit);
        else
            piece_take(sum, SWL_SUM_VECTORS, unit, bytes / 16, p->ga.dtype);
        gather_taken(p);
    }
    if (whole)
        piece_store(sum, SWL_SUM_VECTORS, out, from / 16, SWL_UNIT_BYTES / 16, SWL_BF16, false);
    else
        piece_store(sum, SWL_SUM_VECTORS, out, from / 16, bytes / 16, p->ga.dtype, p->out_fp32);
    return ok;
}

/* The same for terms of several nodes, or that came as fp32. */
SWL_DEV bool gather_mixed(struct gather_pipe *p, const struct sum_list *list,
                          const struct sum_term *term, uint32_t from, uint32_t bytes)
{
    const uint32_t vectors = bytes / 16;
    struct accumulator node[SWL_SUM_VECTORS / 2], total[SWL_SUM_VECTORS / 2];
    bool ok = true;

    piece_clear(node, SWL_SUM_VECTORS / 2);
    piece_clear(total, SWL_SUM_VECTORS / 2);
    for (uint32_t i = 0; i <= list->nterms; i++) {
        const char *unit = unit_at(&p->units, p->take);

        if (i == list->nterms || term[i].first)
            for (uint32_t u = 0; u < SWL_SUM_VECTORS / 2; u++) {
                accumulator_add(&total[u], &node[u]);
                accumulator_clear(&node[u]);
            }
        if (i == list->nterms)
            break;
        ok = await_unit(&p->units, p->take, p->ga.w, p->ga.at) && ok;
        if (term[i].wide)
            piece_take_fp32(node, SWL_SUM_VECTORS / 2, unit, vectors);
        else
            piece_take(node, SWL_SUM_VECTORS / 2, unit, vectors, p->ga.dtype);
        gather_taken(p);
    }
    piece_store(total, SWL_SUM_VECTORS / 2, list->out, from / 16, vectors, p->ga.dtype,
                p->out_fp32);
    return ok;
}

/* All lanes: the sum of token `done`, whose terms have arrived. False: a load did not complete. */
SWL_DEV bool gather_token(struct gather_pipe *p)
{
    struct sum_list *list = gather_list(p, p->done);
    const uint32_t n = list->nterms, step = gather_step(p, list);
    char *out = list->out;
    bool ok = true;

    for (uint32_t from = 0; from < p->ga.row_bytes; from += step) {
        const uint32_t bytes = swl_min_u32(p->ga.row_bytes - from, step);

        if (list->mixed)
            ok = gather_mixed(p, list, list_terms(list), from, bytes) && ok;
        else
            ok = gather_piece(p, n, out, from, bytes) && ok;
    }
    return warp_all(ok);
}

/* All lanes: the call is given up. No load may outlive the block. */
SWL_DEV void gather_drop(struct gather_pipe *p)
{
    for (; p->busy > 0; p->busy--) {
        await_unit(&p->units, p->take, p->ga.w, p->ga.at);
        p->take = unit_ahead(&p->units, p->take, 1);
    }
    warp_sync();
}

/* All lanes: ask for rows of tokens `from` and later. One fence for all requests: this warp's reads of
 * the landing slots come before their reuse; pairs with serve_look. */
SWL_DEV void gather_ask(struct gather_pipe *p, uint32_t from)
{
    warp_sync();
    order_before_publish(SWL_SCOPE_SYS);
    for (; from != p->prepared; from++) {
        struct sum_list *list = gather_list(p, from);

        for (uint32_t i = lane_id(); i < list->nterms; i += 32)
            if (list_terms(list)[i].kind == SUM_FETCHED)
                fetch_ask(&p->ga, &list_terms(list)[i]);
        warp_sync(); /* positions go on, and every lane sees where the rows will be */
    }
}

/* List tokens ahead, in batches: what a list needs is fetched for several tokens at once, and rows
 * that have to be asked for are told under one release. False = given up. */
template <class Source>
SWL_DEV bool gather_prepare(struct gather_pipe *p, Source *source, bool asks)
{
    const uint32_t ahead = asks ? swl_min_u32(p->nlists, p->ga.g->shape.fetch_slots) : p->nlists;
    const uint32_t before = p->prepared;
    int got = 1;

    if (p->prepared != p->done && p->prepared - p->done + ahead / 2 > ahead)
        return true;
    while (got > 0 && p->prepared - p->done < ahead) {
        const bool idle = p->prepared == p->done;

        got = source_prepare(source, p, swl_min_u32(ahead - (p->prepared - p->done), ahead / 2),
                             idle);
        if (got > 0)
            p->prepared += (uint32_t)got;
        if (idle && !asks) /* the first loads may start */
            break;
    }
    if (asks && p->prepared != before)
        gather_ask(p, before);
    if (p->prepared != before)
        gather_fill(p);
    return got >= 0;
}

/* A source of tokens defines: source_prepare(s, p, most, idle): write the lists of the next tokens, at
 * most `most`: how many, 0 = none now, or no more at all (if `idle`, only the latter: then it waits),
 * -1 = given up; source_finish(s, list): the sum is stored and all terms are read. Both are called by all
 * lanes, the latter after a warp_sync. A template, since the two users differ only in these. */
template <class Source> SWL_DEV bool gather_run(struct gather_pipe *p, Source *source)
{
    const bool asks = fetch_needed(&p->ga);

    order_before_bulk_load(); /* rows that peers opened by their entry words */
    for (;;) {
        bool ok = gather_prepare(p, source, asks);

        if (ok && p->prepared == p->done)
            return true;
        if (ok && p->ready == p->done) {
            ok = list_await(&p->ga, gather_list(p, p->done));
            p->ready += ok;
            if (ok)
                gather_fill(p);
        }
        if (!ok || !gather_token(p)) {
            gather_drop(p);
            return false;
        }
        warp_sync(); /* the sum is written, the terms are read by all lanes */
        source_finish(source, gather_list(p, p->done));
        warp_sync(); /* the list is no longer read */
        p->done++;
    }
}
