/* queue.c: queue pairs of a proxy NIC: creation, connection, state changes.
 *
 * Layer: transport/proxy, behind nic.h. */
#include "transport/proxy/front.h"

#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "transport/host/executor.h"
#include "transport/host/host.h"

#include <string.h>

#define PROXY_ADDRESS_ID 0x70726f78u

/* Travels as struct swl_nic_address. */
struct proxy_address {
    uint32_t id;
    uint32_t qpn;
    char name[16]; /* of the wire */
    struct swl_wire_address wire;
};
static_assert(sizeof(struct proxy_address) == sizeof(struct swl_nic_address),
              "the address travels inside the opaque one");

ncclResult_t swl_proxy_create_qp(struct swl_nic *base, uint32_t *qp_p)
{
    struct proxy_nic *nic = proxy_of(base);
    const uint32_t i = nic->nqps;
    struct soft_qp *qp;
    uint32_t wire_qp;

    if (i == nic->max_qps)
        return swl_fail(ncclInvalidUsage, "rank %u nic: more than %u queue pairs", nic->rank,
                        nic->max_qps);
    SWL_TRY(nic->wire_ops->create_qp(nic->wire, &wire_qp));
    qp = &nic->qps[i];
    qp->link = wire_qp;
    qp->qpn = ((uint32_t)soft_mix(nic->serial << 16 ^ i) << 12 & 0x7ff000u) | 0x800000u | i;
    qp->depth_log2 = nic->depth_log2;
    qp->first_index = nic->first_index;
    soft_qp_start(qp);
    nic->turns[i].acked = nic->turns[i].run = qp->first_index;
    memset(qp->cq, 0xff, SWL_CQE_BYTES);
    qp->dbr[SWL_DBR_SEND] = swl_dbr_value(qp->first_index);
    *qp->doorbell = nic->looked[i] = qp->seen;
    __atomic_store_n(&qp->state, SWL_NIC_QP_INIT, __ATOMIC_RELAXED);
    /* release: pairs with the acquire of the server */
    __atomic_store_n(&nic->nqps, i + 1, __ATOMIC_RELEASE);
    *qp_p = i;
    return ncclSuccess;
}

ncclResult_t swl_proxy_address(struct swl_nic *base, uint32_t qp, struct swl_nic_address *address_p)
{
    struct proxy_nic *nic = proxy_of(base);
    struct proxy_address a = {.id = PROXY_ADDRESS_ID, .qpn = nic->qps[qp].qpn};

    strncpy(a.name, nic->wire_ops->name, sizeof(a.name) - 1);
    SWL_TRY(nic->wire_ops->address(nic->wire, qp, &a.wire));
    memcpy(address_p->bytes, &a, sizeof(a));
    return ncclSuccess;
}

ncclResult_t swl_proxy_connect(struct swl_nic *base, uint32_t qp,
                               const struct swl_nic_address *peer)
{
    struct proxy_nic *nic = proxy_of(base);
    struct soft_qp *q = &nic->qps[qp];
    struct proxy_address a;

    memcpy(&a, peer->bytes, sizeof(a));
    a.name[sizeof(a.name) - 1] = '\0';
    if (a.id != PROXY_ADDRESS_ID || strcmp(a.name, nic->wire_ops->name) != 0)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: queue pair 0x%06x: this end is %s, the peer's NIC is of "
                        "another kind",
                        nic->rank, q->qpn, nic->wire_ops->name);
    if (__atomic_load_n(&q->state, __ATOMIC_ACQUIRE) != SWL_NIC_QP_INIT)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair 0x%06x is already connected",
                        nic->rank, q->qpn);
    SWL_TRY(nic->wire_ops->connect(nic->wire, qp, &a.wire));
    /* release: pairs with the acquire of the server */
    __atomic_store_n(&q->state, SWL_NIC_QP_READY, __ATOMIC_RELEASE);
    proxy_kick(nic);
    return ncclSuccess;
}

ncclResult_t swl_proxy_view(struct swl_nic *base, uint32_t qp, struct swl_qp *view_p)
{
    struct proxy_nic *nic = proxy_of(base);

    swl_host_qp_view(&nic->qps[qp], nic->sink, nic->sink_key, view_p);
    return ncclSuccess;
}

ncclResult_t swl_proxy_query(struct swl_nic *base, uint32_t qp, struct swl_nic_qp_status *status_p)
{
    swl_host_qp_status(&proxy_of(base)->qps[qp], status_p);
    return ncclSuccess;
}

static ncclResult_t request_proxy(struct proxy_nic *nic, uint32_t qp, enum soft_request what)
{
    return swl_host_qp_ask(&nic->qps[qp], what, &nic->kick, nic->rank, nic->timeout_ns);
}

ncclResult_t swl_proxy_to_error(struct swl_nic *base, uint32_t qp)
{
    return request_proxy(proxy_of(base), qp, SOFT_REQUEST_ERROR);
}

ncclResult_t swl_proxy_reset(struct swl_nic *base, uint32_t qp)
{
    struct proxy_nic *nic = proxy_of(base);

    SWL_TRY(request_proxy(nic, qp, SOFT_REQUEST_RESET));
    SWL_TRY(nic->wire_ops->reset(nic->wire, qp));
    /* once more: completions that the server had polled before that are out of its hands
     * afterwards */
    return request_proxy(nic, qp, SOFT_REQUEST_RESET);
}
