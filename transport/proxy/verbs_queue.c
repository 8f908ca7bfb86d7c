/* verbs_queue.c: queue pairs of the verbs wire: creation, connection, end; see verbs_wire.h.
 *
 * Layer: transport/proxy. Host thread, but for verbs_to_error. A reset makes the device's objects
 * anew, so that nothing of the old connection can arrive. */
#include "transport/proxy/verbs_wire.h"

#include "src/base/error.h"
#include "src/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VERBS_ADDRESS_ID 0x76657262u
#define RNR_TIMER        12 /* 0.64 ms */
#define INLINE_BYTES     32

/* Travels as struct swl_wire_address. */
struct verbs_end {
    uint32_t id, messages;
    struct mlx5_end end;
    uint32_t applied_key;
    uint64_t applied;
};
static_assert(sizeof(struct verbs_end) <= sizeof(struct swl_wire_address), "travels inside it");

static ncclResult_t refuse(const struct verbs_wire *w, const char *what, int error)
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
            rc = refuse(w, "keeps a queue pair", error);
    }
    if (q->cq) {
        error = w->verbs.ibv_destroy_cq(q->cq);
        next = error ? refuse(w, "keeps a completion queue", error) : ncclSuccess;
        rc = rc != ncclSuccess ? rc : next;
    }
    q->qp = NULL;
    q->cq = NULL;
    return rc;
}

ncclResult_t swl_verbs_queue_close(struct verbs_wire *w, struct verbs_queue *q)
{
    ncclResult_t rc = close_objects(w, q), next;
    int error;

    if (q->mailbox_mr) {
        error = w->verbs.ibv_dereg_mr(q->mailbox_mr);
        next = error ? refuse(w, "keeps a mailbox", error) : ncclSuccess;
        rc = rc != ncclSuccess ? rc : next;
    }
    free(q->mailbox);
    free(q->kinds);
    q->mailbox_mr = NULL;
    q->mailbox = NULL;
    q->kinds = NULL;
    return rc;
}

static ncclResult_t open_objects(struct verbs_wire *w, struct verbs_queue *q)
{
    struct verbs_qp_init_attr attr;

    memset(&attr, 0, sizeof(attr));
    errno = 0;
    q->cq = w->verbs.ibv_create_cq(w->context, (int)(2 * w->depth + 2), NULL, NULL, 0);
    if (q->cq == NULL)
        return refuse(w, "gives no completion queue", errno);
    attr.send_cq = attr.recv_cq = q->cq;
    attr.qp_type = VERBS_RC;
    attr.cap = (struct verbs_qp_cap){w->depth + 1, w->depth, 1, 1, INLINE_BYTES};
    q->qp = w->verbs.ibv_create_qp(w->pd, &attr);
    if (q->qp == NULL)
        return refuse(w, "gives no queue pair", errno);
    q->psn = (uint32_t)(swl_gpu_now_ns() * 0x9e3779b97f4a7c15ull >> 40) ^ q->qp->qp_num;
    q->psn &= 0xffffffu;
    return ncclSuccess;
}

static void start(const struct verbs_wire *w, struct verbs_queue *q)
{
    q->connected = q->by_message = q->ack_posted = false;
    q->syndrome = q->failed_told = 0;
    q->posted = q->sent = q->done = q->told = w->first_index;
    q->messages_done = q->applied = q->applied_told = 0;
    __atomic_store_n(&q->mailbox->applied, 0, __ATOMIC_RELAXED);
}

