/* verbs_cm.c: see verbs_cm.h. Layer: transport/proxy. The wire owns everything here until
 * swl_verbs_cm_close; ids are of one event channel, which never blocks. */
#include "transport/proxy/verbs_cm.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/runtime/runtime.h"
#include "transport/proxy/verbs_wire.h"
#include "transport/tcp/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define RESOLVE_MAX_MS 60000

/* ---- opening ---- */

/* May others reach it? 0: no; IPv4 is tried before IPv6. */
static int rank_of(const struct sockaddr *any)
{
    const union verbs_ip *a = (const union verbs_ip *)(const void *)any;

    if (any != NULL && any->sa_family == AF_INET)
        return ntohl(a->v4.sin_addr.s_addr) >> 16 == 0xa9fe ? 0 : 2;
    if (any != NULL && any->sa_family == AF_INET6)
        return IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr) ? 0 : 1;
    return 0;
}

/* An id that is bound to this address and through it to the device; NULL: the address is another's. */
static struct cm_id *bind_to(const struct verbs_cm *cm, const struct swl_verbs *verbs,
                             const char *device, union verbs_ip *at)
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

void swl_verbs_cm_refuse(const struct verbs_cm *cm, struct cm_id *id)
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
        swl_verbs_cm_refuse(cm, cm->requests[i].id);
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
    const union verbs_ip *at = &w->cm->at;

    memset(place_p, 0, sizeof(*place_p));
    memcpy(place_p->number, q->link.number, sizeof(place_p->number));
    place_p->family = at->any.sa_family;
    place_p->port = at->v4.sin_port;
    if (at->any.sa_family == AF_INET)
        memcpy(place_p->ip, &at->v4.sin_addr, sizeof(at->v4.sin_addr));
    else
        memcpy(place_p->ip, &at->v6.sin6_addr, sizeof(at->v6.sin6_addr));
}

static union verbs_ip address_of(const struct verbs_place *place)
{
    union verbs_ip a;

    memset(&a, 0, sizeof(a));
    a.any.sa_family = place->family;
    a.v4.sin_port = place->port;
    if (place->family == AF_INET)
        memcpy(&a.v4.sin_addr, place->ip, sizeof(a.v4.sin_addr));
    else
        memcpy(&a.v6.sin6_addr, place->ip, sizeof(a.v6.sin6_addr));
    return a;
}

static void text_of(const union verbs_ip *ip, char *text, size_t bytes)
{
    struct tcp_place place;

    memset(&place, 0, sizeof(place));
    memcpy(&place.at, ip, sizeof(*ip));
    swl_tcp_text(&place, text, bytes);
}

/* Both addresses; 176 bytes hold any. */
static void text_of_link(const struct verbs_wire *w, const struct verbs_place *peer, char *text,
                         size_t bytes)
{
    const union verbs_ip to = address_of(peer);
    char here[80], there[80];

    text_of(&w->cm->at, here, sizeof(here));
    text_of(&to, there, sizeof(there));
    snprintf(text, bytes, "from %s to %s", here, there);
}

/* Nothing comes of it any more; whoever wants something from the peer is told. */
void swl_verbs_cm_lose(const struct verbs_wire *w, struct verbs_queue *q, const char *what,
                       int error)
{
    char ends[176] = "";

    if (!q->lost) {
        text_of_link(w, &q->link.peer, ends, sizeof(ends));
        /* an end of what was connected is told to the group by other ways */
        swl_log(q->link.waits ? SWL_LEVEL_WARN : SWL_LEVEL_DEBUG,
                "rank %u nic: %s queue pair 0x%06x, %s: %s%s%s", w->rank, w->port.name,
                q->qp->qp_num, ends, what, error ? ": " : "", error ? strerror(error) : "");
    }
    q->lost = true;
    q->link.waits = false;
}

static uint8_t least(uint32_t a, uint32_t b, uint32_t c)
{
    const uint32_t ab = a < b ? a : b;

    return (uint8_t)(ab < c ? ab : c);
}

