/* json.h: write one JSON document to a file, key by key.
 *
 * Layer: tools/support. The caller owns the file; errors show in ferror(). */
#ifndef SWL_JSON_H
#define SWL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_json {
    FILE *file;
    int depth;
    bool filled; /* the open object or list has an entry */
};

/* key is NULL inside a list and for the document itself. */
void swl_json_open(struct swl_json *json, const char *key, char bracket);
void swl_json_close(struct swl_json *json, char bracket);
void swl_json_text(struct swl_json *json, const char *key, const char *value);
void swl_json_integer(struct swl_json *json, const char *key, int64_t value);
void swl_json_number(struct swl_json *json, const char *key, double value); /* not finite: null */
void swl_json_flag(struct swl_json *json, const char *key, bool value);

#ifdef __cplusplus
}
#endif
#endif
