/* verbs_cm_events.c: the serving thread's part of verbs_cm.h: events of librdmacm, time limits. Layer:
 * transport/proxy. Every event is acknowledged before its queue pair is locked, so that the host, which
 * holds both locks while an id goes, never waits for this thread. */
#include "transport/proxy/verbs_wire.h"

#include "src/runtime/runtime.h"

#include <errno.h>
#include <string.h>

#define LOOK_EVERY 256 /* calls of progress, where no connection is being made */
#define EVENTS_MAX 64  /* of one call */
#define ROUTE_MS   60000

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
    struct cm_param p = swl_verbs_cm_param(w, q, VERBS_READS_MAX, VERBS_READS_MAX);
    struct verbs_greeting g = {.id = VERBS_GREETING_ID};

    memcpy(g.to, q->link.peer.number, sizeof(g.to));
    memcpy(g.from, q->link.number, sizeof(g.from));
    p.private_data = &g;
    p.private_data_len = sizeof(g);
    return w->cm->calls.rdma_connect(q->link.id, &p);
}

/* status: of the event, a negative number of errno or a reason of the transport. */
static void take_link_event(struct verbs_wire *w, struct verbs_queue *q, uint32_t event, int status)
{
    const int error = status < 0 ? -status : 0;

    switch (event) {
    case CM_ADDR_RESOLVED:
        if (w->cm->calls.rdma_resolve_route(q->link.id, ROUTE_MS) != 0)
            swl_verbs_cm_lose(w, q, "librdmacm finds no route", errno);
        break;
    case CM_ROUTE_RESOLVED:
        if (ask_to_connect(w, q) != 0)
            swl_verbs_cm_lose(w, q, "librdmacm does not connect", errno);
        break;
    case CM_ESTABLISHED:
        q->link.established = true;
        if (q->link.active && q->link.waits && greet(q) != 0)
            swl_verbs_cm_lose(w, q, "the device refuses a greeting", 0);
        open_link(q);
        break;
    case CM_ADDR_ERROR:
    case CM_ROUTE_ERROR:
    case CM_UNREACHABLE:
        swl_verbs_cm_lose(w, q, "its peer cannot be reached", error);
        break;
    case CM_CONNECT_ERROR:
    case CM_REJECTED:
        swl_verbs_cm_lose(w, q, "its peer does not connect", error);
        break;
    case CM_DISCONNECTED:
    case CM_DEVICE_REMOVAL:
        swl_verbs_cm_lose(w, q, "the connection has ended", error);
        break;
    default:
        break;
    }
}

/* A request to connect: for a queue pair that waits for it, or that the host has not connected yet. */
static void take_request(struct verbs_wire *w, const struct verbs_request *r, bool whole)
{
    struct verbs_cm *cm = w->cm;
    const uint32_t nqps = __atomic_load_n(&w->nqps, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; whole && i < nqps; i++) {
        struct verbs_queue *q = &w->queues[i];

        if (!swl_verbs_cm_is_for(r, q) || cm->nrequests == w->max_qps)
            continue;
        cm->requests[cm->nrequests++] = *r;
        (void)pthread_mutex_lock(&q->lock);
        if (q->connected)
            swl_verbs_cm_take_held(w, q);
        (void)pthread_mutex_unlock(&q->lock);
        return;
    }
    swl_verbs_cm_refuse(cm, r->id);
}

static void take_event(struct verbs_wire *w, struct cm_event *event)
{
    struct verbs_cm *cm = w->cm;
    const uint32_t nqps = __atomic_load_n(&w->nqps, __ATOMIC_ACQUIRE);
    const uint32_t kind = event->event;
    const int status = event->status;
    struct verbs_request r = {
        event->id, {0}, event->conn.responder_resources, event->conn.initiator_depth};
    /* some devices fill the data up with zeros */
    const bool whole = kind == CM_CONNECT_REQUEST && event->conn.private_data != NULL &&
                       event->conn.private_data_len >= sizeof(r.greeting);

    if (whole)
        memcpy(&r.greeting, event->conn.private_data, sizeof(r.greeting));
    (void)cm->calls.rdma_ack_cm_event(event);
    if (kind == CM_CONNECT_REQUEST) {
        take_request(w, &r, whole && r.greeting.id == VERBS_GREETING_ID);
        return;
    }
    for (uint32_t i = 0; i < nqps; i++) {
        struct verbs_queue *q = &w->queues[i];

        if (q->link.id != r.id)
            continue;
        (void)pthread_mutex_lock(&q->lock);
        take_link_event(w, q, kind, status);
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
            swl_verbs_cm_lose(w, q, "its peer has not connected within the time limit", 0);
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
