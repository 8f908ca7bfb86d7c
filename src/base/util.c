/* util.c: small arithmetic, hashing and text helpers. Layer: src/base; no state. */
#include "src/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

bool swl_mul(uint64_t a, uint64_t b, uint64_t *product_p)
{
    if (b != 0 && a > UINT64_MAX / b)
        return false;
    *product_p = a * b;
    return true;
}

bool swl_ranges_overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    if (a_bytes == 0 || b_bytes == 0)
        return false;
    return x < y ? y - x < a_bytes : x - y < b_bytes;
}

uint64_t swl_hash(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

/* Not strtoull: that accepts signs and blanks, and reports through errno, which ranks on fibers
 * share. */
bool swl_parse_u64(const char *text, uint64_t *value_p)
{
    const unsigned base = text[0] == '0' && (text[1] | 0x20) == 'x' ? 16 : 10;
    const char *at = base == 16 ? text + 2 : text;
    uint64_t value = 0;

    if (*at == '\0')
        return false;
    for (; *at != '\0'; at++) {
        const unsigned digit = (unsigned)digit_of(*at);

        if (digit >= base || value > (UINT64_MAX - digit) / base)
            return false;
        value = value * base + digit;
    }
    *value_p = value;
    return true;
}

bool swl_parse_flag(const char *text, bool *value_p)
{
    static const char *const words[2][3] = {{"0", "off", "false"}, {"1", "on", "true"}};

    for (int value = 0; value < 2; value++) {
        for (int i = 0; i < 3; i++) {
            if (strcasecmp(text, words[value][i]) == 0) {
                *value_p = value;
                return true;
            }
        }
    }
    return false;
}

const char *swl_env(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] ? value : NULL;
}

void swl_time_text(uint64_t ns, char *text, size_t text_bytes)
{
    if (ns >= 10000000)
        snprintf(text, text_bytes, "%" PRIu64 " ms", ns / 1000000);
    else
        snprintf(text, text_bytes, "%" PRIu64 " us", ns / 1000);
}
