/* error.h: result codes with one sentence each.
 *
 * Layer: src/base, used by all host code. The first function that decides an error calls swl_fail;
 * its callers pass the code on silently. The sentence is kept per thread (per fiber in the
 * emulator), see call_context.h. */
#ifndef SWL_BASE_ERROR_H
#define SWL_BASE_ERROR_H

#include <nccl.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Keep and log (at WARN, with function and rank of the call) one sentence; returns `code`.
 * Inside a public call the first sentence stays, so that clean-up cannot hide the cause. */
ncclResult_t swl_fail(ncclResult_t code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The last sentence of this thread, "" if none; valid until the thread's next failure. */
const char *swl_last_error(void);

/* Bracket of a public function: names it, and the rank (-1 = unknown), in sentences until the
 * end. */
void swl_call_begin(const char *function, int rank);
void swl_call_rank(int rank);
void swl_call_end(void);

/* Sentences from here on are logged at INFO: another rank of this process says them, or their
 * cause. */
void swl_call_quiet(bool quiet);

/* Of two results the first that is a failure. For work that goes on after one, such as giving
 * back. */
static inline ncclResult_t swl_first_failure(ncclResult_t first, ncclResult_t next)
{
    return first != ncclSuccess ? first : next;
}

/* A result code that another rank has sent; InternalError for a number that is none. */
ncclResult_t swl_peer_result(uint64_t code);
/* What a sentence says of a rank that failed with this code. Static; NCCL is not needed for it. */
const char *swl_result_text(ncclResult_t rc);

/* A failure of NCCL as our callers know it: codes above InvalidUsage (remote error, in progress,
 * time-out, whatever is to come) are InternalError. */
ncclResult_t swl_nccl_code(ncclResult_t rc);

/* Return on failure; only where nothing is held. */
#define SWL_TRY(call)                                                                              \
    do {                                                                                           \
        ncclResult_t swl_try_rc = (call);                                                          \
        if (swl_try_rc != ncclSuccess)                                                             \
            return swl_try_rc;                                                                     \
    } while (0)

/* Return InvalidArgument with a sentence unless `cond` holds. */
#define SWL_ARG(cond, ...)                                                                         \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            swl_fail(ncclInvalidArgument, __VA_ARGS__);                                            \
            return ncclInvalidArgument;                                                            \
        }                                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
