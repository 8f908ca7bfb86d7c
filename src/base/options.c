/* options.c: parser of the environment variables. Layer: src/base; owns no memory. */
#include "src/base/options.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/util.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct swl_option_row rows[] = {
#define OPT(field, name, fallback, type, def, min, max, unit, help)                                \
    {name, fallback, SWL_OPTION_##type, offsetof(struct swl_options, field), def, min, max,        \
     unit, help},
#define NOTE(name, help) {name, NULL, SWL_OPTION_note, 0, 0, 0, 0, "", help},
#include "src/base/options_table.h"
};

const struct swl_option_row *swl_option_rows(size_t *nrows_p)
{
    *nrows_p = SWL_COUNT_OF(rows);
    return rows;
}

/* ---- one parser per type: false for a malformed value, then nothing is stored ---- */

bool swl_option_unset(const struct swl_option_row *row, const char *text)
{
    uint64_t value;

    if (row->kind == SWL_OPTION_i32)
        return row->fallback && row->def == -1 && strcmp(text, "-1") == 0;
    return (row->kind == SWL_OPTION_u32 || row->kind == SWL_OPTION_u64) && row->def == 0 &&
           row->min > 0 && swl_parse_u64(text, &value) && value == 0;
}

static bool parse_number(const struct swl_option_row *row, const char *text, void *at)
{
    uint64_t value;

    if (swl_option_unset(row, text))
        return true; /* which is already there */
    if (!swl_parse_u64(text, &value))
        return false;
    if (value < row->min || value > row->max)
        return false;
    if (row->kind == SWL_OPTION_u64)
        *(uint64_t *)at = value;
    else if (row->kind == SWL_OPTION_i32)
        *(int32_t *)at = (int32_t)value;
    else
        *(uint32_t *)at = (uint32_t)value;
    return true;
}

static const char *const transport_names[] = {"peer", "devx", "verbs", "proxy", "soft", "tcp"};

void swl_transports_text(uint32_t mask, char *text, size_t bytes)
{
    size_t at = 0;

    snprintf(text, bytes, "%s", mask ? "" : "auto");
    for (size_t i = 0; i < SWL_COUNT_OF(transport_names) && at < bytes; i++)
        if (mask & 1u << i)
            at +=
                (size_t)snprintf(text + at, bytes - at, "%s%s", at ? "," : "", transport_names[i]);
}

static bool parse_transports(const char *text, uint32_t *mask_p)
{
    const char *const *names = transport_names;
    uint32_t mask = 0;

    if (strcasecmp(text, "auto") == 0) {
        *mask_p = 0;
        return true;
    }
    for (;;) {
        size_t bytes = strcspn(text, ","), i = 0;

        while (i < SWL_COUNT_OF(transport_names) &&
               (strlen(names[i]) != bytes || strncasecmp(names[i], text, bytes) != 0))
            i++;
        if (i == SWL_COUNT_OF(transport_names))
            return false;
        mask |= 1u << i;
        if (text[bytes] == '\0')
            break;
        text += bytes + 1;
    }
    *mask_p = mask;
    return true;
}

static bool parse_link(const char *text, struct swl_link_model *link_p)
{
    struct swl_link_model link;
    char *end;

    if (!isdigit((unsigned char)text[0]))
        return false;
    link.gbps = strtod(text, &end);
    if (*end != ':' || !isdigit((unsigned char)end[1]))
        return false;
    link.us = strtod(end + 1, &end);
    if (*end != '\0' || !(link.gbps >= 1e-3 && link.gbps <= 1e6) || !(link.us <= 1e6))
        return false;
    *link_p = link;
    return true;
}

/* One size and the ':' behind it, or the end for the last one. */
static bool parse_size(const char **text_p, uint32_t least, uint32_t most, char after,
                       uint32_t *size_p)
{
    char *end;
    unsigned long size;

    if (!isdigit((unsigned char)(*text_p)[0]))
        return false;
    size = strtoul(*text_p, &end, 10);
    if (size < least || size > most || (size & (size - 1)) != 0 || *end != after)
        return false;
    *size_p = (uint32_t)size;
    *text_p = end + (after != '\0');
    return true;
}

static bool parse_rings(const char *text, struct swl_ring_sizes *sizes_p)
{
    struct swl_ring_sizes s;

    if (!parse_size(&text, 2, 64, ':', &s.slots) ||
        !parse_size(&text, 1, s.slots / 2, ':', &s.chunk) ||
        !parse_size(&text, 1, 16, ':', &s.landing) || !parse_size(&text, 2, 64, '\0', &s.link))
        return false;
    *sizes_p = s;
    return true;
}

static bool parse_wire(const char *text, bool *fp32_p)
{
    bool fp32 = strcasecmp(text, "fp32") == 0;

    if (!fp32 && strcasecmp(text, "payload") != 0)
        return false;
    *fp32_p = fp32;
    return true;
}

/* The place of a name among the n names. */
static bool parse_name(const char *text, const char *const *names, uint32_t n, uint32_t *at)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcasecmp(text, names[i]) == 0) {
            *at = i;
            return true;
        }
    return false;
}

static bool parse_executor(const char *text, uint32_t *executor_p)
{
    static const char *const names[] = {"auto", "blocks", "thread", "engine"};

    return parse_name(text, names, SWL_COUNT_OF(names), executor_p);
}

static bool parse_adds(const char *text, uint32_t *adds_p)
{
    static const char *const names[] = {"atomics", "messages"};

    return parse_name(text, names, SWL_COUNT_OF(names), adds_p);
}

static bool parse_text(const char *text, char *at)
{
    size_t bytes = strlen(text) + 1;

    if (bytes > sizeof(swl_opt_text))
        return false;
    memcpy(at, text, bytes);
    return true;
}

