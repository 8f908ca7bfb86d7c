/* probe.c: what tests and tools may do to software NICs and proxies: set faults, read counters.
 *
 * Layer: transport/soft. */
#include "transport/soft/host.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

/* To blocks, which may be looking: first no rule, last the rules; the epoch restarts their counts. */
static ncclResult_t give(struct soft_nic *nic, const struct soft_faults *faults)
{
    struct soft_port *port = nic->port;
    const uint32_t nrules = faults->nrules;

    port->faults.nrules = 0;
    SWL_TRY(swl_soft_push_port(nic, &port->faults.nrules, sizeof(port->faults.nrules)));
    port->faults = *faults;
    port->faults.nrules = 0;
    SWL_TRY(swl_soft_push_port(nic, &port->faults, sizeof(port->faults)));
    port->fault_epoch++;
    SWL_TRY(swl_soft_push_port(nic, &port->fault_epoch, sizeof(port->fault_epoch)));
    port->faults.nrules = nrules;
    return swl_soft_push_port(nic, &port->faults.nrules, sizeof(port->faults.nrules));
}

/* NICs that are no software NICs; a place is claimed by compare-and-swap. */
static const struct soft_probe *probes[SOFT_NICS_MAX];

bool swl_soft_probe_add(struct soft_probe *probe)
{
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        const struct soft_probe *none = NULL;

        /* release: pairs with the acquire in probe_at() */
        if (__atomic_compare_exchange_n(&probes[i], &none, probe, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

void swl_soft_probe_drop(const struct soft_probe *probe)
{
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        const struct soft_probe *mine = probe;

        if (__atomic_compare_exchange_n(&probes[i], &mine, NULL, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return;
    }
}

static const struct soft_probe *probe_at(uint32_t i, uint32_t rank)
{
    const struct soft_probe *p = __atomic_load_n(&probes[i], __ATOMIC_ACQUIRE);

    return p && (rank == SWL_SOFT_ALL_RANKS || p->rank == rank) ? p : NULL;
}

static struct soft_nic *nic_at(uint32_t i, uint32_t rank)
{
    struct soft_nic *nic = swl_soft_nic_at(i);

    return nic && (rank == SWL_SOFT_ALL_RANKS || nic->rank == rank) ? nic : NULL;
}

/* The text as a NIC of this rank understands it; NULL: refused. */
static struct soft_faults *understand(uint32_t rank, uint32_t can, const char *text,
                                      ncclResult_t *rc_p)
{
    struct soft_faults *faults = malloc(sizeof(*faults));
    size_t at = 0;

    if (faults == NULL) {
        *rc_p = swl_no_memory("faults");
        return NULL;
    }
    if (!swl_soft_faults_parse(faults, text, rank, &at))
        *rc_p = swl_fail(ncclInvalidArgument, "soft nic faults are malformed at '%s'", text + at);
    else if (swl_soft_faults_beyond(faults, can))
        *rc_p = swl_fail(ncclInvalidUsage, "rank %u nic cannot do %s", rank,
                         swl_soft_faults_beyond(faults, can));
    else
        *rc_p = ncclSuccess;
    faults->begin_ns = swl_gpu_now_ns();
    if (*rc_p == ncclSuccess)
        return faults;
    free(faults);
    return NULL;
}

/* To an executor of the host. */
static void hand(struct soft_faults **place, uint32_t *kick, struct soft_faults *faults)
{
    /* release: pairs with the exchange of the executor */
    free(__atomic_exchange_n(place, faults, __ATOMIC_ACQ_REL));
    __atomic_fetch_add(kick, 1, __ATOMIC_RELEASE);
}

ncclResult_t swl_soft_faults_set(uint32_t rank, const char *text)
{
    ncclResult_t rc = ncclSuccess;

    for (uint32_t i = 0; i < SOFT_NICS_MAX && rc == ncclSuccess; i++) {
        const struct soft_probe *probe = probe_at(i, rank);
        struct soft_nic *nic = nic_at(i, rank);
        struct soft_faults *faults;

        if (probe) {
            faults = understand(probe->rank, SOFT_CAN_ALL, text, &rc);
            if (faults)
                hand(probe->new_faults, probe->kick, faults);
        }
        if (nic == NULL || rc != ncclSuccess)
            continue;
        faults = understand(nic->rank, swl_soft_can(nic->executor), text, &rc);
        if (faults && nic->executor == SWL_SOFT_BLOCKS) {
            rc = give(nic, faults);
            free(faults);
        } else if (faults) {
            hand(&nic->new_faults, &nic->kick, faults);
        }
    }
    return rc;
}

void swl_soft_stats_add(struct swl_soft_stats *sum, const struct swl_soft_stats *part)
{
    for (size_t k = 0; k < sizeof(*sum) / sizeof(uint64_t); k++)
        ((uint64_t *)sum)[k] += __atomic_load_n((const uint64_t *)part + k, __ATOMIC_RELAXED);
}

bool swl_soft_stats_get(uint32_t rank, struct swl_soft_stats *stats_p)
{
    bool any = false;

    memset(stats_p, 0, sizeof(*stats_p));
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        const struct soft_probe *probe = probe_at(i, rank);
        struct soft_nic *nic = nic_at(i, rank);

        any = any || probe || nic;
        if (probe)
            probe->sum(probe->nic, stats_p);
        if (nic)
            swl_soft_stats_sum(nic, stats_p);
    }
    return any;
}

void swl_soft_stats_sum(struct soft_nic *nic, struct swl_soft_stats *sum)
{
    swl_soft_stats_add(sum, &nic->port->stats);
    for (uint32_t q = 0; nic->executor == SWL_SOFT_BLOCKS && q < nic->port->nqps; q++) {
        struct soft_qp qp;

        if (swl_soft_pull_qp(nic, q, &qp) == ncclSuccess)
            swl_soft_stats_add(sum, &qp.stats);
    }
}
