/* queue.c: queue pairs of the software NIC: creation, connection, state changes.
 *
 * Layer: transport/soft, behind nic.h. After connect a queue pair is the executor's; the host asks
 * it for changes of state and waits, bounded. */
#include "transport/host/executor.h"
#include "transport/soft/state.h"

#include "src/base/error.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"

#include <string.h>

#define SOFT_ADDRESS_ID 0x736f6674u

static_assert(sizeof(struct soft_address) <= sizeof(struct swl_nic_address),
              "the address travels inside the opaque one");

/* The NIC of an address, or NULL. */
static struct soft_nic *find(const struct soft_address *a)
{
    struct soft_nic *nic = swl_soft_nic_at(a->nic);

    return nic && nic->serial == a->serial ? nic : NULL;
}

/* First contents of what the poster sees. */
static ncclResult_t start_memory(struct soft_nic *nic, struct soft_qp *qp)
{
    const uint32_t record[2] = {0, swl_dbr_value(qp->first_index)};
    uint8_t none[SWL_CQE_BYTES];

    memset(none, 0xff, sizeof(none));
    SWL_TRY(swl_soft_copy(nic, qp->cq, none, sizeof(none)));
    SWL_TRY(swl_soft_copy(nic, qp->dbr, record, sizeof(record)));
    return swl_soft_copy(nic, qp->doorbell, &qp->seen, sizeof(qp->seen));
}

ncclResult_t swl_soft_create_qp(struct swl_nic *base, uint32_t *qp_p)
{
    struct soft_nic *nic = soft_of(base);
    struct soft_port *port = nic->port;
    uint32_t i = port->nqps;
    struct soft_qp *qp;

    if (i == nic->max_qps)
        return swl_fail(ncclInvalidUsage, "rank %u nic: more than %u queue pairs", nic->rank,
                        nic->max_qps);
    qp = &nic->qps[i];
    qp->link = i;
    qp->qpn = ((uint32_t)soft_mix(nic->serial << 16 ^ i) << 12 & 0x7ff000u) | 0x800000u | i;
    qp->depth_log2 = nic->depth_log2;
    qp->first_index = nic->first_index;
    soft_qp_start(qp);
    SWL_TRY(start_memory(nic, qp));
    nic->looked[i] = qp->seen;
    __atomic_store_n(&qp->state, SWL_NIC_QP_INIT, __ATOMIC_RELAXED);
    SWL_TRY(swl_soft_push_new_qp(nic, i));
    /* release: pairs with the acquire of the executor */
    __atomic_store_n(&port->nqps, i + 1, __ATOMIC_RELEASE);
    SWL_TRY(swl_soft_push_port(nic, &port->nqps, sizeof(port->nqps)));
    *qp_p = i;
    return ncclSuccess;
}

static ncclResult_t soft_process(const struct soft_nic *nic, uint64_t *process_p)
{
    struct swl_gpu_info info;

    SWL_TRY(SWL_CUDA(swl_gpu_info(nic->device, &info)));
    *process_p = info.process;
    return ncclSuccess;
}

ncclResult_t swl_soft_address(struct swl_nic *base, uint32_t qp, struct swl_nic_address *address_p)
{
    struct soft_nic *nic = soft_of(base);
    struct soft_address a = {.id = SOFT_ADDRESS_ID, .nic = nic->id, .serial = nic->serial};

    SWL_TRY(soft_process(nic, &a.process));
    a.qp = qp;
    a.qpn = nic->qps[qp].qpn;
    a.executor = nic->executor;
    a.share = nic->share;
    memset(address_p, 0, sizeof(*address_p));
    memcpy(address_p->bytes, &a, sizeof(a));
    return ncclSuccess;
}

/* The peer's regions and port, as the executor of `nic` reaches them. `peer`: NULL = other
 * process. */
static ncclResult_t reach_peer(struct soft_nic *nic, struct soft_qp *q, struct soft_nic *peer,
                               const struct soft_address *a)
{
    struct soft_remote *remote;

    if (nic->executor != SWL_SOFT_BLOCKS) {
        q->remote = q->remote_live = peer->port;
        return nic->executor == SWL_SOFT_THREAD ? swl_soft_remote_get(nic, peer, a, &remote)
                                                : ncclSuccess;
    }
    SWL_TRY(swl_soft_remote_get(nic, peer, a, &remote));
    q->remote = remote->table;
    q->remote_live = remote->live;
    return ncclSuccess;
}

/* To blocks that run the peer's NIC: whether this end answers nobody. */
static ncclResult_t tell_peer(struct soft_nic *nic, uint32_t qp, uint32_t failed)
{
    const struct soft_qp *q = &nic->qps[qp];

    if (nic->executor != SWL_SOFT_BLOCKS || q->remote_live == NULL)
        return ncclSuccess;
    return swl_soft_copy(nic, &soft_qp_at(q->remote_live, q->peer_qp)->peer_failed, &failed,
                         sizeof(failed));
}

