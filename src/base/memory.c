/* memory.c: see memory.h. Layer: src/base. */
#include "src/base/memory.h"

#include "src/base/error.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ncclResult_t fail_no_memory(const char *format, va_list args)
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
    rc = fail_no_memory(format, args);
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
    (void)fail_no_memory(format, args);
    va_end(args);
    return NULL;
}

/* ---- objects of the public functions ---- */

struct object {
    struct object *next; /* of those that have ended */
    size_t bytes;        /* behind this head */
    alignas(max_align_t) unsigned char body[];
};

static struct {
    pthread_mutex_t lock;
    struct object *ended[SWL_OBJECT_KINDS];
} objects = {.lock = PTHREAD_MUTEX_INITIALIZER};

void *swl_object_new(enum swl_object_kind kind, size_t bytes, const char *what)
{
    struct object *o;

    pthread_mutex_lock(&objects.lock);
    o = objects.ended[kind];
    if (o)
        objects.ended[kind] = o->next;
    pthread_mutex_unlock(&objects.lock);
    if (!o) {
        o = swl_calloc(1, sizeof(*o) + bytes, "%s", what);
        if (!o)
            return NULL;
        o->bytes = bytes;
    }
    o->next = NULL;
    return o->body;
}

void swl_object_end(enum swl_object_kind kind, void *object)
{
    struct object *o = (struct object *)(void *)((char *)object - offsetof(struct object, body));

    memset(object, 0, o->bytes);
    pthread_mutex_lock(&objects.lock);
    o->next = objects.ended[kind];
    objects.ended[kind] = o;
    pthread_mutex_unlock(&objects.lock);
}
