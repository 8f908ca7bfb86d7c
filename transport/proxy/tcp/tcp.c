/* tcp.c: life of the TCP wire, and what its two threads call; see tcp.h. Layer:
 * transport/proxy/tcp. */
#include "transport/proxy/tcp/tcp.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/runtime/result.h"
#include "transport/host/executor.h"
#include "transport/interface.h"
#include "transport/proxy/front.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define GOODBYE_NS      500000000ull  /* for what is under way when a NIC is destroyed */
#define IDLE_SILENCE_NS 1000000000ull /* at least, of a peer of which nothing is wanted */

#define ANSWER_NS 10000000ull /* between looks for an answer, and between attempts */

static_assert(sizeof(struct tcp_address) <= sizeof(struct swl_wire_address),
              "the address travels inside the opaque one");

static ncclResult_t tcp_close(struct swl_wire *base);

static ncclResult_t open_all(struct tcp_wire *w)
{
    struct tcp_why why = {.error = 0};
    uint64_t number;

    if (getrandom(w->nonce, sizeof(w->nonce), 0) != (ssize_t)sizeof(w->nonce) ||
        getrandom(w->proof, sizeof(w->proof), 0) != (ssize_t)sizeof(w->proof))
        return swl_fail(ncclSystemError, "rank %u nic: no random numbers: %s", w->config.rank,
                        strerror(swl_socket_error()));
    memcpy(&number, w->nonce, sizeof(number));
    SWL_TRY(swl_keys_open(&w->keys, &w->config, number));
    SWL_TRY(SWL_CUDA(swl_gpu_mutex_create(&w->lock)));
    if (!swl_tcp_choose(w->config.settings.socket_ifname, &w->place, &why))
        return swl_fail(ncclSystemError, "rank %u nic: %s", w->config.rank, why.text);
    swl_log(SWL_LEVEL_INFO, "rank %u nic: interface %s: %s", w->config.rank, w->place.interface,
            why.text);
    w->listener = swl_tcp_listen(&w->place, &why);
    if (w->listener < 0)
        return swl_fail(ncclSystemError, "rank %u nic: %s", w->config.rank, why.text);
    return ncclSuccess;
}

static ncclResult_t tcp_open(struct swl_wire **wire_p, const struct swl_wire_config *config)
{
    struct tcp_wire *w = calloc(1, sizeof(*w));
    char text[80];
    ncclResult_t rc;

    if (w)
        w->pairs = calloc(config->max_qps, sizeof(*w->pairs));
    if (w == NULL || w->pairs == NULL) {
        free(w);
        return swl_no_memory("%u queue pairs", config->max_qps);
    }
    w->base.ops = swl_tcp_wire_ops();
    w->config = *config;
    w->listener = -1;
    swl_tcp_door_open(w);
    rc = open_all(w);
    if (rc != ncclSuccess) {
        (void)tcp_close(&w->base);
        return rc;
    }
    swl_tcp_text(&w->place, text, sizeof(text));
    swl_log(SWL_LEVEL_INFO, "rank %u nic: tcp at %s", config->rank, text);
    *wire_p = &w->base;
    return ncclSuccess;
}

/* What arrives is thrown away, so that closing does not take back what the peer has not read. */
static bool lingering(struct tcp_pair *p)
{
    ssize_t n = 1;

    if (p->fd < 0)
        return false;
    while (n > 0)
        n = recv(p->fd, p->in, TCP_IN_BYTES, 0);
    if (n < 0 && swl_socket_later())
        return true;
    swl_tcp_pair_hang_up(p);
    return false;
}

/* Send what is ready, then goodbye; true = more to send. */
static bool leaving(struct tcp_wire *w, struct tcp_pair *p)
{
    if (p->fd < 0 || p->shut)
        return false;
    p->gone = true; /* no more requests */
    (void)swl_tcp_pair_send(w, p);
    if (p->fd < 0 || p->out_begin < p->out_end)
        return p->fd >= 0;
    if (p->answer == 1) {
        struct tcp_frame bye = {.kind = TCP_BYE};

        swl_tcp_seal(&bye, p->out_number++);
        (void)send(p->fd, &bye, sizeof(bye), MSG_NOSIGNAL);
    }
    (void)shutdown(p->fd, SHUT_WR);
    p->shut = true;
    return false;
}

