/* util.c: small arithmetic, hashing and text helpers. Layer: src/base; no state. */
#include "src/base/util.h"

#include <ctype.h>
#include <errno.h>
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

/* strtoull accepts signs and leading blanks; a value here starts with a digit. */
bool swl_parse_u64(const char *text, uint64_t *value_p)
{
    char *end;
    unsigned long long value;

    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    value = strtoull(text, &end, text[0] == '0' && (text[1] | 0x20) == 'x' ? 16 : 10);
    if (errno != 0 || *end != '\0')
        return false;
    *value_p = value;
    return true;
}

bool swl_parse_i64(const char *text, int64_t *value_p)
{
    bool negative = text[0] == '-';
    uint64_t value;

    if (!swl_parse_u64(text + negative, &value) || value > INT64_MAX)
        return false;
    *value_p = negative ? -(int64_t)value : (int64_t)value;
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
