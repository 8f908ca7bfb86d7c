/* probe.c: what tests and tools may do to software NICs: set faults, read counters.
 *
 * Layer: transport/soft. */
#include "transport/soft/host.h"

#include "src/base/error.h"
#include "src/gpu.h"

#include <stdlib.h>
#include <string.h>

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
        faults->begin_ns = swl_gpu_now_ns();
        /* release: pairs with the exchange of the executor */
        free(__atomic_exchange_n(&nic->new_faults, faults, __ATOMIC_ACQ_REL));
        soft_kick(nic);
    }
    return ncclSuccess;
}

bool swl_soft_stats_get(uint32_t rank, struct swl_soft_stats *stats_p)
{
    uint64_t *sum = (uint64_t *)stats_p;
    bool any = false;

    memset(stats_p, 0, sizeof(*stats_p));
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        struct soft_nic *nic = swl_soft_nic_at(i);

        if (nic == NULL || (rank != SWL_SOFT_ALL_RANKS && nic->rank != rank))
            continue;
        any = true;
        for (size_t k = 0; k < sizeof(*stats_p) / sizeof(uint64_t); k++)
            sum[k] += __atomic_load_n((const uint64_t *)&nic->stats + k, __ATOMIC_RELAXED);
    }
    return any;
}
