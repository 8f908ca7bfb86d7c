/* payload.h: reproducible random numbers and rows. Any rank can make any other rank's data.
 *
 * Layer: tools/support. Pure functions of their arguments. */
#ifndef SWL_PAYLOAD_H
#define SWL_PAYLOAD_H

#include "tools/support/oracle.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_random {
    uint64_t state;
};
/* A stream named by a seed and two numbers. */
struct swl_random swl_random_of(uint64_t seed, uint64_t a, uint64_t b);
uint64_t swl_random_next(struct swl_random *random);
double swl_random_unit(struct swl_random *random);                    /* [0, 1) */
uint32_t swl_random_below(struct swl_random *random, uint32_t bound); /* [0, bound) */

/* A row of finite numbers of both signs, magnitudes 1/8 to 2, so that sums round. */
void swl_payload_row(enum swl_oracle_type type, int hidden, struct swl_random random, void *row);

#ifdef __cplusplus
}
#endif
#endif
