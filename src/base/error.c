/* error.c: the last error of each thread. Layer: src/base; memory: call_context.h. */
#include "src/base/error.h"

#include "src/base/call_context.h"
#include "src/base/log.h"

#include <stdarg.h>
#include <stdio.h>

ncclResult_t swl_fail(ncclResult_t code, const char *fmt, ...)
{
    struct swl_call_context *s = swl_call_context();
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
    struct swl_call_context *s = swl_call_context();

    if (s)
        s->quiet = quiet;
}

const char *swl_last_error(void)
{
    struct swl_call_context *s = swl_call_context();

    return s ? s->sentence : "no memory for an error text";
}

void swl_call_begin(const char *function, int rank)
{
    struct swl_call_context *s = swl_call_context();

    if (s) {
        s->function = function;
        s->rank = rank;
        s->failed = s->quiet = false;
    }
}

void swl_call_rank(int rank)
{
    struct swl_call_context *s = swl_call_context();

    if (s)
        s->rank = rank;
}

void swl_call_end(void)
{
    swl_call_begin(NULL, -1);
}

ncclResult_t swl_peer_result(uint64_t code)
{
    return code <= ncclInvalidUsage ? (ncclResult_t)code : ncclInternalError;
}

const char *swl_result_text(ncclResult_t rc)
{
    static const char *const text[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "CUDA error",
        [ncclSystemError] = "system error",
        [ncclInternalError] = "internal error",
        [ncclInvalidArgument] = "invalid argument",
        [ncclInvalidUsage] = "invalid usage",
    };

    return text[swl_peer_result((uint64_t)rc)];
}

ncclResult_t swl_nccl_code(ncclResult_t rc)
{
    return swl_peer_result((uint64_t)rc);
}
