/* options.h: the environment variables of the library, parsed.
 *
 * Layer: src/base. A group reads them once, when it is created, and keeps its copy; the rows are in
 * options_table.h. A malformed value is a WARN and the default, never a failure. */
#ifndef SWL_BASE_OPTIONS_H
#define SWL_BASE_OPTIONS_H

#include <nccl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Wire model of a software NIC; both 0 = none. */
struct swl_wire_model {
    double gbps, us;
};

/* Slots of all rings, for tests; all 0 = as the plan wants them. Powers of two. */
struct swl_ring_sizes {
    uint32_t slots;   /* of rings between nodes, 2 to 64 */
    uint32_t chunk;   /* of these sent together, at most half */
    uint32_t landing; /* rows that a gatherer may have asked of one peer, 1 to 16 */
    uint32_t link;    /* of rings inside a node, with rows or records, 2 to 64 */
};

typedef bool swl_opt_flag;
typedef uint32_t swl_opt_u32;
typedef uint64_t swl_opt_u64;
typedef int32_t swl_opt_i32;
typedef struct swl_wire_model swl_opt_link;
typedef struct swl_ring_sizes swl_opt_rings;
typedef uint32_t swl_opt_word;  /* its place among the words of the row's unit, from 0 */
typedef uint32_t swl_opt_words; /* bits, in that order behind the first word, which stands for 0 */
typedef char swl_opt_text[256]; /* "" = not set */

struct swl_options {
#define OPT(field, name, fallback, type, def, min, max, unit, help) swl_opt_##type field;
#include "src/base/options_table.h"
};

enum swl_option_kind {
    SWL_OPTION_flag,
    SWL_OPTION_u32,
    SWL_OPTION_u64,
    SWL_OPTION_i32,
    SWL_OPTION_link,
    SWL_OPTION_rings,
    SWL_OPTION_word,
    SWL_OPTION_words,
    SWL_OPTION_text,
    SWL_OPTION_note
};

struct swl_option_row {
    const char *name, *fallback; /* fallback: NULL if none */
    enum swl_option_kind kind;
    size_t offset; /* in struct swl_options */
    int64_t def;
    uint64_t min, max;
    const char *unit, *help; /* unit: of words, the words with commas between them */
};

/* All rows in the order of the table. */
const struct swl_option_row *swl_option_rows(size_t *nrows_p);

/* Every variable, or the one called `name`, from the environment; the rest of *options is kept. */
void swl_options_read(struct swl_options *options);
void swl_option_read(struct swl_options *options, const char *name);

/* The variable whose value a row has: the own one, or NCCL's where only that is set. */
const char *swl_option_variable(const char *name);

/* Does the value say "not set": 0 where that is no value, -1 where NCCL's variable of the row has
 * it so? */
bool swl_option_unset(const struct swl_option_row *row, const char *text);

/* Would the value be taken? Rows that are read elsewhere take any. */
bool swl_option_valid(const struct swl_option_row *row, const char *text);

/* What of a value may be shown in lists and logs: nothing of a secret. */
const char *swl_option_shown(const struct swl_option_row *row, const char *text);

/* InvalidUsage for values that contradict each other. */
ncclResult_t swl_options_check(const struct swl_options *options);

/* One log line per variable with the text found in the environment. */
void swl_options_list(void);

#ifdef __cplusplus
}
#endif
#endif
