/* json.c: see json.h. */
#include "tools/support/json.h"

#include <inttypes.h>
#include <math.h>

static void put_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

/* Comma, line, indentation and key of the next entry. */
static void begin(struct swl_json *json, const char *key)
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
    begin(json, key);
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
    begin(json, key);
    put_text(json->file, value);
}

void swl_json_integer(struct swl_json *json, const char *key, int64_t value)
{
    begin(json, key);
    fprintf(json->file, "%" PRId64, value);
}

void swl_json_number(struct swl_json *json, const char *key, double value)
{
    begin(json, key);
    if (isfinite(value))
        fprintf(json->file, "%.10g", value);
    else
        fputs("null", json->file);
}

void swl_json_flag(struct swl_json *json, const char *key, bool value)
{
    begin(json, key);
    fputs(value ? "true" : "false", json->file);
}
