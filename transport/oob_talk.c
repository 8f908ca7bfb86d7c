/* oob_talk.c: messages of the out-of-band channel, and the end of its connections. Layer: transport;
 * memory: oob.h. */
#include "transport/oob_peers.h"

#include "src/base/log.h"
#include "src/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

uint32_t swl_oob_peers(const struct swl_oob *oob)
{
    return oob->npeers;
}

uint32_t swl_oob_rank(const struct swl_oob *oob, uint32_t peer)
{
    return oob->peers[peer].rank;
}

uint32_t swl_oob_peer(const struct swl_oob *oob, uint32_t rank)
{
    for (uint32_t i = 0; i < oob->npeers; i++)
        if (oob->peers[i].rank == rank)
            return i;
    return UINT32_MAX;
}

bool swl_oob_connected(const struct swl_oob *oob, uint32_t peer)
{
    return oob->peers[peer].state == OOB_CONNECTED;
}

static void end_peer(struct swl_oob *oob, struct oob_peer *p, enum oob_state state)
{
    if (p->state != OOB_CONNECTED)
        return;
    oob_shut(&p->fd); /* takes it from the epoll set */
    p->state = state;
    oob->nwaiting -= p->queued > 0;
    p->queued = p->out_bytes = p->in_bytes = 0;
    p->tell = state == OOB_BROKEN;
    oob->ntell += p->tell;
}

/* As much as the kernel takes. */
static void push(struct swl_oob *oob, struct oob_peer *p)
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
    oob->nwaiting -= waited && p->queued == 0;
}

bool swl_oob_send(struct swl_oob *oob, uint32_t peer, const struct swl_oob_message *message)
{
    struct oob_peer *p = &oob->peers[peer];
    struct swl_oob_message *m;

    if (p->state == OOB_CONNECTED && p->queued == OOB_QUEUE)
        push(oob, p);
    if (p->state != OOB_CONNECTED || p->queued == OOB_QUEUE)
        return false;
    m = &p->out[p->queued++];
    *m = *message;
    m->magic = OOB_MAGIC;
    m->from = (uint16_t)oob->config.rank;
    oob->nwaiting += p->queued == 1;
    push(oob, p);
    return true;
}

/* Bytes of one message; true: it is whole. */
static bool pull(struct swl_oob *oob, struct oob_peer *p)
{
    const ssize_t n = recv(p->fd, (char *)&p->in + p->in_bytes, sizeof(p->in) - p->in_bytes, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        p->why = n < 0 ? errno : 0;
        end_peer(oob, p, OOB_BROKEN);
        return false;
    }
    p->in_bytes += (uint32_t)n;
    if (p->in_bytes < sizeof(p->in))
        return false;
    p->in_bytes = 0;
    if (p->in.kind == SWL_OOB_BYE && p->in.magic == OOB_MAGIC) {
        end_peer(oob, p, OOB_LEFT);
        return false;
    }
    if (p->in.magic == OOB_MAGIC && p->in.from == p->rank && p->in.kind >= SWL_OOB_USER)
        return true;
    swl_log(SWL_LEVEL_WARN, "rank %" PRIu32 " control connection: rank %" PRIu32 " sends nonsense",
            oob->config.rank, p->rank);
    p->why = EPROTO;
    end_peer(oob, p, OOB_BROKEN);
    return false;
}

/* Ends of connections come after everything that was said on them. */
static bool next_gone(struct swl_oob *oob, uint32_t *peer_p, struct swl_oob_message *message_p)
{
    for (uint32_t i = 0; oob->ntell > 0 && i < oob->npeers; i++) {
        if (!oob->peers[i].tell)
            continue;
        oob->peers[i].tell = false;
        oob->ntell--;
        memset(message_p, 0, sizeof(*message_p));
        message_p->kind = SWL_OOB_GONE;
        message_p->from = (uint16_t)oob->peers[i].rank;
        message_p->value[0] = (uint64_t)oob->peers[i].why;
        *peer_p = i;
        return true;
    }
    return false;
}

bool swl_oob_receive(struct swl_oob *oob, uint32_t *peer_p, struct swl_oob_message *message_p)
{
    struct epoll_event events[16];
    int n;

    for (uint32_t i = 0; oob->nwaiting > 0 && i < oob->npeers; i++)
        if (oob->peers[i].queued > 0)
            push(oob, &oob->peers[i]);
    for (;;) {
        bool moved = false;

        n = epoll_wait(oob->epoll, events, (int)SWL_COUNT_OF(events), 0);
        for (int e = 0; e < n; e++) {
            struct oob_peer *p = &oob->peers[events[e].data.u32];

            if (p->state != OOB_CONNECTED)
                continue;
            moved = true;
            if (!pull(oob, p))
                continue;
            *message_p = p->in;
            *peer_p = events[e].data.u32;
            return true;
        }
        if (!moved)
            return next_gone(oob, peer_p, message_p);
    }
}

void swl_oob_close(struct swl_oob *oob)
{
    const struct swl_oob_message bye = {.kind = SWL_OOB_BYE};

    if (oob == NULL)
        return;
    for (uint32_t i = 0; oob->peers && i < oob->npeers; i++) {
        if (oob->peers[i].state == OOB_CONNECTED)
            (void)swl_oob_send(oob, i, &bye);
        oob_shut(&oob->peers[i].fd);
    }
    free(oob->peers);
    oob_shut(&oob->epoll);
    oob_shut(&oob->local);
    oob_shut(&oob->tcp);
    free(oob);
}
