/* queue.c: queue pairs of the software NIC: creation, connection, state changes.
 *
 * Layer: transport/soft, behind nic.h. After connect a queue pair is the executor's; the host asks
 * it for changes of state and waits, bounded. */
#include "transport/soft/executor.h"
#include "transport/soft/host.h"

#include "src/base/error.h"
#include "src/gpu.h"

#include <string.h>

#define SOFT_ADDRESS_ID 0x736f6674u

/* What connect needs to know of the peer; travels as struct swl_nic_address. */
struct soft_address {
    uint32_t id;  /* SOFT_ADDRESS_ID */
    uint32_t nic; /* place in the table */
    uint64_t process;
    uint64_t serial; /* of the NIC, so that a place used again is noticed */
    uint32_t qp, qpn;
};
static_assert(sizeof(struct soft_address) <= sizeof(struct swl_nic_address),
              "the address travels inside the opaque one");

/* The NIC of an address, or NULL. */
static struct soft_nic *find(const struct soft_address *a)
{
    struct soft_nic *nic = swl_soft_nic_at(a->nic);

    return nic && nic->serial == a->serial ? nic : NULL;
}

ncclResult_t swl_soft_create_qp(struct swl_nic *base, uint32_t *qp_p)
{
    struct soft_nic *nic = soft_of(base);
    uint32_t i = nic->nqps;
    struct soft_qp *qp = &nic->qps[i];

    if (i == nic->max_qps)
        return swl_fail(ncclInvalidUsage, "rank %u nic: more than %u queue pairs", nic->rank,
                        nic->max_qps);
    qp->link = i;
    qp->qpn = ((uint32_t)soft_mix(nic->serial << 16 ^ i) << 12 & 0x7ff000u) | 0x800000u | i;
    qp->depth_log2 = nic->depth_log2;
    qp->first_index = nic->first_index;
    memset(qp->cq, 0xff, SWL_CQE_BYTES);
    qp->end = qp->fetched = qp->completed = qp->first_index;
    qp->fail_index = UINT64_MAX;
    qp->dbr[SWL_DBR_SEND] = swl_dbr_value(qp->first_index);
    *qp->doorbell = swl_doorbell_value(qp->first_index, qp->qpn);
    qp->seen = *qp->doorbell;
    nic->looked[i] = *qp->doorbell;
    __atomic_store_n(&qp->state, SWL_NIC_QP_INIT, __ATOMIC_RELAXED);
    /* release: pairs with the acquire of the executor */
    __atomic_store_n(&nic->nqps, i + 1, __ATOMIC_RELEASE);
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
    memset(address_p, 0, sizeof(*address_p));
    memcpy(address_p->bytes, &a, sizeof(a));
    return ncclSuccess;
}

ncclResult_t swl_soft_connect(struct swl_nic *base, uint32_t qp, const struct swl_nic_address *peer)
{
    struct soft_nic *nic = soft_of(base);
    struct soft_qp *q = &nic->qps[qp];
    struct soft_address a;
    uint64_t process;
    struct soft_nic *far;

    memcpy(&a, peer->bytes, sizeof(a));
    SWL_TRY(soft_process(nic, &process));
    if (a.id != SOFT_ADDRESS_ID)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: queue pair 0x%06x: the peer has no software NIC", nic->rank,
                        q->qpn);
    if (a.process != process)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: queue pair 0x%06x: the peer is in another process; software "
                        "NICs connect only ranks of one process",
                        nic->rank, q->qpn);
    if (__atomic_load_n(&q->state, __ATOMIC_ACQUIRE) != SWL_NIC_QP_INIT)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair 0x%06x is already connected",
                        nic->rank, q->qpn);
    far = find(&a);
    if (far == NULL || a.qp >= far->nqps || far->qps[a.qp].qpn != a.qpn)
        return swl_fail(ncclSystemError,
                        "rank %u nic: queue pair 0x%06x: the peer's queue pair 0x%06x is gone",
                        nic->rank, q->qpn, a.qpn);
    __atomic_add_fetch(&far->references, 1, __ATOMIC_RELAXED);
    q->peer = far;
    q->peer_qp = a.qp;
    /* release: pairs with the acquire of the executors at both ends */
    __atomic_store_n(&q->state, SWL_NIC_QP_READY, __ATOMIC_RELEASE);
    soft_kick(nic);
    return ncclSuccess;
}

ncclResult_t swl_soft_view(struct swl_nic *base, uint32_t qp, struct swl_qp *view_p)
{
    struct soft_nic *nic = soft_of(base);
    const struct soft_qp *q = &nic->qps[qp];

    memset(view_p, 0, sizeof(*view_p));
    view_p->sq = q->sq;
    view_p->dbr = q->dbr;
    view_p->doorbell = q->doorbell;
    view_p->cq = q->cq;
    view_p->sink = (uint64_t)(uintptr_t)nic->sink;
    view_p->sink_lkey = nic->sink_key;
    view_p->qpn = q->qpn;
    view_p->depth_log2 = q->depth_log2;
    view_p->scope = SWL_QP_SCOPE_SYS;
    view_p->reserved = view_p->ready = view_p->rung = view_p->done = q->first_index;
    return ncclSuccess;
}

ncclResult_t swl_soft_query(struct swl_nic *base, uint32_t qp, struct swl_nic_qp_status *status_p)
{
    const struct soft_qp *q = &soft_of(base)->qps[qp];

    status_p->qpn = q->qpn;
    /* acquire: pairs with the release of the executor when it enters the error state */
    status_p->state = (enum swl_nic_qp_state)__atomic_load_n(&q->state, __ATOMIC_ACQUIRE);
    status_p->syndrome = status_p->state == SWL_NIC_QP_ERROR ? q->syndrome : 0;
    status_p->index = status_p->state == SWL_NIC_QP_ERROR ? q->bad_index : 0;
    return ncclSuccess;
}

static ncclResult_t request(struct soft_nic *nic, struct soft_qp *qp, enum soft_request what)
{
    __atomic_store_n(&qp->request, what, __ATOMIC_RELEASE);
    soft_kick(nic);
    if (!swl_soft_executor_wait("soft nic: request of the host", &qp->request, SOFT_REQUEST_NONE,
                                nic->timeout_ns))
        return swl_fail(ncclSystemError, "rank %u nic: queue pair 0x%06x did not change state",
                        nic->rank, qp->qpn);
    return ncclSuccess;
}

ncclResult_t swl_soft_to_error(struct swl_nic *base, uint32_t qp)
{
    return request(soft_of(base), &soft_of(base)->qps[qp], SOFT_REQUEST_ERROR);
}

ncclResult_t swl_soft_reset(struct swl_nic *base, uint32_t qp)
{
    struct soft_qp *q = &soft_of(base)->qps[qp];

    SWL_TRY(request(soft_of(base), q, SOFT_REQUEST_RESET));
    if (q->peer)
        swl_soft_nic_drop(q->peer);
    q->peer = NULL;
    return ncclSuccess;
}
