/* front.c: life of a proxy NIC; see front.h. Layer: transport/proxy, behind nic.h. */
#include "transport/proxy/front.h"

#include "kernels/device/hd.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"
#include "transport/host/executor.h"
#include "transport/host/host.h"

#include <stdlib.h>
#include <string.h>

static uint64_t serials;

/* Bytes of the NIC's memory: one line for each queue pair's record and completion, then queues. */
static uint64_t layout_proxy(struct proxy_nic *nic, uintptr_t base)
{
    const uint64_t depth = 1ull << nic->depth_log2;
    uint64_t at = 0;

    nic->doorbells = (uint64_t *)(base + swl_layout_reserve(&at, 8ull * nic->max_qps));
    nic->sink = (uint64_t *)(base + swl_layout_reserve(&at, 8ull * nic->max_qps));
    for (uint32_t i = 0; i < nic->max_qps; i++) {
        struct soft_qp *qp = &nic->qps[i];

        qp->cq = (uint32_t *)(base + swl_layout_reserve(&at, SWL_CQE_BYTES));
        qp->dbr = (uint32_t *)(base + swl_layout_reserve(&at, 64));
        qp->sq = (uint8_t *)(base + swl_layout_reserve(&at, depth * SWL_WQE_BYTES));
        qp->doorbell = &nic->doorbells[i];
        qp->ops = nic->ops + i * depth;
    }
    return at;
}

static void free_all(struct proxy_nic *nic)
{
    if (nic == NULL)
        return;
    free(nic->qps);
    free(nic->ops);
    free(nic->looked);
    free(nic->turns);
    free(nic->new_faults);
    free(nic);
}

/* NULL: no memory. */
static struct proxy_nic *alloc_all(uint32_t nqps, uint32_t depth)
{
    struct proxy_nic *nic = calloc(1, sizeof(*nic));

    if (nic == NULL)
        return NULL;
    nic->qps = calloc(nqps, sizeof(*nic->qps));
    nic->ops = calloc((size_t)nqps * depth, sizeof(*nic->ops));
    nic->looked = calloc(nqps, sizeof(*nic->looked));
    nic->turns = calloc(nqps, sizeof(*nic->turns));
    if (nic->qps && nic->ops && nic->looked && nic->turns)
        return nic;
    free_all(nic);
    return NULL;
}

static ncclResult_t open_wire(struct proxy_nic *nic, const struct swl_nic_config *config)
{
    const struct swl_wire_config wire = {
        .rank = nic->rank,
        .device = nic->device,
        .max_qps = nic->max_qps,
        .depth = 1u << nic->depth_log2,
        .first_index = nic->first_index,
        .timeout_ns = nic->timeout_ns,
        .silence_ns = config->silence_ns ? config->silence_ns : config->timeout_ns,
        .proximity = config->proximity,
        .settings = config->settings,
    };

    SWL_TRY(nic->wire_ops->open(&nic->wire, &wire));
    nic->wire_ops->caps(nic->wire, &nic->caps);
    return ncclSuccess;
}

/* As deep as the device can; its limit is known when the wire is open. */
static ncclResult_t open_fitting_wire(struct proxy_nic *nic, const struct swl_nic_config *config)
{
    const uint32_t wanted = 1u << nic->depth_log2;
    uint32_t depth;

    SWL_TRY(open_wire(nic, config));
    if (nic->max_qps > nic->caps.max_qps)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: %u queues; %s has at most %u: fewer queue pairs for each "
                        "peer may help (SWIMLANE_IB_QPS)",
                        nic->rank, nic->max_qps, nic->wire_ops->name, nic->caps.max_qps);
    depth = swl_nic_depth(nic->rank, nic->wire_ops->name, wanted, nic->caps.max_depth);
    if (depth == wanted)
        return ncclSuccess;
    if (depth == 0)
        return ncclInvalidUsage;
    nic->depth_log2 = (uint32_t)__builtin_ctz(depth);
    SWL_TRY(nic->wire_ops->close(nic->wire));
    nic->wire = NULL;
    return open_wire(nic, config);
}

static ncclResult_t open_memory(struct proxy_nic *nic)
{
    struct swl_nic_region sink = {0};
    void *memory = NULL;

    SWL_TRY(SWL_CUDA(swl_gpu_host_malloc(&memory, layout_proxy(nic, 0))));
    nic->memory = memory;
    (void)layout_proxy(nic, (uintptr_t)memory);
    SWL_TRY(nic->wire_ops->reg_mr(nic->wire, nic->sink, 8ull * nic->max_qps, SWL_NIC_LOCAL_WRITE,
                                  &sink));
    nic->sink_key = sink.lkey;
    return ncclSuccess;
}

static void sum(const void *arg, struct swl_soft_stats *sum)
{
    const struct proxy_nic *nic = arg;

    for (uint32_t i = 0; i < nic->max_qps; i++)
        swl_host_stats_add(sum, &nic->qps[i].stats);
}

static ncclResult_t set_faults(void *arg, struct soft_faults *faults)
{
    struct proxy_nic *nic = arg;

    return swl_host_hand_faults(&nic->new_faults, &nic->kick, faults);
}

