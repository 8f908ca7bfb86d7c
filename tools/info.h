/* info.h: parts of swimlane-info. Layer: tools. Everything is written once and comes out as text
 * for people or as JSON: objects, lists and values with keys. */
#ifndef SWL_INFO_H
#define SWL_INFO_H

#include "src/base/options.h"
#include "tools/support/json.h"
#include "transport/choice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct info_out {
    bool json;
    struct swl_json writer;
};

/* info_out.c: as swl_json_open and swl_json_close; text indents by depth. */
void info_open(struct info_out *out, const char *key, char bracket);
void info_close(struct info_out *out, char bracket);
void info_text(struct info_out *out, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same of any length. */
void info_line(struct info_out *out, const char *key, const char *text);
void info_integer(struct info_out *out, const char *key, int64_t value);
void info_flag(struct info_out *out, const char *key, bool value);

struct info_options {
    bool json;
    const struct swl_options *options; /* of the environment */
    int nodes, ranks_per_node;
    const char *root; /* of /sys, /proc and /dev */
    const char *gpu;  /* PCI address of the GPU that distances are from; NULL: each GPU */
};

#define INFO_NICS 64 /* most that are listed */
#define INFO_GPUS 64

#define INFO_RANKS (SWL_EMULATED ? "emulated" : "on GPUs")

/* info_build.c */
void info_build(struct info_out *out);

/* info_machine.c */
void info_host(struct info_out *out, const struct info_options *o);
void info_gpus(struct info_out *out);
int info_count_gpus(void);
/* info_nics.c */
void info_nics(struct info_out *out, const struct info_options *o);
/* info_pkey.c: as swl_pkey_take; *port has name and number. */
struct swl_port;
bool info_pkey(const struct info_options *o, struct swl_port *port, char *why, size_t why_bytes);
/* info_choice.c */
void info_transports(struct info_out *out, const struct info_options *o);
/* info_env.c */
void info_variables(struct info_out *out);
void info_presets(struct info_out *out, const struct info_options *o);
void info_unknown_variables(struct info_out *out);
/* The variable that this one's value comes from: itself, or NCCL's. */
const char *info_source_of(const char *name);

#ifdef __cplusplus
}
#endif
#endif