/* Nobody serves any more. Bounded: a peer that does not listen is left. */
static void say_goodbye(struct tcp_wire *w)
{
    const uint64_t deadline = swl_gpu_now_ns() + GOODBYE_NS;
    bool busy = true;

    while (busy && swl_gpu_now_ns() < deadline) {
        busy = false;
        for (uint32_t i = 0; i < w->nqps; i++) {
            struct tcp_pair *p = &w->pairs[i];

            busy = leaving(w, p) || busy;
            busy = lingering(p) || busy;
        }
        if (busy)
            swl_gpu_sleep_ns(20000);
    }
}

static ncclResult_t tcp_close(struct swl_wire *base)
{
    struct tcp_wire *w = tcp_of(base);
    ncclResult_t rc = ncclSuccess;

    say_goodbye(w);
    for (uint32_t i = 0; i < w->nqps; i++) {
        const ncclResult_t next = swl_tcp_pair_close(&w->pairs[i]);

        rc = rc != ncclSuccess ? rc : next;
    }
    swl_door_close(&w->door);
    if (w->listener >= 0)
        close(w->listener);
    if (w->lock)
        swl_gpu_mutex_destroy(w->lock);
    swl_keys_close(w->keys);
    free(w->pairs);
    free(w);
    return rc;
}

static void tcp_caps(const struct swl_wire *wire, struct swl_wire_caps *caps_p)
{
    (void)wire;
    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->max_depth = SWL_WQE_DEPTH_MAX;
    caps_p->max_qps = TCP_QPS_MAX;
    caps_p->max_region_bytes = UINT64_MAX;
}

static ncclResult_t tcp_reg_mr(struct swl_wire *wire, void *ptr, uint64_t bytes, unsigned access,
                               struct swl_nic_region *region_p)
{
    return swl_keys_register(tcp_of(wire)->keys, ptr, bytes, access, region_p);
}

static ncclResult_t tcp_dereg_mr(struct swl_wire *wire, const struct swl_nic_region *region)
{
    return swl_keys_drop(tcp_of(wire)->keys, region);
}

static ncclResult_t tcp_create_qp(struct swl_wire *wire, uint32_t *qp_p)
{
    struct tcp_wire *w = tcp_of(wire);
    struct tcp_pair *p = &w->pairs[w->nqps];
    ncclResult_t rc;

    p->qp = w->nqps;
    rc = swl_tcp_pair_open(w, p);
    swl_gpu_mutex_lock(w->lock);
    *qp_p = w->nqps++;
    swl_gpu_mutex_unlock(w->lock);
    return rc;
}

static ncclResult_t tcp_address_of(struct swl_wire *wire, uint32_t qp,
                                   struct swl_wire_address *address_p)
{
    struct tcp_wire *w = tcp_of(wire);
    struct tcp_address a;
    ncclResult_t rc;

    memset(&a, 0, sizeof(a));
    memcpy(a.nonce, w->nonce, sizeof(a.nonce));
    memcpy(a.proof, w->proof, sizeof(a.proof));
    a.qp = qp;
    swl_gpu_mutex_lock(w->lock);
    rc = swl_tcp_listen_again(w);
    a.place = w->place;
    a.generation = w->pairs[qp].generation;
    swl_gpu_mutex_unlock(w->lock);
    if (rc != ncclSuccess)
        return rc;
    memset(address_p, 0, sizeof(*address_p));
    memcpy(address_p->bytes, &a, sizeof(a));
    return ncclSuccess;
}

/* ---- connecting ---- */

