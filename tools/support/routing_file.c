/* routing_file.c: recorded routing: which row of a .npy file each token takes, and what is odd
 * about it. */
#include "tools/support/routing.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static size_t rows_of(const struct swl_npy *npy)
{
    size_t rows = 1;

    for (int i = 0; i + 1 < npy->ndim; i++)
        rows *= npy->shape[i];
    return rows;
}

static size_t entries_of(const struct swl_npy *npy)
{
    return rows_of(npy) * npy->shape[npy->ndim - 1];
}

/* "[24][3]". */
static const char *shape_text(const struct swl_npy *npy, char text[64])
{
    int at = 0;

    text[0] = '\0';
    for (int i = 0; i < npy->ndim && at < 64; i++)
        at += snprintf(text + at, (size_t)(64 - at), "[%zu]", npy->shape[i]);
    return text;
}

bool swl_routing_take_layer(struct swl_npy *npy, int layer, struct swl_why *why)
{
    char text[64];

    if (npy->ndim != 3)
        return swl_why_set(why,
                           "the routing file is %s, a layer is taken of [tokens][layers][topk]",
                           shape_text(npy, text));
    const size_t layers = npy->shape[1], topk = npy->shape[2];

    if ((size_t)layer >= layers)
        return swl_why_set(why, "the routing file is %s, its layers are 0 to %zu: there is no %d",
                           shape_text(npy, text), layers ? layers - 1 : 0, layer);
    for (size_t t = 0; t < npy->shape[0]; t++)
        memmove(npy->data + t * topk, npy->data + (t * layers + (size_t)layer) * topk,
                topk * sizeof *npy->data);
    npy->ndim = 2;
    npy->shape[1] = topk;
    return true;
}

/* Ids that no expert has; the largest one. */
static size_t count_beyond(const struct swl_npy *npy, int nexperts, int64_t *largest_p)
{
    size_t n = 0;

    *largest_p = -1;
    for (size_t i = 0; i < entries_of(npy); i++) {
        n += npy->data[i] >= nexperts;
        if (npy->data[i] > *largest_p)
            *largest_p = npy->data[i];
    }
    return n;
}

static size_t count_negative(const struct swl_npy *npy)
{
    size_t n = 0;

    for (size_t i = 0; i < entries_of(npy); i++)
        n += npy->data[i] < 0;
    return n;
}

bool swl_routing_file_check(const struct swl_npy *npy, const struct swl_routing_size *size,
                            struct swl_why *why)
{
    char text[64];
    int64_t largest;

    shape_text(npy, text);
    if (npy->ndim != 2 && npy->ndim != 3)
        return swl_why_set(
            why, "the routing file is %s, it must be [tokens][topk] or [ranks][tokens][topk]",
            text);
    if (npy->shape[npy->ndim - 1] != (size_t)size->topk)
        return swl_why_set(why, "the routing file is %s, its last extent is not top-k %d", text,
                           size->topk);
    if (rows_of(npy) == 0)
        return swl_why_set(why, "the routing file is %s, it holds no tokens", text);
    if (npy->ndim == 3 && npy->shape[0] != (size_t)size->nranks)
        return swl_why_set(why,
                           "the routing file is %s, as [ranks][tokens][topk] it is not for %d "
                           "ranks; --routing-layer takes a layer of [tokens][layers][topk]",
                           text, size->nranks);
    const size_t beyond = count_beyond(npy, size->nexperts, &largest);

    if (beyond > 0)
        return swl_why_set(why,
                           "%zu of %zu ids of the routing file name no expert, there are %d and "
                           "the largest id is %" PRId64,
                           beyond, entries_of(npy), size->nexperts, largest);
    return true;
}

bool swl_routing_fits_int32(const struct swl_routing *r)
{
    const struct swl_npy *npy = &r->file;

    if (r->kind != SWL_ROUTING_FILE)
        return true;
    for (size_t i = 0; i < entries_of(npy); i++)
        if (npy->data[i] < INT32_MIN || npy->data[i] > INT32_MAX)
            return false;
    return true;
}

const int64_t *swl_routing_file_row(const struct swl_npy *npy, const struct swl_routing_size *size,
                                    int rank, int step, int token)
{
    const size_t tokens = (size_t)size->ntokens, topk = (size_t)size->topk;
    size_t row = ((size_t)step * (size_t)size->nranks + (size_t)rank) * tokens + (size_t)token;

    if (npy->ndim == 3) {
        const size_t of_rank = ((size_t)step * tokens + (size_t)token) % npy->shape[1];

        row = (size_t)rank * npy->shape[1] + of_rank;
    }
    return npy->data + row % rows_of(npy) * topk;
}

struct swl_routing_use swl_routing_use_of(const struct swl_npy *npy,
                                          const struct swl_routing_size *size, int nsteps)
{
    struct swl_routing_use use = {.each_rank = npy->ndim == 3};

    use.rows = use.each_rank ? npy->shape[1] : rows_of(npy);
    use.wanted =
        (size_t)nsteps * (size_t)size->ntokens * (use.each_rank ? 1 : (size_t)size->nranks);
    use.entries = entries_of(npy);
    use.negative = count_negative(npy);
    if (npy->element_bytes < 4)
        use.largest = (INT64_C(1) << (8 * npy->element_bytes - (npy->kind == 'i'))) - 1;
    use.too_narrow = npy->element_bytes < 4 && size->nexperts - 1 > use.largest;
    return use;
}
