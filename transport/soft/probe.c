/* probe.c: what tests and tools may do to software NICs: set faults, read counters.
 *
 * Layer: transport/soft. */
#include "transport/soft/host.h"

#include "src/base/error.h"
#include "src/gpu.h"

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

ncclResult_t swl_soft_faults_set(uint32_t rank, const char *text)
{
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        struct soft_nic *nic = swl_soft_nic_at(i);
        struct soft_faults *faults;
        size_t at = 0;

        if (nic == NULL || (rank != SWL_SOFT_ALL_RANKS && nic->rank != rank))
            continue;
        faults = malloc(sizeof(*faults));
        if (faults == NULL)
            return swl_fail(ncclSystemError, "rank %u nic: no memory for faults", nic->rank);
        if (!swl_soft_faults_parse(faults, text, nic->rank, &at)) {
            free(faults);
            return swl_fail(ncclInvalidArgument, "soft nic faults are malformed at '%s'",
                            text + at);
        }
        if (nic->executor == SWL_SOFT_BLOCKS) {
            ncclResult_t rc = give(nic, faults);

            free(faults);
            SWL_TRY(rc);
            continue;
        }
        faults->begin_ns = swl_gpu_now_ns();
        /* release: pairs with the exchange of the executor */
        free(__atomic_exchange_n(&nic->new_faults, faults, __ATOMIC_ACQ_REL));
        soft_kick(nic);
    }
    return ncclSuccess;
}

static void sum_up(struct swl_soft_stats *sum, const struct swl_soft_stats *part)
{
    for (size_t k = 0; k < sizeof(*sum) / sizeof(uint64_t); k++)
        ((uint64_t *)sum)[k] += __atomic_load_n((const uint64_t *)part + k, __ATOMIC_RELAXED);
}

bool swl_soft_stats_get(uint32_t rank, struct swl_soft_stats *stats_p)
{
    bool any = false;

    memset(stats_p, 0, sizeof(*stats_p));
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        struct soft_nic *nic = swl_soft_nic_at(i);

        if (nic == NULL || (rank != SWL_SOFT_ALL_RANKS && nic->rank != rank))
            continue;
        any = true;
        sum_up(stats_p, &nic->port->stats);
        for (uint32_t q = 0; nic->executor == SWL_SOFT_BLOCKS && q < nic->port->nqps; q++) {
            struct soft_qp qp;

            if (swl_soft_pull_qp(nic, q, &qp) == ncclSuccess)
                sum_up(stats_p, &qp.stats);
        }
    }
    return any;
}
