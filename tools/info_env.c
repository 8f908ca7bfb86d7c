/* info_env.c: swimlane-info: every variable of the library with its source, names that look like
 * one and are none, and what else is set for NCCL, with where it comes from. Layer: tools. */
#include "tools/info.h"

#include "src/base/util.h"
#include "transport/sysfs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

#define NAME_BYTES 64

/* ---- rows ---- */

/* Families of names that are ignored have a row, but no name. */
static bool is_family(const struct swl_option_row *row)
{
    return strchr(row->name, ',') != NULL;
}

/* Row that has this name, or has it as NCCL's; NULL: none. */
static const struct swl_option_row *row_of(const char *name)
{
    size_t n;
    const struct swl_option_row *rows = swl_option_rows(&n);

    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0 ||
            (rows[i].fallback && strcmp(rows[i].fallback, name) == 0))
            return &rows[i];
    return NULL;
}

static bool is_set(const struct swl_option_row *row)
{
    return swl_env(row->name) || (row->fallback && swl_env(row->fallback));
}

const char *info_source_of(const char *name)
{
    const struct swl_option_row *row = row_of(name);

    return row && row->fallback && !swl_env(row->name) && swl_env(row->fallback) ? row->fallback
                                                                                 : name;
}

/* ---- variables ---- */

static void say_variable(struct info_out *out, const struct swl_option_row *row)
{
    const char *name = info_source_of(row->name), *text = swl_env(name);
    const bool valid = text && swl_option_valid(row, text);
    const bool unset = valid && swl_option_unset(row, text);

    info_open(out, row->name, '{');
    if (unset)
        info_text(out, "value", "not set (%s)", text);
    else
        info_text(out, "value", "%s", valid ? swl_option_shown(row, text) : "not set");
    if (text && !valid)
        info_text(out, "malformed", "%s %.400s", name, text);
    info_text(out, "source", "%s", valid && !unset ? name : "built-in");
    info_close(out, '}');
}

/* For people, who look for what is set. */
static void say_rest(struct info_out *out, const struct swl_option_row *rows, size_t n)
{
    char line[4096] = "";
    size_t at = 0;

    for (size_t i = 0; i < n; i++)
        if (!is_family(&rows[i]) && !is_set(&rows[i]) && at < sizeof(line))
            at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%s", at ? ", " : "",
                                   rows[i].name);
    info_line(out, "not set", line);
}

void info_variables(struct info_out *out)
{
    size_t n;
    const struct swl_option_row *rows = swl_option_rows(&n);

    info_open(out, "variables", '{');
    for (size_t i = 0; i < n; i++)
        if (!is_family(&rows[i]) && (out->json || is_set(&rows[i])))
            say_variable(out, &rows[i]);
    if (!out->json)
        say_rest(out, rows, n);
    info_close(out, '}');
}

/* ---- names that are none ---- */

/* Letters to change, add or leave out between two names. */
static size_t distance(const char *a, const char *b)
{
    const size_t n = strlen(b);
    size_t row[NAME_BYTES + 1];

    if (n > NAME_BYTES || strlen(a) > NAME_BYTES)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t before = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t change = before + (a[i] != b[j]);
            const size_t one = 1 + (row[j] < row[j + 1] ? row[j] : row[j + 1]);

            before = row[j + 1];
            row[j + 1] = change < one ? change : one;
        }
    }
    return row[n];
}

/* The variable whose name is at most so far away, the nearest one, or NULL. */
static const char *nearest_name(const char *name, size_t most)
{
    size_t n;
    const struct swl_option_row *rows = swl_option_rows(&n);
    const char *nearest = NULL;

    for (size_t i = 0; i < n; i++) {
        const size_t d = distance(name, rows[i].name);

        if (d < most + !nearest) {
            most = d;
            nearest = rows[i].name;
        }
    }
    return nearest;
}

/* Names of ours but for a slip in the prefix itself are found by their distance. */
static bool looks_like_ours(const char *name)
{
    const char *nearest;

    if (strncmp(name, "NCCL_EP_JIT_", 12) == 0 || strcmp(name, "NCCL_EP_HOME") == 0)
        return false; /* of the families */
    if (strncmp(name, "SWIMLANE", 8) == 0 || strncmp(name, "NCCL_EP_", 8) == 0)
        return true;
    nearest = nearest_name(name, 2);
    return nearest && strncmp(nearest, "SWIMLANE_", 9) == 0;
}

