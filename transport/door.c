/* door.c: see door.h. Layer: transport. */
#include "transport/door.h"

#include "src/base/log.h"
#include "src/runtime/runtime.h"
#include "transport/tcp/socket.h"

#include <assert.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_NS UINT64_C(1000000000)  /* until the first byte */
#define HELLO_NS UINT64_C(10000000000) /* until the last one */
#define LINE_NS  UINT64_C(1000000000)  /* between lines of the log */

enum word { MORE, WHOLE, ALIEN };

void swl_door_open(struct swl_door *door, uint32_t rank, const char *what, uint32_t hello_bytes,
                   bool (*like)(const uint8_t *in, size_t bytes))
{
    assert(hello_bytes <= SWL_DOOR_BYTES);
    door->rank = rank;
    door->what = what;
    door->hello_bytes = hello_bytes;
    door->like = like;
    door->nguests = 0;
    door->ncame = door->nstrangers = door->said_ns = 0;
    for (uint32_t i = 0; i < SWL_DOOR_PLACES; i++)
        door->guests[i].fd = -1;
}

static void say(struct swl_door *door, uint64_t now)
{
    if (door->nstrangers == 1)
        swl_log(SWL_LEVEL_WARN, "rank %" PRIu32 " %s: a stranger has connected and is sent away",
                door->rank, door->what);
    else if (door->nstrangers > 1)
        swl_log(SWL_LEVEL_WARN,
                "rank %" PRIu32 " %s: %" PRIu64 " strangers have connected and are sent away",
                door->rank, door->what, door->nstrangers);
    door->nstrangers = 0;
    door->said_ns = now;
}

void swl_door_count(struct swl_door *door)
{
    const uint64_t now = swl_gpu_now_ns();

    door->nstrangers++;
    if (door->said_ns == 0 || now - door->said_ns >= LINE_NS)
        say(door, now);
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
    place->came_ns = swl_gpu_now_ns();
}

static enum word hear(const struct swl_door *door, struct swl_door_guest *g)
{
    const ssize_t n = recv(g->fd, g->in + g->bytes, door->hello_bytes - g->bytes, 0);

    if (n == 0 || (n < 0 && !swl_tcp_later()))
        return ALIEN;
    if (n > 0) {
        g->bytes += (uint32_t)n;
        if (!door->like(g->in, g->bytes))
            return ALIEN;
        if (g->bytes == door->hello_bytes)
            return WHOLE;
    }
    /* heard before the clock is asked: late because this process was is no stranger */
    return swl_gpu_now_ns() - g->came_ns > (g->bytes == 0 ? FIRST_NS : HELLO_NS) ? ALIEN : MORE;
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

void swl_door_close(struct swl_door *door)
{
    for (uint32_t i = 0; i < SWL_DOOR_PLACES; i++)
        if (door->guests[i].fd >= 0)
            close(swl_door_take(door, &door->guests[i]));
    if (door->nstrangers > 0)
        say(door, swl_gpu_now_ns());
}