ncclResult_t swl_soft_connect(struct swl_nic *base, uint32_t qp, const struct swl_nic_address *peer)
{
    struct soft_nic *nic = soft_of(base);
    struct soft_qp *q = &nic->qps[qp];
    struct soft_address a;
    uint64_t process;
    struct soft_nic *remote;

    memcpy(&a, peer->bytes, sizeof(a));
    SWL_TRY(soft_process(nic, &process));
    if (a.id != SOFT_ADDRESS_ID)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: queue pair 0x%06x: the peer has no software NIC", nic->rank,
                        q->qpn);
    if (a.process != process && nic->executor != SWL_SOFT_BLOCKS)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: queue pair 0x%06x: the peer is in another process; only "
                        "software NICs on blocks of kernels connect ranks of several processes",
                        nic->rank, q->qpn);
    if ((a.executor == SWL_SOFT_BLOCKS) != (nic->executor == SWL_SOFT_BLOCKS))
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: queue pair 0x%06x: SWIMLANE_SOFT_EXECUTOR differs from "
                        "the peer's",
                        nic->rank, q->qpn);
    if (__atomic_load_n(&q->state, __ATOMIC_ACQUIRE) != SWL_NIC_QP_INIT)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair 0x%06x is already connected",
                        nic->rank, q->qpn);
    remote = a.process == process ? find(&a) : NULL;
    if (a.process == process &&
        (remote == NULL || a.qp >= remote->port->nqps || remote->qps[a.qp].qpn != a.qpn))
        return swl_fail(ncclSystemError,
                        "rank %u nic: queue pair 0x%06x: the peer's queue pair 0x%06x is gone",
                        nic->rank, q->qpn, a.qpn);
    SWL_TRY(reach_peer(nic, q, remote, &a));
    if (remote)
        __atomic_add_fetch(&remote->references, 1, __ATOMIC_RELAXED);
    q->peer = remote;
    q->peer_qp = a.qp;
    /* release: pairs with the acquire of the executors at both ends */
    __atomic_store_n(&q->state, SWL_NIC_QP_READY, __ATOMIC_RELEASE);
    soft_kick(nic);
    SWL_TRY(swl_soft_push_qp(nic, qp));
    return tell_peer(nic, qp, 0); /* after a reset it may believe otherwise */
}

ncclResult_t swl_soft_view(struct swl_nic *base, uint32_t qp, struct swl_qp *view_p)
{
    struct soft_nic *nic = soft_of(base);
    const struct soft_qp *q = &nic->qps[qp];

    swl_host_qp_view(q, nic->sink, nic->sink_key, view_p);
    /* blocks of this GPU read queue and payload themselves; others read from outside */
    view_p->scope = nic->executor == SWL_SOFT_BLOCKS ? SWL_QP_SCOPE_GPU : SWL_QP_SCOPE_SYS;
    return ncclSuccess;
}

ncclResult_t swl_soft_query(struct swl_nic *base, uint32_t qp, struct swl_nic_qp_status *status_p)
{
    struct soft_nic *nic = soft_of(base);
    const struct soft_qp *q = &nic->qps[qp];
    struct soft_qp pulled;

    if (nic->executor == SWL_SOFT_BLOCKS) {
        SWL_TRY(swl_soft_pull_qp(nic, qp, &pulled));
        q = &pulled;
    }
    swl_host_qp_status(q, status_p);
    return ncclSuccess;
}

/* Of a NIC that blocks run, while no kernel does: the host is the executor. */
static ncclResult_t change(struct soft_nic *nic, uint32_t qp, enum soft_request what)
{
    struct soft_qp *q = &nic->qps[qp];
    struct swl_cqe c;

    SWL_TRY(swl_soft_pull_qp(nic, qp, q));
    if (what == SOFT_REQUEST_RESET) {
        soft_qp_start(q);
        q->state = SWL_NIC_QP_INIT;
        q->epoch++;
        SWL_TRY(start_memory(nic, q));
    } else if (q->state != SWL_NIC_QP_ERROR) {
        q->state = SWL_NIC_QP_ERROR;
        q->syndrome = SWL_SYNDROME_FLUSHED;
        q->bad_index = q->completed;
        swl_cqe_make(&c, q->completed, SWL_WQE_NOP, q->qpn, SWL_SYNDROME_FLUSHED);
        SWL_TRY(swl_soft_copy(nic, q->cq, &c, sizeof(c)));
        q->completed = q->executed = q->fetched = q->end;
        q->next_ns = q->flush_ns = UINT64_MAX;
    }
    SWL_TRY(swl_soft_push_qp(nic, qp));
    return what == SOFT_REQUEST_ERROR ? tell_peer(nic, qp, 1) : ncclSuccess;
}

static ncclResult_t request(struct soft_nic *nic, uint32_t qp, enum soft_request what)
{
    if (nic->executor == SWL_SOFT_BLOCKS)
        return change(nic, qp, what);
    return swl_host_qp_ask(&nic->qps[qp], what, &nic->kick, nic->rank, nic->timeout_ns);
}

ncclResult_t swl_soft_to_error(struct swl_nic *base, uint32_t qp)
{
    return request(soft_of(base), qp, SOFT_REQUEST_ERROR);
}

ncclResult_t swl_soft_reset(struct swl_nic *base, uint32_t qp)
{
    struct soft_qp *q = &soft_of(base)->qps[qp];

    SWL_TRY(request(soft_of(base), qp, SOFT_REQUEST_RESET));
    if (q->peer)
        swl_soft_nic_drop(q->peer);
    q->peer = NULL;
    q->remote = q->remote_live = NULL;
    return swl_soft_push_qp(soft_of(base), qp);
}
