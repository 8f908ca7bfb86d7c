/* queue.c: queue pairs of the verbs wire: creation, connection, end; see verbs.h.
 *
 * Layer: transport/proxy/verbs. Host thread, but for verbs_to_error. A reset makes the device's
 * objects anew, so that nothing of the old connection can arrive. */
#include "transport/proxy/verbs/verbs.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "transport/rdma_core/rc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERBS_ADDRESS_ID 0x76657262u

/* Travels as struct swl_wire_address. */
struct verbs_end {
    uint32_t id, adds;
    struct rc_end end;
    uint32_t applied_key;
    uint64_t applied;
};
static_assert(sizeof(struct verbs_end) <= sizeof(struct swl_wire_address), "travels inside it");

static ncclResult_t refuse_queue(const struct verbs_wire *w, const char *what, int error)
{
    return swl_fail(ncclSystemError, "rank %u nic: %s %s: %s", w->rank, w->port.name, what,
                    error ? strerror(error) : "no reason given");
}

static ncclResult_t close_objects(struct verbs_wire *w, struct verbs_queue *q)
{
    ncclResult_t rc = ncclSuccess, next;
    int error;

    if (q->qp) {
        error = w->verbs.ibv_destroy_qp(q->qp);
        if (error)
            rc = refuse_queue(w, "keeps a queue pair", error);
    }
    if (q->cq) {
        error = w->verbs.ibv_destroy_cq(q->cq);
        next = error ? refuse_queue(w, "keeps a completion queue", error) : ncclSuccess;
        rc = rc != ncclSuccess ? rc : next;
    }
    q->qp = NULL;
    q->cq = NULL;
    return rc;
}

ncclResult_t swl_verbs_queue_close(struct verbs_wire *w, struct verbs_queue *q)
{
    ncclResult_t rc, next;
    int error;

    rc = close_objects(w, q);
    if (q->mailbox_mr) {
        error = w->verbs.ibv_dereg_mr(q->mailbox_mr);
        next = error ? refuse_queue(w, "keeps a mailbox", error) : ncclSuccess;
        rc = rc != ncclSuccess ? rc : next;
    }
    free(q->mailbox);
    free(q->entries);
    free(q->held);
    q->mailbox_mr = NULL;
    q->mailbox = NULL;
    q->entries = NULL;
    q->held = NULL;
    return rc;
}

static ncclResult_t open_objects(struct verbs_wire *w, struct verbs_queue *q)
{
    struct verbs_qp_init_attr attr;

    memset(&attr, 0, sizeof(attr));
    errno = 0;
    q->cq = w->verbs.ibv_create_cq(w->context, (int)(2 * w->depth + 2), NULL, NULL, 0);
    if (q->cq == NULL)
        return refuse_queue(w, "gives no completion queue", errno);
    attr.send_cq = attr.recv_cq = q->cq;
    attr.qp_type = VERBS_RC;
    /* and the count that we write back */
    attr.cap = (struct verbs_qp_cap){w->depth + 1, w->depth, 1, 1, VERBS_INLINE_BYTES};
    q->qp = w->verbs.ibv_create_qp(w->pd, &attr);
    if (q->qp == NULL)
        return refuse_queue(w, "gives no queue pair", errno);
    q->psn = swl_rc_psn(q->qp->qp_num);
    return ncclSuccess;
}

static void start_queue(const struct verbs_wire *w, struct verbs_queue *q)
{
    q->connected = q->ack_posted = false;
    q->adds = w->adds;
    q->syndrome = q->failed_told = 0;
    q->posted = q->sent = q->done = q->told = w->first_index;
    q->messages = q->applied = q->applied_told = 0;
    q->held_first = q->held_end = 0;
    __atomic_store_n(&q->mailbox->applied, 0, __ATOMIC_RELAXED);
}

static ncclResult_t open_queue(struct verbs_wire *w, struct verbs_queue *q)
{
    const size_t bytes = sizeof(*q->mailbox) + w->depth * sizeof(q->mailbox->messages[0]);

    q->entries = calloc(w->depth, sizeof(*q->entries));
    q->held = calloc(w->depth, sizeof(*q->held));
    q->mailbox = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (!q->entries || !q->held || !q->mailbox)
        return swl_no_memory("a queue pair");
    memset(q->mailbox, 0, bytes);
    errno = 0;
    q->mailbox_mr = w->verbs.ibv_reg_mr(w->pd, q->mailbox, bytes,
                                        VERBS_ACCESS_LOCAL_WRITE | VERBS_ACCESS_REMOTE_WRITE);
    if (q->mailbox_mr == NULL)
        return refuse_queue(w, "cannot register a mailbox", errno);
    start_queue(w, q);
    return open_objects(w, q);
}

ncclResult_t swl_verbs_create_qp(struct swl_wire *wire, uint32_t *qp_p)
{
    struct verbs_wire *w = verbs_of(wire);
    struct verbs_queue *q = &w->queues[w->nqps];
    ncclResult_t rc;

    if (w->nqps == w->max_qps)
        return swl_fail(ncclInvalidUsage, "rank %u nic: more than %u queue pairs", w->rank,
                        w->max_qps);
    rc = open_queue(w, q);
    if (rc != ncclSuccess) {
        (void)swl_verbs_queue_close(w, q);
        return rc;
    }
    (void)pthread_mutex_init(&q->lock, NULL);
    *qp_p = w->nqps;
    /* release: pairs with the acquire of the serving thread */
    __atomic_store_n(&w->nqps, w->nqps + 1, __ATOMIC_RELEASE);
    return ncclSuccess;
}

