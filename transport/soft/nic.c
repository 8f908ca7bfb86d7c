/* nic.c: the host side of the software NIC: life and regions.
 *
 * Layer: transport/soft, behind nic.h. The creator owns the NIC's memory. The struct and its host
 * port are counted: the creator, the executor and every connected queue pair of a peer hold a
 * reference, so that a peer's executor may still ask a destroyed NIC, which then answers nobody. */
#include "transport/soft/executor.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"
#include "transport/host/executor.h"

#include <stdlib.h>
#include <string.h>

#define SOFT_BLOCKS 4u /* built-in, on GPUs */

static uint64_t serials;

uint32_t swl_soft_blocks(const struct swl_nic_settings *set, bool multi_process)
{
    if (swl_soft_executor(set->executor) != SWL_SOFT_BLOCKS &&
        !(multi_process && set->executor == SWL_SOFT_AUTO))
        return 0;
    if (set->soft_blocks)
        return set->soft_blocks;
    return swl_soft_executor(SWL_SOFT_AUTO) == SWL_SOFT_BLOCKS ? SOFT_BLOCKS : 1;
}

static ncclResult_t settings(struct soft_nic *nic, const struct swl_nic_config *config)
{
    struct soft_port *port = nic->port;

    if (!soft_by_blocks(nic)) /* those take the time they take */
        port->link.latency_ns = port->link.jitter_ns = 1000;
    SWL_TRY(swl_host_settings(config, "a software NIC on blocks", swl_soft_can(nic->executor),
                              &port->link, &port->faults));
    port->fault_epoch = 1;
    port->dead_ns = swl_faults_falls(&port->faults, port->faults.begin_ns);
    return ncclSuccess;
}

static ncclResult_t soft_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                                struct swl_nic_region *region_p);

/* Whoever wants no particular one and has blocks for the NIC counts on them. */
static uint32_t soft_executor(const struct swl_nic_config *config)
{
    const uint32_t wish = config->settings.executor;

    return wish == SWL_SOFT_AUTO && config->gpu_blocks ? (uint32_t)SWL_SOFT_BLOCKS
                                                       : swl_soft_executor(wish);
}

static ncclResult_t soft_check(const struct swl_nic_config *config)
{
    const uint32_t executor = soft_executor(config);
    const char *missing = swl_soft_executor_missing(executor);

    if (missing)
        return swl_fail(ncclInvalidUsage, "rank %u nic: %s", config->rank, missing);
    if (executor == SWL_SOFT_BLOCKS && config->gpu_blocks == 0)
        return swl_fail(ncclInvalidUsage, "rank %u nic: no block of a kernel would run it",
                        config->rank);
    return swl_nic_check_config(config, SOFT_QPS_MAX);
}

/* ---- probe ---- */

/* To blocks, which may be looking: first no rule, last the rules; the epoch restarts their
 * counts. */
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

static ncclResult_t set_faults(void *arg, struct soft_faults *faults)
{
    struct soft_nic *nic = arg;
    ncclResult_t rc;

    if (!soft_by_blocks(nic))
        return swl_host_hand_faults(&nic->new_faults, &nic->kick, faults);
    rc = give(nic, faults);
    free(faults);
    return rc;
}

static void sum_stats(const void *arg, struct swl_soft_stats *sum)
{
    struct soft_nic *nic = (struct soft_nic *)(uintptr_t)arg;

    swl_host_stats_add(sum, &nic->port->stats);
    for (uint32_t q = 0; soft_by_blocks(nic) && q < nic->port->nqps; q++) {
        struct soft_qp qp;

        if (swl_soft_pull_qp(nic, q, &qp) == ncclSuccess)
            swl_host_stats_add(sum, &qp.stats);
    }
}

/* ---- life ---- */

