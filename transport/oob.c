/* oob.c: connections of the out-of-band channel and what travels on them. Layer: transport; memory: oob.h.
 *
 * Of two ranks the one with the larger number connects. A connection counts when its first message has
 * brought the secret number of the rank that listens; whoever else connects is sent away. */
#include "transport/oob.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/util.h"
#include "src/gpu.h"
#include "transport/tcp/socket.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define OOB_MAGIC   0x6f6f6231u
#define OOB_QUEUE   16u  /* messages that wait for a peer */
#define OOB_PENDING 16u  /* connections whose first message has not come */
#define OOB_LISTEN  1024 /* backlog */
#define POLL_NS     UINT64_C(100000)
#define PENDING_NS  UINT64_C(10000000000)
#define ATTEMPT_NS  UINT64_C(1000000000) /* of one connect over TCP */

/* Content of struct swl_oob_address. */
struct oob_place {
    uint8_t nonce[16];
    uint64_t process;
    uint32_t has_local, has_tcp;
    union {
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
};
static_assert(sizeof(struct oob_place) <= sizeof(struct swl_oob_address),
              "the place travels inside the opaque address");
static_assert(sizeof(struct swl_oob_message) == 8 + 8 * SWL_OOB_VALUES + SWL_OOB_BYTES,
              "no padding travels");

enum oob_state { OOB_NONE, OOB_CONNECTED, OOB_LEFT, OOB_BROKEN };

struct oob_peer {
    uint32_t rank;
    enum oob_state state;
    int fd;
    uint32_t in_bytes; /* of a message that has come in part */
    struct swl_oob_message in;
    uint32_t queued, out_bytes; /* out_bytes of out[0] have been sent */
    struct swl_oob_message out[OOB_QUEUE];
    bool tell; /* GONE is to be received */
};

struct oob_pending {
    int fd;
    uint32_t bytes;
    uint64_t until_ns;
    struct swl_oob_message in;
};

struct swl_oob {
    struct swl_oob_config config;
    struct oob_place place;
    int local, tcp, epoll; /* -1: none */
    struct oob_peer *peers;
    uint32_t npeers, next;
    uint32_t nwaiting; /* peers with queued messages */
    uint32_t ntell;
};

/* ---- sockets ---- */

static void shut(int *fd_p)
{
    if (*fd_p >= 0)
        close(*fd_p);
    *fd_p = -1;
}

/* A name of the kernel's own (no file), which begins with a zero byte. */
static socklen_t local_name(const struct oob_place *place, struct sockaddr_un *name)
{
    int n;

    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    n = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "swimlane-");
    for (size_t i = 0; i < sizeof(place->nonce); i++)
        n += snprintf(name->sun_path + 1 + n, sizeof(name->sun_path) - 1 - (size_t)n, "%02x",
                      place->nonce[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int local_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int listen_local(const struct oob_place *place)
{
    struct sockaddr_un name;
    const socklen_t bytes = local_name(place, &name);
    int fd = local_socket();

    if (fd >= 0 &&
        (bind(fd, (const struct sockaddr *)&name, bytes) != 0 || listen(fd, OOB_LISTEN) != 0))
        shut(&fd);
    return fd;
}

static int connect_local(const struct oob_place *place)
{
    struct sockaddr_un name;
    const socklen_t bytes = local_name(place, &name);
    int fd = local_socket();

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&name, bytes) != 0)
        shut(&fd);
    return fd;
}

/* A host that has lost power says nothing: the kernel asks, and gives up after the limit. */
static void watch_silence(int fd, uint64_t timeout_ns)
{
    const uint64_t s = timeout_ns / UINT64_C(4000000000);
    const int yes = 1, idle = s < 1 ? 1 : s > 60 ? 60 : (int)s, count = 3;
    const unsigned ms = (unsigned)swl_min_u64(timeout_ns / 1000000 + 1, 3600000);

    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

/* ---- opening ---- */

static int listen_tcp(struct swl_oob *oob)
{
    struct tcp_place place;
    struct tcp_why why = {""};
    int fd = -1;

    if (swl_tcp_choose(oob->config.socket_ifname, &place, &why))
        fd = swl_tcp_listen(&place, &why);
    if (fd >= 0)
        memcpy(&oob->place.at, &place.at, sizeof(oob->place.at));
    else
        swl_log(SWL_LEVEL_INFO, "rank %" PRIu32 " channel: %s", oob->config.rank, why.text);
    return fd;
}

ncclResult_t swl_oob_open(struct swl_oob **oob_p, const struct swl_oob_config *config,
                          struct swl_oob_address *mine_p)
{
    struct swl_oob *oob = calloc(1, sizeof(*oob));

    memset(mine_p, 0, sizeof(*mine_p));
    if (oob == NULL)
        return swl_fail(ncclSystemError, "rank %" PRIu32 " channel: no memory", config->rank);
    oob->config = *config;
    oob->local = oob->tcp = oob->epoll = -1;
    oob->place.process = config->process;
    if (getrandom(oob->place.nonce, sizeof(oob->place.nonce), 0) ==
        (ssize_t)sizeof(oob->place.nonce)) {
        oob->local = listen_local(&oob->place);
        oob->tcp = listen_tcp(oob);
    }
    oob->place.has_local = oob->local >= 0;
    oob->place.has_tcp = oob->tcp >= 0;
    memcpy(mine_p->bytes, &oob->place, sizeof(oob->place));
    *oob_p = oob;
    return ncclSuccess;
}

static struct oob_place place_of(const struct swl_oob_address *address)
{
    struct oob_place place;

    memcpy(&place, address->bytes, sizeof(place));
    return place;
}

bool swl_oob_possible(const struct swl_oob_address *all, uint32_t nranks, char *why,
                      size_t why_bytes)
{
    const struct oob_place first = place_of(&all[0]);
    bool apart = false;

    for (uint32_t r = 1; r < nranks; r++)
        apart = apart || place_of(&all[r]).process != first.process;
    for (uint32_t r = 0; r < nranks; r++) {
        const struct oob_place place = place_of(&all[r]);

        if (place.has_local && (!apart || place.has_tcp))
            continue;
        snprintf(why, why_bytes, "rank %" PRIu32 " cannot listen at %s", r,
                 place.has_local ? "any network interface" : "a local socket");
        return false;
    }
    return true;
}

/* ---- connecting ---- */

static bool watch(struct swl_oob *oob, uint32_t i)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};

