/* strangers.h: the line of the log about whom a door (src/base/door.h) has sent away. Layer:
 * transport. */
#ifndef SWL_STRANGERS_H
#define SWL_STRANGERS_H

#include "src/base/log.h"

#include <inttypes.h>
#include <stdint.h>

/* what: "control connection", "nic" */
static inline void swl_say_strangers(uint32_t rank, const char *what, uint64_t n)
{
    if (n == 1)
        swl_log(SWL_LEVEL_WARN, "rank %" PRIu32 " %s: a stranger has connected and is sent away",
                rank, what);
    else
        swl_log(SWL_LEVEL_WARN,
                "rank %" PRIu32 " %s: %" PRIu64 " strangers have connected and are sent away", rank,
                what, n);
}

#endif