static ncclResult_t soft_create(struct swl_nic **nic_p, const struct swl_nic_config *config)
{
    uint32_t nqps = config->max_qps ? config->max_qps : 1;
    struct swl_nic_region sink = {0};
    struct soft_nic *nic;
    ncclResult_t rc;

    SWL_TRY(soft_check(config));
    nic = swl_soft_alloc(nqps, config->depth, soft_executor(config));
    if (nic == NULL)
        return swl_no_memory("%u queue pairs of %u entries", nqps, config->depth);
    nic->base.ops = swl_soft_ops();
    nic->rank = nic->port->rank = config->rank;
    nic->device = config->device;
    nic->blocks = soft_by_blocks(nic) ? config->gpu_blocks : 0;
    nic->depth_log2 = (uint32_t)__builtin_ctz(config->depth);
    nic->first_index = config->first_index;
    nic->timeout_ns = config->timeout_ns;
    nic->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    nic->port->pd = (uint32_t)soft_mix(nic->serial) & 0xffffffu;
    rc = settings(nic, config);
    if (rc == ncclSuccess)
        rc = swl_soft_open_memory(nic);
    if (rc != ncclSuccess)
        goto undo_memory;
    rc = soft_reg_mr(&nic->base, nic->sink, 8ull * nqps, SWL_NIC_LOCAL_WRITE, &sink);
    if (rc != ncclSuccess)
        goto undo_memory;
    nic->sink_key = sink.lkey;
    nic->probe =
        (struct host_probe){nic->rank, swl_soft_can(nic->executor), nic, set_faults, sum_stats};
    if (!swl_soft_enroll(nic) || !swl_host_probe_add(&nic->probe)) {
        rc = swl_fail(ncclSystemError, "rank %u nic: more than %u NICs in a process", config->rank,
                      SOFT_NICS_MAX);
        goto undo_memory;
    }
    if (!soft_by_blocks(nic)) {
        __atomic_add_fetch(&nic->references, 1, __ATOMIC_RELAXED);
        if (!swl_soft_executor_start(nic)) {
            rc = swl_fail(ncclSystemError, "rank %u nic: no thread to run it", config->rank);
            goto undo_reference;
        }
    }
    *nic_p = &nic->base;
    return ncclSuccess;
undo_reference:
    __atomic_sub_fetch(&nic->references, 1, __ATOMIC_ACQ_REL); /* the executor that never ran */
undo_memory:
    swl_host_probe_drop(&nic->probe);
    swl_soft_withdraw(nic);
    (void)swl_soft_close_memory(nic);
    swl_soft_nic_drop(nic);
    return rc;
}

/* The executor and all peers are out of this NIC's memory. */
static ncclResult_t soft_quiet(struct soft_nic *nic)
{
    if (soft_by_blocks(nic)) /* no kernel of a connected rank runs any more: the group has agreed */
        return ncclSuccess;
    __atomic_store_n(&nic->stop, 1, __ATOMIC_RELEASE);
    soft_kick(nic);
    if (!swl_host_executor_wait("soft nic: end of the executor", &nic->ended, 1, nic->timeout_ns) ||
        !swl_host_executor_wait("soft nic: peers inside", &nic->port->users, 0, nic->timeout_ns))
        return swl_fail(ncclSystemError, "rank %u nic: the software NIC did not end", nic->rank);
    return ncclSuccess;
}

/* What the NIC has done, and what went wrong in queue pairs that blocks served; afterwards nobody
 * can know. */
static void report(struct soft_nic *nic)
{
    struct swl_soft_stats stats = {0};

    sum_stats(nic, &stats);
    swl_host_report(nic->rank, "soft", &stats);
    for (uint32_t i = 0; soft_by_blocks(nic) && i < nic->port->nqps; i++) {
        struct soft_qp qp;

        if (swl_soft_pull_qp(nic, i, &qp) != ncclSuccess || qp.state != SWL_NIC_QP_ERROR)
            continue;
        swl_log(SWL_LEVEL_INFO,
                "rank %u nic: queue pair %u ended at entry %llu, syndrome 0x%02x, word 0x%016llx; "
                "accepted up to %llu, completed %llu; %llu of %llu doorbells bad, %llu entries "
                "rewritten",
                nic->rank, i, (unsigned long long)qp.bad_index, qp.syndrome,
                (unsigned long long)qp.bad_word, (unsigned long long)qp.end,
                (unsigned long long)qp.completed, (unsigned long long)qp.stats.bad_doorbells,
                (unsigned long long)qp.stats.doorbells, (unsigned long long)qp.stats.rewritten);
    }
}

