/* verbs_cm.c: see verbs_cm.h. Layer: transport/proxy. The wire owns everything here until
 * swl_verbs_cm_close; ids are of one event channel, which never blocks. */
#include "transport/proxy/verbs_cm.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/gpu.h"
#include "transport/proxy/verbs_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define GREETING_ID    0x73776c31u
#define LOOK_EVERY     256 /* calls of progress, where no connection is being made */
#define READS_MAX      16
#define EVENTS_MAX     64 /* of one call */
#define RESOLVE_MAX_MS 60000

/* What travels with a request to connect. */
struct greeting {
    uint32_t id;
    uint8_t to[VERBS_NUMBER_BYTES], from[VERBS_NUMBER_BYTES];
};

/* A request, held until the host connects the queue pair that it is for. */
struct request {
    struct cm_id *id;
    struct greeting greeting;
    uint8_t reads_in, reads_out;
};

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct verbs_cm {
    pthread_mutex_t lock;
    struct swl_cm calls;
    struct cm_channel *channel;
    struct cm_id *listener;
    union address at;
    struct request *requests; /* [max_qps] */
    uint32_t nrequests, looks;
};

/* ---- opening ---- */

/* May others reach it? 0: no; IPv4 is tried before IPv6. */
static int rank_of(const struct sockaddr *any)
{
    const union address *a = (const union address *)(const void *)any;

    if (any != NULL && any->sa_family == AF_INET)
        return ntohl(a->v4.sin_addr.s_addr) >> 16 == 0xa9fe ? 0 : 2;
    if (any != NULL && any->sa_family == AF_INET6)
        return IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr) ? 0 : 1;
    return 0;
}

/* An id that is bound to this address and through it to the device; NULL: the address is another's. */
static struct cm_id *bind_to(const struct verbs_cm *cm, const struct swl_verbs *verbs,
                             const char *device, union address *at)
{
    struct cm_id *id = NULL;

    if (cm->calls.rdma_create_id(cm->channel, &id, NULL, CM_PORT_SPACE_TCP) != 0)
        return NULL;
    if (cm->calls.rdma_bind_addr(id, &at->any) == 0 && id->verbs != NULL &&
        strcmp(verbs->ibv_get_device_name((struct ibv_device *)id->verbs->device), device) == 0)
        return id;
    (void)cm->calls.rdma_destroy_id(id);
    return NULL;
}

/* The first address of this host that the device has. */
static bool find_address(struct verbs_cm *cm, const struct swl_verbs *verbs, const char *device)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) != 0)
        return false;
    for (int rank = 2; rank > 0 && cm->listener == NULL; rank--)
        for (const struct ifaddrs *i = all; i != NULL && cm->listener == NULL; i = i->ifa_next) {
            if (rank_of(i->ifa_addr) != rank)
                continue;
            memset(&cm->at, 0, sizeof(cm->at));
            memcpy(&cm->at, i->ifa_addr, rank == 2 ? sizeof(cm->at.v4) : sizeof(cm->at.v6));
            cm->at.v4.sin_port = 0; /* of both families */
            cm->listener = bind_to(cm, verbs, device, &cm->at);
        }
    freeifaddrs(all);
    return cm->listener != NULL;
}