    return epoll_ctl(oob->epoll, EPOLL_CTL_ADD, oob->peers[i].fd, &event) == 0;
}

static void adopt(struct swl_oob *oob, uint32_t i, int fd)
{
    struct oob_peer *p = &oob->peers[i];

    p->fd = fd;
    p->state = OOB_CONNECTED;
    if (!watch(oob, i)) {
        shut(&p->fd);
        p->state = OOB_NONE;
    }
}

/* One attempt; a listener whose backlog is full, or that does not listen yet, is asked again. */
static void call_peer(struct swl_oob *oob, uint32_t i, const struct oob_place *place)
{
    struct swl_oob_message hello = {.magic = OOB_MAGIC, .kind = SWL_OOB_HELLO};
    struct tcp_place at;
    struct tcp_why why;
    int fd;

    if (place->process == oob->place.process) {
        fd = connect_local(place);
    } else {
        memset(&at, 0, sizeof(at));
        memcpy(&at.at, &place->at, sizeof(place->at));
        fd = swl_tcp_connect(&at, swl_min_u64(oob->config.timeout_ns, ATTEMPT_NS), &why);
        if (fd >= 0)
            watch_silence(fd, oob->config.timeout_ns);
    }
    if (fd < 0)
        return;
    hello.from = (uint16_t)oob->config.rank;
    memcpy(hello.bytes, place->nonce, sizeof(place->nonce));
    /* the first bytes of a connection fit into the kernel's buffer */
    if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello))
        adopt(oob, i, fd);
    else
        shut(&fd);
}

/* The first message is there: the connection becomes a peer's, or ends. */
static void introduce(struct swl_oob *oob, struct oob_pending *c)
{
    const struct swl_oob_message *m = &c->in;
    const uint32_t i = swl_oob_peer(oob, m->from);

    if (m->magic == OOB_MAGIC && m->kind == SWL_OOB_HELLO && i != UINT32_MAX &&
        m->from > oob->config.rank && oob->peers[i].state == OOB_NONE &&
        memcmp(m->bytes, oob->place.nonce, sizeof(oob->place.nonce)) == 0) {
        adopt(oob, i, c->fd);
        c->fd = -1;
        return;
    }
    swl_log(SWL_LEVEL_WARN, "rank %" PRIu32 " channel: a stranger has connected and is sent away",
            oob->config.rank);
    shut(&c->fd);
}

