/* control.c: who connects with whom in the control connections. Layer: transport; memory:
 * control.h.
 *
 * Of two ranks the one with the larger number connects. Its hello brings the secret of the rank
 * that listens, the welcome brings its own: each end knows that the other one is of this group.
 * Whoever else connects is sent away (door.h). A rank that is hung up on before it is welcome calls
 * again, and the latest call counts. Local sockets serve ranks of one process: the kernel says
 * whose the other end is. */
#include "transport/control_internal.h"

#include "src/base/door.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/runtime/runtime.h"
#include "transport/interface.h"
#include "transport/strangers.h"

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
#include <unistd.h>

#define CONTROL_LISTEN 1024 /* backlog */
#define CONTROL_ACCEPT 256  /* connections of a port taken at a time */
#define POLL_NS        UINT64_C(100000)
#define AGAIN_NS       UINT64_C(5000000)    /* between calls of a peer */
#define ATTEMPT_NS     UINT64_C(1000000000) /* of one connect over TCP */
#define LOCAL_NAME     48u
#define SILENCE_NS     UINT64_C(1000000000) /* at least: a lost packet takes 200 ms and more */

/* What exists only while the ranks meet. */
struct control_meeting {
    const struct swl_control_address *all;
    uint64_t end_ns;
    struct swl_door door;
};

/* ---- sockets ---- */

/* Everybody can read it in /proc/net/unix, so it tells nothing. */
static void local_name(const struct control_endpoint *place, char name[LOCAL_NAME])
{
    int n = snprintf(name, LOCAL_NAME, "swimlane-");

    for (size_t i = 0; i < sizeof(place->name); i++)
        n += snprintf(name + n, LOCAL_NAME - (size_t)n, "%02x", place->name[i]);
}

static int listen_local(const struct control_endpoint *place)
{
    char name[LOCAL_NAME];

    local_name(place, name);
    return swl_socket_listen_local(name, CONTROL_LISTEN);
}

/* -EPERM: another process listens there. */
static int connect_local(const struct control_endpoint *place)
{
    char name[LOCAL_NAME];
    int fd;

    local_name(place, name);
    fd = swl_socket_connect_local(name);
    if (fd < 0 || swl_socket_of_process(fd))
        return fd;
    close(fd);
    return -EPERM;
}

/* A host that has lost power says nothing: the kernel asks, and gives up after the limit. The
 * connection is needed while the group is made, which a short limit of data calls does not end. */
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

static int listen_tcp(struct swl_control *control)
{
    struct tcp_endpoint *place = &control->place.at;
    struct tcp_why why = {.error = 0};
    char text[80];
    int fd = -1;

    if (swl_tcp_choose(control->config.socket_ifname, place, &why)) {
        swl_log(SWL_LEVEL_DEBUG, "rank %" PRIu32 " control connection: interface %s: %s",
                control->config.rank, place->interface, why.text);
        fd = swl_tcp_listen(place, &why);
    }
    swl_tcp_text(place, text, sizeof(text));
    swl_log(SWL_LEVEL_INFO, "rank %" PRIu32 " control connection: %s%s", control->config.rank,
            fd >= 0 ? "listens at " : "", fd >= 0 ? text : why.text);
    return fd;
}

static bool random_bytes(uint8_t bytes[16])
{
    return getrandom(bytes, 16, 0) == 16;
}

ncclResult_t swl_control_open(struct swl_control **control_p,
                              const struct swl_control_config *config,
                              struct swl_control_address *mine_p)
{
    struct swl_control *control = swl_calloc(1, sizeof(*control), "the control connections");

    memset(mine_p, 0, sizeof(*mine_p));
    if (control == NULL)
        return ncclSystemError;
    control->config = *config;
    control->local = control->tcp = control->epoll = -1;
    control->place.process = config->process;
    if (random_bytes(control->place.nonce) && random_bytes(control->place.name)) {
        control->local = listen_local(&control->place);
        control->tcp = listen_tcp(control);
    }
    control->place.has_local = control->local >= 0;
    control->place.has_tcp = control->tcp >= 0;
    memcpy(mine_p->bytes, &control->place, sizeof(control->place));
    *control_p = control;
    return ncclSuccess;
}