static bool open_channel(struct verbs_cm *cm)
{
    int flags;

    cm->channel = cm->calls.rdma_create_event_channel();
    if (cm->channel == NULL)
        return false;
    flags = fcntl(cm->channel->fd, F_GETFL);
    return flags >= 0 && fcntl(cm->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static void shut(struct verbs_cm *cm)
{
    if (cm->listener)
        (void)cm->calls.rdma_destroy_id(cm->listener);
    if (cm->channel)
        cm->calls.rdma_destroy_event_channel(cm->channel);
    swl_cm_unload(&cm->calls);
}

/* Channel and bound listener, or why not; `shut` follows in both cases. */
static bool open_bound(struct verbs_cm *cm, const struct swl_cm *calls,
                       const struct swl_verbs *verbs, const char *device, char *why,
                       size_t why_bytes)
{
    if (calls)
        cm->calls = *calls;
    else if (!swl_cm_load(&cm->calls, NULL, why, why_bytes))
        return false;
    errno = 0;
    if (!open_channel(cm)) {
        snprintf(why, why_bytes, "%s cannot connect (kernel module rdma_ucm): %s", device,
                 errno ? strerror(errno) : "no reason given");
        return false;
    }
    if (find_address(cm, verbs, device))
        return true;
    snprintf(why, why_bytes, "%s is an iWARP device whose network interface has no IP address",
             device);
    return false;
}

bool swl_verbs_cm_usable(const struct swl_verbs *verbs, const char *device, char *why,
                         size_t why_bytes)
{
    struct verbs_cm cm;
    bool ok;

    memset(&cm, 0, sizeof(cm));
    ok = open_bound(&cm, NULL, verbs, device, why, why_bytes);
    shut(&cm);
    return ok;
}

ncclResult_t swl_verbs_cm_open(struct verbs_wire *w, const struct swl_cm *calls)
{
    struct verbs_cm *cm = calloc(1, sizeof(*cm));
    char why[256];

    if (cm != NULL)
        cm->requests = calloc(w->max_qps, sizeof(*cm->requests));
    if (cm == NULL || cm->requests == NULL) {
        free(cm);
        return swl_fail(ncclSystemError, "rank %u nic: no memory for the connections of %s",
                        w->rank, w->port.name);
    }
    (void)pthread_mutex_init(&cm->lock, NULL);
    w->cm = cm;
    if (!open_bound(cm, calls, &w->verbs, w->port.name, why, sizeof(why)))
        return swl_fail(ncclSystemError, "rank %u nic: %s", w->rank, why);
    errno = 0;
    if (cm->calls.rdma_listen(cm->listener, (int)w->max_qps + 1) != 0)
        return swl_fail(ncclSystemError, "rank %u nic: %s does not listen: %s", w->rank,
                        w->port.name, errno ? strerror(errno) : "no reason given");
    cm->at.v4.sin_port = cm->calls.rdma_get_src_port(cm->listener);
    return ncclSuccess;
}

static void refuse(const struct verbs_cm *cm, struct cm_id *id)
{
    (void)cm->calls.rdma_reject(id, NULL, 0);
    (void)cm->calls.rdma_destroy_id(id);
}

void swl_verbs_cm_close(struct verbs_wire *w)
{
    struct verbs_cm *cm = w->cm;

    if (cm == NULL)
        return;
    for (uint32_t i = 0; i < cm->nrequests; i++)
        refuse(cm, cm->requests[i].id);
    shut(cm);
    (void)pthread_mutex_destroy(&cm->lock);
    free(cm->requests);
    free(cm);
    w->cm = NULL;
}

/* ---- host ---- */

void swl_verbs_cm_lock(const struct verbs_wire *w)
{
    if (w->cm)
        (void)pthread_mutex_lock(&w->cm->lock);
}

void swl_verbs_cm_unlock(const struct verbs_wire *w)
{
    if (w->cm)
        (void)pthread_mutex_unlock(&w->cm->lock);
}

ncclResult_t swl_verbs_cm_number(const struct verbs_wire *w, struct verbs_queue *q)
{
    errno = 0;
    if (getrandom(q->link.number, sizeof(q->link.number), 0) == (ssize_t)sizeof(q->link.number))
        return ncclSuccess;
    return swl_fail(ncclSystemError, "rank %u nic: %s has no random numbers: %s", w->rank,
                    w->port.name, strerror(errno));
}

void swl_verbs_cm_place(const struct verbs_wire *w, const struct verbs_queue *q,
                        struct verbs_place *place_p)
{
    const union address *at = &w->cm->at;

    memset(place_p, 0, sizeof(*place_p));
    memcpy(place_p->number, q->link.number, sizeof(place_p->number));
    place_p->family = at->any.sa_family;
    place_p->port = at->v4.sin_port;
    if (at->any.sa_family == AF_INET)
        memcpy(place_p->ip, &at->v4.sin_addr, sizeof(at->v4.sin_addr));
    else
        memcpy(place_p->ip, &at->v6.sin6_addr, sizeof(at->v6.sin6_addr));
}

static union address address_of(const struct verbs_place *place)
{
    union address a;

    memset(&a, 0, sizeof(a));
    a.any.sa_family = place->family;
    a.v4.sin_port = place->port;
    if (place->family == AF_INET)
        memcpy(&a.v4.sin_addr, place->ip, sizeof(a.v4.sin_addr));
    else
        memcpy(&a.v6.sin6_addr, place->ip, sizeof(a.v6.sin6_addr));
    return a;
}

/* Nothing comes of it any more; whoever wants something from the peer is told. */
static void lose(const struct verbs_wire *w, struct verbs_queue *q, const char *what)
{
    if (!q->lost)
        swl_log(SWL_LEVEL_DEBUG, "rank %u nic: %s queue pair 0x%06x: %s", w->rank, w->port.name,
                q->qp->qp_num, what);
    q->lost = true;
    q->link.waits = false;
}

static uint8_t least(uint32_t a, uint32_t b, uint32_t c)
{
    const uint32_t ab = a < b ? a : b;

    return (uint8_t)(ab < c ? ab : c);
}

static struct cm_param param_of(const struct verbs_wire *w, const struct verbs_queue *q,
                                uint32_t reads_in, uint32_t reads_out)
{
    const struct cm_param p = {
        .responder_resources = least((uint32_t)w->attr.max_qp_rd_atom, reads_in, READS_MAX),
        .initiator_depth = least((uint32_t)w->attr.max_qp_init_rd_atom, reads_out, READS_MAX),
        .retry_count = 7,
        .rnr_retry_count = 7,
        .qp_num = q->qp->qp_num};

    return p;
}

static void accept_request(struct verbs_wire *w, struct verbs_queue *q, const struct request *r)
{
    struct cm_param p = param_of(w, q, r->reads_in, r->reads_out);

    if (w->cm->calls.rdma_accept(r->id, &p) == 0) {
        q->link.id = r->id;
        return;
    }
    refuse(w->cm, r->id);
    lose(w, q, "librdmacm does not accept its connection");
}

static bool is_for(const struct request *r, const struct verbs_queue *q)
{
    return memcmp(r->greeting.to, q->link.number, VERBS_NUMBER_BYTES) == 0;
}

static bool is_from_peer(const struct request *r, const struct verbs_queue *q)
{
    return memcmp(r->greeting.from, q->link.peer.number, VERBS_NUMBER_BYTES) == 0;
}

/* Requests for this queue pair that were held: the peer's is accepted if it is wanted, others go. */
static void take_held(struct verbs_wire *w, struct verbs_queue *q)
{
    struct verbs_cm *cm = w->cm;

    for (uint32_t i = 0; i < cm->nrequests;) {
        const struct request r = cm->requests[i];

        if (!is_for(&r, q)) {
            i++;
            continue;
        }
        cm->requests[i] = cm->requests[--cm->nrequests];
        if (q->link.waits && !q->link.active && !q->link.id && is_from_peer(&r, q))
            accept_request(w, q, &r);
        else
            refuse(cm, r.id);
    }
}

ncclResult_t swl_verbs_cm_connect(struct verbs_wire *w, struct verbs_queue *q,
                                  const struct verbs_place *peer)
{
    struct verbs_cm *cm = w->cm;
    union address from = cm->at, to = address_of(peer);
    const uint64_t ms = w->timeout_ns / 1000000 + 1;
    const int timeout_ms = ms < RESOLVE_MAX_MS ? (int)ms : RESOLVE_MAX_MS;

    from.v4.sin_port = 0;
    q->link.peer = *peer;
    q->link.deadline_ns = swl_gpu_now_ns() + w->timeout_ns;
    q->link.active = memcmp(q->link.number, peer->number, VERBS_NUMBER_BYTES) < 0;
    errno = 0;
    if (q->link.active &&
        (cm->calls.rdma_create_id(cm->channel, &q->link.id, NULL, CM_PORT_SPACE_TCP) != 0 ||
         cm->calls.rdma_resolve_addr(q->link.id, &from.any, &to.any, timeout_ms) != 0))
        return swl_fail(ncclSystemError, "rank %u nic: %s does not begin to connect: %s", w->rank,
                        w->port.name, errno ? strerror(errno) : "no reason given");
    q->link.waits = true;
    take_held(w, q);
    return ncclSuccess;
}

void swl_verbs_cm_leave(struct verbs_wire *w, struct verbs_queue *q)
{
    q->link.waits = q->link.established = q->link.heard = false;
    take_held(w, q);
    if (q->link.id)
        (void)w->cm->calls.rdma_destroy_id(q->link.id);
    q->link.id = NULL;
}

/* ---- serving thread ---- */

/* Both ends may send from here on. */
static void open_link(struct verbs_queue *q)
{
    if (!q->link.waits || !q->link.established || !(q->link.active || q->link.heard))
        return;
    q->link.waits = false;
    q->open = true;
}

void swl_verbs_cm_heard(struct verbs_queue *q)
{
    q->link.heard = true;
    open_link(q);
}

/* The first message of a connection; nothing comes of its completion. */
static int greet(const struct verbs_queue *q)
{
    struct verbs_message message = {.magic = VERBS_MESSAGE_GREETING};
    struct verbs_sge sge = {(uintptr_t)&message, sizeof(message), 0};
    struct verbs_send_wr wr = {.wr_id = VERBS_ID_ACK,
                               .sg_list = &sge,
                               .num_sge = 1,
                               .opcode = VERBS_WR_SEND,
                               .send_flags = VERBS_SEND_INLINE};

    return swl_verbs_post_send(q, &wr);
}

static int ask_to_connect(struct verbs_wire *w, struct verbs_queue *q)
{
    struct cm_param p = param_of(w, q, READS_MAX, READS_MAX);
    struct greeting g = {.id = GREETING_ID};

    memcpy(g.to, q->link.peer.number, sizeof(g.to));
    memcpy(g.from, q->link.number, sizeof(g.from));
    p.private_data = &g;
    p.private_data_len = sizeof(g);
    return w->cm->calls.rdma_connect(q->link.id, &p);
}

static void take_link_event(struct verbs_wire *w, struct verbs_queue *q, uint32_t event)
{
    switch (event) {
    case CM_ADDR_RESOLVED:
        if (w->cm->calls.rdma_resolve_route(q->link.id, RESOLVE_MAX_MS) != 0)
            lose(w, q, "librdmacm finds no route");
        break;
    case CM_ROUTE_RESOLVED:
        if (ask_to_connect(w, q) != 0)
            lose(w, q, "librdmacm does not connect");
        break;
    case CM_ESTABLISHED:
        q->link.established = true;
        if (q->link.active && q->link.waits && greet(q) != 0)
            lose(w, q, "the device refuses a greeting");
        open_link(q);
        break;
    case CM_ADDR_ERROR:
    case CM_ROUTE_ERROR:
    case CM_UNREACHABLE:
        lose(w, q, "its peer cannot be reached");
        break;
    case CM_CONNECT_ERROR:
    case CM_REJECTED:
        lose(w, q, "its peer does not connect");
        break;
    case CM_DISCONNECTED:
    case CM_DEVICE_REMOVAL:
        lose(w, q, "the connection has ended");
        break;
    default:
        break;
    }
}

/* A request to connect: for a queue pair that waits for it, or that the host has not connected yet. */
static void take_request(struct verbs_wire *w, const struct request *r, bool whole)
{
    struct verbs_cm *cm = w->cm;
    const uint32_t nqps = __atomic_load_n(&w->nqps, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; whole && i < nqps; i++) {
        struct verbs_queue *q = &w->queues[i];

        if (!is_for(r, q) || cm->nrequests == w->max_qps)
            continue;
        cm->requests[cm->nrequests++] = *r;
        (void)pthread_mutex_lock(&q->lock);
        if (q->connected)
            take_held(w, q);
        (void)pthread_mutex_unlock(&q->lock);
        return;
    }
    refuse(cm, r->id);
}

static void take_event(struct verbs_wire *w, struct cm_event *event)
{
    struct verbs_cm *cm = w->cm;
    const uint32_t nqps = __atomic_load_n(&w->nqps, __ATOMIC_ACQUIRE);
    const uint32_t kind = event->event;
    struct request r = {
        event->id, {0}, event->conn.responder_resources, event->conn.initiator_depth};
    /* some devices fill the data up with zeros */
    const bool whole = kind == CM_CONNECT_REQUEST && event->conn.private_data != NULL &&
                       event->conn.private_data_len >= sizeof(r.greeting);

    if (whole)
        memcpy(&r.greeting, event->conn.private_data, sizeof(r.greeting));
    (void)cm->calls.rdma_ack_cm_event(event);
    if (kind == CM_CONNECT_REQUEST) {
        take_request(w, &r, whole && r.greeting.id == GREETING_ID);
        return;
    }
    for (uint32_t i = 0; i < nqps; i++) {
        struct verbs_queue *q = &w->queues[i];

        if (q->link.id != r.id)
            continue;
        (void)pthread_mutex_lock(&q->lock);
        take_link_event(w, q, kind);
        (void)pthread_mutex_unlock(&q->lock);
        break;
    }
}

/* True: a connection is being made. */
static bool look_at_deadlines(struct verbs_wire *w)
{
    const uint32_t nqps = __atomic_load_n(&w->nqps, __ATOMIC_ACQUIRE);
    bool any = false;

    for (uint32_t i = 0; i < nqps; i++) {
        struct verbs_queue *q = &w->queues[i];

        (void)pthread_mutex_lock(&q->lock);
        if (q->link.waits && swl_gpu_now_ns() > q->link.deadline_ns)
            lose(w, q, "its peer has not connected within the time limit");
        any = any || q->link.waits;
        (void)pthread_mutex_unlock(&q->lock);
    }
    return any;
}

bool swl_verbs_cm_progress(struct verbs_wire *w)
{
    struct verbs_cm *cm = w->cm;
    struct cm_event *event;
    bool any;

    if (cm == NULL || pthread_mutex_trylock(&cm->lock) != 0)
        return false; /* or the host is changing ids */
    any = look_at_deadlines(w);
    if (any || cm->looks++ % LOOK_EVERY == 0)
        for (int i = 0; i < EVENTS_MAX; i++) {
            if (cm->calls.rdma_get_cm_event(cm->channel, &event) != 0)
                break;
            take_event(w, event);
        }
    (void)pthread_mutex_unlock(&cm->lock);
    return any;
}
