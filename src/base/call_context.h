/* call_context.h: which public call this thread is in, for whom it logs, and the call's sentence.
 *
 * Layer: src/base, below error.h and log.h. One block for each thread, hung into swl_thread_slot,
 * which frees it with the thread. */
#ifndef SWL_BASE_CALL_CONTEXT_H
#define SWL_BASE_CALL_CONTEXT_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_call_context {
    const char *function; /* current public call, a literal; NULL outside */
    int rank;             /* -1: not known */
    bool failed;          /* the current public call has its sentence */
    bool quiet;           /* another rank says it */
    char sentence[768];
};

/* This thread's; NULL when there is no memory for it. */
struct swl_call_context *swl_call_context(void);

#ifdef __cplusplus
}
#endif
#endif
