/* log.c: log lines on stderr. Layer: src/base.
 *
 * The level is the one process-wide word of the library: it is needed before any group exists. */
#include "src/base/log.h"

#include "src/base/call_context.h"
#include "src/base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define UNSET (-1)

static int level_word = UNSET;

static const char *const level_names[] = {"none", "error", "warn", "info", "debug", "trace"};

bool swl_log_debug_flag(void)
{
    const char *text = swl_env("NCCL_EP_DEBUG");
    bool on = false;

    return text && (!swl_parse_flag(text, &on) || on);
}

static int level_from_env(void)
{
    const char *name = swl_env("SWIMLANE_LOG");

    if (name) {
        for (int i = 0; i < (int)SWL_COUNT_OF(level_names); i++) {
            if (strcasecmp(name, level_names[i]) == 0)
                return i;
        }
        fprintf(stderr,
                "swimlane: SWIMLANE_LOG '%s' is not one of none, error, warn, info, debug, "
                "trace; using warn\n",
                name);
    }
    return swl_log_debug_flag() ? SWL_LEVEL_DEBUG : SWL_LEVEL_WARN;
}

/* Two threads may both read the environment; they store the same value, so relaxed is enough. */
static int level_now(void)
{
    int level = __atomic_load_n(&level_word, __ATOMIC_RELAXED);

    if (level == UNSET) {
        level = level_from_env();
        __atomic_store_n(&level_word, level, __ATOMIC_RELAXED);
    }
    return level;
}

bool swl_log_on(enum swl_level level)
{
    return (int)level <= level_now();
}

enum swl_level swl_log_set(enum swl_level level)
{
    int old = level_now();

    __atomic_store_n(&level_word, (int)level, __ATOMIC_RELAXED);
    return (enum swl_level)old;
}

void swl_log(enum swl_level level, const char *fmt, ...)
{
    const struct swl_call_context *call = swl_call_context();
    char line[1024];
    size_t at;
    va_list args;

    if (!swl_log_on(level))
        return;
    at = (size_t)snprintf(line, sizeof(line), "swimlane: ");
    if (call && call->rank >= 0)
        at += (size_t)snprintf(line + at, sizeof(line) - at, "rank %d ", call->rank);
    if (call && call->function)
        at += (size_t)snprintf(line + at, sizeof(line) - at, "%.64s: ", call->function);
    va_start(args, fmt);
    vsnprintf(line + at, sizeof(line) - at - 1, fmt, args);
    va_end(args);
    at = strlen(line);
    line[at] = '\n';
    line[at + 1] = '\0';
    /* One call, so that lines of several threads do not mix. */
    fputs(line, stderr);
}