ncclResult_t swl_verbs_address(struct swl_wire *wire, uint32_t qp,
                               struct swl_wire_address *address_p)
{
    const struct verbs_wire *w = verbs_of(wire);
    const struct verbs_queue *q = &w->queues[qp];
    struct verbs_end e = {.id = VERBS_ADDRESS_ID, .adds = w->adds};

    if (q->qp == NULL)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair %u was lost by a failed reset",
                        w->rank, qp);
    e.end = swl_rc_end(&w->port, &w->attr, q->qp->qp_num, q->psn);
    e.applied = (uintptr_t)&q->mailbox->applied;
    e.applied_key = q->mailbox_mr->rkey;
    memset(address_p, 0, sizeof(*address_p));
    memcpy(address_p->bytes, &e, sizeof(e));
    return ncclSuccess;
}

/* `error` of a step of rc.h. */
static ncclResult_t rc_step(const struct verbs_wire *w, int error, const char *what)
{
    return error ? refuse_queue(w, what, error) : ncclSuccess;
}

static ncclResult_t post_receives(const struct verbs_wire *w, const struct verbs_queue *q)
{
    for (uint32_t i = 0; q->adds != SWL_ADDS_ATOMICS && i < w->depth; i++) {
        const int error = swl_verbs_post_receive(q, i);

        if (error)
            return refuse_queue(w, "takes no receives", error);
    }
    return ncclSuccess;
}

static ncclResult_t connect_path(struct verbs_wire *w, struct verbs_queue *q,
                                 const struct verbs_end *peer)
{
    const bool adds = w->attr.atomic_cap != VERBS_ATOMIC_NONE;
    const struct rc_end mine = swl_rc_end(&w->port, &w->attr, q->qp->qp_num, q->psn);
    const char *why;
    struct rc_path path;

    if (!swl_rc_path(&path, &mine, &peer->end, &w->tuning, &why))
        return swl_fail(ncclInvalidUsage, "rank %u nic: %s cannot reach its peer: %s", w->rank,
                        w->port.name, why);
    SWL_TRY(rc_step(w, swl_rc_init(&w->verbs, q->qp, &w->port, adds),
                    "does not initialise a queue pair"));
    SWL_TRY(post_receives(w, q));
    SWL_TRY(rc_step(w, swl_rc_receive(&w->verbs, q->qp, &path), "does not connect a queue pair"));
    return rc_step(w, swl_rc_send(&w->verbs, q->qp, &path), "does not let a queue pair send");
}

ncclResult_t swl_verbs_connect(struct swl_wire *wire, uint32_t qp,
                               const struct swl_wire_address *peer)
{
    struct verbs_wire *w = verbs_of(wire);
    struct verbs_queue *q = &w->queues[qp];
    struct verbs_end e;
    uint32_t adds;
    ncclResult_t rc;

    memcpy(&e, peer->bytes, sizeof(e));
    if (q->qp == NULL)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair %u was lost by a failed reset",
                        w->rank, qp);
    if (e.id != VERBS_ADDRESS_ID)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: %s queue pair %u cannot reach its peer: its address is of "
                        "another kind",
                        w->rank, w->port.name, qp);
    adds = w->adds > e.adds ? w->adds : e.adds;
    SWL_TRY(swl_verbs_flush_open(w, adds != SWL_ADDS_ATOMICS, false));
    (void)pthread_mutex_lock(&q->lock);
    q->adds = adds;
    q->peer_applied = e.applied;
    q->peer_applied_key = e.applied_key;
    rc = connect_path(w, q, &e);
    q->connected = rc == ncclSuccess;
    if (rc != ncclSuccess) /* as before; what fails here fails again in the next connect */
        (void)swl_rc_leave(&w->verbs, q->qp, VERBS_STATE_RESET);
    (void)pthread_mutex_unlock(&q->lock);
    return rc;
}

ncclResult_t swl_verbs_to_error(struct swl_wire *wire, uint32_t qp)
{
    struct verbs_wire *w = verbs_of(wire);
    struct verbs_queue *q = &w->queues[qp];
    ncclResult_t rc = ncclSuccess;

    (void)pthread_mutex_lock(&q->lock);
    q->connected = false;
    if (q->qp)
        rc = rc_step(w, swl_rc_leave(&w->verbs, q->qp, VERBS_STATE_ERROR),
                     "does not stop a queue pair");
    (void)pthread_mutex_unlock(&q->lock);
    return rc;
}

ncclResult_t swl_verbs_reset(struct swl_wire *wire, uint32_t qp)
{
    struct verbs_wire *w = verbs_of(wire);
    struct verbs_queue *q = &w->queues[qp];
    ncclResult_t rc;

    (void)pthread_mutex_lock(&q->lock);
    rc = close_objects(w, q);
    start_queue(w, q);
    if (rc == ncclSuccess)
        rc = open_objects(w, q);
    if (rc != ncclSuccess)
        (void)close_objects(w, q);
    (void)pthread_mutex_unlock(&q->lock);
    return rc == ncclSuccess ? swl_verbs_flush_renew(w) : rc;
}
