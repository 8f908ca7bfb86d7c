/* oracle.c: expected HT FLAT results; see oracle.h. Loops follow the wording of the interface, not
 * the way the kernels work. */
#include "tools/support/oracle.h"

#include <stdlib.h>
#include <string.h>

struct rank_result {
    struct swl_oracle_rows rows;
    int *src, *token;
    int64_t *idx, *expert_rows, *source_rows;
    float *weights;
};

struct swl_oracle {
    struct swl_oracle_shape shape;
    const struct swl_oracle_source *sources;
    int nlocal;
    int nnodes;
    int *node;                 /* [nranks] index of its node, ordered by lowest rank */
    int64_t **row;             /* [nranks] -> [ntokens][nranks] row or -1 */
    bool *bad_id;              /* [nranks] */
    struct rank_result *ranks; /* [nranks] */
    float *scratch;            /* [2][hidden] sums of a node and of all nodes */
    float *values;             /* [hidden] one row as numbers */
    void *scratch_row;         /* one row */
};

/* ---- number formats ---- */

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t bf16_of(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t low = bits & 0xffff;
    uint32_t high = bits >> 16;

    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    /* Without a branch: a processor cannot predict which way a number is rounded. */
    high += (uint32_t)(low > 0x8000) | ((uint32_t)(low == 0x8000) & high);
    return (uint16_t)high;
}

