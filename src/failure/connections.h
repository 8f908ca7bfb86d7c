/* connections.h: the state of a group's connections to other nodes, as far as their repair needs it
 * (connections.c).
 *
 * Layer: src/failure, part of the group. */
#ifndef SWL_CONNECTIONS_H
#define SWL_CONNECTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct swl_qp_recovery;

struct swl_connections {
    struct swl_qp_recovery *recovery; /* NULL: one node, or no control connections */
    bool suspect;      /* an ErrorClear has dealt with a failure; nobody has looked since */
    bool unrepaired;   /* the last attempt failed; until ErrorClear */
    uint64_t gen;      /* newest generation that an ErrorClear has dealt with */
    uint64_t looked;   /* generation after which the queue pairs were last looked at for errors */
    uint64_t repaired; /* generation after which all connections were last repaired */
    char why[320];     /* sentence of the last attempt, if it failed */
};

#endif
