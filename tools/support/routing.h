/* routing.h: routing shapes: which experts the tokens of a rank choose.
 *
 * Layer: tools/support. Pure functions of the shape, the seed and the rank, so that every rank knows
 * all ranks' routing. */
#ifndef SWL_ROUTING_H
#define SWL_ROUTING_H

#include "tools/support/npy.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum swl_routing_kind {
    SWL_ROUTING_UNIFORM,
    SWL_ROUTING_ZIPF, /* expert e with probability ~ 1/(e+1)^skew */
    SWL_ROUTING_HOT,  /* a share of the tokens has expert 0 among its choices */
    SWL_ROUTING_FILE  /* ids of a model */
};

struct swl_routing {
    enum swl_routing_kind kind;
    double skew;         /* of zipf; share of hot */
    struct swl_npy file; /* [tokens][topk] or [ranks][tokens][topk] */
    bool ragged;         /* tokens per rank vary, some ranks have none */
    double negative;     /* share of entries made -1 */
    double duplicate;    /* share of entries that repeat an earlier one */
    double beyond;       /* share of entries made too large */
    uint64_t seed;
};

struct swl_routing_size {
    int nranks, ntokens, topk, nexperts;
};

/* NULL, or a sentence saying why this size cannot be had (for a file). */
const char *swl_routing_check(const struct swl_routing *routing,
                              const struct swl_routing_size *size);
/* Whether all ids of a file do; shapes that are drawn have no larger ones. */
bool swl_routing_fits_int32(const struct swl_routing *routing);
/* Tokens of this rank in this step, at most size->ntokens. */
int swl_routing_tokens(const struct swl_routing *routing, const struct swl_routing_size *size,
                       int rank, int step);
/* ids and weights [tokens][topk]; false when memory is short. */
bool swl_routing_make(const struct swl_routing *routing, const struct swl_routing_size *size,
                      int rank, int step, int64_t *ids, float *weights);

#ifdef __cplusplus
}
#endif
#endif
