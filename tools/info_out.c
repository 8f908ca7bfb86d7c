/* info_out.c: what swimlane-info writes, as text for people or as JSON. Layer: tools. */
#include "tools/info.h"

#include <stdarg.h>
#include <stdio.h>

static void indent(struct info_out *out)
{
    printf("%*s", 2 * (out->writer.depth > 1 ? out->writer.depth - 1 : 0), "");
}

void info_open(struct info_out *out, const char *key, char bracket)
{
    if (out->json) {
        swl_json_open(&out->writer, key, bracket);
        return;
    }
    if (key) {
        if (out->writer.depth == 1)
            puts("");
        indent(out);
        printf("%s:\n", key);
    }
    out->writer.depth++;
}

void info_close(struct info_out *out, char bracket)
{
    if (out->json)
        swl_json_close(&out->writer, bracket);
    else
        out->writer.depth--;
}

void info_text(struct info_out *out, const char *key, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    info_line(out, key, text);
}

void info_line(struct info_out *out, const char *key, const char *text)
{
    if (out->json) {
        swl_json_text(&out->writer, key, text);
        return;
    }
    indent(out);
    if (key)
        printf("%s: %s\n", key, text);
    else
        printf("- %s\n", text);
}

void info_integer(struct info_out *out, const char *key, int64_t value)
{
    if (out->json)
        swl_json_integer(&out->writer, key, value);
    else
        info_text(out, key, "%lld", (long long)value);
}

void info_flag(struct info_out *out, const char *key, bool value)
{
    if (out->json)
        swl_json_flag(&out->writer, key, value);
    else
        info_text(out, key, "%s", value ? "yes" : "no");
}
