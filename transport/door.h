/* door.h: who has connected to a listening socket and has not said yet who it is.
 *
 * Layer: transport, for oob.c and tcp/accept.c. Owner: who listens; one thread at a time. A few guests at a
 * time, each with room for one hello. When all places are taken the oldest guest has to go, and whoever
 * says nothing for a second. A true caller says its hello at once, and calls again when it is sent away:
 * so neither silence nor a flood keeps it out. Strangers cost one line of the log a second. */
#ifndef SWL_DOOR_H
#define SWL_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_DOOR_PLACES 64u
#define SWL_DOOR_BYTES  272u /* of a hello, at most */

struct swl_door_guest {
    int fd; /* -1: no guest */
    uint32_t bytes;
    uint64_t came, came_ns;
    uint8_t in[SWL_DOOR_BYTES];
};

struct swl_door {
    uint32_t rank;
    const char *what; /* for the log: "channel", "nic" */
    uint32_t hello_bytes;
    bool (*like)(const uint8_t *in, size_t bytes);
    uint32_t nguests;
    uint64_t ncame;
    uint64_t nstrangers, said_ns; /* not in the log yet; time of the last line, or 0 */
    struct swl_door_guest guests[SWL_DOOR_PLACES];
};

/* `like`: may these bytes, at least one, be the first ones of a hello, or all? `what` stays the caller's. */
void swl_door_open(struct swl_door *door, uint32_t rank, const char *what, uint32_t hello_bytes,
                   bool (*like)(const uint8_t *in, size_t bytes));
/* The guest's socket, which does not block, is the door's until it ends or is taken. */
void swl_door_enter(struct swl_door *door, int fd);
/* Hear the guests: the first whose hello is whole, or NULL: nobody now. Take or refuse it, then ask again. */
struct swl_door_guest *swl_door_next(struct swl_door *door);
/* Its socket is the caller's now. */
int swl_door_take(struct swl_door *door, struct swl_door_guest *guest);
/* It is a stranger: hang up. */
void swl_door_refuse(struct swl_door *door, struct swl_door_guest *guest);
/* A connection that never became a guest. */
void swl_door_count(struct swl_door *door);
/* Everybody has to go. */
void swl_door_close(struct swl_door *door);

#ifdef __cplusplus
}
#endif
#endif
