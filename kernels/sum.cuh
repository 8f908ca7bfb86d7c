/* sum.cuh: fetch and add the rows of one token, in the fixed order of the API. Layer: kernels.
 *
 * A *gatherer* (a warp: summer at the source, gateway elsewhere) adds terms sorted by (node, local
 * rank). Every level adds in fp32 into its own accumulator that starts at +0: a node's rows, then the
 * nodes. A row at a rank of this node is read where it is if the rank's tensor is peer-addressable,
 * else asked for: request ring at the rank, landing slot here. The request is the credit, since the
 * gatherer owns the landing slot, so that servers never block. */
#pragma once

#include "kernels/call.cuh"
#include "kernels/entry.cuh"
#include "kernels/select.cuh"

struct gatherer {
    const struct swl_device_group *g;
    const struct swl_watch *w;
    struct warp_scratch *list;
    uint64_t gen_call;
    uint32_t number; /* of this gatherer in its rank */
    uint32_t row_bytes;
    uint32_t dtype;
    uint32_t pad;
    struct wait_at at;
};

struct fetch_entry { /* of a fetch request ring */
    uint64_t gen_call;
    uint64_t row;
};
static_assert(sizeof(struct fetch_entry) == 16, "layout.h counts 16 bytes");

/* One lane: ask rank `local` for its row; returns the landing slot. The slot asked fetch_slots ago
 * was read by this warp before (warp_sync between tokens). */
SWL_DEV const char *fetch_ask(const struct gatherer *ga, uint32_t local, uint32_t row,
                              uint64_t *position_p)
{
    const struct swl_device_group *g = ga->g;
    const uint64_t mine = (uint64_t)g->shape.local * g->shape.ngatherers + ga->number;
    const uint64_t theirs = (uint64_t)local * g->shape.ngatherers + ga->number;
    const uint64_t position = g->fetch_asked[theirs];
    const uint64_t slot = position % g->shape.fetch_slots;
    const struct vec16 v = {{(uint32_t)ga->gen_call, (uint32_t)(ga->gen_call >> 32), row, 0}};

    store_data((struct vec16 *)(g->peer_window[local] + g->at.fetch_request) +
                   mine * g->shape.fetch_slots + slot,
               v);
    /* release.sys: request before tail, and this warp's reads of the landing slot before its reuse */
    publish_to_peer(peer_word(g, local, g->at.fetch_tail, mine),
                    gen_word(ga->w->gen, position + 1));
    g->fetch_asked[theirs] = position + 1;
    *position_p = position;
    return g->window + g->at.fetch_row +
           (theirs * g->shape.fetch_slots + slot) * g->shape.row_bytes;
}

SWL_DEV bool await_fetch(const struct gatherer *ga, uint32_t local, uint64_t position)
{
    const struct swl_device_group *g = ga->g;
    const uint64_t *word =
        own_word(g, g->at.fetch_done, (uint64_t)local * g->shape.ngatherers + ga->number);
    struct wait_at at = ga->at;

    at.kind = SWL_FAULT_FETCH;
    at.peer = g->local_rank[local];
    for (;;) {
        const uint64_t done = word_position(read_from_peer(word), ga->w->gen, g->shape.start_low);

        if (done > position)
            return true;
        if (!wait_again(ga->w, at, position + 1, done,
                        SWL_PAUSE("fetched row of rank", at.peer, ga->number)))
            return false;
    }
}

/* One lane: where row `row` of local rank `local` can be read; NULL = the tensor has no such row.
 * False = given up. Afterwards warp_sync. */
SWL_DEV bool term_of_local(const struct gatherer *ga, uint32_t local, uint32_t row,
                           const char **at_p)
{
    const struct swl_device_group *g = ga->g;
    const struct swl_entry *e = entry_of(g, local, ga->w->call);
    uint64_t position;

    *at_p = 0;
    if (row >= e->rows) { /* a missing row adds nothing and is reported */
        or_in_gpu(ga->w->async_bits, SWL_ASYNC_OVERFLOW);
        return true;
    }
    if (e->direct) {
        *at_p = g->memory[e->memory * g->shape.nlocal + local] + e->offset +
                (uint64_t)row * ga->row_bytes;
        return true;
    }
    *at_p = fetch_ask(ga, local, row, &position);
    return await_fetch(ga, local, position);
}

