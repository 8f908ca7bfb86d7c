/* probe.c: see probe.h. Layer: transport/host. */
#include "transport/host/probe.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/runtime/runtime.h"
#include "transport/host/host.h"

#include <stdlib.h>
#include <string.h>

/* A place is claimed by compare-and-swap. */
static const struct host_probe *probes[SOFT_NICS_MAX];

bool swl_host_probe_add(struct host_probe *probe)
{
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        const struct host_probe *none = NULL;

        /* release: pairs with the acquire in probe_at() */
        if (__atomic_compare_exchange_n(&probes[i], &none, probe, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

void swl_host_probe_drop(const struct host_probe *probe)
{
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        const struct host_probe *mine = probe;

        if (__atomic_compare_exchange_n(&probes[i], &mine, NULL, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return;
    }
}

static const struct host_probe *probe_at(uint32_t i, uint32_t rank)
{
    const struct host_probe *p = __atomic_load_n(&probes[i], __ATOMIC_ACQUIRE);

    return p && (rank == SWL_HOST_ALL_RANKS || p->rank == rank) ? p : NULL;
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
    if (!swl_faults_parse(faults, text, rank, &at))
        *rc_p = swl_fail(ncclInvalidArgument, "soft nic faults are malformed at '%s'", text + at);
    else if (swl_faults_beyond(faults, can))
        *rc_p = swl_fail(ncclInvalidUsage, "rank %u nic cannot do %s", rank,
                         swl_faults_beyond(faults, can));
    else
        *rc_p = ncclSuccess;
    faults->begin_ns = swl_gpu_now_ns();
    if (*rc_p == ncclSuccess)
        return faults;
    free(faults);
    return NULL;
}

ncclResult_t swl_host_hand_faults(struct soft_faults **place, uint32_t *kick,
                                  struct soft_faults *faults)
{
    /* release: pairs with the exchange of the executor */
    free(__atomic_exchange_n(place, faults, __ATOMIC_ACQ_REL));
    __atomic_fetch_add(kick, 1, __ATOMIC_RELEASE);
    return ncclSuccess;
}

ncclResult_t swl_host_set_faults(uint32_t rank, const char *text)
{
    ncclResult_t rc = ncclSuccess;

    for (uint32_t i = 0; i < SOFT_NICS_MAX && rc == ncclSuccess; i++) {
        const struct host_probe *probe = probe_at(i, rank);
        struct soft_faults *faults = probe ? understand(probe->rank, probe->can, text, &rc) : NULL;

        if (faults)
            rc = probe->set_faults(probe->nic, faults);
    }
    return rc;
}

void swl_host_stats_add(struct swl_soft_stats *sum, const struct swl_soft_stats *part)
{
    for (size_t k = 0; k < sizeof(*sum) / sizeof(uint64_t); k++)
        ((uint64_t *)sum)[k] += __atomic_load_n((const uint64_t *)part + k, __ATOMIC_RELAXED);
}

bool swl_host_get_stats(uint32_t rank, struct swl_soft_stats *stats_p)
{
    bool any = false;

    memset(stats_p, 0, sizeof(*stats_p));
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        const struct host_probe *probe = probe_at(i, rank);

        any = any || probe;
        if (probe)
            probe->sum(probe->nic, stats_p);
    }
    return any;
}