static ncclResult_t soft_destroy(struct swl_nic *base)
{
    struct soft_nic *nic = soft_of(base);
    ncclResult_t rc, next;

    if (nic == NULL)
        return ncclSuccess;
    __atomic_store_n(&nic->port->dead, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < SOFT_REGIONS; i++)
        __atomic_store_n(&nic->port->regions[i].key, 0, __ATOMIC_SEQ_CST);
    swl_host_probe_drop(&nic->probe);
    swl_soft_withdraw(nic);
    SWL_TRY(soft_quiet(nic));
    report(nic);
    for (uint32_t i = 0; i < nic->port->nqps; i++)
        if (nic->qps[i].peer)
            swl_soft_nic_drop(nic->qps[i].peer);
    rc = swl_soft_remote_release(nic);
    next = swl_soft_close_memory(nic);
    swl_soft_nic_drop(nic);
    return rc != ncclSuccess ? rc : next;
}

static void soft_caps(const struct swl_nic *base, struct swl_nic_caps *caps_p)
{
    const struct soft_nic *nic = (const struct soft_nic *)base;

    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->name = "soft";
    caps_p->max_depth = SWL_WQE_DEPTH_MAX;
    caps_p->max_qps = SOFT_QPS_MAX;
    caps_p->max_region_bytes = UINT64_MAX;
    caps_p->device_bytes = nic->executor == SWL_SOFT_THREAD ? 0 : nic->memory_bytes;
    caps_p->gpu_blocks = nic->blocks;
    caps_p->served = nic->device_port;
}

static ncclResult_t soft_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                                struct swl_nic_region *region_p)
{
    struct soft_nic *nic = soft_of(base);
    uint32_t slot;

    SWL_TRY(swl_host_region_add(nic->port, nic->serial, ptr, bytes, access, region_p));
    slot = soft_region_slot(region_p->lkey);
    if (soft_by_blocks(nic) && slot < SOFT_EXPORTS) {
        swl_soft_export(nic, slot);
        SWL_TRY(swl_soft_push_port(nic, &nic->port->exports[slot], sizeof(nic->port->exports[0])));
    }
    return swl_soft_push_port(nic, &nic->port->regions[slot], sizeof(nic->port->regions[0]));
}

static ncclResult_t soft_dereg_mr(struct swl_nic *base, const struct swl_nic_region *region)
{
    struct soft_nic *nic = soft_of(base);
    SWL_TRY(swl_host_region_drop(nic->port, region));
    if (soft_by_blocks(nic))
        return swl_soft_push_port(nic, &nic->port->regions[soft_region_slot(region->lkey)],
                                  sizeof(nic->port->regions[0]));
    return swl_host_region_unused(nic->port, nic->timeout_ns);
}

const struct swl_nic_ops *swl_soft_ops(void)
{
    static const struct swl_nic_ops ops = {
        .name = "soft",
        .create = soft_create,
        .destroy = soft_destroy,
        .caps = soft_caps,
        .reg_mr = soft_reg_mr,
        .dereg_mr = soft_dereg_mr,
        .create_qp = swl_soft_create_qp,
        .address = swl_soft_address,
        .connect = swl_soft_connect,
        .view = swl_soft_view,
        .query = swl_soft_query,
        .to_error = swl_soft_to_error,
        .reset = swl_soft_reset,
    };

    return &ops;
}
