/* oracle.h: what HT FLAT dispatch and combine must produce, computed the plain way.
 *
 * Layer: tools/support, for tools and tests. Written from the interface document alone and shares
 * no code with the library: its id rules, row order, number formats and sums are its own.
 * Everything is computed on the host from all ranks' inputs. The caller owns the inputs, which must
 * outlive the oracle; the oracle owns what it returns. */
#ifndef SWL_ORACLE_H
#define SWL_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum swl_oracle_type { SWL_ORACLE_BF16, SWL_ORACLE_FP16, SWL_ORACLE_FP32 };

struct swl_oracle_shape {
    int nranks;
    const int *node_of; /* [nranks] any labels; equal labels are one node */
    int nexperts, topk;
    int hidden; /* elements of a row */
    enum swl_oracle_type type;
    int64_t budget;  /* rows a rank takes; rows at and beyond it are dropped */
    bool global_ids; /* numbering of idx */
    bool wire_fp32;  /* partial sums between nodes are not rounded */
};

/* What one rank hands to Update and Dispatch. */
struct swl_oracle_source {
    int ntokens;
    int id_bytes;         /* 4 or 8 */
    const void *ids;      /* [ntokens][topk] */
    const float *weights; /* [ntokens][topk] */
};

/* What one rank must find after Update and Dispatch. */
struct swl_oracle_rows {
    int64_t total;              /* rows routed here, before dropping */
    int64_t nrows;              /* rows delivered */
    const int *src;             /* [nrows] source rank */
    const int *token;           /* [nrows] token index there */
    const int64_t *idx;         /* [nrows][topk] this rank's experts, ascending, rest -1 */
    const float *weights;       /* [nrows][topk] aligned with idx, rest 0 */
    const int64_t *expert_rows; /* [nlocal] selections delivered per local expert */
    const int64_t *source_rows; /* [nranks] rows delivered per source */
};

struct swl_oracle;

/* NULL when memory is short. */
struct swl_oracle *swl_oracle_create(const struct swl_oracle_shape *shape,
                                     const struct swl_oracle_source *sources);
void swl_oracle_destroy(struct swl_oracle *oracle);

const struct swl_oracle_rows *swl_oracle_rows_of(const struct swl_oracle *oracle, int rank);
/* Row of token `token` of `src` at rank `dst`, or -1: not routed there or dropped. */
int64_t swl_oracle_row(const struct swl_oracle *oracle, int src, int token, int dst);
/* True when src has a token of this index. */
bool swl_oracle_has(const struct swl_oracle *oracle, int src, int token);
/* True when some id of this rank's input is not below nexperts (async bit 2). */
bool swl_oracle_bad_id(const struct swl_oracle *oracle, int src);
/* Bytes of one row. */
size_t swl_oracle_row_bytes(const struct swl_oracle *oracle);

/* Rows that enter combine: put row `row` of rank `dst`, which came from (src, token), at `out`;
 * false when the rank's tensor ends before it. */
typedef bool (*swl_oracle_row_fn)(void *arg, int dst, int64_t row, int src, int token, void *out);

/* The combined row of (src, token), bit for bit, to `out`. */
void swl_oracle_combine(const struct swl_oracle *oracle, int src, int token, swl_oracle_row_fn fn,
                        void *arg, void *out);

/* True when rows are equal, two NaNs of fp32 counting as equal; else *at_p is the first element
 * that differs. */
bool swl_oracle_equal(enum swl_oracle_type type, int hidden, const void *a, const void *b,
                      int *at_p);

/* Number formats: round to nearest even, every NaN becomes 0x7fff. */
size_t swl_oracle_type_bytes(enum swl_oracle_type type);
float swl_oracle_load(enum swl_oracle_type type, const void *row, int at);
void swl_oracle_store(enum swl_oracle_type type, void *row, int at, float value);

#ifdef __cplusplus
}
#endif
#endif
