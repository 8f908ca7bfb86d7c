/* memory.c: see memory.h. Layer: src/base. */
#include "src/base/memory.h"

#include "src/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static ncclResult_t refuse(const char *format, va_list args)
{
    char what[160];

    vsnprintf(what, sizeof(what), format, args);
    return swl_fail(ncclSystemError, "no host memory for %s", what);
}

ncclResult_t swl_no_memory(const char *format, ...)
{
    ncclResult_t rc;
    va_list args;

    va_start(args, format);
    rc = refuse(format, args);
    va_end(args);
    return rc;
}

void *swl_calloc(uint64_t n, size_t bytes, const char *format, ...)
{
    void *memory = calloc(n > 0 ? n : 1, bytes);
    va_list args;

    if (memory)
        return memory;
    va_start(args, format);
    (void)refuse(format, args);
    va_end(args);
    return NULL;
}
