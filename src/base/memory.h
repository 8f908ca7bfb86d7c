/* memory.h: host memory, or a failure with its sentence. Layer: src/base; the caller owns what it
 * gets and gives it back with free(). */
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

/* n objects of so many bytes, all zero; with n 0 there is memory all the same. NULL is SystemError:
 * the sentence "no host memory for ..." has been made. */
void *swl_calloc(uint64_t n, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Objects of a public function, which callers name by pointer: all zero, of a kind with one size.
 * Memory of one that has ended is zero and serves the next of its kind; it never goes back to the
 * process. So a pointer to it can be looked at, and is refused for what it lacks. NULL as above. */
enum swl_object_kind { SWL_OBJECT_GROUP, SWL_OBJECT_HANDLE, SWL_OBJECT_KINDS };
void *swl_object_new(enum swl_object_kind kind, size_t bytes, const char *what);
void swl_object_end(enum swl_object_kind kind, void *object);

#ifdef __cplusplus
}
#endif
#endif
