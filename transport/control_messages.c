/* control_messages.c: messages of the control connections, and the end of its connections. Layer:
 * transport; memory: control.h. */
#include "transport/control_internal.h"

#include "src/base/log.h"
#include "src/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

uint32_t swl_control_peers(const struct swl_control *control)
{
    return control->npeers;
}

uint32_t swl_control_rank(const struct swl_control *control, uint32_t peer)
{
    return control->peers[peer].rank;
}

uint32_t swl_control_peer(const struct swl_control *control, uint32_t rank)
{
    for (uint32_t i = 0; i < control->npeers; i++)
        if (control->peers[i].rank == rank)
            return i;
    return UINT32_MAX;
}

bool swl_control_connected(const struct swl_control *control, uint32_t peer)
{
    return control->peers[peer].state == CONTROL_CONNECTED;
}

static void end_peer(struct swl_control *control, struct control_peer *p, enum control_state state)
{
    if (p->state != CONTROL_CONNECTED)
        return;
    control_hang_up(control, p);
    p->state = state;
    control->nwaiting -= p->queued > 0;
    p->queued = p->out_bytes = p->in_bytes = 0;
    p->tell = state == CONTROL_BROKEN;
    control->ntell += p->tell;
}

/* As much as the kernel takes. */
static void push(struct swl_control *control, struct control_peer *p)
{
    const bool waited = p->queued > 0;

    while (p->queued > 0) {
        const ssize_t n = send(p->fd, (const char *)&p->out[0] + p->out_bytes,
                               sizeof(p->out[0]) - p->out_bytes, MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0) { /* what the peer said before is still read */
            p->queued = p->out_bytes = 0;
            break;
        }
        p->out_bytes += (uint32_t)n;
        if (p->out_bytes < sizeof(p->out[0]))
            continue;
        p->out_bytes = 0;
        p->queued--;
        memmove(&p->out[0], &p->out[1], p->queued * sizeof(p->out[0]));
    }
    control->nwaiting -= waited && p->queued == 0;
}

bool swl_control_send(struct swl_control *control, uint32_t peer,
                      const struct swl_control_message *message)
{
    struct control_peer *p = &control->peers[peer];
    struct swl_control_message *m;

    if (p->state == CONTROL_CONNECTED && p->queued == CONTROL_QUEUE)
        push(control, p);
    if (p->state != CONTROL_CONNECTED || p->queued == CONTROL_QUEUE)
        return false;
    m = &p->out[p->queued++];
    *m = *message;
    m->magic = CONTROL_MAGIC;
    m->from = (uint16_t)control->config.rank;
    control->nwaiting += p->queued == 1;
    push(control, p);
    return true;
}

/* Bytes of one message; true: it is whole. */
static bool pull(struct swl_control *control, struct control_peer *p)
{
    const ssize_t n = recv(p->fd, (char *)&p->in + p->in_bytes, sizeof(p->in) - p->in_bytes, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        p->why = n < 0 ? errno : 0;
        end_peer(control, p, CONTROL_BROKEN);
        return false;
    }
    p->in_bytes += (uint32_t)n;
    if (p->in_bytes < sizeof(p->in))
        return false;
    p->in_bytes = 0;
    if (p->in.kind == SWL_CONTROL_BYE && p->in.magic == CONTROL_MAGIC) {
        end_peer(control, p, CONTROL_LEFT);
        return false;
    }
    if (p->in.magic == CONTROL_MAGIC && p->in.from == p->rank && p->in.kind >= SWL_CONTROL_USER)
        return true;
    swl_log(SWL_LEVEL_WARN, "rank %" PRIu32 " control connection: rank %" PRIu32 " sends nonsense",
            control->config.rank, p->rank);
    p->why = EPROTO;
    end_peer(control, p, CONTROL_BROKEN);
    return false;
}

/* Ends of connections come after everything that was said on them. */
static bool next_gone(struct swl_control *control, uint32_t *peer_p,
                      struct swl_control_message *message_p)
{
    for (uint32_t i = 0; control->ntell > 0 && i < control->npeers; i++) {
        if (!control->peers[i].tell)
            continue;
        control->peers[i].tell = false;
        control->ntell--;
        memset(message_p, 0, sizeof(*message_p));
        message_p->kind = SWL_CONTROL_GONE;
        message_p->from = (uint16_t)control->peers[i].rank;
        message_p->value[0] = (uint64_t)control->peers[i].why;
        *peer_p = i;
        return true;
    }
    return false;
}

bool swl_control_receive(struct swl_control *control, uint32_t *peer_p,
                         struct swl_control_message *message_p)
{
    struct epoll_event events[16];
    int n;

    for (uint32_t i = 0; control->nwaiting > 0 && i < control->npeers; i++)
        if (control->peers[i].queued > 0)
            push(control, &control->peers[i]);
    for (;;) {
        bool moved = false;

        n = epoll_wait(control->epoll, events, (int)SWL_COUNT_OF(events), 0);
        for (int e = 0; e < n; e++) {
            struct control_peer *p = &control->peers[events[e].data.u32];

            if (p->state != CONTROL_CONNECTED)
                continue;
            moved = true;
            if (!pull(control, p))
                continue;
            *message_p = p->in;
            *peer_p = events[e].data.u32;
            return true;
        }
        if (!moved)
            return next_gone(control, peer_p, message_p);
    }
}

void swl_control_close(struct swl_control *control)
{
    const struct swl_control_message bye = {.kind = SWL_CONTROL_BYE};

    if (control == NULL)
        return;
    for (uint32_t i = 0; control->peers && i < control->npeers; i++) {
        if (control->peers[i].state == CONTROL_CONNECTED)
            (void)swl_control_send(control, i, &bye);
        control_hang_up(control, &control->peers[i]);
    }
    free(control->peers);
    control_shut(&control->epoll);
    control_shut(&control->local);
    control_shut(&control->tcp);
    free(control);
}
