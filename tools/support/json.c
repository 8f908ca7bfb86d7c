/* json.c: see json.h. */
#include "tools/support/json.h"

#include <inttypes.h>
#include <math.h>

/* Bytes of the character of UTF-8 at `text`, which has none of ASCII there; 0 if it is none. */
static int utf8_bytes(const unsigned char *text)
{
    const int n = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    uint32_t number = text[0] & (0x7fu >> n);

    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    for (int i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) /* the end of the text, too */
            return 0;
        number = number << 6 | (text[i] & 0x3f);
    }
    if ((n == 3 && (number < 0x800 || number >> 11 == 0xd800 >> 11)) ||
        (n == 4 && (number < 0x10000 || number > 0x10ffff)))
        return 0;
    return n;
}

/* Names and variables come from outside: bytes that are no UTF-8 become U+FFFD each. */
static void put_text(FILE *file, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    fputc('"', file);
    while (*at) {
        const int n = *at < 0x80 ? 1 : utf8_bytes(at);

        if (*at == '"' || *at == '\\')
            fprintf(file, "\\%c", *at);
        else if (*at < 0x20)
            fprintf(file, "\\u%04x", *at);
        else if (n == 0)
            fputs("\\ufffd", file);
        else
            fwrite(at, 1, (size_t)n, file);
        at += n ? n : 1;
    }
    fputc('"', file);
}

/* Comma, line, indentation and key of the next entry. */
static void begin_entry(struct swl_json *json, const char *key)
{
    if (json->filled)
        fputc(',', json->file);
    if (json->depth > 0)
        fprintf(json->file, "\n%*s", 2 * json->depth, "");
    json->filled = true;
    if (key) {
        put_text(json->file, key);
        fputs(": ", json->file);
    }
}

void swl_json_open(struct swl_json *json, const char *key, char bracket)
{
    begin_entry(json, key);
    fputc(bracket, json->file);
    json->depth++;
    json->filled = false;
}

void swl_json_close(struct swl_json *json, char bracket)
{
    json->depth--;
    if (json->filled)
        fprintf(json->file, "\n%*s", 2 * json->depth, "");
    fputc(bracket, json->file);
    json->filled = true;
    if (json->depth == 0)
        fputc('\n', json->file);
}

void swl_json_text(struct swl_json *json, const char *key, const char *value)
{
    begin_entry(json, key);
    put_text(json->file, value);
}

void swl_json_integer(struct swl_json *json, const char *key, int64_t value)
{
    begin_entry(json, key);
    fprintf(json->file, "%" PRId64, value);
}

void swl_json_number(struct swl_json *json, const char *key, double value)
{
    begin_entry(json, key);
    if (isfinite(value))
        fprintf(json->file, "%.10g", value);
    else
        fputs("null", json->file);
}

void swl_json_flag(struct swl_json *json, const char *key, bool value)
{
    begin_entry(json, key);
    fputs(value ? "true" : "false", json->file);
}
