/* error.c: the last error of each thread. Layer: src/base.
 *
 * Memory: one block per thread, hung into swl_gpu_thread_slot, which frees it with the thread. */
#include "src/base/error.h"

#include "src/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct thread_state {
    const char *function; /* current public call, a literal; NULL outside */
    int rank;
    bool failed; /* the current public call has its sentence */
    bool quiet;  /* another rank says it */
    char sentence[768];
};

/* NULL when there is no memory for it. */
static struct thread_state *state(void)
{
    void **slot = swl_gpu_thread_slot();
    struct thread_state *s;

    if (!slot)
        return NULL;
    if (!*slot) {
        s = calloc(1, sizeof(*s));
        if (!s)
            return NULL;
        s->rank = -1;
        *slot = s;
    }
    return *slot;
}

ncclResult_t swl_fail(ncclResult_t code, const char *fmt, ...)
{
    struct thread_state *s = state();
    char text[640];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (s && !(s->function && s->failed)) {
        if (s->function)
            snprintf(s->sentence, sizeof(s->sentence), "%.64s: %s", s->function, text);
        else
            snprintf(s->sentence, sizeof(s->sentence), "%s", text);
        s->failed = true;
    }
    swl_log(s && s->quiet ? SWL_LEVEL_INFO : SWL_LEVEL_WARN, "%s", text);
    return code;
}

void swl_call_quiet(bool quiet)
{
    struct thread_state *s = state();

    if (s)
        s->quiet = quiet;
}

const char *swl_last_error(void)
{
    struct thread_state *s = state();

    return s ? s->sentence : "no memory for an error text";
}

void swl_call_begin(const char *function, int rank)
{
    struct thread_state *s = state();

    if (s) {
        s->function = function;
        s->rank = rank;
        s->failed = s->quiet = false;
    }
}

void swl_call_rank(int rank)
{
    struct thread_state *s = state();

    if (s)
        s->rank = rank;
}

void swl_call_end(void)
{
    swl_call_begin(NULL, -1);
}

const char *swl_call_function(void)
{
    struct thread_state *s = state();

    return s ? s->function : NULL;
}

int swl_call_rank_get(void)
{
    struct thread_state *s = state();

    return s ? s->rank : -1;
}

ncclResult_t swl_cuda_code(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return ncclSuccess;
    case cudaErrorNotReady:
        return ncclSystemError;
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureImplicit:
        return ncclInvalidUsage;
    default:
        return ncclUnhandledCudaError;
    }
}

ncclResult_t swl_cuda_result(cudaError_t error, const char *text)
{
    if (error == cudaSuccess)
        return ncclSuccess;
    if (error == cudaErrorNotReady)
        return swl_fail(swl_cuda_code(error), "%.*s: the device was not done within the time limit",
                        (int)strcspn(text, "("), text);
    return swl_fail(swl_cuda_code(error), "%.*s: %s", (int)strcspn(text, "("), text,
                    swl_gpu_error_text(error));
}

ncclResult_t swl_peer_result(uint64_t code)
{
    return code <= ncclInvalidUsage ? (ncclResult_t)code : ncclInternalError;
}

ncclResult_t swl_nccl_code(ncclResult_t rc)
{
    return swl_peer_result((uint64_t)rc);
}
