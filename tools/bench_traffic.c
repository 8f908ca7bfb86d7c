/* bench_traffic.c: what a step moves, counted from its routing. Formulas: docs/tuning.md. */
#include "tools/bench.h"

#include <stdlib.h>
#include <string.h>

struct place {
    int local[BENCH_MAX_RANKS]; /* index in its node */
    int size[BENCH_MAX_RANKS];  /* of a node */
};

static void find_places(const struct bench_options *o, struct place *p)
{
    memset(p, 0, sizeof *p);
    for (int r = 0; r < o->size.nranks; r++)
        p->local[r] = p->size[o->team_of[r]]++;
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

struct count {
    double sent[BENCH_MAX_RANKS], received[BENCH_MAX_RANKS]; /* slots between nodes */
    double stored[BENCH_MAX_RANKS]; /* rows that another GPU of the node brings */
    double shared[BENCH_MAX_RANKS]; /* rows that another rank of the same GPU brings */
};

/* The rank that takes a node's slots of this source. */
static int gateway_of(const struct bench_options *o, const struct place *p, int src, int node)
{
    const int local = p->local[src] % p->size[node];
    int g = 0;

    while (o->team_of[g] != node || p->local[g] != local)
        g++;
    return g;
}

static void count_token(const struct bench_work *work, const struct place *p, int src, int token,
                        struct count *c)
{
    const struct bench_options *o = work->o;
    bool sent_to[BENCH_MAX_RANKS] = {false};

    for (int dst = 0; dst < o->size.nranks; dst++) {
        const int node = o->team_of[dst];
        const bool own = node == o->team_of[src];

        if (swl_oracle_row(work->oracle, src, token, dst) < 0)
            continue;
        const int from = own ? src : gateway_of(o, p, src, node);

        if (from != dst)
            (work->gpu_of[from] == work->gpu_of[dst] ? c->shared : c->stored)[dst]++;
        if (own || sent_to[node])
            continue;
        sent_to[node] = true;
        c->sent[src]++;
        c->received[from]++;
    }
}

static void raise(double *most, double value)
{
    if (value > *most)
        *most = value;
}

/* A slot is header, selections and row, 128-byte aligned. */
static void sum_up(const struct bench_work *work, const struct count *c, struct bench_traffic *t)
{
    const struct bench_options *o = work->o;
    const double row = (double)bench_row_bytes(o);
    const size_t slot = round_up(16 + 16 * (size_t)o->size.topk + bench_row_bytes(o), 128);
    const double partial = (double)round_up(bench_row_bytes(o), 128) *
                           (o->wire_fp32 ? 4.0 / (double)swl_oracle_type_bytes(o->type) : 1);

    for (int r = 0; r < o->size.nranks; r++) {
        const struct swl_oracle_rows *rows = swl_oracle_rows_of(work->oracle, r);
        const double n = c->sent[r] > c->received[r] ? c->sent[r] : c->received[r];

        raise(&t->network_dispatch, n * (double)slot);
        raise(&t->network_combine, n * partial);
        raise(&t->nvlink, c->stored[r] * row);
        raise(&t->shared_gpu, c->shared[r] * row);
        raise(&t->logical, (double)rows->nrows * row);
    }
}

/* slots: [team][nrings] of this source; a token takes one in each node of its experts but the
 * own. */
static void count_slots(const struct bench_work *work, int src, int *slots)
{
    const struct bench_options *o = work->o;
    const struct swl_oracle_source *source = &work->sources[src];
    const int64_t *ids = source->ids;

    for (int t = 0; t < source->ntokens; t++) {
        bool sent_to[BENCH_MAX_RANKS] = {false};

        for (int k = 0; k < o->size.topk; k++) {
            const int64_t id = ids[(size_t)t * (size_t)o->size.topk + (size_t)k];

            if (id < 0 || id >= o->size.nexperts)
                continue;
            const int team = o->team_of[id / bench_nlocal(o)];

            if (team == o->team_of[src] || sent_to[team])
                continue;
            sent_to[team] = true;
            slots[(size_t)team * work->nrings + (size_t)t % work->nrings]++;
        }
    }
}

/* A source has rings toward every other node, and each takes the tokens that fall to it in turn,
 * whether or not their rows are dropped at the end. Combine asks for the same tokens over the same
 * rings. */
static double fullest_ring(const struct bench_work *work)
{
    const size_t n = (size_t)work->o->size.nranks * work->nrings;
    int *slots = malloc((n + 1) * sizeof *slots);
    double most = 0;

    for (int src = 0; slots && src < work->o->size.nranks; src++) {
        memset(slots, 0, n * sizeof *slots);
        count_slots(work, src, slots);
        for (size_t i = 0; i < n; i++)
            raise(&most, slots[i]);
    }
    free(slots);
    return most;
}

struct bench_traffic bench_traffic_of(const struct bench_work *work)
{
    struct bench_traffic t = {0};
    struct place *p = malloc(sizeof *p);
    struct count *c = calloc(1, sizeof *c);

    if (p && c) {
        find_places(work->o, p);
        for (int src = 0; src < work->o->size.nranks; src++)
            for (int token = 0; swl_oracle_has(work->oracle, src, token); token++)
                count_token(work, p, src, token, c);
        sum_up(work, c, &t);
        t.ring_slots = fullest_ring(work);
    }
    free(p);
    free(c);
    return t;
}
