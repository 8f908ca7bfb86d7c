/* door.c: see door.h. Layer: src/base. */
#include "src/base/door.h"

#include "src/base/socket.h"

#include <assert.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_NS UINT64_C(1000000000)  /* until the first byte */
#define HELLO_NS UINT64_C(10000000000) /* until the last one */
#define TELL_NS  UINT64_C(1000000000)  /* between words to the owner */

enum word { MORE, WHOLE, ALIEN };

void swl_door_open(struct swl_door *door, const struct swl_door_rules *rules)
{
    assert(rules->hello_bytes <= SWL_DOOR_BYTES);
    door->rules = *rules;
    door->nguests = 0;
    door->ncame = door->nstrangers = door->told_ns = 0;
    for (uint32_t i = 0; i < SWL_DOOR_PLACES; i++)
        door->guests[i].fd = -1;
}

static void tell(struct swl_door *door, uint64_t now)
{
    if (door->rules.tell)
        door->rules.tell(door->rules.owner, door->nstrangers);
    door->nstrangers = 0;
    door->told_ns = now;
}

void swl_door_count(struct swl_door *door)
{
    const uint64_t now = door->rules.now_ns();

    door->nstrangers++;
    if (door->told_ns == 0 || now - door->told_ns >= TELL_NS)
        tell(door, now);
}

int swl_door_take(struct swl_door *door, struct swl_door_guest *guest)
{
    const int fd = guest->fd;

    guest->fd = -1;
    door->nguests--;
    return fd;
}

void swl_door_refuse(struct swl_door *door, struct swl_door_guest *guest)
{
    close(swl_door_take(door, guest));
    swl_door_count(door);
}

void swl_door_enter(struct swl_door *door, int fd)
{
    struct swl_door_guest *place = &door->guests[0];

    for (uint32_t i = 0; i < SWL_DOOR_PLACES && place->fd >= 0; i++)
        if (door->guests[i].fd < 0 || door->guests[i].came < place->came)
            place = &door->guests[i];
    if (place->fd >= 0)
        swl_door_refuse(door, place);
    door->nguests++;
    place->fd = fd;
    place->bytes = 0;
    place->came = door->ncame++;
    place->came_ns = door->rules.now_ns();
}

static enum word hear(const struct swl_door *door, struct swl_door_guest *g)
{
    const struct swl_door_rules *rules = &door->rules;
    const ssize_t n = recv(g->fd, g->in + g->bytes, rules->hello_bytes - g->bytes, 0);

    if (swl_socket_ended(n))
        return ALIEN;
    if (n > 0) {
        g->bytes += (uint32_t)n;
        if (!rules->like(g->in, g->bytes))
            return ALIEN;
        if (g->bytes == rules->hello_bytes)
            return WHOLE;
    }
    /* heard before the clock is asked: late because this process was is no stranger */
    return rules->now_ns() - g->came_ns > (g->bytes == 0 ? FIRST_NS : HELLO_NS) ? ALIEN : MORE;
}

struct swl_door_guest *swl_door_next(struct swl_door *door)
{
    for (uint32_t i = 0; i < SWL_DOOR_PLACES && door->nguests > 0; i++) {
        struct swl_door_guest *g = &door->guests[i];
        const enum word word = g->fd >= 0 ? hear(door, g) : MORE;

        if (word == WHOLE)
            return g;
        if (word == ALIEN)
            swl_door_refuse(door, g);
    }
    return NULL;
}

nfds_t swl_door_watch(const struct swl_door *door, struct pollfd *fds)
{
    nfds_t n = 0;

    for (uint32_t i = 0; i < SWL_DOOR_PLACES; i++)
        if (door->guests[i].fd >= 0)
            fds[n++] = (struct pollfd){.fd = door->guests[i].fd, .events = POLLIN};
    return n;
}

void swl_door_close(struct swl_door *door)
{
    for (uint32_t i = 0; i < SWL_DOOR_PLACES; i++)
        if (door->guests[i].fd >= 0)
            close(swl_door_take(door, &door->guests[i]));
    if (door->nstrangers > 0)
        tell(door, door->rules.now_ns());
}
