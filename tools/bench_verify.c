/* bench_verify.c: compare what the library left in the host images of a slot with the oracle. */
#include "tools/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row of what was found, and of what must be there. */
struct pair {
    const char *what;
    const void *found, *expected;
};

static bool same_row(struct bench_rank *r, const struct bench_slot *slot, const struct pair *pair,
                     int64_t row)
{
    int at;

    if (swl_oracle_equal(r->o->type, r->o->hidden, pair->found, pair->expected, &at))
        return true;
    bench_complain(r, "step %d: %s %" PRId64 ": element %d is %.9g, expected %.9g", slot->step,
                   pair->what, row, at, (double)swl_oracle_load(r->o->type, pair->found, at),
                   (double)swl_oracle_load(r->o->type, pair->expected, at));
    return false;
}

static int64_t integer_at(const struct bench_options *o, const char *data, int64_t at)
{
    return o->id_bytes == 8 ? ((const int64_t *)(const void *)data)[at]
                            : ((const int32_t *)(const void *)data)[at];
}

static void verify_counters(struct bench_rank *r, const struct bench_slot *slot)
{
    const struct swl_oracle_rows *rows = swl_oracle_rows_of(slot->oracle, r->rank);
    const int64_t total = integer_at(r->o, slot->host[BENCH_TOTAL], 0);

    if (total != rows->total)
        bench_complain(r, "step %d: recv_total_counter is %" PRId64 ", expected %" PRId64,
                       slot->step, total, rows->total);
    for (int e = 0; e < bench_nlocal(r->o); e++) {
        const int64_t n = integer_at(r->o, slot->host[BENCH_EXPERT_COUNTERS], e);

        if (n != rows->expert_rows[e])
            bench_complain(r, "step %d: expert_counters[%d] is %" PRId64 ", expected %" PRId64,
                           slot->step, e, n, rows->expert_rows[e]);
    }
    for (int s = 0; s < r->o->size.nranks; s++) {
        const int64_t n = integer_at(r->o, slot->host[BENCH_SOURCE_COUNTERS], s);

        if (n != rows->source_rows[s])
            bench_complain(r, "step %d: src_rank_counters[%d] is %" PRId64 ", expected %" PRId64,
                           slot->step, s, n, rows->source_rows[s]);
    }
}

/* Weights are moved, not computed: the sign of a zero counts. */
static uint32_t weight_bits(float weight)
{
    uint32_t bits;

    memcpy(&bits, &weight, sizeof bits);
    return bits;
}

static void verify_ids(struct bench_rank *r, const struct bench_slot *slot)
{
    const struct swl_oracle_rows *rows = swl_oracle_rows_of(slot->oracle, r->rank);
    const float *weights = (const float *)(const void *)slot->host[BENCH_ROW_WEIGHTS];
    const int topk = r->o->size.topk;

    for (int64_t i = 0; i < r->o->budget * topk; i++) {
        const bool used = i < rows->nrows * topk;
        const int64_t id = integer_at(r->o, slot->host[BENCH_ROW_IDS], i);

        if (id != (used ? rows->idx[i] : -1))
            bench_complain(r,
                           "step %d: row %" PRId64 ": topk_idx[%" PRId64 "] is %" PRId64
                           ", expected %" PRId64,
                           slot->step, i / topk, i % topk, id, used ? rows->idx[i] : -1);
        if (weight_bits(weights[i]) != (used ? weight_bits(rows->weights[i]) : 0))
            bench_complain(r,
                           "step %d: row %" PRId64 ": topk_weights[%" PRId64 "] is %.9g"
                           ", expected %.9g",
                           slot->step, i / topk, i % topk, (double)weights[i],
                           used ? (double)rows->weights[i] : 0);
        if (r->complaints > BENCH_MAX_COMPLAINTS)
            return;
    }
}

static void verify_rows(struct bench_rank *r, const struct bench_slot *slot, char *expected)
{
    const struct swl_oracle_rows *rows = swl_oracle_rows_of(slot->oracle, r->rank);
    const int64_t nrows = bench_rows_checked(r->o, slot, r->rank);
    const size_t bytes = bench_row_bytes(r->o);

    for (int64_t row = 0; row < nrows; row++) {
        const struct pair pair = {row < rows->nrows ? "dispatch: row" : "dispatch: untouched row",
                                  slot->host[BENCH_ROWS] + (size_t)row * bytes, expected};

        if (row < rows->nrows)
            bench_payload(r->o, slot->step, rows->src[row], rows->token[row], expected);
        else
            memset(expected, bench_poison(BENCH_ROWS), bytes);
        if (!same_row(r, slot, &pair, row))
            return;
    }
}

struct results {
    const struct bench_options *o;
    int step;
};

static bool result_row(void *arg, int dst, int64_t row, int src, int token, void *out)
{
    const struct results *results = arg;

    (void)src;
    (void)token;
    bench_result(results->o, results->step, dst, row, out);
    return true;
}

static void verify_combined(struct bench_rank *r, const struct bench_slot *slot, char *expected)
{
    struct results results = {r->o, slot->step};
    const size_t bytes = bench_row_bytes(r->o);

    for (int t = 0; t < slot->ntokens; t++) {
        const struct pair pair = {"combine: token", slot->host[BENCH_COMBINED] + (size_t)t * bytes,
                                  expected};

        swl_oracle_combine(slot->oracle, r->rank, t, result_row, &results, expected);
        if (!same_row(r, slot, &pair, t))
            return;
    }
}

void bench_verify_slot(struct bench_rank *r, const struct bench_slot *slot)
{
    char *expected = malloc(bench_row_bytes(r->o));

    if (!expected) {
        bench_complain(r, "no memory to verify");
        return;
    }
    if (!r->o->update_once || slot->step == 0)
        verify_counters(r, slot);
    verify_ids(r, slot);
    verify_rows(r, slot, expected);
    verify_combined(r, slot, expected);
    free(expected);
}