static struct control_endpoint endpoint_of(const struct swl_control_address *address)
{
    struct control_endpoint place;

    memcpy(&place, address->bytes, sizeof(place));
    return place;
}

/* Can rank r and every one before it mean each other by their addresses? */
static bool reaches_before(const struct swl_control_address *all, uint32_t r, char *why,
                           size_t why_bytes)
{
    const struct control_endpoint mine = endpoint_of(&all[r]);
    char one[80], other[80];

    for (uint32_t i = 0; i < r; i++) {
        const struct control_endpoint place = endpoint_of(&all[i]);

        if (swl_tcp_reaches(&place.at, &mine.at))
            continue;
        swl_tcp_text(&place.at, one, sizeof(one));
        swl_tcp_text(&mine.at, other, sizeof(other));
        snprintf(why, why_bytes,
                 "rank %" PRIu32 " listens at %s and rank %" PRIu32
                 ", on another host, at %s: neither reaches the other",
                 i, one, r, other);
        return false;
    }
    return true;
}

bool swl_control_possible(const struct swl_control_address *all, uint32_t nranks, char *why,
                          size_t why_bytes)
{
    const struct control_endpoint first = endpoint_of(&all[0]);
    bool multi_process = false;

    for (uint32_t r = 1; r < nranks; r++)
        multi_process = multi_process || endpoint_of(&all[r]).process != first.process;
    for (uint32_t r = 0; r < nranks; r++) {
        const struct control_endpoint place = endpoint_of(&all[r]);

        if (place.has_local && (!multi_process || place.has_tcp))
            continue;
        snprintf(why, why_bytes, "rank %" PRIu32 " cannot listen at %s", r,
                 place.has_local ? "any network interface" : "a local socket");
        return false;
    }
    for (uint32_t r = 1; multi_process && r < nranks; r++)
        if (!reaches_before(all, r, why, why_bytes))
            return false;
    return true;
}

/* ---- connecting ---- */

static bool watch_peer(struct swl_control *control, uint32_t i)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};

    return epoll_ctl(control->epoll, EPOLL_CTL_ADD, control->peers[i].fd, &event) == 0;
}

static void adopt(struct swl_control *control, uint32_t i, int fd)
{
    struct control_peer *p = &control->peers[i];

    p->fd = fd;
    p->state = CONTROL_CONNECTED;
    if (!watch_peer(control, i)) {
        control_hang_up(control, p);
        p->state = CONTROL_NONE;
    }
}

static bool send_secret(struct swl_control *control, int fd, uint16_t kind,
                        const uint8_t secret[16])
{
    struct swl_control_message m = {.magic = CONTROL_MAGIC, .kind = kind};

    m.from = (uint16_t)control->config.rank;
    memcpy(m.bytes, secret, 16);
    /* the first bytes of a connection fit into the kernel's buffer */
    return send(fd, &m, sizeof(m), MSG_NOSIGNAL) == (ssize_t)sizeof(m);
}

/* One attempt; a listener whose backlog is full, or that does not listen yet, is asked again. */
static void call_peer(struct swl_control *control, struct control_peer *p,
                      const struct control_endpoint *place)
{
    struct tcp_why why = {.error = 0};
    int fd;

    if (place->process == control->place.process) {
        fd = connect_local(place);
        why.error = fd < 0 ? -fd : 0;
    } else {
        fd = swl_tcp_connect(&place->at, swl_min_u64(control->config.timeout_ns, ATTEMPT_NS), &why);
        if (fd >= 0)
            watch_silence(fd, control->config.silence_ns);
    }
    /* a full backlog says less than what an earlier call met */
    if (fd >= 0 || p->error == 0 || why.error != EAGAIN)
        p->error = fd < 0 ? why.error : 0;
    p->in_bytes = 0;
    p->fd = fd;
    if (fd >= 0 && send_secret(control, fd, SWL_CONTROL_HELLO, place->nonce))
        p->state = CONTROL_CALLED;
    else
        control_hang_up(control, p);
}