/* This end listens: bind what has come already, or remember who will come. */
static ncclResult_t expect_peer(struct tcp_wire *w, struct tcp_pair *p,
                                const struct tcp_hello *peer)
{
    ncclResult_t rc = ncclSuccess;

    swl_gpu_mutex_lock(w->lock);
    if (p->state == TCP_CONNECTED &&
        (memcmp(p->peer.from, peer->from, sizeof(peer->from)) != 0 ||
         p->peer.from_qp != peer->from_qp || p->peer.from_generation != peer->from_generation)) {
        rc = swl_fail(ncclSystemError,
                      "rank %u nic: queue pair %u: somebody else than the peer has connected",
                      w->config.rank, p->qp);
    } else {
        if (p->state == TCP_IDLE)
            p->state = TCP_WAIT;
        p->peer = *peer;
        p->bound = true;
        p->moved_ns = p->heard_ns = swl_gpu_now_ns();
    }
    swl_gpu_mutex_unlock(w->lock);
    return rc;
}

/* Say hello on a new connection, and wait for the answer: 0 = none in time, else as
 * tcp_pair.answer. */
static uint32_t say_hello(struct tcp_wire *w, struct tcp_pair *p, int fd,
                          const struct tcp_hello *hello, uint64_t end)
{
    uint32_t answer = 0;

    swl_gpu_mutex_lock(w->lock);
    p->bound = true;
    swl_tcp_pair_begin(p, fd, false);
    if (!swl_tcp_send_first(fd, TCP_HELLO, 0, hello))
        swl_tcp_pair_unmet(p);
    swl_gpu_mutex_unlock(w->lock);
    while (answer == 0 && swl_gpu_now_ns() < end) {
        (void)swl_host_executor_wait("tcp: welcome of the peer", &p->answer, 1, ANSWER_NS);
        /* acquire: pairs with the release of the server */
        answer = __atomic_load_n(&p->answer, __ATOMIC_ACQUIRE);
    }
    return answer;
}

/* This end connects and waits for the welcome, which needs the peer's server only. Whoever is hung
 * up on has been taken for a stranger among many, and tries again. */
static ncclResult_t go_to_peer(struct tcp_wire *w, struct tcp_pair *p, const struct tcp_address *a,
                               const struct tcp_hello *hello)
{
    const uint64_t end = swl_gpu_now_ns() + w->config.timeout_ns;
    struct tcp_endpoint own = w->place;
    struct tcp_why why = {.error = 0};
    char here[80], time[32];
    uint32_t answer;

    own.at.v4.sin_port = 0;
    swl_tcp_text(&own, here, sizeof(here));
    swl_time_text(w->config.timeout_ns, time, sizeof(time));
    do {
        const int fd = swl_tcp_connect(&a->place, w->config.timeout_ns, &why);

        if (fd < 0)
            return swl_fail(ncclSystemError, "rank %u nic: queue pair %u, from %s: %s",
                            w->config.rank, p->qp, here, why.text);
        answer = say_hello(w, p, fd, hello, end);
        if (answer == 4)
            swl_gpu_sleep_ns(ANSWER_NS);
    } while (answer == 4 && swl_gpu_now_ns() < end);
    if (answer == 3)
        return swl_fail(ncclSystemError,
                        "rank %u nic: queue pair %u, from %s: what answers at %s is not the peer",
                        w->config.rank, p->qp, here, p->name);
    if (answer == 1)
        return ncclSuccess;
    if (answer == 2)
        return swl_fail(ncclSystemError, "rank %u nic: queue pair %u: %s refuses: %s",
                        w->config.rank, p->qp, p->name, swl_tcp_refusal_text(p->refusal));
    return swl_fail(ncclSystemError, "rank %u nic: queue pair %u, from %s: %s %s within %s",
                    w->config.rank, p->qp, here, p->name,
                    answer == 4 ? "only hangs up" : "does not answer", time);
}

