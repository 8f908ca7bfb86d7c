/* post.c: the serving thread of the verbs wire: posts, completions, events.
 *
 * Layer: transport/proxy/verbs; see verbs.h. What the proxy hands over at once becomes one linked
 * post, whose last request is signalled. NOPs are not posted: they complete with what is before
 * them. */
#include "transport/proxy/verbs/verbs.h"

#include <string.h>

#define POST_MAX     32  /* requests of one post */
#define POLL_MAX     16  /* completions of one call */
#define EVENTS_EVERY 256 /* calls of progress */

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

/* ---- posting ---- */

/* Requests on their way into one post. */
struct batch {
    struct verbs_send_wr wrs[POST_MAX];
    struct verbs_sge sges[POST_MAX];
    struct verbs_message messages[POST_MAX];
    uint32_t count;
};

static struct verbs_send_wr *next_of(struct batch *b, uint64_t index)
{
    struct verbs_send_wr *wr = &b->wrs[b->count];

    memset(wr, 0, sizeof(*wr));
    wr->wr_id = index;
    wr->sg_list = &b->sges[b->count];
    wr->num_sge = 1;
    if (b->count > 0)
        b->wrs[b->count - 1].next = wr;
    b->count++;
    return wr;
}

static void put_move(struct batch *b, const struct swl_wire_request *r)
{
    struct verbs_send_wr *wr = next_of(b, r->index);

    wr->opcode = r->opcode == SWL_WQE_READ ? VERBS_WR_READ : VERBS_WR_WRITE;
    *wr->sg_list = (struct verbs_sge){r->local, r->bytes, r->lkey};
    wr->wr.rdma.remote_addr = r->remote;
    wr->wr.rdma.rkey = r->rkey;
    if (r->is_inline) {
        wr->sg_list->addr = (uintptr_t)r->data;
        wr->send_flags = VERBS_SEND_INLINE;
    }
}

static void put_atomic(struct batch *b, const struct swl_wire_request *r)
{
    struct verbs_send_wr *wr = next_of(b, r->index);

    wr->opcode = VERBS_WR_FETCH_ADD;
    *wr->sg_list = (struct verbs_sge){r->local, r->bytes, r->lkey};
    wr->wr.atomic.remote_addr = r->remote;
    wr->wr.atomic.compare_add = r->value;
    wr->wr.atomic.rkey = r->rkey;
}

/* An add that the peer's host applies. */
static void put_message(struct batch *b, const struct swl_wire_request *r)
{
    struct verbs_message *message = &b->messages[b->count];
    struct verbs_send_wr *wr = next_of(b, r->index);

    *message = (struct verbs_message){r->remote, r->value, r->rkey, VERBS_MESSAGE_ADD};
    wr->opcode = VERBS_WR_SEND;
    wr->send_flags = VERBS_SEND_INLINE;
    *wr->sg_list = (struct verbs_sge){(uintptr_t)message, sizeof(*message), 0};
}

/* Hand n requests to the device in one post. */
static void post_some(struct verbs_wire *w, struct verbs_queue *q,
                      const struct swl_wire_request *requests, uint32_t n)
{
    struct batch b;

    b.count = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct swl_wire_request *r = &requests[i];
        struct verbs_entry *entry = &q->entries[r->index % w->depth];

        *entry = (struct verbs_entry){0, r->opcode == SWL_WQE_NOP};
        if (r->opcode == SWL_WQE_READ || r->opcode == SWL_WQE_WRITE) {
            put_move(&b, r);
        } else if (r->opcode == SWL_WQE_FETCH_ADD && q->adds == SWL_ADDS_ATOMICS) {
            put_atomic(&b, r);
        } else if (r->opcode == SWL_WQE_FETCH_ADD) {
            entry->messages = ++q->messages;
            put_message(&b, r);
        }
    }
    q->posted += n;
    if (b.count == 0)
        return;
    b.wrs[b.count - 1].send_flags |= VERBS_SEND_SIGNALLED;
    /* a device that takes no more although there is room is broken, or has lost the queue pair */
    if (swl_verbs_post_send(q, b.wrs) != 0)
        swl_verbs_fail(w, q, SWL_SYNDROME_LOCAL_OPERATION, "the device refuses a request");
}