/* The welcome may be there. Whoever says anything else, or hangs up, is called again. */
static void hear_welcome(struct swl_control *control, uint32_t i)
{
    struct control_peer *p = &control->peers[i];
    const ssize_t n = recv(p->fd, (char *)&p->in + p->in_bytes, sizeof(p->in) - p->in_bytes, 0);

    if (n < 0 && swl_socket_later())
        return;
    p->in_bytes += n > 0 ? (uint32_t)n : 0;
    if (n > 0 && p->in_bytes < sizeof(p->in))
        return;
    p->in_bytes = 0;
    if (n > 0 && p->in.magic == CONTROL_MAGIC && p->in.kind == SWL_CONTROL_WELCOME &&
        p->in.from == p->rank && memcmp(p->in.bytes, control->place.nonce, 16) == 0) {
        adopt(control, i, p->fd);
        return;
    }
    control_hang_up(control, p);
    p->state = CONTROL_NONE;
}

/* Call the peers with smaller numbers that are missing, and listen to those that have been
 * called. */
static void call_all(struct swl_control *control, const struct control_meeting *m, bool again)
{
    for (uint32_t i = 0; i < control->npeers; i++) {
        struct control_peer *p = &control->peers[i];

        if (again && p->state == CONTROL_NONE && p->rank < control->config.rank &&
            swl_gpu_now_ns() < m->end_ns) {
            const struct control_endpoint place = endpoint_of(&m->all[p->rank]);

            call_peer(control, p, &place);
        }
        if (p->state == CONTROL_CALLED)
            hear_welcome(control, i);
    }
}

static void say_strangers(void *owner, uint64_t n)
{
    swl_say_strangers(((const struct swl_control *)owner)->config.rank, "control connection", n);
}

static bool like_hello(const uint8_t *in, size_t bytes)
{
    const struct swl_control_message hello = {.magic = CONTROL_MAGIC, .kind = SWL_CONTROL_HELLO};
    const size_t known = offsetof(struct swl_control_message, from);

    return memcmp(in, &hello, bytes < known ? bytes : known) == 0;
}

/* A whole hello is there: the connection becomes a peer's, or ends. A peer that calls a second time
 * has hung up the first. */
static void introduce_peer(struct swl_control *control, struct control_meeting *meeting,
                           struct swl_door_guest *g)
{
    struct swl_control_message m;
    struct control_endpoint place;
    uint32_t i;

    memcpy(&m, g->in, sizeof(m));
    i = swl_control_peer(control, m.from);
    if (i == UINT32_MAX || m.from <= control->config.rank ||
        memcmp(m.bytes, control->place.nonce, sizeof(control->place.nonce)) != 0) {
        swl_door_refuse(&meeting->door, g);
        return;
    }
    place = endpoint_of(&meeting->all[m.from]);
    control_hang_up(control, &control->peers[i]);
    control->peers[i].state = CONTROL_NONE;
    control->peers[i].fd = swl_door_take(&meeting->door, g);
    if (send_secret(control, control->peers[i].fd, SWL_CONTROL_WELCOME, place.nonce))
        adopt(control, i, control->peers[i].fd);
    else
        control_hang_up(control, &control->peers[i]);
}

/* After every one who comes: who has said hello goes in before more come. */
static void hear_guests(struct swl_control *control, struct control_meeting *m)
{
    struct swl_door_guest *g;

    while ((g = swl_door_next(&m->door)) != NULL)
        introduce_peer(control, m, g);
}

static void accept_all(struct swl_control *control, struct control_meeting *m)
{
    int fd = 0;

    for (int i = 0; i < CONTROL_ACCEPT && fd >= 0 && control->local >= 0; i++) {
        fd = swl_socket_accept(control->local);
        if (fd >= 0 && swl_socket_of_process(fd)) {
            swl_door_enter(&m->door, fd);
        } else if (fd >= 0) {
            close(fd);
            swl_door_count(&m->door);
        }
        hear_guests(control, m);
    }
    fd = 0;
    for (int i = 0; i < CONTROL_ACCEPT && fd >= 0 && control->tcp >= 0; i++) {
        fd = swl_socket_accept(control->tcp);
        if (fd >= 0) {
            watch_silence(fd, control->config.silence_ns);
            swl_door_enter(&m->door, fd);
        }
        hear_guests(control, m);
    }
    hear_guests(control, m);
}