struct cm_param swl_verbs_cm_param(const struct verbs_wire *w, const struct verbs_queue *q,
                                   uint32_t reads_in, uint32_t reads_out)
{
    const struct cm_param p = {
        .responder_resources = least((uint32_t)w->attr.max_qp_rd_atom, reads_in, VERBS_READS_MAX),
        .initiator_depth = least((uint32_t)w->attr.max_qp_init_rd_atom, reads_out, VERBS_READS_MAX),
        .retry_count = 7,
        .rnr_retry_count = 7,
        .qp_num = q->qp->qp_num};

    return p;
}

static void accept_request(struct verbs_wire *w, struct verbs_queue *q,
                           const struct verbs_request *r)
{
    struct cm_param p = swl_verbs_cm_param(w, q, r->reads_in, r->reads_out);
    int error;

    if (w->cm->calls.rdma_accept(r->id, &p) == 0) {
        q->link.id = r->id;
        return;
    }
    error = errno;
    swl_verbs_cm_refuse(w->cm, r->id);
    swl_verbs_cm_lose(w, q, "librdmacm does not accept its connection", error);
}

bool swl_verbs_cm_is_for(const struct verbs_request *r, const struct verbs_queue *q)
{
    return memcmp(r->greeting.to, q->link.number, VERBS_NUMBER_BYTES) == 0;
}

static bool is_from_peer(const struct verbs_request *r, const struct verbs_queue *q)
{
    return memcmp(r->greeting.from, q->link.peer.number, VERBS_NUMBER_BYTES) == 0;
}

/* Requests for this queue pair that were held: the peer's is accepted if it is wanted, others go. */
void swl_verbs_cm_take_held(struct verbs_wire *w, struct verbs_queue *q)
{
    struct verbs_cm *cm = w->cm;

    for (uint32_t i = 0; i < cm->nrequests;) {
        const struct verbs_request r = cm->requests[i];

        if (!swl_verbs_cm_is_for(&r, q)) {
            i++;
            continue;
        }
        cm->requests[i] = cm->requests[--cm->nrequests];
        if (q->link.waits && !q->link.active && !q->link.id && is_from_peer(&r, q))
            accept_request(w, q, &r);
        else
            swl_verbs_cm_refuse(cm, r.id);
    }
}

ncclResult_t swl_verbs_cm_connect(struct verbs_wire *w, struct verbs_queue *q,
                                  const struct verbs_place *peer)
{
    struct verbs_cm *cm = w->cm;
    union verbs_ip from = cm->at, to = address_of(peer);
    const uint64_t ms = w->timeout_ns / 1000000 + 1;
    const int timeout_ms = ms < RESOLVE_MAX_MS ? (int)ms : RESOLVE_MAX_MS;
    char ends[176];

    from.v4.sin_port = 0;
    q->link.peer = *peer;
    q->link.deadline_ns = swl_gpu_now_ns() + w->timeout_ns;
    q->link.active = memcmp(q->link.number, peer->number, VERBS_NUMBER_BYTES) < 0;
    text_of_link(w, peer, ends, sizeof(ends));
    errno = 0;
    if (q->link.active &&
        (cm->calls.rdma_create_id(cm->channel, &q->link.id, NULL, CM_PORT_SPACE_TCP) != 0 ||
         cm->calls.rdma_resolve_addr(q->link.id, &from.any, &to.any, timeout_ms) != 0))
        return swl_fail(ncclSystemError, "rank %u nic: %s does not begin to connect %s: %s",
                        w->rank, w->port.name, ends, errno ? strerror(errno) : "no reason given");
    q->link.waits = true;
    swl_verbs_cm_take_held(w, q);
    return ncclSuccess;
}

void swl_verbs_cm_leave(struct verbs_wire *w, struct verbs_queue *q)
{
    q->link.waits = q->link.established = q->link.heard = false;
    swl_verbs_cm_take_held(w, q);
    if (q->link.id)
        (void)w->cm->calls.rdma_destroy_id(q->link.id);
    q->link.id = NULL;
}
