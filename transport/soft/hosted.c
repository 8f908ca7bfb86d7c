/* hosted.c: queue pairs whose queues, doorbells and completions a thread of the host serves, of the software
 * NIC and of proxies. Layer: transport/soft. Owns nothing. */
#include "transport/soft/executor.h"
#include "transport/soft/host.h"

#include "src/base/error.h"

#include <string.h>

void swl_host_qp_view(const struct soft_qp *q, const uint64_t *sinks, uint32_t sink_key,
                      struct swl_qp *view_p)
{
    memset(view_p, 0, sizeof(*view_p));
    view_p->sq = q->sq;
    view_p->dbr = q->dbr;
    view_p->doorbell = q->doorbell;
    view_p->cq = q->cq;
    view_p->sink = (uint64_t)(uintptr_t)(sinks + q->link);
    view_p->sink_lkey = sink_key;
    view_p->qpn = q->qpn;
    view_p->depth_log2 = q->depth_log2;
    view_p->scope = SWL_QP_SCOPE_SYS;
    view_p->reserved = view_p->ready = view_p->rung = view_p->done = q->first_index;
}

void swl_host_qp_status(const struct soft_qp *q, struct swl_nic_qp_status *status_p)
{
    status_p->qpn = q->qpn;
    /* acquire: pairs with the release of the executor when it enters the error state */
    status_p->state = (enum swl_nic_qp_state)__atomic_load_n(&q->state, __ATOMIC_ACQUIRE);
    status_p->syndrome = status_p->state == SWL_NIC_QP_ERROR ? q->syndrome : 0;
    status_p->index = status_p->state == SWL_NIC_QP_ERROR ? q->bad_index : 0;
}

ncclResult_t swl_host_qp_ask(struct soft_qp *q, enum soft_request what, uint32_t *kick,
                             uint32_t rank, uint64_t timeout_ns)
{
    __atomic_store_n(&q->request, what, __ATOMIC_RELEASE);
    /* release: pairs with the acquire of kick by the executor */
    __atomic_fetch_add(kick, 1, __ATOMIC_RELEASE);
    if (!swl_soft_executor_wait("nic: request of the host", &q->request, SOFT_REQUEST_NONE,
                                timeout_ns))
        return swl_fail(ncclSystemError, "rank %u nic: queue pair 0x%06x did not change state",
                        rank, q->qpn);
    return ncclSuccess;
}