static bool parse(const struct swl_option_row *row, const char *text, void *at)
{
    switch (row->kind) {
    case SWL_OPTION_flag:
        return swl_parse_flag(text, at);
    case SWL_OPTION_u32:
    case SWL_OPTION_u64:
    case SWL_OPTION_i32:
        return parse_number(row, text, at);
    case SWL_OPTION_transports:
        return parse_transports(text, at);
    case SWL_OPTION_link:
        return parse_link(text, at);
    case SWL_OPTION_rings:
        return parse_rings(text, at);
    case SWL_OPTION_wire:
        return parse_wire(text, at);
    case SWL_OPTION_executor:
        return parse_executor(text, at);
    case SWL_OPTION_adds:
        return parse_adds(text, at);
    case SWL_OPTION_text:
        return parse_text(text, at);
    case SWL_OPTION_note:
        break;
    }
    return true;
}

/* ---- rows ---- */

static void set_default(const struct swl_option_row *row, void *at)
{
    static const size_t bytes[] = {
        [SWL_OPTION_flag] = sizeof(swl_opt_flag),
        [SWL_OPTION_u32] = sizeof(swl_opt_u32),
        [SWL_OPTION_u64] = sizeof(swl_opt_u64),
        [SWL_OPTION_i32] = sizeof(swl_opt_i32),
        [SWL_OPTION_transports] = sizeof(swl_opt_transports),
        [SWL_OPTION_link] = sizeof(swl_opt_link),
        [SWL_OPTION_rings] = sizeof(swl_opt_rings),
        [SWL_OPTION_wire] = sizeof(swl_opt_wire),
        [SWL_OPTION_executor] = sizeof(swl_opt_executor),
        [SWL_OPTION_adds] = sizeof(swl_opt_adds),
        [SWL_OPTION_text] = sizeof(swl_opt_text),
        [SWL_OPTION_note] = 0,
    };

    memset(at, 0, bytes[row->kind]);
    if (row->kind == SWL_OPTION_i32)
        *(int32_t *)at = (int32_t)row->def;
}

bool swl_option_valid(const struct swl_option_row *row, const char *text)
{
    struct swl_options scratch;

    memset(&scratch, 0, sizeof(scratch));
    return parse(row, text, (char *)&scratch + row->offset);
}

static void warn(const struct swl_option_row *row, const char *name, const char *text)
{
    if (row->kind == SWL_OPTION_u32 || row->kind == SWL_OPTION_u64 || row->kind == SWL_OPTION_i32)
        swl_log(SWL_LEVEL_WARN, "%s '%.80s' is not a number of %" PRIu64 " to %" PRIu64 "; ignored",
                name, text, row->min, row->max);
    else if (row->kind == SWL_OPTION_flag)
        swl_log(SWL_LEVEL_WARN, "%s '%.80s' is not one of 1, on, true, 0, off, false; ignored",
                name, text);
    else if (row->kind == SWL_OPTION_text)
        swl_log(SWL_LEVEL_WARN, "%s is longer than %zu characters; ignored", name,
                sizeof(swl_opt_text) - 1);
    else
        swl_log(SWL_LEVEL_WARN, "%s '%.80s' is not understood (%s); ignored", name, text,
                row->help);
}

static void read_row(const struct swl_option_row *row, struct swl_options *options)
{
    void *at = (char *)options + row->offset;
    const char *name = row->name, *text = swl_env(name);

    if (row->kind == SWL_OPTION_note)
        return;
    set_default(row, at);
    if (!text && row->fallback) {
        name = row->fallback;
        text = swl_env(name);
    }
    if (text && !parse(row, text, at))
        warn(row, name, text);
}

void swl_options_read(struct swl_options *options)
{
    for (size_t i = 0; i < SWL_COUNT_OF(rows); i++)
        read_row(&rows[i], options);
}

void swl_option_read(struct swl_options *options, const char *name)
{
    for (size_t i = 0; i < SWL_COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, name) == 0)
            read_row(&rows[i], options);
    }
}

const char *swl_option_variable(const char *name)
{
    for (size_t i = 0; i < SWL_COUNT_OF(rows) && !swl_env(name); i++)
        if (strcmp(rows[i].name, name) == 0 && rows[i].fallback && swl_env(rows[i].fallback))
            return rows[i].fallback;
    return name;
}

ncclResult_t swl_options_check(const struct swl_options *options)
{
    if (options->em_local_dup && options->em_nvlink_dup)
        return swl_fail(ncclInvalidUsage, "NCCL_EP_HT_EM_LOCAL_DUP and NCCL_EP_HT_EM_NVLINK_DUP "
                                          "are both on; at most one may be");
    return ncclSuccess;
}

const char *swl_option_shown(const struct swl_option_row *row, const char *text)
{
    return strstr(row->name, "SECRET") ? "(set, not shown)" : text;
}

void swl_options_list(void)
{
    for (size_t i = 0; i < SWL_COUNT_OF(rows); i++) {
        const char *text = swl_env(rows[i].name);
        const char *fallback = rows[i].fallback ? swl_env(rows[i].fallback) : NULL;

        if (text)
            swl_log(SWL_LEVEL_NONE, "env %s %s%s", rows[i].name, swl_option_shown(&rows[i], text),
                    swl_option_unset(&rows[i], text) ? " (not set)" : "");
        else if (fallback)
            swl_log(SWL_LEVEL_NONE, "env %s unset, %s %s%s", rows[i].name, rows[i].fallback,
                    fallback, swl_option_unset(&rows[i], fallback) ? " (not set)" : "");
        else
            swl_log(SWL_LEVEL_NONE, "env %s unset", rows[i].name);
    }
}
