/* verbs_post.c: the serving thread of the verbs wire: posts, completions, adds by message, events.
 *
 * Layer: transport/proxy; see verbs_wire.h. What the proxy hands over at once becomes one linked post,
 * whose last request is signalled. NOPs are not posted: they complete with what is before them. */
#include "transport/proxy/verbs_wire.h"

#include "src/base/log.h"

#include <string.h>

#define POST_MAX      32           /* requests of one post */
#define POLL_MAX      16           /* completions of one call */
#define EVENTS_EVERY  256          /* calls of progress */
#define ID_ACK        (1ull << 63) /* wr_id; else the index */
#define ID_RECEIVE    (1ull << 62) /* and the slot */
#define MESSAGE_MAGIC 0x61646421u

static uint32_t syndrome_of(uint32_t status)
{
    switch (status) {
#define STATUS_CASE(name, number, ours)                                                            \
    case number:                                                                                   \
        return SWL_SYNDROME_##ours;
        VERBS_STATUSES(STATUS_CASE)
#undef STATUS_CASE
    default:
        return SWL_SYNDROME_LOCAL_OPERATION;
    }
}

/* The first error stays. */
static void fail(const struct verbs_wire *w, struct verbs_queue *q, uint32_t syndrome,
                 const char *what)
{
    if (q->syndrome)
        return;
    q->syndrome = syndrome;
    swl_log(SWL_LEVEL_DEBUG, "rank %u nic: %s queue pair 0x%06x: %s", w->rank, w->port.name,
            q->qp->qp_num, what);
}

/* ---- posting ---- */

static int post_send(const struct verbs_queue *q, struct verbs_send_wr *first)
{
    struct verbs_send_wr *bad;

    return q->qp->context->post_send(q->qp, first, &bad);
}

int swl_verbs_post_receive(struct verbs_wire *w, struct verbs_queue *q, uint32_t slot)
{
    struct verbs_sge sge = {(uintptr_t)&q->mailbox->messages[slot], sizeof(struct verbs_message),
                            q->mailbox_mr->lkey};
    struct verbs_recv_wr wr = {.wr_id = ID_RECEIVE | slot, .sg_list = &sge, .num_sge = 1};
    struct verbs_recv_wr *bad;

    (void)w;
    return q->qp->context->post_recv(q->qp, &wr, &bad);
}

/* One request; its bytes, if it carries any, lie in *message or in the request. */
static void fill(const struct verbs_queue *q, const struct swl_wire_request *r,
                 struct verbs_send_wr *wr, struct verbs_sge *sge, struct verbs_message *message)
{
    *sge = (struct verbs_sge){r->local, r->bytes, r->lkey};
    wr->wr_id = r->index;
    wr->sg_list = sge;
    wr->num_sge = 1;
    if (r->opcode == SWL_WQE_FETCH_ADD && q->by_message) {
        *message = (struct verbs_message){r->remote, r->value, r->rkey, MESSAGE_MAGIC};
        *sge = (struct verbs_sge){(uintptr_t)message, sizeof(*message), 0};
        wr->opcode = VERBS_WR_SEND;
        wr->send_flags = VERBS_SEND_INLINE;
    } else if (r->opcode == SWL_WQE_FETCH_ADD) {
        wr->opcode = VERBS_WR_FETCH_ADD;
        wr->wr.atomic.remote_addr = r->remote;
        wr->wr.atomic.compare_add = r->value;
        wr->wr.atomic.rkey = r->rkey;
    } else {
        wr->opcode = r->opcode == SWL_WQE_READ ? VERBS_WR_READ : VERBS_WR_WRITE;
        wr->wr.rdma.remote_addr = r->remote;
        wr->wr.rdma.rkey = r->rkey;
        if (r->is_inline) {
            sge->addr = (uintptr_t)r->data;
            wr->send_flags = VERBS_SEND_INLINE;
        }
    }
}

static enum verbs_kind kind_of(const struct verbs_queue *q, const struct swl_wire_request *r)
{
    if (r->opcode == SWL_WQE_NOP)
        return VERBS_KIND_NOP;
    return r->opcode == SWL_WQE_FETCH_ADD && q->by_message ? VERBS_KIND_MESSAGE : VERBS_KIND_PLAIN;
}

/* Hand n requests to the device in one post. */
static void post_some(struct verbs_wire *w, struct verbs_queue *q,
                      const struct swl_wire_request *requests, uint32_t n)
{
    struct verbs_send_wr wrs[POST_MAX];
    struct verbs_sge sges[POST_MAX];
    struct verbs_message messages[POST_MAX];
    uint32_t count = 0;

    memset(wrs, 0, n * sizeof(wrs[0]));
    for (uint32_t i = 0; i < n; i++) {
        const enum verbs_kind kind = kind_of(q, &requests[i]);

        q->kinds[requests[i].index % w->depth] = (uint8_t)kind;
        if (kind == VERBS_KIND_NOP)
            continue;
        if (count > 0)
            wrs[count - 1].next = &wrs[count];
        fill(q, &requests[i], &wrs[count], &sges[count], &messages[count]);
        count++;
    }
    q->posted += n;
    if (count == 0)
        return;
    wrs[count - 1].send_flags |= VERBS_SEND_SIGNALLED;
    /* a device that takes no more although there is room is broken, or has lost the queue pair */
    if (post_send(q, wrs) != 0)
        fail(w, q, SWL_SYNDROME_LOCAL_OPERATION, "the device refuses a request");
}