void info_unknown_variables(struct info_out *out)
{
    char name[NAME_BYTES];

    info_open(out, "unknown_variables", '{');
    for (char **e = environ; *e; e++) {
        const size_t bytes = strcspn(*e, "=");

        snprintf(name, sizeof(name), "%.*s", (int)(bytes < NAME_BYTES ? bytes : NAME_BYTES - 1),
                 *e);
        if (row_of(name) || !looks_like_ours(name))
            continue;
        const char *meant = nearest_name(name, bytes / 4);

        info_text(out, name, "no variable of the library%s%s%s", meant ? "; perhaps " : "",
                  meant ? meant : "", meant ? " is meant" : "");
    }
    info_close(out, '}');
}

/* ---- what is set for NCCL ---- */

/* What to set for the same here. */
static const struct {
    const char *name, *instead;
} not_followed[] = {
    {"NCCL_IB_DISABLE", "SWIMLANE_TRANSPORT without mlx5 and verbs"},
    {"NCCL_NET", "SWIMLANE_TRANSPORT"},
    {"NCCL_NET_PLUGIN", "SWIMLANE_TRANSPORT"},
    {"NCCL_P2P_DISABLE", "SWIMLANE_TRANSPORT without peer"},
    {"NCCL_P2P_LEVEL", "SWIMLANE_TRANSPORT with or without peer"},
    {"NCCL_DEBUG", "SWIMLANE_LOG"},
    {"NCCL_CROSS_NIC", "SWIMLANE_NICS"},
};

static void say_preset(struct info_out *out, const char *name, const char *value,
                       const char *origin, bool of_environment)
{
    const struct swl_option_row *row = row_of(name);
    const char *instead = NULL;

    for (size_t i = 0; i < SWL_COUNT_OF(not_followed); i++)
        if (strcmp(not_followed[i].name, name) == 0)
            instead = not_followed[i].instead;
    info_open(out, name, '{');
    info_text(out, "value", "%.400s", value);
    info_text(out, "origin", "%s", origin);
    if (!of_environment)
        info_text(out, "followed", "no: only NCCL reads this file%s%s", row ? "; set " : "",
                  row ? row->name : "");
    else if (row == NULL)
        info_text(out, "followed", "no%s%s", instead ? ": the same here is " : "",
                  instead ? instead : "");
    else if (strcmp(row->name, name) != 0 && swl_env(row->name))
        info_text(out, "followed", "no: %s is set", row->name);
    else if (!swl_option_valid(row, value))
        info_text(out, "followed", "no: the value is out of range");
    else
        info_text(out, "followed", "%s%s", strcmp(row->name, name) ? "as " : "yes",
                  strcmp(row->name, name) ? row->name : "");
    info_close(out, '}');
}

static bool is_nccls(const char *entry)
{
    return strncmp(entry, "NCCL_", 5) == 0 && strncmp(entry, "NCCL_EP_", 8) != 0;
}

static void presets_of_environment(struct info_out *out)
{
    char name[NAME_BYTES];

    for (char **e = environ; *e; e++) {
        const size_t bytes = strcspn(*e, "=");

        if (!is_nccls(*e) || bytes >= sizeof(name) || (*e)[bytes] == '\0')
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)bytes, *e);
        if (swl_env(name)) /* empty ones are not set */
            say_preset(out, name, *e + bytes + 1, "environment", true);
    }
}

/* Lines NAME=VALUE, as NCCL reads them: not those of the environment, which win. */
static void presets_of_file(struct info_out *out, const char *path)
{
    char line[1024];
    FILE *file = fopen(path, "re");

    while (file && fgets(line, sizeof(line), file)) {
        char *value = strchr(line, '='), *end = line + strcspn(line, "#\r\n");

        *end = '\0';
        if (value == NULL || value >= end || !is_nccls(line) || value - line >= NAME_BYTES)
            continue;
        *value++ = '\0';
        for (char *c = value + strlen(value); c > value && isspace((unsigned char)c[-1]); c--)
            c[-1] = '\0';
        if (!swl_env(line))
            say_preset(out, line, value, path, false);
    }
    if (file)
        (void)fclose(file);
}

void info_presets(struct info_out *out, const struct info_options *o)
{
    const char *home = getenv("HOME"), *own = getenv("NCCL_CONF_FILE");
    char path[SWL_SYSFS_PATH];

    info_open(out, "nccl_presets", '{');
    presets_of_environment(out);
    if (own && *own)
        snprintf(path, sizeof(path), "%s", own);
    else
        snprintf(path, sizeof(path), "%s/.nccl.conf", home ? home : "");
    presets_of_file(out, path);
    snprintf(path, sizeof(path), "%s/etc/nccl.conf", strcmp(o->root, "/") == 0 ? "" : o->root);
    presets_of_file(out, path);
    info_close(out, '}');
}