/* They are never posted and never complete. */
static void skip_entries(const struct verbs_wire *w, struct verbs_queue *q, uint64_t n)
{
    for (; n > 0; n--)
        q->entries[q->posted++ % w->depth] = (struct verbs_entry){0, false};
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
            skip_entries(w, q, count);
        else
            post_some(w, q, requests + taken, (uint32_t)count);
        taken += (uint32_t)count;
    }
    (void)pthread_mutex_unlock(&q->lock);
    return taken;
}

/* ---- completions ---- */

static void take_completion(struct verbs_wire *w, struct verbs_queue *q, const struct verbs_wc *wc)
{
    if (wc->status) {
        /* of a request: everything before it has completed */
        if (!q->syndrome && !(wc->wr_id & (VERBS_ID_ACK | VERBS_ID_RECEIVE)) && wc->wr_id > q->sent)
            q->sent = wc->wr_id;
        swl_verbs_fail(w, q, syndrome_of(wc->status), w->verbs.ibv_wc_status_str((int)wc->status));
    } else if (wc->wr_id & VERBS_ID_ACK) {
        q->ack_posted = false;
    } else if (wc->wr_id & VERBS_ID_RECEIVE) {
        swl_verbs_add_receive(w, q, wc);
    } else if (wc->wr_id >= q->sent && !q->syndrome) {
        q->sent = wc->wr_id + 1;
    }
}

/* What is complete, in order. */
static void count_done(const struct verbs_wire *w, struct verbs_queue *q)
{
    /* acquire: pairs with the device's write, which is behind the peer's add */
    const uint64_t applied = __atomic_load_n(&q->mailbox->applied, __ATOMIC_ACQUIRE);

    while (q->done < q->posted) {
        const struct verbs_entry *entry = &q->entries[q->done % w->depth];

        if (!entry->nop && q->done >= q->sent)
            break;
        if (entry->messages > applied >> 8) {
            if (applied & 0xff)
                swl_verbs_fail(w, q, (uint32_t)(applied & 0xff), "the peer refuses an add");
            break;
        }
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
            take_completion(w, q, &wc[i]);
    } while (n == POLL_MAX);
    if (n < 0)
        swl_verbs_fail(w, q, SWL_SYNDROME_LOCAL_OPERATION, "the completion queue cannot be read");
    if (q->adds == SWL_ADDS_ATOMICS)
        return;
    swl_verbs_add_release(w, q);
    swl_verbs_add_acknowledge(w, q);
}

/* The next completion of this queue pair, if there is one. */
static bool next_done(struct verbs_wire *w, uint32_t i, struct swl_wire_done *done)
{
    struct verbs_queue *q = &w->queues[i];
    bool any = false;

    if (!q->connected || q->failed_told)
        return false;
    if (q->adds != SWL_ADDS_ATOMICS || q->sent != q->posted)
        drain(w, q);
    count_done(w, q);
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

    swl_verbs_flush_take(w);
    w->busy = false;
    for (uint32_t k = 0; k < nqps && count < n; k++) {
        const uint32_t i = w->turn++ % nqps;
        struct verbs_queue *q = &w->queues[i];

        if (pthread_mutex_trylock(&q->lock) != 0)
            continue; /* the host is changing it */
        count += next_done(w, i, &done[count]);
        w->busy =
            w->busy || (q->connected && (q->done != q->posted || q->held_first != q->held_end));
        (void)pthread_mutex_unlock(&q->lock);
    }
    swl_verbs_flush_post(w);
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
                swl_verbs_fail(w, q, SWL_SYNDROME_REMOTE_OPERATION, "the device reports a failure");
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
