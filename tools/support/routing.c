/* routing.c: see routing.h. */
#include "tools/support/routing.h"

#include "tools/support/payload.h"

#include <math.h>
#include <stdlib.h>

enum { STREAM_TOKENS = 1, STREAM_IDS = 2 };

static struct swl_random stream(const struct swl_routing *r, int rank, int step, int purpose)
{
    return swl_random_of(r->seed, (uint64_t)rank << 32 | (uint32_t)step, (uint64_t)purpose);
}

static size_t file_rows(const struct swl_npy *npy)
{
    size_t rows = 1;

    for (int i = 0; i + 1 < npy->ndim; i++)
        rows *= npy->shape[i];
    return rows;
}

const char *swl_routing_check(const struct swl_routing *r, const struct swl_routing_size *size)
{
    if (size->topk > size->nexperts && r->kind != SWL_ROUTING_FILE)
        return "top-k is larger than the number of experts";
    if (r->kind != SWL_ROUTING_FILE)
        return NULL;
    const struct swl_npy *npy = &r->file;

    if (npy->ndim != 2 && npy->ndim != 3)
        return "the routing file must hold [tokens][topk] or [ranks][tokens][topk]";
    if (npy->shape[npy->ndim - 1] != (size_t)size->topk)
        return "the last extent of the routing file is not top-k";
    if (file_rows(npy) == 0)
        return "the routing file holds no tokens";
    return NULL;
}

bool swl_routing_fits_int32(const struct swl_routing *r)
{
    const struct swl_npy *npy = &r->file;

    if (r->kind != SWL_ROUTING_FILE)
        return true;
    for (size_t i = 0, n = file_rows(npy) * npy->shape[npy->ndim - 1]; i < n; i++)
        if (npy->data[i] < INT32_MIN || npy->data[i] > INT32_MAX)
            return false;
    return true;
}

int swl_routing_tokens(const struct swl_routing *r, const struct swl_routing_size *size, int rank,
                       int step)
{
    struct swl_random random = stream(r, rank, step, STREAM_TOKENS);

    if (!r->ragged)
        return size->ntokens;
    /* One rank in four has no token; rank 0 has all, so that no step is empty. */
    if (rank == 0)
        return size->ntokens;
    if (swl_random_below(&random, 4) == 0)
        return 0;
    return (int)swl_random_below(&random, (uint32_t)size->ntokens + 1);
}

/* Cumulative probabilities of the experts. */
static double *zipf_table(double skew, int n)
{
    double *table = calloc((size_t)n, sizeof *table);
    double sum = 0;

    if (!table)
        return NULL;
    for (int e = 0; e < n; e++)
        table[e] = sum += pow(e + 1, -skew);
    for (int e = 0; e < n; e++)
        table[e] /= sum;
    return table;
}

static int draw(struct swl_random *random, const double *table, int n)
{
    if (!table)
        return (int)swl_random_below(random, (uint32_t)n);
    double at = swl_random_unit(random);
    int low = 0, high = n - 1;

    while (low < high) {
        int middle = (low + high) / 2;

        if (table[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool holds(const int64_t *ids, int n, int64_t id)
{
    for (int i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* topk different experts; after many collisions of a skewed draw the next free one is taken. */
static void choose(struct swl_random *random, const double *table,
                   const struct swl_routing_size *size, int64_t *ids)
{
    for (int k = 0; k < size->topk; k++) {
        int64_t id = draw(random, table, size->nexperts);

        for (int again = 0; again < 16 && holds(ids, k, id); again++)
            id = draw(random, table, size->nexperts);
        while (holds(ids, k, id))
            id = (id + 1) % size->nexperts;
        ids[k] = id;
    }
}

static void replay(const struct swl_routing *r, const struct swl_routing_size *size, int rank,
                   int step, int token, int64_t *ids)
{
    size_t rows = file_rows(&r->file);
    size_t per_step = (size_t)size->nranks * (size_t)size->ntokens;
    size_t row = (size_t)step * per_step + (size_t)rank * (size_t)size->ntokens + (size_t)token;

    if (r->file.ndim == 3) {
        size_t tokens = r->file.shape[1];
        size_t at = ((size_t)step * (size_t)size->ntokens + (size_t)token) % tokens;

        row = (size_t)rank % r->file.shape[0] * tokens + at;
    }
    for (int k = 0; k < size->topk; k++)
        ids[k] = r->file.data[row % rows * (size_t)size->topk + (size_t)k];
}

/* Entries that are no ordinary choice. */
static void spoil(const struct swl_routing *r, struct swl_random *random,
                  const struct swl_routing_size *size, int64_t *ids)
{
    for (int k = 0; k < size->topk; k++) {
        double at = swl_random_unit(random);

        if (at < r->negative)
            ids[k] = -1 - (int64_t)swl_random_below(random, 3);
        else if (at < r->negative + r->beyond)
            ids[k] = size->nexperts + (int64_t)swl_random_below(random, 5);
        else if (k > 0 && at < r->negative + r->beyond + r->duplicate)
            ids[k] = ids[swl_random_below(random, (uint32_t)k)];
    }
}

bool swl_routing_make(const struct swl_routing *r, const struct swl_routing_size *size, int rank,
                      int step, int64_t *ids, float *weights)
{
    struct swl_random random = stream(r, rank, step, STREAM_IDS);
    int ntokens = swl_routing_tokens(r, size, rank, step);
    double *table = NULL;

    if (r->kind == SWL_ROUTING_ZIPF) {
        table = zipf_table(r->skew, size->nexperts);
        if (!table)
            return false;
    }
    for (int t = 0; t < ntokens; t++) {
        int64_t *row = ids + (size_t)t * (size_t)size->topk;

        if (r->kind == SWL_ROUTING_FILE)
            replay(r, size, rank, step, t, row);
        else
            choose(&random, table, size, row);
        if (r->kind == SWL_ROUTING_HOT && swl_random_unit(&random) < r->skew &&
            !holds(row, size->topk, 0))
            row[swl_random_below(&random, (uint32_t)size->topk)] = 0;
        spoil(r, &random, size, row);
        for (int k = 0; k < size->topk; k++)
            weights[(size_t)t * (size_t)size->topk + (size_t)k] =
                (float)(swl_random_unit(&random) + 0.01);
    }
    free(table);
    return true;
}
