/* routing.h: routing shapes: which experts the tokens of a rank choose.
 *
 * Layer: tools/support. Pure functions of the shape, the seed and the rank, so that every rank
 * knows all ranks' routing. */
#ifndef SWL_ROUTING_H
#define SWL_ROUTING_H

#include "tools/support/launch.h"
#include "tools/support/npy.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum swl_routing_kind {
    SWL_ROUTING_UNIFORM,
    SWL_ROUTING_ZIPF,   /* expert e with probability ~ 1/(e+1)^skew */
    SWL_ROUTING_HOT,    /* a share of the tokens has expert 0 among its choices */
    SWL_ROUTING_BLOCKS, /* so many tokens choose experts of one rank, the next ones of the next */
    SWL_ROUTING_SILENT, /* nobody chooses experts of the last so many ranks */
    SWL_ROUTING_FILE    /* ids of a model */
};

struct swl_routing {
    enum swl_routing_kind kind;
    double skew;         /* of zipf; share of hot; tokens of blocks; ranks that are silent */
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

/* False, and why, when this size cannot be had (of a file). */
bool swl_routing_check(const struct swl_routing *routing, const struct swl_routing_size *size,
                       struct swl_why *why);
/* Tokens of this rank in this step, at most size->ntokens. */
int swl_routing_tokens(const struct swl_routing *routing, const struct swl_routing_size *size,
                       int rank, int step);
/* ids and weights [tokens][topk]; false when memory is short. */
bool swl_routing_make(const struct swl_routing *routing, const struct swl_routing_size *size,
                      int rank, int step, int64_t *ids, float *weights);

/* ---- recorded routing, routing_file.c ---- */

/* Make [tokens][topk] of one layer of [tokens][layers][topk]. */
bool swl_routing_take_layer(struct swl_npy *npy, int layer, struct swl_why *why);
bool swl_routing_file_check(const struct swl_npy *npy, const struct swl_routing_size *size,
                            struct swl_why *why);
/* Whether all ids of a file do; shapes that are drawn have no larger ones. */
bool swl_routing_fits_int32(const struct swl_routing *routing);
/* [topk]; a file of two extents is read rank after rank in each step, one of three step after step
 * by each rank for itself, and both from the begin again after their last row. */
const int64_t *swl_routing_file_row(const struct swl_npy *npy, const struct swl_routing_size *size,
                                    int rank, int step, int token);

/* What a run makes of a file that was checked. */
struct swl_routing_use {
    bool each_rank;           /* the next two are those of every rank */
    size_t rows, wanted;      /* there, and taken by all steps */
    size_t entries, negative; /* a negative one stands for no expert */
    int64_t largest;          /* that the file's type holds; 0: enough */
    bool too_narrow;          /* not all experts' ids */
};
struct swl_routing_use swl_routing_use_of(const struct swl_npy *npy,
                                          const struct swl_routing_size *size, int nsteps);

#ifdef __cplusplus
}
#endif
#endif
