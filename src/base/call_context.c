/* call_context.c: see call_context.h. Layer: src/base. */
#include "src/base/call_context.h"

#include "src/base/thread_slot.h"

#include <stdlib.h>

struct swl_call_context *swl_call_context(void)
{
    void **slot = swl_thread_slot();
    struct swl_call_context *c;

    if (!slot)
        return NULL;
    if (!*slot) {
        c = calloc(1, sizeof(*c));
        if (!c)
            return NULL;
        c->rank = -1;
        *slot = c;
    }
    return *slot;
}
