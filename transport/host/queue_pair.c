/* queue_pair.c: queue pairs whose queues, doorbells and completions a thread of the host serves, of
 * the software NIC and of proxies. Layer: transport/host. Owns nothing. */
#include "transport/host/executor.h"
#include "transport/host/host.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/runtime/runtime.h"

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
    if (!swl_host_executor_wait("nic: request of the host", &q->request, SOFT_REQUEST_NONE,
                                timeout_ns))
        return swl_fail(ncclSystemError, "rank %u nic: queue pair 0x%06x did not change state",
                        rank, q->qpn);
    return ncclSuccess;
}

ncclResult_t swl_host_settings(const struct swl_nic_config *config, const char *who, uint32_t can,
                               struct soft_wire_model *link_p, struct soft_faults *faults_p)
{
    const char *text = config->settings.faults ? config->settings.faults : "";
    const struct swl_wire_model *link = &config->settings.link;
    const uint32_t nqps = config->max_qps ? config->max_qps : 1;
    const char *beyond;
    size_t at = 0;

    if (link->gbps > 0) {
        link_p->ns_per_mib = (uint64_t)(8.0 * 1048576.0 / link->gbps + 0.5);
        link_p->latency_ns = (uint64_t)(link->us * 1000.0 + 0.5);
        link_p->jitter_ns = 0;
    }
    if (!swl_faults_parse(faults_p, text, config->rank, &at)) {
        swl_log(SWL_LEVEL_WARN, "rank %u nic: SWIMLANE_SOFT_FAULTS is malformed at '%s'; no faults",
                config->rank, text + at);
        (void)swl_faults_parse(faults_p, "", config->rank, &at);
    }
    beyond = swl_faults_beyond(faults_p, can);
    if (beyond)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: SWIMLANE_SOFT_FAULTS asks for %s, which %s cannot do",
                        config->rank, beyond, who);
    if (faults_p->links > nqps)
        swl_log(SWL_LEVEL_WARN,
                "rank %u nic: SWIMLANE_SOFT_FAULTS names link %u, and there are links 0 to %u",
                config->rank, faults_p->links - 1, nqps - 1);
    faults_p->begin_ns = swl_gpu_now_ns();
    return ncclSuccess;
}

void swl_host_report(uint32_t rank, const char *who, const struct swl_soft_stats *stats)
{
    swl_log(SWL_LEVEL_INFO,
            "rank %u nic: %s: %llu entries, %llu bytes, %llu adds, %llu completions, %llu errors, "
            "%llu sent again, %llu of %llu doorbells dropped",
            rank, who, (unsigned long long)stats->entries, (unsigned long long)stats->bytes,
            (unsigned long long)stats->adds, (unsigned long long)stats->completions,
            (unsigned long long)stats->errors, (unsigned long long)stats->retries,
            (unsigned long long)stats->dropped, (unsigned long long)stats->doorbells);
}
