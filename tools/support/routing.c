/* routing.c: see routing.h. */
#include "tools/support/routing.h"

#include "tools/support/payload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_TOKENS = 1, STREAM_IDS = 2 };

static struct swl_random stream(const struct swl_routing *r, int rank, int step, int purpose)
{
    return swl_random_of(r->seed, (uint64_t)rank << 32 | (uint32_t)step, (uint64_t)purpose);
}

static int experts_of_each(const struct swl_routing_size *size)
{
    return (size->nexperts + size->nranks - 1) / size->nranks;
}

/* Ranks that have any. */
static int ranks_with_experts(const struct swl_routing_size *size)
{
    return (size->nexperts + experts_of_each(size) - 1) / experts_of_each(size);
}

bool swl_routing_check(const struct swl_routing *r, const struct swl_routing_size *size,
                       struct swl_why *why)
{
    if (r->kind == SWL_ROUTING_FILE)
        return swl_routing_file_check(&r->file, size, why);
    if (size->topk > size->nexperts)
        return swl_why_set(why, "top-k is larger than the number of experts");
    if (r->kind == SWL_ROUTING_SILENT && r->skew >= ranks_with_experts(size))
        return swl_why_set(why, "--routing silent:%d leaves none of the %d ranks that have experts",
                           (int)r->skew, ranks_with_experts(size));
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

/* Experts first to end - 1, which may be chosen. */
struct range {
    int first, end;
};

static struct range range_of(const struct swl_routing *r, const struct swl_routing_size *size,
                             int64_t token)
{
    const int each = experts_of_each(size), used = ranks_with_experts(size);
    struct range all = {0, size->nexperts};

    if (r->kind == SWL_ROUTING_BLOCKS) {
        all.first = (int)(token / (int64_t)r->skew % used) * each;
        if (all.first + each < all.end)
            all.end = all.first + each;
    }
    if (r->kind == SWL_ROUTING_SILENT && r->skew >= 1 && r->skew < used)
        all.end = (used - (int)r->skew) * each; /* below nexperts, as the last rank is not used */
    return all;
}

/* topk different experts; after many collisions of a skewed draw the next free one is taken. */
static void choose(struct swl_random *random, const double *table, struct range from,
                   const struct swl_routing_size *size, int64_t *ids)
{
    for (int k = 0; k < size->topk; k++) {
        int64_t id = from.first + draw(random, table, from.end - from.first);

        for (int again = 0; again < 16 && holds(ids, k, id); again++)
            id = from.first + draw(random, table, from.end - from.first);
        while (holds(ids, k, id))
            id = (id + 1) % size->nexperts;
        ids[k] = id;
    }
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
            memcpy(row, swl_routing_file_row(&r->file, size, rank, step, t),
                   (size_t)size->topk * sizeof *row);
        else
            choose(&random, table, range_of(r, size, step + (int64_t)t), size, row);
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
