/* memory.h: host memory, or a failure with its sentence. Layer: src/base; the caller owns what it gets and
 * gives it back with free(). */
#ifndef SWL_BASE_MEMORY_H
#define SWL_BASE_MEMORY_H

#include <nccl.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* SystemError, "no host memory for ...". For who has asked for several things at once. */
ncclResult_t swl_no_memory(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* n objects of so many bytes, all zero; with n 0 there is memory all the same. NULL is SystemError: the
 * sentence "no host memory for ..." has been made. */
void *swl_calloc(uint64_t n, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif
#endif