/* Element i of a 16-byte vector, as fp32. */
SWL_DEV float element_of(const struct vec16 *v, uint32_t i, uint32_t dtype)
{
    const uint16_t half = (uint16_t)(v->x[i / 2] >> (i % 2 * 16));

    if (dtype == SWL_FP32) {
        union {
            uint32_t bits;
            float value;
        } u = {v->x[i % 4]};

        return u.value;
    }
    return dtype == SWL_BF16 ? bf16_to_float(half) : half_to_float(half);
}

struct accumulator {
    float x[8];
};

SWL_DEV void accumulator_clear(struct accumulator *a)
{
    for (uint32_t i = 0; i < 8; i++)
        a->x[i] = 0.0f;
}

SWL_DEV void accumulator_add(struct accumulator *a, const struct accumulator *b)
{
    for (uint32_t i = 0; i < 8; i++)
        a->x[i] = add_rn(a->x[i], b->x[i]);
}

/* Add a payload vector. Each row passes an accumulator of its rank first, which starts at +0. */
SWL_DEV void accumulator_take(struct accumulator *a, const struct vec16 *v, uint32_t dtype)
{
    if (dtype == SWL_FP32) {
        for (uint32_t i = 0; i < 4; i++)
            a->x[i] = add_rn(a->x[i], add_rn(0.0f, element_of(v, i, SWL_FP32)));
    } else {
        for (uint32_t i = 0; i < 8; i++)
            a->x[i] = add_rn(a->x[i], add_rn(0.0f, element_of(v, i, dtype)));
    }
}

/* Add eight elements of a partial sum that travelled as two vectors of fp32. */
SWL_DEV void accumulator_take_fp32(struct accumulator *a, const struct vec16 *low,
                                   const struct vec16 *high)
{
    for (uint32_t i = 0; i < 8; i++)
        a->x[i] = add_rn(a->x[i], add_rn(0.0f, element_of(i < 4 ? low : high, i, SWL_FP32)));
}

SWL_DEV uint32_t float_word(float f)
{
    union {
        float value;
        uint32_t bits;
    } u = {f};

    return u.bits;
}

SWL_DEV struct vec16 round_vector(const struct accumulator *a, uint32_t dtype)
{
    struct vec16 v;

    for (uint32_t i = 0; i < 4; i++) {
        if (dtype == SWL_FP32)
            v.x[i] = float_word(a->x[i]);
        else if (dtype == SWL_BF16)
            v.x[i] = float_to_bf16(a->x[2 * i]) | (uint32_t)float_to_bf16(a->x[2 * i + 1]) << 16;
        else
            v.x[i] = float_to_half(a->x[2 * i]) | (uint32_t)float_to_half(a->x[2 * i + 1]) << 16;
    }
    return v;
}

/* Vectors of a row that a lane has in flight: remote loads take microseconds. */
#define SWL_SUM_VECTORS 3u

/* Vectors v, v + 32, … of term t into the sums of its node; those behind the row's end are skipped. */
SWL_DEV void sum_take(const struct gatherer *ga, const struct sum_term *t, uint32_t v,
                      struct accumulator *node)
{
    const uint32_t vectors = ga->row_bytes / 16;
    const struct vec16 *at = (const struct vec16 *)t->at;
    struct vec16 in[SWL_SUM_VECTORS];