static ncclResult_t tcp_connect(struct swl_wire *wire, uint32_t qp,
                                const struct swl_wire_address *peer)
{
    struct tcp_wire *w = tcp_of(wire);
    struct tcp_pair *p = &w->pairs[qp];
    struct tcp_hello mine, theirs;
    struct tcp_address a;
    bool used;
    int order;

    memcpy(&a, peer->bytes, sizeof(a));
    swl_gpu_mutex_lock(w->lock);
    used = p->bound || p->state == TCP_FAILED;
    if (!used) {
        swl_tcp_text(&a.place, p->name, sizeof(p->name));
        memcpy(p->proof, a.proof, sizeof(p->proof));
    }
    swl_gpu_mutex_unlock(w->lock);
    if (used)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: queue pair %u is connected or has failed: reset it first",
                        w->config.rank, qp);
    memset(&mine, 0, sizeof(mine));
    memcpy(mine.to, a.nonce, sizeof(mine.to));
    memcpy(mine.from, w->nonce, sizeof(mine.from));
    mine.to_qp = a.qp;
    mine.to_generation = a.generation;
    mine.from_qp = qp;
    mine.from_generation = p->generation;
    theirs = mine;
    memcpy(theirs.from, a.nonce, sizeof(theirs.from));
    theirs.from_qp = a.qp;
    theirs.from_generation = a.generation;
    order = memcmp(w->nonce, a.nonce, sizeof(a.nonce));
    if (order == 0 && qp == a.qp)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair %u cannot be its own peer",
                        w->config.rank, qp);
    if (order < 0 || (order == 0 && qp < a.qp))
        return go_to_peer(w, p, &a, &mine);
    return expect_peer(w, p, &theirs);
}

static ncclResult_t tcp_to_error(struct swl_wire *wire, uint32_t qp)
{
    struct tcp_wire *w = tcp_of(wire);
    struct tcp_pair *p = &w->pairs[qp];

    swl_gpu_mutex_lock(w->lock);
    swl_tcp_pair_hang_up(p);
    p->state = TCP_FAILED;
    p->fail_index = p->reported; /* nothing is reported any more */
    p->syndrome = 0;
    swl_gpu_mutex_unlock(w->lock);
    return ncclSuccess;
}

static ncclResult_t tcp_reset(struct swl_wire *wire, uint32_t qp)
{
    struct tcp_wire *w = tcp_of(wire);

    swl_gpu_mutex_lock(w->lock);
    swl_tcp_pair_reset(w, &w->pairs[qp]);
    swl_gpu_mutex_unlock(w->lock);
    return ncclSuccess;
}

/* ---- the serving thread ---- */

static uint32_t tcp_post(struct swl_wire *wire, uint32_t qp,
                         const struct swl_wire_request *requests, uint32_t n)
{
    struct tcp_wire *w = tcp_of(wire);
    struct tcp_pair *p = &w->pairs[qp];
    uint32_t taken = 0;

    swl_gpu_mutex_lock(w->lock);
    if (p->posted == swl_tcp_pair_limit(p))
        p->moved_ns = swl_gpu_now_ns(); /* from now on an answer is due */
    for (; taken < n && p->posted - p->reported < w->config.depth; taken++)
        p->ring[p->posted++ % w->config.depth] = requests[taken];
    swl_gpu_mutex_unlock(w->lock);
    return taken;
}

/* The news of one queue pair, at most two; returns how many. */
static uint32_t report_pair(struct tcp_pair *p, struct swl_wire_done *done)
{
    const uint64_t limit = swl_tcp_pair_limit(p);
    const uint64_t end = limit < p->fail_index ? limit : p->fail_index;
    uint32_t n = 0;

    if (end > p->reported) {
        p->reported = end;
        done[n++] = (struct swl_wire_done){end - 1, p->qp, 0};
    }
    if (p->fail_index <= limit && p->syndrome) {
        done[n++] = (struct swl_wire_done){p->fail_index, p->qp, p->syndrome};
        p->syndrome = 0;
    }
    return n;
}

static uint32_t tcp_poll(struct swl_wire *wire, struct swl_wire_done *done, uint32_t n)
{
    struct tcp_wire *w = tcp_of(wire);
    uint32_t taken = 0;

    swl_gpu_mutex_lock(w->lock);
    for (uint32_t i = 0; i < w->nqps && taken + 2 <= n; i++)
        taken += report_pair(&w->pairs[i], done + taken);
    swl_gpu_mutex_unlock(w->lock);
    return taken;
}