/* The server has ended. */
static void report_proxy(const struct proxy_nic *nic)
{
    struct swl_soft_stats all = {0};

    sum(nic, &all);
    swl_host_report(nic->rank, nic->wire_ops->name, &all);
    for (uint32_t i = 0; i < nic->nqps; i++) {
        const struct soft_qp *q = &nic->qps[i];

        swl_log(SWL_LEVEL_DEBUG,
                "rank %u nic: queue pair %u: %llu entries, %llu bytes, %llu completions, %llu "
                "errors, %llu sent again; state %u, syndrome 0x%02x",
                nic->rank, i, (unsigned long long)q->stats.entries,
                (unsigned long long)q->stats.bytes, (unsigned long long)q->stats.completions,
                (unsigned long long)q->stats.errors, (unsigned long long)q->stats.retries, q->state,
                q->syndrome);
    }
}

static ncclResult_t close_all(struct proxy_nic *nic)
{
    ncclResult_t rc = ncclSuccess, next = ncclSuccess;

    if (nic->wire)
        rc = nic->wire_ops->close(nic->wire);
    if (nic->memory)
        next = SWL_CUDA(swl_gpu_host_free(nic->memory));
    free_all(nic);
    return rc != ncclSuccess ? rc : next;
}

ncclResult_t swl_proxy_create(struct swl_nic **nic_p, const struct swl_nic_config *config,
                              const struct swl_nic_ops *ops, const struct swl_wire_ops *wire_ops)
{
    const uint32_t nqps = config->max_qps ? config->max_qps : 1;
    struct proxy_nic *nic;
    ncclResult_t rc;

    SWL_TRY(swl_nic_check_config(config, PROXY_QPS_MAX));
    nic = alloc_all(nqps, config->depth);
    if (nic == NULL)
        return swl_no_memory("%u queue pairs of %u entries", nqps, config->depth);
    nic->base.ops = ops;
    nic->wire_ops = wire_ops;
    nic->rank = config->rank;
    nic->device = config->device;
    nic->max_qps = nqps;
    nic->depth_log2 = (uint32_t)__builtin_ctz(config->depth);
    nic->first_index = config->first_index;
    nic->timeout_ns = config->timeout_ns;
    nic->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    nic->probe = (struct host_probe){nic->rank, SOFT_CAN_ALL, nic, set_faults, sum};
    rc = swl_host_settings(config, wire_ops->name, SOFT_CAN_ALL, &nic->link, &nic->faults);
    if (rc == ncclSuccess)
        rc = open_fitting_wire(nic, config);
    if (rc == ncclSuccess)
        rc = open_memory(nic);
    if (rc == ncclSuccess && !swl_host_probe_add(&nic->probe))
        rc = swl_fail(ncclSystemError, "rank %u nic: more than %u NICs in a process", nic->rank,
                      SOFT_NICS_MAX);
    if (rc == ncclSuccess &&
        !swl_host_executor_run("proxy nic", nic->device, nic->caps.cpus, swl_proxy_serve, nic))
        rc = swl_fail(ncclSystemError, "rank %u nic: no thread to serve it", config->rank);
    if (rc != ncclSuccess) {
        swl_host_probe_drop(&nic->probe);
        (void)close_all(nic);
        return rc;
    }
    *nic_p = &nic->base;
    return ncclSuccess;
}

ncclResult_t swl_proxy_destroy(struct swl_nic *base)
{
    struct proxy_nic *nic = proxy_of(base);

    if (nic == NULL)
        return ncclSuccess;
    swl_host_probe_drop(&nic->probe);
    __atomic_store_n(&nic->stop, 1, __ATOMIC_RELEASE);
    proxy_kick(nic);
    /* acquire inside: pairs with the release at the end of the server, whose memory is freed now */
    if (!swl_host_executor_wait("proxy nic: end of the server", &nic->ended, 1, nic->timeout_ns))
        return swl_fail(ncclSystemError, "rank %u nic: its server did not end", nic->rank);
    report_proxy(nic);
    return close_all(nic);
}

void swl_proxy_caps(const struct swl_nic *base, struct swl_nic_caps *caps_p)
{
    const struct proxy_nic *nic = (const struct proxy_nic *)base;

    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->name = nic->wire_ops->name;
    caps_p->max_depth =
        nic->caps.max_depth < SWL_WQE_DEPTH_MAX ? nic->caps.max_depth : SWL_WQE_DEPTH_MAX;
    caps_p->max_qps = nic->caps.max_qps < PROXY_QPS_MAX ? nic->caps.max_qps : PROXY_QPS_MAX;
    caps_p->max_region_bytes = nic->caps.max_region_bytes;
}

ncclResult_t swl_proxy_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                              struct swl_nic_region *region_p)
{
    struct proxy_nic *nic = proxy_of(base);

    SWL_TRY(swl_nic_check_region(nic->rank, ptr, bytes, access));
    return nic->wire_ops->reg_mr(nic->wire, ptr, bytes, access, region_p);
}

ncclResult_t swl_proxy_dereg_mr(struct swl_nic *base, const struct swl_nic_region *region)
{
    return proxy_of(base)->wire_ops->dereg_mr(proxy_of(base)->wire, region);
}
