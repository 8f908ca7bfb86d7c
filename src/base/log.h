/* log.h: log lines on stderr, one line a call, nothing on stdout.
 *
 * Layer: src/base, used by all host code. The level comes from SWIMLANE_LOG (or NCCL_EP_DEBUG) at
 * the first use. Lines are lower case, object first: "group: 8 ranks on 2 nodes". */
#ifndef SWL_BASE_LOG_H
#define SWL_BASE_LOG_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum swl_level {
    SWL_LEVEL_NONE,  /* as the level of a line: asked for by the user, always written */
    SWL_LEVEL_ERROR, /* cannot go on */
    SWL_LEVEL_WARN,  /* odd or refused, goes on; the default */
    SWL_LEVEL_INFO,  /* once per object */
    SWL_LEVEL_DEBUG, /* per object, in detail */
    SWL_LEVEL_TRACE  /* per call */
};

/* Write one line if `level` is on. */
void swl_log(enum swl_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* True if lines of this level are written; for work that only feeds a log line. */
bool swl_log_on(enum swl_level level);

/* NCCL_EP_DEBUG: any text but a word for "off" counts as on. */
bool swl_log_debug_flag(void);

/* Replace the level taken from the environment; returns the previous one. For tools and tests. */
enum swl_level swl_log_set(enum swl_level level);

#ifdef __cplusplus
}
#endif
#endif
