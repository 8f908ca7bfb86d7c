/* links.h: the state of a group's links to other nodes, as far as their repair needs it (links.c).
 *
 * Layer: src/failure, part of the group. */
#ifndef SWL_LINKS_H
#define SWL_LINKS_H

#include <stdbool.h>
#include <stdint.h>

struct swl_mend;

struct swl_links {
    struct swl_mend *mend; /* NULL: one node, or no out-of-band channel */
    bool suspect;          /* an ErrorClear has dealt with a failure; nobody has looked since */
    bool unmended;         /* the last attempt failed; until ErrorClear */
    uint64_t gen;          /* newest generation that an ErrorClear has dealt with */
    uint64_t looked; /* generation after which the queue pairs were last looked at for errors */
    uint64_t mended; /* generation after which all links were last mended */
    char why[320];   /* sentence of the last attempt, if it failed */
};

#endif
