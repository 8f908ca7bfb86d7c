/* oob.c: who connects with whom in the out-of-band channel. Layer: transport; memory: oob.h.
 *
 * Of two ranks the one with the larger number connects. A connection counts when its first message has
 * brought the secret number of the rank that listens; whoever else connects is sent away. */
#include "transport/oob_peers.h"

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

#define OOB_PENDING 16u  /* connections whose first message has not come */
#define OOB_LISTEN  1024 /* backlog */
#define POLL_NS     UINT64_C(100000)
#define PENDING_NS  UINT64_C(10000000000)
#define ATTEMPT_NS  UINT64_C(1000000000) /* of one connect over TCP */
#define SILENCE_NS  UINT64_C(1000000000) /* at least: a packet that is lost takes 200 ms and more */

struct oob_pending {
    int fd;
    uint32_t bytes;
    uint64_t until_ns;
    struct swl_oob_message in;
};

/* ---- sockets ---- */

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
        oob_shut(&fd);
    return fd;
}

static int connect_local(const struct oob_place *place)
{
    struct sockaddr_un name;
    const socklen_t bytes = local_name(place, &name);
    int fd = local_socket();

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&name, bytes) != 0)
        oob_shut(&fd);
    return fd;
}

/* A host that has lost power says nothing: the kernel asks, and gives up after the limit. The connection
 * is needed while the group is made, which a short limit of data calls does not end. */
static void watch_silence(int fd, uint64_t silence_ns)
{
    const uint64_t limit_ns = swl_max_u64(silence_ns, SILENCE_NS);
    const uint64_t s = limit_ns / UINT64_C(4000000000);
    const int yes = 1, idle = s < 1 ? 1 : s > 60 ? 60 : (int)s, count = 3;
    const unsigned ms = (unsigned)swl_min_u64(limit_ns / 1000000 + 1, 3600000);

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
        oob_shut(&p->fd);
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
            watch_silence(fd, oob->config.silence_ns);
    }
    if (fd < 0)
        return;
    hello.from = (uint16_t)oob->config.rank;
    memcpy(hello.bytes, place->nonce, sizeof(place->nonce));
    /* the first bytes of a connection fit into the kernel's buffer */
    if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello))
        adopt(oob, i, fd);
    else
        oob_shut(&fd);
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
    oob_shut(&c->fd);
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
        oob_shut(&c->fd);
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
                watch_silence(c->fd, oob->config.silence_ns);
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
        oob_shut(&pending[i].fd);
    oob_shut(&oob->local);
    oob_shut(&oob->tcp);
    return rc;
}
