/* accept.c: who connects to the TCP wire, until it is known for which queue pair. Layer:
 * transport/proxy/tcp. Strangers wait at the door (door.h), and nobody listens when all queue pairs
 * have their peers. */
#include "transport/proxy/tcp/tcp.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/runtime/runtime.h"
#include "transport/strangers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS 256 /* connections taken at a time */

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

/* May it be, or become, the frame of a hello? */
static bool like_hello(const uint8_t *in, size_t bytes)
{
    const struct tcp_frame hello = {.magic = TCP_MAGIC,
                                    .version = TCP_VERSION,
                                    .kind = TCP_HELLO,
                                    .bytes = sizeof(struct tcp_hello)};
    const size_t known = offsetof(struct tcp_frame, checksum);
    struct tcp_frame f;

    if (memcmp(in, &hello, bytes < known ? bytes : known) != 0)
        return false;
    return swl_tcp_look(in, bytes, 0, &f) != TCP_LOOK_DAMAGED;
}

static void say_strangers(void *owner, uint64_t n)
{
    swl_say_strangers(((const struct tcp_wire *)owner)->config.rank, "nic", n);
}

void swl_tcp_door_open(struct tcp_wire *w)
{
    const struct swl_door_rules rules = {.hello_bytes =
                                             (uint32_t)tcp_frame_bytes(sizeof(struct tcp_hello)),
                                         .like = like_hello,
                                         .now_ns = swl_gpu_now_ns,
                                         .tell = say_strangers,
                                         .owner = w};

    swl_door_open(&w->door, &rules);
}

ncclResult_t swl_tcp_listen_again(struct tcp_wire *w)
{
    struct tcp_why why = {.error = 0};

    if (w->listener >= 0)
        return ncclSuccess;
    if (w->place.at.any.sa_family == AF_INET6)
        w->place.at.v6.sin6_port = 0;
    else
        w->place.at.v4.sin_port = 0;
    w->listener = swl_tcp_listen(&w->place, &why);
    if (w->listener < 0)
        return swl_fail(ncclSystemError, "rank %u nic: %s", w->config.rank, why.text);
    return ncclSuccess;
}

static void stop_listening(struct tcp_wire *w)
{
    close(w->listener);
    w->listener = -1;
    swl_door_close(&w->door);
}

/* Will a peer connect? Whoever has come before the host has named it may not be the right one. */
static bool expecting(const struct tcp_wire *w)
{
    for (uint32_t i = 0; i < w->nqps; i++) {
        const struct tcp_pair *p = &w->pairs[i];

        if (p->state == TCP_IDLE || p->state == TCP_WAIT ||
            (p->state == TCP_CONNECTED && !p->bound))
            return true;
    }
    return w->nqps == 0;
}

static enum tcp_refusal judge_hello(const struct tcp_wire *w, const struct tcp_hello *h)
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

/* The hello is there: the connection becomes a queue pair's, or ends. */
static void introduce_pair(struct tcp_wire *w, struct swl_door_guest *g)
{
    struct tcp_hello h, welcome;
    enum tcp_refusal reason;
    struct tcp_pair *p;
    int fd;

    memcpy(&h, g->in + sizeof(struct tcp_frame), sizeof(h));
    reason = judge_hello(w, &h);
    if (reason != TCP_REFUSAL_NONE)
        (void)swl_tcp_send_first(g->fd, TCP_REFUSE, reason, NULL);
    if (reason == TCP_REFUSAL_NONCE) {
        swl_door_refuse(&w->door, g);
        return;
    }
    fd = swl_door_take(&w->door, g);
    if (reason != TCP_REFUSAL_NONE)
        swl_log(SWL_LEVEL_WARN, "rank %u nic: a connection for queue pair %u is refused: %s",
                w->config.rank, h.to_qp, swl_tcp_refusal_text(reason));
    memset(&welcome, 0, sizeof(welcome));
    memcpy(welcome.from, w->proof, sizeof(welcome.from));
    if (reason != TCP_REFUSAL_NONE || !swl_tcp_send_first(fd, TCP_WELCOME, 0, &welcome)) {
        close(fd);
        return;
    }
    p = &w->pairs[h.to_qp];
    p->peer = h;
    swl_tcp_pair_begin(p, fd, true);
}

/* Somebody has connected, cannot be let in, and would never learn why. Said once for each such
 * time. */
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

static bool hear_guests(struct tcp_wire *w)
{
    struct swl_door_guest *g;
    bool moved = false;

    while ((g = swl_door_next(&w->door)) != NULL) {
        introduce_pair(w, g);
        moved = true;
    }
    return moved;
}

bool swl_tcp_accept_all(struct tcp_wire *w)
{
    bool moved = false;

    if (w->listener < 0)
        return false;
    if (!expecting(w)) {
        stop_listening(w);
        return true;
    }
    for (int i = 0; i < ACCEPTS; i++) {
        const int fd = swl_socket_accept(w->listener);

        if (fd < 0) {
            say_deaf(w, -fd);
            break;
        }
        w->deaf = false;
        swl_door_enter(&w->door, fd);
        moved = hear_guests(w) || moved;
    }
    return hear_guests(w) || moved;
}