uint32_t swl_verbs_post(struct swl_wire *wire, uint32_t qp, const struct swl_wire_request *requests,
                        uint32_t n)
{
    struct verbs_wire *w = verbs_of(wire);
    struct verbs_queue *q = &w->queues[qp];
    uint32_t taken = 0;

    (void)pthread_mutex_lock(&q->lock);
    while (q->connected && taken < n) {
        uint64_t count = w->depth - (q->posted - q->done);

        if (count > n - taken)
            count = n - taken;
        if (count > POST_MAX)
            count = POST_MAX;
        if (count == 0)
            break;
        if (q->syndrome) /* they are flushed behind the error */
            q->posted += count;
        else
            post_some(w, q, requests + taken, (uint32_t)count);
        taken += (uint32_t)count;
    }
    (void)pthread_mutex_unlock(&q->lock);
    return taken;
}

/* ---- adds by message: the receiver ---- */

static uint32_t apply(struct verbs_wire *w, const struct verbs_message *m)
{
    uint32_t syndrome = SWL_SYNDROME_REMOTE_ACCESS;

    (void)pthread_mutex_lock(&w->lock);
    for (uint32_t i = 0; i < w->nregions; i++) {
        const struct verbs_region *r = &w->regions[i];

        if (r->mr->rkey != m->rkey || !(r->access & SWL_NIC_REMOTE_ADD) || r->bytes < 8 ||
            m->address < r->address || m->address - r->address > r->bytes - 8)
            continue;
        syndrome = SWL_SYNDROME_REMOTE_REQUEST;
        if (m->address % 8 == 0) {
            /* release: whoever acquires the sum sees the writes before it, which the device had
             * placed when it completed the receive */
            (void)__atomic_fetch_add((uint64_t *)(uintptr_t)m->address, m->value, __ATOMIC_ACQ_REL);
            syndrome = SWL_SYNDROME_NONE;
        }
        break;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return syndrome;
}

/* A message has arrived: apply it, make room for the next, count it. Behind a refused one none is
 * applied. */
static void receive(struct verbs_wire *w, struct verbs_queue *q, const struct verbs_wc *wc)
{
    const uint32_t slot = (uint32_t)(wc->wr_id & ~ID_RECEIVE);
    const struct verbs_message *m = &q->mailbox->messages[slot];
    uint32_t syndrome = SWL_SYNDROME_REMOTE_REQUEST;

    if (q->applied & 0xff)
        return;
    if (wc->byte_len == sizeof(*m) && m->magic == MESSAGE_MAGIC)
        syndrome = apply(w, m);
    if (syndrome)
        q->applied |= syndrome;
    else
        q->applied += 1 << 8;
    if (swl_verbs_post_receive(w, q, slot) != 0)
        fail(w, q, SWL_SYNDROME_LOCAL_OPERATION, "the device refuses a receive");
}

/* Tell the peer how many of its messages are applied; one such write at a time. */
static void acknowledge(const struct verbs_wire *w, struct verbs_queue *q)
{
    struct verbs_sge sge = {(uintptr_t)&q->applied, sizeof(q->applied), 0};
    struct verbs_send_wr wr = {.wr_id = ID_ACK,
                               .sg_list = &sge,
                               .num_sge = 1,
                               .opcode = VERBS_WR_WRITE,
                               .send_flags = VERBS_SEND_INLINE | VERBS_SEND_SIGNALLED};

    if (q->applied == q->applied_told || q->ack_posted || q->syndrome)
        return;
    wr.wr.rdma.remote_addr = q->peer_applied;
    wr.wr.rdma.rkey = q->peer_applied_key;
    if (post_send(q, &wr) != 0) {
        fail(w, q, SWL_SYNDROME_LOCAL_OPERATION, "the device refuses a count");
        return;
    }
    q->applied_told = q->applied;
    q->ack_posted = true;
}

/* ---- completions ---- */

static void take(struct verbs_wire *w, struct verbs_queue *q, const struct verbs_wc *wc)
{
    if (wc->status) {
        /* of a request: everything before it has completed */
        if (!q->syndrome && !(wc->wr_id & (ID_ACK | ID_RECEIVE)) && wc->wr_id > q->sent)
            q->sent = wc->wr_id;
        fail(w, q, syndrome_of(wc->status), w->verbs.ibv_wc_status_str((int)wc->status));
    } else if (wc->wr_id & ID_ACK) {
        q->ack_posted = false;
    } else if (wc->wr_id & ID_RECEIVE) {
        receive(w, q, wc);
    } else if (wc->wr_id >= q->sent && !q->syndrome) {
        q->sent = wc->wr_id + 1;
    }
}

/* What is complete, in order. */
static void settle(const struct verbs_wire *w, struct verbs_queue *q)
{
    /* acquire: pairs with the device's write, which is behind the peer's add */
    const uint64_t applied = __atomic_load_n(&q->mailbox->applied, __ATOMIC_ACQUIRE);

    while (q->done < q->posted) {
        const uint8_t kind = q->kinds[q->done % w->depth];

        if (kind != VERBS_KIND_NOP && q->done >= q->sent)
            break;
        if (kind == VERBS_KIND_MESSAGE && q->messages_done >= applied >> 8) {
            if (applied & 0xff)
                fail(w, q, (uint32_t)(applied & 0xff), "the peer refuses an add");
            break;
        }
        q->messages_done += kind == VERBS_KIND_MESSAGE;
        q->done++;
    }
}

static void drain(struct verbs_wire *w, struct verbs_queue *q)
{
    struct verbs_wc wc[POLL_MAX];
    int n;

    do {
        n = q->qp->context->poll_cq(q->cq, POLL_MAX, wc);
        for (int i = 0; i < n; i++)
            take(w, q, &wc[i]);
    } while (n == POLL_MAX);
    if (n < 0)
        fail(w, q, SWL_SYNDROME_LOCAL_OPERATION, "the completion queue cannot be read");
    if (q->by_message)
        acknowledge(w, q);
}

/* The next completion of this queue pair, if there is one. */
static bool next_done(struct verbs_wire *w, uint32_t i, struct swl_wire_done *done)
{
    struct verbs_queue *q = &w->queues[i];
    bool any = false;

    if (!q->connected || q->failed_told)
        return false;
    if (q->by_message || q->sent != q->posted)
        drain(w, q);
    settle(w, q);
    if (q->done != q->told) {
        *done = (struct swl_wire_done){.index = q->done - 1, .qp = i};
        q->told = q->done;
        any = true;
    } else if (q->syndrome) {
        *done = (struct swl_wire_done){q->done, i, q->syndrome};
        q->failed_told = 1;
        any = true;
    }
    return any;
}

/* Queue pairs take turns, one completion each. */
uint32_t swl_verbs_poll(struct swl_wire *wire, struct swl_wire_done *done, uint32_t n)
{
    struct verbs_wire *w = verbs_of(wire);
    const uint32_t nqps = __atomic_load_n(&w->nqps, __ATOMIC_ACQUIRE);
    uint32_t count = 0;

    w->busy = false;
    for (uint32_t k = 0; k < nqps && count < n; k++) {
        const uint32_t i = w->turn++ % nqps;
        struct verbs_queue *q = &w->queues[i];

        if (pthread_mutex_trylock(&q->lock) != 0)
            continue; /* the host is changing it */
        count += next_done(w, i, &done[count]);
        w->busy = w->busy || (q->connected && q->done != q->posted);
        (void)pthread_mutex_unlock(&q->lock);
    }
    return count;
}

/* ---- events ---- */

static bool concerns(const struct verbs_queue *q, const struct verbs_async_event *event)
{
    switch (event->event_type) {
    case VERBS_EVENT_CQ_ERR:
        return event->element == q->cq;
    case VERBS_EVENT_QP_FATAL:
    case VERBS_EVENT_QP_REQUEST:
    case VERBS_EVENT_QP_ACCESS:
        return event->element == q->qp;
    case VERBS_EVENT_DEVICE_FATAL:
        return true;
    default:
        return false;
    }
}

static void take_events(struct verbs_wire *w, uint32_t nqps)
{
    struct verbs_async_event event;

    while (w->verbs.ibv_get_async_event(w->context, &event) == 0) {
        for (uint32_t i = 0; i < nqps; i++) {
            struct verbs_queue *q = &w->queues[i];

            if (pthread_mutex_trylock(&q->lock) != 0)
                continue; /* the host is making it anew */
            if (q->connected && concerns(q, &event))
                fail(w, q, SWL_SYNDROME_REMOTE_OPERATION, "the device reports a failure");
            (void)pthread_mutex_unlock(&q->lock);
        }
        w->verbs.ibv_ack_async_event(&event);
    }
}

/* True while the device has something to do: the server then stays awake. */
bool swl_verbs_progress(struct swl_wire *wire)
{
    struct verbs_wire *w = verbs_of(wire);

    if (w->progress_calls++ % EVENTS_EVERY == 0)
        take_events(w, __atomic_load_n(&w->nqps, __ATOMIC_ACQUIRE));
    return w->busy;
}