/* Requests that nobody will answer, and peers that are not there any more. */
static void look_at_time(struct tcp_wire *w, struct tcp_pair *p, uint64_t now)
{
    const bool wants = p->posted != swl_tcp_pair_limit(p) && p->fail_index == UINT64_MAX;
    const uint64_t limit = w->config.silence_ns;
    /* a group that is made, or that rests, does not end by a short limit of calls */
    const uint64_t silence = wants ? limit : swl_max_u64(limit, IDLE_SILENCE_NS);
    char text[200], here[80];

    if (p->state == TCP_FAILED)
        return;
    if (wants && p->state == TCP_WAIT)
        swl_tcp_text(&w->place, here, sizeof(here));
    if (wants && p->shut)
        snprintf(text, sizeof(text), "the peer's NIC has been destroyed");
    else if (swl_tcp_pair_alive(p) && now > p->heard_ns + silence)
        snprintf(text, sizeof(text),
                 "nothing has come from it for %llu ms: its process, its host or the network hangs",
                 (unsigned long long)(silence / 1000000));
    else if (wants && now > p->moved_ns + limit)
        snprintf(text, sizeof(text), "%s%s for %llu ms",
                 p->state == TCP_WAIT ? "it has not connected to " : "nothing has moved",
                 p->state == TCP_WAIT ? here : "", (unsigned long long)(limit / 1000000));
    else
        return;
    swl_tcp_pair_fail(w, p, SWL_SYNDROME_RETRY, text);
}

static uint64_t shifted(uint64_t ns, uint64_t gap, uint64_t now)
{
    return ns + gap < now ? ns + gap : now;
}

/* Time in which this server did not run, as its process was stopped, is nobody else's silence. */
static void forgive(struct tcp_wire *w, uint64_t now)
{
    const uint64_t gap = now - w->looked_ns;

    w->looked_ns = now;
    if (gap < w->config.silence_ns / 8)
        return;
    for (uint32_t i = 0; i < w->nqps; i++) {
        w->pairs[i].moved_ns = shifted(w->pairs[i].moved_ns, gap, now);
        w->pairs[i].heard_ns = shifted(w->pairs[i].heard_ns, gap, now);
    }
}

static bool tcp_progress(struct swl_wire *wire)
{
    struct tcp_wire *w = tcp_of(wire);
    const uint64_t now = swl_gpu_now_ns();
    bool moved;

    swl_gpu_mutex_lock(w->lock);
    forgive(w, now);
    moved = swl_tcp_accept_all(w);
    for (uint32_t i = 0; i < w->nqps; i++) {
        struct tcp_pair *p = &w->pairs[i];

        moved = swl_tcp_pair_receive(w, p) || moved;
        moved = swl_tcp_pair_send(w, p) || moved;
        look_at_time(w, p, now);
    }
    swl_gpu_mutex_unlock(w->lock);
    return moved;
}

const struct swl_wire_ops *swl_tcp_wire_ops(void)
{
    static const struct swl_wire_ops ops = {
        .name = "tcp",
        .open = tcp_open,
        .close = tcp_close,
        .caps = tcp_caps,
        .reg_mr = tcp_reg_mr,
        .dereg_mr = tcp_dereg_mr,
        .create_qp = tcp_create_qp,
        .address = tcp_address_of,
        .connect = tcp_connect,
        .to_error = tcp_to_error,
        .reset = tcp_reset,
        .post = tcp_post,
        .poll = tcp_poll,
        .progress = tcp_progress,
    };

    return &ops;
}

static ncclResult_t tcp_create(struct swl_nic **nic_p, const struct swl_nic_config *config)
{
    return swl_proxy_create(nic_p, config, swl_tcp_ops(), swl_tcp_wire_ops());
}

const struct swl_nic_ops *swl_tcp_ops(void)
{
    static const struct swl_nic_ops ops = SWL_PROXY_OPS("tcp", tcp_create);

    return &ops;
}