    if (t->fp32 && ga->dtype != SWL_FP32) {
        for (uint32_t u = 0; u < SWL_SUM_VECTORS; u++)
            if (v + 32 * u < vectors) {
                const struct vec16 low = load_data(at + 2 * (v + 32 * u));
                const struct vec16 high = load_data(at + 2 * (v + 32 * u) + 1);

                accumulator_take_fp32(&node[u], &low, &high);
            }
        return;
    }
    for (uint32_t u = 0; u < SWL_SUM_VECTORS; u++) /* all loads before the first use */
        if (v + 32 * u < vectors)
            in[u] = load_data(at + v + 32 * u);
    for (uint32_t u = 0; u < SWL_SUM_VECTORS; u++)
        if (v + 32 * u < vectors)
            accumulator_take(&node[u], &in[u], ga->dtype);
}

/* Sums of vectors v, v + 32, … over all terms. */
SWL_DEV void sum_vectors(const struct gatherer *ga, uint32_t nterms, uint32_t v,
                         struct accumulator *total)
{
    struct accumulator node[SWL_SUM_VECTORS];

    for (uint32_t u = 0; u < SWL_SUM_VECTORS; u++) {
        accumulator_clear(&total[u]);
        accumulator_clear(&node[u]);
    }
    for (uint32_t i = 0; i < nterms; i++) {
        const struct sum_term *t = &ga->list->term[i];

        if (t->first_of_node)
            for (uint32_t u = 0; u < SWL_SUM_VECTORS; u++) {
                accumulator_add(&total[u], &node[u]);
                accumulator_clear(&node[u]);
            }
        if (t->at)
            sum_take(ga, t, v, node);
    }
    for (uint32_t u = 0; u < SWL_SUM_VECTORS; u++)
        accumulator_add(&total[u], &node[u]);
}

/* Store vector v: rounded, or as it is for a partial sum that travels as fp32. */
SWL_DEV void sum_store(const struct gatherer *ga, char *out, uint32_t v,
                       const struct accumulator *total, bool fp32)
{
    struct vec16 *to = (struct vec16 *)out;

    if (fp32 && ga->dtype != SWL_FP32) {
        const struct vec16 low = {{float_word(total->x[0]), float_word(total->x[1]),
                                   float_word(total->x[2]), float_word(total->x[3])}};
        const struct vec16 high = {{float_word(total->x[4]), float_word(total->x[5]),
                                    float_word(total->x[6]), float_word(total->x[7])}};

        store_data(to + 2 * v, low);
        store_data(to + 2 * v + 1, high);
    } else {
        store_data(to + v, round_vector(total, ga->dtype));
    }
}

/* All lanes: out[] = the sum of the terms in the scratch list, rounded to the payload's type, or
 * unrounded fp32 (partial sums with SWIMLANE_COMBINE_WIRE=fp32). */
SWL_DEV void sum_terms(const struct gatherer *ga, uint32_t nterms, char *out, bool fp32)
{
    const uint32_t vectors = ga->row_bytes / 16;

    for (uint32_t v = lane_id(); v < vectors; v += 32 * SWL_SUM_VECTORS) {
        struct accumulator total[SWL_SUM_VECTORS];

        sum_vectors(ga, nterms, v, total);
        for (uint32_t u = 0; u < SWL_SUM_VECTORS; u++)
            if (v + 32 * u < vectors)
                sum_store(ga, out, v + 32 * u, &total[u], fp32);
    }
}

/* All lanes: this gatherer reads no peer's memory any more. The last one of the rank tells the local
 * peers. Chain: loads, warp_sync, acq_rel.gpu of the count, release.sys of the exit words; pairs
 * with await_exits in ht_combine_serve.cuh. */
SWL_DEV void gatherer_exit(const struct gatherer *ga)
{
    const struct swl_device_group *g = ga->g;
    uint32_t before = 0;

    warp_sync();
    if (lane_id() == 0)
        before = add_in_gpu(&g->state->gathered, 1u);
    if (warp_shfl(before, 0) != g->shape.ngatherers - 1)
        return;
    warp_sync();
    for (uint32_t i = lane_id(); i < g->shape.nlocal; i += 32)
        publish_to_peer(peer_word(g, i, g->at.exit, g->shape.local),
                        gen_word(ga->w->gen, ga->w->call));
}
