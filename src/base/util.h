/* util.h: small arithmetic, hashing and text helpers of the host code.
 *
 * Layer: src/base. No state, no memory of its own. */
#ifndef SWL_BASE_UTIL_H
#define SWL_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static inline uint64_t swl_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint32_t swl_clamp_u32(uint64_t value, uint32_t least, uint32_t most)
{
    return value < least ? least : value > most ? most : (uint32_t)value;
}

static inline uint64_t swl_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t swl_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* `unit` need not be a power of two. */
static inline uint64_t swl_round_up_u64(uint64_t a, uint64_t unit)
{
    return swl_div_up(a, unit) * unit;
}

static inline bool swl_is_pow2(uint64_t a)
{
    return a != 0 && (a & (a - 1)) == 0;
}

/* *product_p = a * b; false (and nothing stored) if that does not fit. */
bool swl_mul(uint64_t a, uint64_t b, uint64_t *product_p);

/* True if [a, a+a_bytes) and [b, b+b_bytes) share a byte. Empty ranges share nothing. */
bool swl_ranges_overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes);

/* FNV-1a over `bytes`, going on from `hash`; start with SWL_HASH_START. */
#define SWL_HASH_START 0xcbf29ce484222325ull
uint64_t swl_hash(uint64_t hash, const void *data, size_t bytes);

/* Whole text as a decimal (or 0x…) number; false (and nothing stored) for anything else. */
bool swl_parse_u64(const char *text, uint64_t *value_p);

/* 1/on/true and 0/off/false in any case; false (and nothing stored) for anything else. */
bool swl_parse_flag(const char *text, bool *value_p);

/* A time limit in whole milliseconds, short ones in microseconds; 32 bytes hold any. */
void swl_time_text(uint64_t ns, char *text, size_t text_bytes);

/* An environment variable; NULL when unset or empty, which mean the same. */
const char *swl_env(const char *name);

#ifdef __cplusplus
}
#endif
#endif