static ncclResult_t open_queue(struct verbs_wire *w, struct verbs_queue *q)
{
    const size_t bytes = sizeof(*q->mailbox) + w->depth * sizeof(q->mailbox->messages[0]);

    q->kinds = calloc(w->depth, 1);
    q->mailbox = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (q->kinds == NULL || q->mailbox == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: no memory for a queue pair", w->rank);
    memset(q->mailbox, 0, bytes);
    errno = 0;
    q->mailbox_mr = w->verbs.ibv_reg_mr(w->pd, q->mailbox, bytes,
                                        VERBS_ACCESS_LOCAL_WRITE | VERBS_ACCESS_REMOTE_WRITE);
    if (q->mailbox_mr == NULL)
        return refuse(w, "cannot register a mailbox", errno);
    start(w, q);
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

/* log2 of a number of reads, rounded down; a device has at least one. */
static uint8_t log_of(int reads)
{
    uint8_t log = 0;

    while (reads > 1) {
        reads >>= 1;
        log++;
    }
    return log;
}

static struct mlx5_end end_of(const struct verbs_wire *w, const struct verbs_queue *q)
{
    struct mlx5_end e = {.qpn = q->qp->qp_num,
                         .psn = q->psn,
                         .lid = w->port.lid,
                         .mtu = w->port.mtu,
                         .ethernet = w->port.ethernet,
                         .grh_required = w->port.grh_required,
                         .log_reads_out = log_of(w->attr.max_qp_init_rd_atom),
                         .log_reads_in = log_of(w->attr.max_qp_rd_atom)};

    memcpy(e.gid, w->port.gid, sizeof(e.gid));
    return e;
}

ncclResult_t swl_verbs_address(struct swl_wire *wire, uint32_t qp,
                               struct swl_wire_address *address_p)
{
    const struct verbs_wire *w = verbs_of(wire);
    const struct verbs_queue *q = &w->queues[qp];
    struct verbs_end e = {.id = VERBS_ADDRESS_ID, .messages = w->messages};

    if (q->qp == NULL)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair %u was lost by a failed reset",
                        w->rank, qp);
    e.end = end_of(w, q);
    e.applied = (uintptr_t)&q->mailbox->applied;
    e.applied_key = q->mailbox_mr->rkey;
    memset(address_p, 0, sizeof(*address_p));
    memcpy(address_p->bytes, &e, sizeof(e));
    return ncclSuccess;
}

static ncclResult_t modify(const struct verbs_wire *w, const struct verbs_queue *q,
                           struct verbs_qp_attr *attr, int mask, const char *what)
{
    const int error = w->verbs.ibv_modify_qp(q->qp, attr, mask);

    return error ? refuse(w, what, error) : ncclSuccess;
}

static ncclResult_t to_init(const struct verbs_wire *w, const struct verbs_queue *q)
{
    struct verbs_qp_attr a;

    memset(&a, 0, sizeof(a));
    a.qp_state = VERBS_STATE_INIT;
    a.port_num = w->port.number;
    a.qp_access_flags = VERBS_ACCESS_REMOTE_WRITE | VERBS_ACCESS_REMOTE_READ;
    if (w->attr.atomic_cap != VERBS_ATOMIC_NONE)
        a.qp_access_flags |= VERBS_ACCESS_REMOTE_ATOMIC;
    return modify(w, q, &a, VERBS_QP_STATE | VERBS_QP_PKEY | VERBS_QP_PORT | VERBS_QP_ACCESS,
                  "does not initialise a queue pair");
}

static ncclResult_t to_receive(const struct verbs_wire *w, const struct verbs_queue *q,
                               const struct mlx5_path *path)
{
    struct verbs_qp_attr a;

    memset(&a, 0, sizeof(a));
    a.qp_state = VERBS_STATE_RTR;
    a.path_mtu = path->mtu;
    a.dest_qp_num = path->remote_qpn;
    a.rq_psn = path->recv_psn;
    a.max_dest_rd_atomic = (uint8_t)(1u << path->log_rra);
    a.min_rnr_timer = RNR_TIMER;
    a.ah_attr.port_num = path->port;
    a.ah_attr.sl = path->sl;
    a.ah_attr.dlid = path->rlid;
    if (path->ethernet || path->global) {
        a.ah_attr.is_global = 1;
        memcpy(a.ah_attr.dgid, path->rgid, sizeof(path->rgid));
        a.ah_attr.sgid_index = path->gid_index;
        a.ah_attr.hop_limit = path->hop_limit;
        a.ah_attr.traffic_class = path->tclass;
    }
    return modify(w, q, &a,
                  VERBS_QP_STATE | VERBS_QP_AV | VERBS_QP_MTU | VERBS_QP_PEER | VERBS_QP_RQ_PSN |
                      VERBS_QP_READS_IN | VERBS_QP_RNR_TIMER,
                  "does not connect a queue pair");
}

static ncclResult_t to_send(const struct verbs_wire *w, const struct verbs_queue *q,
                            const struct mlx5_path *path)
{
    struct verbs_qp_attr a;

    memset(&a, 0, sizeof(a));
    a.qp_state = VERBS_STATE_RTS;
    a.sq_psn = path->send_psn;
    a.timeout = path->timeout;
    a.retry_cnt = path->retries;
    a.rnr_retry = 7; /* for ever; receives do not run out */
    a.max_rd_atomic = (uint8_t)(1u << path->log_sra);
    return modify(w, q, &a,
                  VERBS_QP_STATE | VERBS_QP_SQ_PSN | VERBS_QP_TIMEOUT | VERBS_QP_RETRY |
                      VERBS_QP_RNR_RETRY | VERBS_QP_READS_OUT,
                  "does not let a queue pair send");
}

static ncclResult_t connect_queue(struct verbs_wire *w, struct verbs_queue *q,
                                  const struct verbs_end *peer, const struct mlx5_path *path)
{
    SWL_TRY(to_init(w, q));
    q->by_message = w->messages || peer->messages;
    q->peer_applied = peer->applied;
    q->peer_applied_key = peer->applied_key;
    for (uint32_t i = 0; q->by_message && i < w->depth; i++) {
        const int error = swl_verbs_post_receive(w, q, i);

        if (error)
            return refuse(w, "takes no receives", error);
    }
    SWL_TRY(to_receive(w, q, path));
    return to_send(w, q, path);
}

ncclResult_t swl_verbs_connect(struct swl_wire *wire, uint32_t qp,
                               const struct swl_wire_address *peer)
{
    struct verbs_wire *w = verbs_of(wire);
    struct verbs_queue *q = &w->queues[qp];
    struct verbs_end e;
    struct mlx5_end mine;
    struct mlx5_path path;
    const char *why = "its address is of another kind";
    ncclResult_t rc;

    memcpy(&e, peer->bytes, sizeof(e));
    if (q->qp == NULL)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair %u was lost by a failed reset",
                        w->rank, qp);
    mine = end_of(w, q);
    if (e.id != VERBS_ADDRESS_ID || !swl_mlx5_path(&path, &mine, &e.end, &w->tuning, &why))
        return swl_fail(ncclInvalidUsage, "rank %u nic: %s queue pair %u cannot reach its peer: %s",
                        w->rank, w->port.name, qp, why);
    (void)pthread_mutex_lock(&q->lock);
    rc = connect_queue(w, q, &e, &path);
    if (rc == ncclSuccess) {
        q->connected = true;
    } else { /* as before; what fails here fails again in the next connect */
        struct verbs_qp_attr a;

        memset(&a, 0, sizeof(a));
        a.qp_state = VERBS_STATE_RESET;
        (void)w->verbs.ibv_modify_qp(q->qp, &a, VERBS_QP_STATE);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return rc;
}

ncclResult_t swl_verbs_to_error(struct swl_wire *wire, uint32_t qp)
{
    struct verbs_wire *w = verbs_of(wire);
    struct verbs_queue *q = &w->queues[qp];
    struct verbs_qp_attr a;
    ncclResult_t rc = ncclSuccess;

    memset(&a, 0, sizeof(a));
    a.qp_state = VERBS_STATE_ERROR;
    (void)pthread_mutex_lock(&q->lock);
    q->connected = false;
    if (q->qp)
        rc = modify(w, q, &a, VERBS_QP_STATE, "does not stop a queue pair");
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
    start(w, q);
    if (rc == ncclSuccess)
        rc = open_objects(w, q);
    if (rc != ncclSuccess)
        (void)close_objects(w, q);
    (void)pthread_mutex_unlock(&q->lock);
    return rc;
}
