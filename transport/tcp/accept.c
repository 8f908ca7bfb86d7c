/* accept.c: who connects to the TCP wire, until it is known for which queue pair. Layer: transport/tcp.
 * A few at a time, each for a limited time and with room for one small frame: strangers cost little. */
#include "transport/tcp/tcp.h"

#include "src/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_NS 10000000000ull

const char *swl_tcp_refusal_text(uint64_t reason)
{
    switch (reason) {
#define TCP_REFUSAL_CASE(name, text)                                                               \
    case TCP_REFUSAL_##name:                                                                       \
        return text;
        TCP_REFUSALS(TCP_REFUSAL_CASE)
#undef TCP_REFUSAL_CASE
    default:
        return "for an unknown reason";
    }
}

bool swl_tcp_send_first(int fd, enum tcp_kind kind, uint64_t value, const struct tcp_hello *hello)
{
    struct {
        struct tcp_frame frame;
        struct tcp_hello hello;
    } first;
    size_t bytes;

    memset(&first, 0, sizeof(first));
    first.frame.kind = (uint16_t)kind;
    first.frame.value = value;
    if (hello) {
        first.frame.bytes = sizeof(*hello);
        first.hello = *hello;
    }
    swl_tcp_seal(&first.frame, 0);
    bytes = tcp_frame_bytes(first.frame.bytes);
    /* the first bytes of a connection fit into the kernel's buffer */
    return send(fd, &first, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

void swl_tcp_waiting_end(struct tcp_waiting *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static enum tcp_refusal judge(const struct tcp_wire *w, const struct tcp_hello *h)
{
    const struct tcp_pair *p = h->to_qp < w->nqps ? &w->pairs[h->to_qp] : NULL;

    if (memcmp(h->to, w->nonce, sizeof(w->nonce)) != 0)
        return TCP_REFUSAL_NONCE;
    if (p == NULL)
        return TCP_REFUSAL_QP;
    if (h->to_generation != p->generation)
        return TCP_REFUSAL_OLD;
    if (p->state != TCP_IDLE && p->state != TCP_WAIT)
        return TCP_REFUSAL_TAKEN;
    /* whom the host has named already, or, before that, anybody who knows the number */
    if (p->state == TCP_WAIT &&
        (memcmp(h->from, p->peer.from, sizeof(h->from)) != 0 || h->from_qp != p->peer.from_qp ||
         h->from_generation != p->peer.from_generation))
        return TCP_REFUSAL_TAKEN;
    return TCP_REFUSAL_NONE;
}

/* The first frame is there: the connection becomes a queue pair's, or ends. */
static void introduce(struct tcp_wire *w, struct tcp_waiting *c, const struct tcp_hello *h)
{
    const enum tcp_refusal reason = judge(w, h);
    struct tcp_pair *p;

    if (reason != TCP_REFUSAL_NONE) {
        swl_log(SWL_LEVEL_WARN, "rank %u nic: a connection for queue pair %u is refused: %s",
                w->config.rank, h->to_qp, swl_tcp_refusal_text(reason));
        (void)swl_tcp_send_first(c->fd, TCP_REFUSE, reason, NULL);
        swl_tcp_waiting_end(c);
        return;
    }
    p = &w->pairs[h->to_qp];
    if (!swl_tcp_send_first(c->fd, TCP_WELCOME, 0, NULL)) {
        swl_tcp_waiting_end(c);
        return;
    }
    p->peer = *h;
    swl_tcp_pair_begin(p, c->fd, true);
    c->fd = -1;
}

bool swl_tcp_waiting_look(struct tcp_wire *w, struct tcp_waiting *c)
{
    const ssize_t n = recv(c->fd, c->in + c->bytes, sizeof(c->in) - c->bytes, 0);
    struct tcp_hello hello;
    struct tcp_frame f;
    enum tcp_look look;

    if (n > 0)
        c->bytes += (size_t)n;
    look = swl_tcp_look(c->in, c->bytes, 0, &f);
    if (look == TCP_LOOK_MORE && n != 0 && c->bytes < sizeof(c->in) &&
        swl_gpu_now_ns() < c->deadline_ns)
        return n > 0;
    if (look == TCP_LOOK_FRAME && f.kind == TCP_HELLO && f.bytes == sizeof(hello)) {
        memcpy(&hello, c->in + sizeof(f), sizeof(hello));
        introduce(w, c, &hello);
        return true;
    }
    swl_log(SWL_LEVEL_WARN, "rank %u nic: a stranger has connected and is sent away",
            w->config.rank);
    swl_tcp_waiting_end(c);
    return true;
}

/* Somebody has connected, cannot be let in, and would never learn why. Said once for each such time. */
static void say_deaf(struct tcp_wire *w, int error)
{
    struct pollfd p = {.fd = w->listener, .events = POLLIN};

    if (w->deaf || (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM))
        return;
    if (poll(&p, 1, 0) != 1)
        return; /* the kernel looks for a descriptor before it looks for a connection */
    w->deaf = true;
    swl_log(SWL_LEVEL_WARN, "rank %u nic: cannot take connections of its peers: %s%s",
            w->config.rank, strerror(error), error == EMFILE ? " (ulimit -n)" : "");
}

bool swl_tcp_accept_all(struct tcp_wire *w)
{
    bool moved = false;

    for (uint32_t i = 0; i < TCP_WAITING; i++) {
        struct tcp_waiting *c = &w->waiting[i];

        if (c->fd >= 0)
            continue;
        c->fd = swl_tcp_accept(w->listener);
        if (c->fd < 0) {
            say_deaf(w, errno);
            break;
        }
        w->deaf = false;
        c->bytes = 0;
        c->deadline_ns = swl_gpu_now_ns() + HELLO_NS;
        moved = true;
    }
    return moved;
}
