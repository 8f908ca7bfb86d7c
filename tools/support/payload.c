/* payload.c: see payload.h. Generator: splitmix64. */
#include "tools/support/payload.h"

#include <string.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

struct swl_random swl_random_of(uint64_t seed, uint64_t a, uint64_t b)
{
    return (struct swl_random){mix(mix(mix(seed + 1) + a) + b)};
}

uint64_t swl_random_next(struct swl_random *random)
{
    random->state += 0x9e3779b97f4a7c15ull;
    return mix(random->state);
}

double swl_random_unit(struct swl_random *random)
{
    return (double)(swl_random_next(random) >> 11) * 0x1p-53;
}

uint32_t swl_random_below(struct swl_random *random, uint32_t bound)
{
    return (uint32_t)((swl_random_next(random) >> 32) * bound >> 32);
}

void swl_payload_row(enum swl_oracle_type type, int hidden, struct swl_random random, void *row)
{
    /* Kept bits: sign, two exponent bits, mantissa. Set bits: the exponent of 1/8. */
    static const uint64_t keep[] = {0x81ff81ff81ff81ff, 0x8fff8fff8fff8fff, 0x81ffffff81ffffff};
    static const uint64_t set[] = {0x3e003e003e003e00, 0x3000300030003000, 0x3e0000003e000000};
    size_t bytes = swl_oracle_type_bytes(type) * (size_t)hidden;
    size_t at = 0;

    for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        uint64_t word = (swl_random_next(&random) & keep[type]) | set[type];

        memcpy((char *)row + at, &word, sizeof word);
    }
    if (at < bytes) {
        uint64_t word = (swl_random_next(&random) & keep[type]) | set[type];

        memcpy((char *)row + at, &word, bytes - at);
    }
}