static void look_at_pending(struct swl_oob *oob, struct oob_pending *c)
{
    const ssize_t n = recv(c->fd, (char *)&c->in + c->bytes, sizeof(c->in) - c->bytes, 0);

    if (n > 0)
        c->bytes += (uint32_t)n;
    if (c->bytes == sizeof(c->in))
        introduce(oob, c);
    else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
             swl_gpu_now_ns() >= c->until_ns)
        shut(&c->fd);
}

static void accept_all(struct swl_oob *oob, struct oob_pending *pending)
{
    for (uint32_t i = 0; i < OOB_PENDING; i++) {
        struct oob_pending *c = &pending[i];

        if (c->fd < 0 && oob->local >= 0)
            c->fd = accept4(oob->local, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (c->fd < 0 && oob->tcp >= 0) {
            c->fd = swl_tcp_accept(oob->tcp);
            if (c->fd >= 0)
                watch_silence(c->fd, oob->config.timeout_ns);
        }
        if (c->fd >= 0 && c->until_ns == 0) {
            c->bytes = 0;
            c->until_ns = swl_gpu_now_ns() + PENDING_NS;
        }
        if (c->fd >= 0)
            look_at_pending(oob, c);
        if (c->fd < 0)
            c->until_ns = 0;
    }
}

/* Could this process open one more? */
static bool descriptors_left(const struct swl_oob *oob)
{
    int fd = fcntl(oob->epoll, F_DUPFD_CLOEXEC, 0);
    const bool left = fd >= 0;

    if (left)
        close(fd);
    return left;
}

static uint32_t first_missing(const struct swl_oob *oob)
{
    for (uint32_t i = 0; i < oob->npeers; i++)
        if (oob->peers[i].state == OOB_NONE)
            return i;
    return UINT32_MAX;
}

static ncclResult_t meet_all(struct swl_oob *oob, const struct swl_oob_address *all,
                             struct oob_pending *pending)
{
    const uint64_t end = swl_gpu_now_ns() + oob->config.timeout_ns;
    char time[32];

    for (;;) {
        for (uint32_t i = 0; i < oob->npeers; i++) {
            struct oob_peer *p = &oob->peers[i];

            if (p->state == OOB_NONE && p->rank < oob->config.rank && swl_gpu_now_ns() < end) {
                const struct oob_place place = place_of(&all[p->rank]);

                call_peer(oob, i, &place);
            }
        }
        accept_all(oob, pending);
        if (first_missing(oob) == UINT32_MAX)
            return ncclSuccess;
        if (swl_gpu_now_ns() >= end)
            break;
        swl_gpu_sleep_ns(POLL_NS);
    }
    swl_time_text(oob->config.timeout_ns, time, sizeof(time));
    return swl_fail(
        ncclSystemError, "rank %" PRIu32 " channel: rank %" PRIu32 " has not connected within %s%s",
        oob->config.rank, oob->peers[first_missing(oob)].rank, time,
        descriptors_left(oob) ? "" : "; this process has no descriptor left (ulimit -n)");
}

ncclResult_t swl_oob_connect(struct swl_oob *oob, const struct swl_oob_address *all,
                             const uint32_t *peers, uint32_t npeers)
{
    struct oob_pending pending[OOB_PENDING];
    ncclResult_t rc;

    oob->peers = calloc(npeers + 1u, sizeof(*oob->peers));
    if (oob->peers != NULL)
        oob->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (oob->epoll < 0 || oob->peers == NULL)
        return swl_fail(
            ncclSystemError, "rank %" PRIu32 " channel: no room for %" PRIu32 " connections: %s%s",
            oob->config.rank, npeers, strerror(errno), errno == EMFILE ? " (ulimit -n)" : "");
    oob->npeers = npeers;
    for (uint32_t i = 0; i < npeers; i++) {
        oob->peers[i].rank = peers[i];
        oob->peers[i].fd = -1;
    }
    memset(pending, 0, sizeof(pending));
    for (uint32_t i = 0; i < OOB_PENDING; i++)
        pending[i].fd = -1;
    rc = meet_all(oob, all, pending);
    for (uint32_t i = 0; i < OOB_PENDING; i++)
        shut(&pending[i].fd);
    shut(&oob->local);
    shut(&oob->tcp);
    return rc;
}

/* ---- messages ---- */

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
    shut(&p->fd); /* takes it from the epoll set */
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
    swl_log(SWL_LEVEL_WARN, "rank %" PRIu32 " channel: rank %" PRIu32 " sends nonsense",
            oob->config.rank, p->rank);
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
        shut(&oob->peers[i].fd);
    }
    free(oob->peers);
    shut(&oob->epoll);
    shut(&oob->local);
    shut(&oob->tcp);
    free(oob);
}
