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

/* ---- one parser per type: false for a malformed value, then nothing is stored (but words) ---- */

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

/* The place of text[0 … length) among the words of the row, in any case; UINT32_MAX: it is none. */
static uint32_t place_of(const struct swl_option_row *row, const char *text, size_t length)
{
    const char *word = row->unit;

    for (uint32_t i = 0;; i++) {
        const size_t bytes = strcspn(word, ",");

        if (bytes == length && strncasecmp(word, text, length) == 0)
            return i;
        if (word[bytes] == '\0')
            return UINT32_MAX;
        word += bytes + 1;
    }
}

static bool parse_word(const struct swl_option_row *row, const char *text, uint32_t *place_p)
{
    const uint32_t place = place_of(row, text, strlen(text));

    if (place == UINT32_MAX)
        return false;
    *place_p = place;
    return true;
}

/* Of a list with unknown words the others are stored; false then, and *unknown_p is the first
 * unknown one. */
static bool parse_words(const struct swl_option_row *row, const char *text, uint32_t *bits_p,
                        const char **unknown_p)
{
    uint32_t bits = 0;

    *unknown_p = NULL;
    if (place_of(row, text, strlen(text)) == 0)
        return true; /* the first word alone: 0, which is there */
    for (;; text++) {
        const size_t bytes = strcspn(text, ",");
        const uint32_t place = place_of(row, text, bytes);

        if (place != 0 && place != UINT32_MAX)
            bits |= 1u << (place - 1);
        else if (*unknown_p == NULL)
            *unknown_p = text;
        text += bytes;
        if (*text == '\0')
            break;
    }
    *bits_p = bits;
    return *unknown_p == NULL;
}

static bool parse_link(const char *text, struct swl_wire_model *link_p)
{
    struct swl_wire_model link;
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

static bool parse_text(const char *text, char *at)
{
    size_t bytes = strlen(text) + 1;

    if (bytes > sizeof(swl_opt_text))
        return false;
    memcpy(at, text, bytes);
    return true;
}

static bool parse_value(const struct swl_option_row *row, const char *text, void *at)
{
    const char *unknown;

    switch (row->kind) {
    case SWL_OPTION_flag:
        return swl_parse_flag(text, at);
    case SWL_OPTION_u32:
    case SWL_OPTION_u64:
    case SWL_OPTION_i32:
        return parse_number(row, text, at);
    case SWL_OPTION_link:
        return parse_link(text, at);
    case SWL_OPTION_rings:
        return parse_rings(text, at);
    case SWL_OPTION_word:
        return parse_word(row, text, at);
    case SWL_OPTION_words:
        return parse_words(row, text, at, &unknown);
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
        [SWL_OPTION_flag] = sizeof(swl_opt_flag), [SWL_OPTION_u32] = sizeof(swl_opt_u32),
        [SWL_OPTION_u64] = sizeof(swl_opt_u64),   [SWL_OPTION_i32] = sizeof(swl_opt_i32),
        [SWL_OPTION_link] = sizeof(swl_opt_link), [SWL_OPTION_rings] = sizeof(swl_opt_rings),
        [SWL_OPTION_word] = sizeof(swl_opt_word), [SWL_OPTION_words] = sizeof(swl_opt_words),
        [SWL_OPTION_text] = sizeof(swl_opt_text), [SWL_OPTION_note] = 0,
    };

    memset(at, 0, bytes[row->kind]);
    if (row->kind == SWL_OPTION_i32)
        *(int32_t *)at = (int32_t)row->def;
}

bool swl_option_valid(const struct swl_option_row *row, const char *text)
{
    struct swl_options scratch;

    memset(&scratch, 0, sizeof(scratch));
    return parse_value(row, text, (char *)&scratch + row->offset);
}

/* The words of a row as a sentence names them. */
static void say_words(const struct swl_option_row *row, char text[128])
{
    size_t at = 0;

    for (const char *word = row->unit; *word && at + 2 < 128; word++) {
        text[at++] = *word;
        if (*word == ',')
            text[at++] = ' ';
    }
    text[at] = '\0';
}

/* What a list of words has beside the unknown ones counts, unless that is nothing. */
static void warn_of_words(const struct swl_option_row *row, const char *name, const char *text)
{
    const char *unknown;
    char words[128];
    uint32_t bits = 0;
    int length;

    say_words(row, words);
    if (parse_words(row, text, &bits, &unknown))
        return;
    length = (int)strcspn(unknown, ",");
    if (place_of(row, unknown, (size_t)length) == 0)
        swl_log(SWL_LEVEL_WARN, "%s '%.*s' stands for itself only and in no list; %s", name, length,
                unknown, bits ? "the rest counts" : "ignored");
    else
        swl_log(SWL_LEVEL_WARN, "%s '%.*s' is none of %s; %s", name, length < 80 ? length : 80,
                unknown, words, bits ? "the rest counts" : "ignored");
}

static void warn_of_word(const struct swl_option_row *row, const char *name, const char *text)
{
    char words[128];

    say_words(row, words);
    swl_log(SWL_LEVEL_WARN, "%s '%.80s' is none of %s; ignored", name, text, words);
}

static void warn(const struct swl_option_row *row, const char *name, const char *text)
{
    if (row->kind == SWL_OPTION_u32 || row->kind == SWL_OPTION_u64 || row->kind == SWL_OPTION_i32)
        swl_log(SWL_LEVEL_WARN, "%s '%.80s' is not a number of %" PRIu64 " to %" PRIu64 "; ignored",
                name, text, row->min, row->max);
    else if (row->kind == SWL_OPTION_flag)
        swl_log(SWL_LEVEL_WARN, "%s '%.80s' is not one of 1, on, true, 0, off, false; ignored",
                name, text);
    else if (row->kind == SWL_OPTION_word)
        warn_of_word(row, name, text);
    else if (row->kind == SWL_OPTION_words)
        warn_of_words(row, name, text);
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
    if (text && !parse_value(row, text, at))
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