/* Could this process open one more? */
static bool descriptors_left(const struct swl_control *control)
{
    int fd = fcntl(control->epoll, F_DUPFD_CLOEXEC, 0);
    const bool left = fd >= 0;

    if (left)
        close(fd);
    return left;
}

static uint32_t first_missing(const struct swl_control *control)
{
    for (uint32_t i = 0; i < control->npeers; i++)
        if (control->peers[i].state != CONTROL_CONNECTED)
            return i;
    return UINT32_MAX;
}

/* Why the last call of this peer did not connect. */
static const char *reason_of(const struct control_peer *p, bool local)
{
    if (local && p->error == EPERM)
        return "another process listens there";
    return p->error ? strerror(p->error) : "no welcome came";
}

/* The limit has passed and this peer is missing: what was tried, and how that ended. */
static ncclResult_t fail_missing(const struct swl_control *control, const struct control_meeting *m,
                                 const struct control_peer *p)
{
    const struct control_endpoint place = endpoint_of(&m->all[p->rank]);
    const bool local = place.process == control->place.process,
               caller = p->rank < control->config.rank;
    struct tcp_endpoint own = control->place.at, other = place.at;
    char time[32], here[80], there[80];

    /* the port is that of who listens */
    (caller ? &own : &other)->at.v4.sin_port = 0;
    swl_tcp_text(&own, here, sizeof(here));
    swl_tcp_text(&other, there, sizeof(there));
    swl_time_text(control->config.timeout_ns, time, sizeof(time));
    return swl_fail(
        ncclSystemError,
        "rank %" PRIu32 " control connection: rank %" PRIu32
        " has not connected within %s: %s %s, this rank %s %s: %s%s",
        control->config.rank, p->rank, time, caller ? "it listens at" : "it would come from",
        local ? "a local socket" : there, caller ? "calls from" : "listens at",
        local ? "a local socket" : here, caller ? reason_of(p, local) : "no call came",
        descriptors_left(control) ? "" : "; this process has no descriptor left (ulimit -n)");
}

static ncclResult_t meet_all(struct swl_control *control, struct control_meeting *m)
{
    uint64_t called_ns = 0;

    for (;;) {
        const uint64_t now = swl_gpu_now_ns();
        const bool again = called_ns == 0 || now - called_ns >= AGAIN_NS;

        call_all(control, m, again);
        called_ns = again ? now : called_ns;
        accept_all(control, m);
        if (first_missing(control) == UINT32_MAX)
            return ncclSuccess;
        if (now >= m->end_ns)
            break;
        swl_gpu_sleep_ns(POLL_NS);
    }
    return fail_missing(control, m, &control->peers[first_missing(control)]);
}

ncclResult_t swl_control_connect(struct swl_control *control, const struct swl_control_address *all,
                                 const uint32_t *peers, uint32_t npeers)
{
    const struct swl_door_rules rules = {.hello_bytes = sizeof(struct swl_control_message),
                                         .like = like_hello,
                                         .now_ns = swl_gpu_now_ns,
                                         .tell = say_strangers,
                                         .owner = control};
    struct control_meeting *m = malloc(sizeof(*m));
    ncclResult_t rc;

    control->peers = calloc(npeers + 1u, sizeof(*control->peers));
    if (control->peers != NULL && m != NULL)
        control->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (control->peers == NULL || m == NULL || control->epoll < 0) {
        free(m);
        return swl_fail(
            ncclSystemError,
            "rank %" PRIu32 " control connection: no room for %" PRIu32 " connections: %s%s",
            control->config.rank, npeers, strerror(errno), errno == EMFILE ? " (ulimit -n)" : "");
    }
    control->npeers = npeers;
    for (uint32_t i = 0; i < npeers; i++) {
        control->peers[i].rank = peers[i];
        control->peers[i].fd = -1;
    }
    m->all = all;
    m->end_ns = swl_gpu_now_ns() + control->config.timeout_ns;
    swl_door_open(&m->door, &rules);
    rc = meet_all(control, m);
    swl_door_close(&m->door);
    free(m);
    control_shut(&control->local);
    control_shut(&control->tcp);
    return rc;
}