static uint16_t fp16_of(float value)
{
    uint32_t bits = bits_of(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;

    if (magnitude > 0x7f800000)
        return 0x7fff;
    if (magnitude < 0x38800000) {
        /* Below 2^-14 the unit is 2^-24; adding 2^23 rounds to nearest even. */
        float units = float_of(magnitude) * 16777216.0f + 8388608.0f;

        return (uint16_t)(sign | (bits_of(units) & 0x7fffff));
    }
    uint32_t kept = magnitude >> 13;
    uint32_t rest = magnitude & 0x1fff;

    if (rest > 0x1000 || (rest == 0x1000 && (kept & 1)))
        kept++;
    kept -= (127 - 15) << 10;
    return (uint16_t)(sign | (kept > 0x7c00 ? 0x7c00 : kept));
}

static float float_of_fp16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t mantissa = half & 0x3ff;

    if (exponent == 0)
        return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
    if (exponent == 31)
        return float_of(sign | 0x7f800000 | mantissa << 13);
    return float_of(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

size_t swl_oracle_type_bytes(enum swl_oracle_type type)
{
    return type == SWL_ORACLE_FP32 ? 4 : 2;
}

static inline float load(enum swl_oracle_type type, const void *row, int at)
{
    if (type == SWL_ORACLE_FP32)
        return ((const float *)row)[at];
    uint16_t half = ((const uint16_t *)row)[at];

    return type == SWL_ORACLE_BF16 ? float_of((uint32_t)half << 16) : float_of_fp16(half);
}

static inline void store(enum swl_oracle_type type, void *row, int at, float value)
{
    if (type == SWL_ORACLE_FP32)
        ((float *)row)[at] = value;
    else
        ((uint16_t *)row)[at] = type == SWL_ORACLE_BF16 ? bf16_of(value) : fp16_of(value);
}

float swl_oracle_load(enum swl_oracle_type type, const void *row, int at)
{
    return load(type, row, at);
}

void swl_oracle_store(enum swl_oracle_type type, void *row, int at, float value)
{
    store(type, row, at, value);
}

/* Whole rows, with the choice of the type outside of the loop. */
static void load_row(enum swl_oracle_type type, const void *row, int hidden, float *values)
{
    if (type == SWL_ORACLE_BF16)
        for (int h = 0; h < hidden; h++)
            values[h] = load(SWL_ORACLE_BF16, row, h);
    else
        for (int h = 0; h < hidden; h++)
            values[h] = load(type, row, h);
}

static void store_row(enum swl_oracle_type type, void *row, int hidden, const float *values)
{
    if (type == SWL_ORACLE_BF16)
        for (int h = 0; h < hidden; h++)
            store(SWL_ORACLE_BF16, row, h, values[h]);
    else
        for (int h = 0; h < hidden; h++)
            store(type, row, h, values[h]);
}

bool swl_oracle_equal(enum swl_oracle_type type, int hidden, const void *a, const void *b,
                      int *at_p)
{
    size_t bytes = swl_oracle_type_bytes(type);

    if (memcmp(a, b, bytes * (size_t)hidden) == 0)
        return true;
    for (int h = 0; h < hidden; h++) {
        float x = swl_oracle_load(type, a, h), y = swl_oracle_load(type, b, h);

        if (type == SWL_ORACLE_FP32 && x != x && y != y)
            continue;
        if (memcmp((const char *)a + bytes * (size_t)h, (const char *)b + bytes * (size_t)h,
                   bytes) != 0) {
            *at_p = h;
            return false;
        }
    }
    return true;
}

/* ---- routing ---- */

static int64_t id_at(const struct swl_oracle *o, int src, int token, int k)
{
    const struct swl_oracle_source *s = &o->sources[src];
    size_t at = (size_t)token * (size_t)o->shape.topk + (size_t)k;

    return s->id_bytes == 8 ? ((const int64_t *)s->ids)[at] : ((const int32_t *)s->ids)[at];
}

/* The owner of selection k, or -1: negative, too large, or seen earlier in the row. */
static int owner_of(const struct swl_oracle *o, int src, int token, int k)
{
    int64_t id = id_at(o, src, token, k);

    if (id < 0 || id >= o->shape.nexperts)
        return -1;
    for (int before = 0; before < k; before++)
        if (id_at(o, src, token, before) == id)
            return -1;
    return (int)(id / o->nlocal);
}

/* Give dst its next row: the token with the n selections ks, all owned by dst. */
static void deliver(struct swl_oracle *o, int dst, int src, int token, const int *ks, int n)
{
    struct rank_result *r = &o->ranks[dst];
    int64_t row = r->rows.total++;
    int topk = o->shape.topk;

    if (row >= o->shape.budget)
        return;
    r->rows.nrows++;
    r->src[row] = src;
    r->token[row] = token;
    r->source_rows[src]++;
    o->row[src][(size_t)token * (size_t)o->shape.nranks + (size_t)dst] = row;
    int64_t *idx = r->idx + row * topk;
    float *weights = r->weights + row * topk;

    for (int k = 0; k < topk; k++) {
        idx[k] = -1;
        weights[k] = 0;
    }
    /* Selection sort by id: the smallest id above the one before. */
    int64_t last = -1;
    for (int i = 0; i < n; i++) {
        int best = -1;

        for (int j = 0; j < n; j++) {
            int64_t id = id_at(o, src, token, ks[j]);

            if (id > last && (best < 0 || id < id_at(o, src, token, ks[best])))
                best = j;
        }
        last = id_at(o, src, token, ks[best]);
        idx[i] = o->shape.global_ids ? last : last - (int64_t)dst * o->nlocal;
        weights[i] = o->sources[src].weights[(size_t)token * (size_t)topk + (size_t)ks[best]];
        r->expert_rows[last - (int64_t)dst * o->nlocal]++;
    }
}

/* Rows are numbered by source rank, then token. owners and ks are scratch, [topk] each. */
static void route_source(struct swl_oracle *o, int src, int *owners, int *ks)
{
    for (int token = 0; token < o->sources[src].ntokens; token++) {
        for (int k = 0; k < o->shape.topk; k++) {
            owners[k] = owner_of(o, src, token, k);
            o->bad_id[src] |= id_at(o, src, token, k) >= o->shape.nexperts;
        }
        for (int dst = 0; dst < o->shape.nranks; dst++) {
            int n = 0;

            for (int k = 0; k < o->shape.topk; k++)
                if (owners[k] == dst)
                    ks[n++] = k;
            if (n > 0)
                deliver(o, dst, src, token, ks, n);
        }
    }
}

/* Rows that may arrive at one rank: all tokens, at most the budget. */
static size_t rows_bound(const struct swl_oracle *o)
{
    int64_t n = 0;

    for (int s = 0; s < o->shape.nranks; s++)
        n += o->sources[s].ntokens;
    if (n > o->shape.budget)
        n = o->shape.budget;
    return (size_t)n;
}

static bool allocate_rank(struct swl_oracle *o, struct rank_result *r)
{
    size_t rows = rows_bound(o) + 1;
    size_t topk = (size_t)o->shape.topk;

    r->src = malloc(rows * sizeof *r->src);
    r->token = malloc(rows * sizeof *r->token);
    r->idx = malloc(rows * topk * sizeof *r->idx);
    r->weights = malloc(rows * topk * sizeof *r->weights);
    r->expert_rows = calloc((size_t)o->nlocal, sizeof *r->expert_rows);
    r->source_rows = calloc((size_t)o->shape.nranks, sizeof *r->source_rows);
    r->rows = (struct swl_oracle_rows){.src = r->src,
                                       .token = r->token,
                                       .idx = r->idx,
                                       .weights = r->weights,
                                       .expert_rows = r->expert_rows,
                                       .source_rows = r->source_rows};
    return r->src && r->token && r->idx && r->weights && r->expert_rows && r->source_rows;
}

static bool allocate_oracle(struct swl_oracle *o)
{
    size_t nranks = (size_t)o->shape.nranks;
    bool ok = true;

    o->node = malloc(nranks * sizeof *o->node);
    o->row = calloc(nranks, sizeof *o->row);
    o->bad_id = calloc(nranks, sizeof *o->bad_id);
    o->ranks = calloc(nranks, sizeof *o->ranks);
    o->scratch = malloc(2 * (size_t)o->shape.hidden * sizeof *o->scratch);
    o->values = malloc((size_t)o->shape.hidden * sizeof *o->values);
    o->scratch_row = malloc(swl_oracle_row_bytes(o));
    if (!o->node || !o->row || !o->bad_id || !o->ranks || !o->scratch || !o->values ||
        !o->scratch_row)
        return false;
    for (size_t r = 0; r < nranks && ok; r++) {
        size_t entries = (size_t)o->sources[r].ntokens * nranks;

        ok = allocate_rank(o, &o->ranks[r]);
        o->row[r] = malloc((entries + 1) * sizeof **o->row);
        ok = ok && o->row[r];
        for (size_t i = 0; ok && i < entries; i++)
            o->row[r][i] = -1;
    }
    return ok;
}

static void number_nodes(struct swl_oracle *o)
{
    for (int r = 0; r < o->shape.nranks; r++) {
        int twin = 0;

        while (twin < r && o->shape.node_of[twin] != o->shape.node_of[r])
            twin++;
        o->node[r] = twin < r ? o->node[twin] : o->nnodes++;
    }
}

struct swl_oracle *swl_oracle_create(const struct swl_oracle_shape *shape,
                                     const struct swl_oracle_source *sources)
{
    struct swl_oracle *o = calloc(1, sizeof *o);
    int *ks = malloc(2 * (size_t)shape->topk * sizeof *ks);

    if (o) {
        o->shape = *shape;
        o->sources = sources;
        o->nlocal = (shape->nexperts + shape->nranks - 1) / shape->nranks;
    }
    if (!o || !ks || !allocate_oracle(o)) {
        free(ks);
        swl_oracle_destroy(o);
        return NULL;
    }
    number_nodes(o);
    for (int r = 0; r < shape->nranks; r++)
        route_source(o, r, ks + shape->topk, ks);
    free(ks);
    return o;
}

void swl_oracle_destroy(struct swl_oracle *o)
{
    if (!o)
        return;
    for (int r = 0; r < o->shape.nranks; r++) {
        if (o->row)
            free(o->row[r]);
        if (!o->ranks)
            continue;
        free(o->ranks[r].src);
        free(o->ranks[r].token);
        free(o->ranks[r].idx);
        free(o->ranks[r].weights);
        free(o->ranks[r].expert_rows);
        free(o->ranks[r].source_rows);
    }
    free(o->row);
    free(o->ranks);
    free(o->node);
    free(o->bad_id);
    free(o->scratch);
    free(o->values);
    free(o->scratch_row);
    free(o);
}

const struct swl_oracle_rows *swl_oracle_rows_of(const struct swl_oracle *o, int rank)
{
    return &o->ranks[rank].rows;
}

int64_t swl_oracle_row(const struct swl_oracle *o, int src, int token, int dst)
{
    return o->row[src][(size_t)token * (size_t)o->shape.nranks + (size_t)dst];
}

bool swl_oracle_has(const struct swl_oracle *o, int src, int token)
{
    return token < o->sources[src].ntokens;
}

bool swl_oracle_bad_id(const struct swl_oracle *o, int src)
{
    return o->bad_id[src];
}

size_t swl_oracle_row_bytes(const struct swl_oracle *o)
{
    return swl_oracle_type_bytes(o->shape.type) * (size_t)o->shape.hidden;
}

/* ---- combine ---- */

static void add_row(const struct swl_oracle *o, float *sum, const void *row)
{
    load_row(o->shape.type, row, o->shape.hidden, o->values);
    for (int h = 0; h < o->shape.hidden; h++)
        sum[h] += o->values[h];
}

/* Add the partial sum of one node to the total, as it arrives at the source. */
static void add_node(const struct swl_oracle *o, float *total, float *partial, bool remote)
{
    if (remote && !o->shape.wire_fp32) {
        store_row(o->shape.type, o->scratch_row, o->shape.hidden, partial);
        load_row(o->shape.type, o->scratch_row, o->shape.hidden, partial);
    }
    for (int h = 0; h < o->shape.hidden; h++)
        total[h] += partial[h];
}

void swl_oracle_combine(const struct swl_oracle *o, int src, int token, swl_oracle_row_fn fn,
                        void *arg, void *out)
{
    int hidden = o->shape.hidden;
    float *total = o->scratch;
    float *partial = total + hidden;

    for (int h = 0; h < hidden; h++)
        total[h] = 0;
    for (int node = 0; node < o->nnodes; node++) {
        bool any = false;

        for (int h = 0; h < hidden; h++)
            partial[h] = 0;
        for (int dst = 0; dst < o->shape.nranks; dst++) {
            int64_t row = swl_oracle_row(o, src, token, dst);

            if (o->node[dst] != node || row < 0)
                continue;
            if (!fn(arg, dst, row, src, token, o->scratch_row))
                continue;
            add_row(o, partial, o->scratch_row);
            any = true;
        }
        if (any)
            add_node(o, total, partial, node != o->node[src]);
    }
    store_row(o->shape.type, out, hidden, total);
}
