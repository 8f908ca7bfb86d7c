/* door.h: who has connected to a listening socket and has not said yet who it is.
 *
 * Layer: src/base, for whoever listens; one thread at a time. A few guests at a time, each with
 * room for one hello. When all places are taken the oldest guest has to go, and so has whoever says
 * nothing for a second. A true caller says its hello at once, and calls again when it is sent away:
 * so neither silence nor a flood keeps it out. Of strangers the owner is told at most once a
 * second. */
#ifndef SWL_BASE_DOOR_H
#define SWL_BASE_DOOR_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_DOOR_PLACES 64u
#define SWL_DOOR_BYTES  400u /* of a hello, at most */

struct swl_door_guest {
    int fd; /* -1: no guest */
    uint32_t bytes;
    uint64_t came, came_ns;
    uint8_t in[SWL_DOOR_BYTES];
};

/* What stays the same for a door's life. */
struct swl_door_rules {
    uint32_t hello_bytes;
    /* May these bytes, at least one, be the first ones of a hello, or all? */
    bool (*like)(const uint8_t *in, size_t bytes);
    uint64_t (*now_ns)(void);
    /* So many strangers have been sent away since it was last told; NULL: nobody wants to know. */
    void (*tell)(void *owner, uint64_t nstrangers);
    void *owner;
};

struct swl_door {
    struct swl_door_rules rules;
    uint32_t nguests;
    uint64_t ncame;
    uint64_t nstrangers, told_ns; /* not told yet; time when it was last told, or 0 */
    struct swl_door_guest guests[SWL_DOOR_PLACES];
};

void swl_door_open(struct swl_door *door, const struct swl_door_rules *rules);
/* The guest's socket, which does not block, is the door's until it ends or is taken. */
void swl_door_enter(struct swl_door *door, int fd);
/* Hear the guests: the first whose hello is whole, or NULL: nobody now. Take or refuse it, then ask
 * again. */
struct swl_door_guest *swl_door_next(struct swl_door *door);
/* Its socket is the caller's now. */
int swl_door_take(struct swl_door *door, struct swl_door_guest *guest);
/* It is a stranger: hang up. */
void swl_door_refuse(struct swl_door *door, struct swl_door_guest *guest);
/* A connection that never became a guest. */
void swl_door_count(struct swl_door *door);
/* For poll: wait for what the guests say. Returns how many there are, at most SWL_DOOR_PLACES. */
nfds_t swl_door_watch(const struct swl_door *door, struct pollfd *fds);
/* Everybody has to go. */
void swl_door_close(struct swl_door *door);

#ifdef __cplusplus
}
#endif
#endif
