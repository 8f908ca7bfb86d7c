/* nic.c: the host side of the software NIC: life, regions, the process-wide table.
 *
 * Layer: transport/soft, behind nic.h. The creator owns the NIC's memory. The struct and its host
 * port are counted: the creator, the executor and every connected queue pair of a peer hold a
 * reference, so that a peer's executor may still ask a destroyed NIC, which then answers nobody.
 * Executors of the host and the host share memory. Blocks have port and queues in device memory: the
 * host changes a shadow and copies the changed part, and reads state back by copies. */
#include "kernels/device/hd.h"
#include "transport/soft/executor.h"
#include "transport/soft/host.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

/* The table: a NIC is claimed by compare-and-swap and looked up without a lock. */
static struct soft_nic *table[SOFT_NICS_MAX];
static uint64_t serials;

struct soft_nic *swl_soft_nic_at(uint32_t id)
{
    /* acquire: pairs with enroll() */
    return id < SOFT_NICS_MAX ? __atomic_load_n(&table[id], __ATOMIC_ACQUIRE) : NULL;
}

void swl_soft_nic_drop(struct soft_nic *nic)
{
    if (__atomic_sub_fetch(&nic->references, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    for (uint32_t i = 0; nic->port && i < nic->max_qps; i++)
        free(nic->qps[i].ops);
    free(nic->new_faults);
    free(nic->looked);
    free(nic->port);
    free(nic);
}

/* ---- memory ---- */

static bool by_blocks(const struct soft_nic *nic)
{
    return nic->executor == SWL_SOFT_BLOCKS;
}

/* Bytes of port and queue pairs. */
static uint64_t port_bytes(uint32_t nqps)
{
    return sizeof(struct soft_port) + nqps * (uint64_t)sizeof(struct soft_qp);
}

/* Bytes of the NIC's memory: one line for each queue pair's record and completion, then queues. */
static uint64_t layout(struct soft_nic *nic, uintptr_t base)
{
    uint64_t at = 0;
    uint64_t depth = 1ull << nic->depth_log2;

    if (by_blocks(nic))
        nic->device_port = (struct soft_port *)(base + swl_take(&at, port_bytes(nic->max_qps)));
    nic->doorbells = (uint64_t *)(base + swl_take(&at, 8ull * nic->max_qps));
    nic->sink = (uint64_t *)(base + swl_take(&at, 8ull * nic->max_qps));
    for (uint32_t i = 0; i < nic->max_qps; i++) {
        struct soft_qp *qp = &nic->qps[i];

        qp->cq = (uint32_t *)(base + swl_take(&at, SWL_CQE_BYTES));
        qp->dbr = (uint32_t *)(base + swl_take(&at, 64));
        qp->sq = (uint8_t *)(base + swl_take(&at, depth * SWL_WQE_BYTES));
        if (by_blocks(nic))
            qp->due = (struct soft_due *)(base + swl_take(&at, depth * sizeof(struct soft_due)));
        qp->doorbell = &nic->doorbells[i];
    }
    return at;
}

uint32_t swl_soft_blocks(const struct swl_nic_settings *set, bool multi_process)
{
    if (swl_soft_executor(set->executor) != SWL_SOFT_BLOCKS &&
        !(multi_process && set->executor == SWL_SOFT_AUTO))
        return 0;
    if (set->soft_blocks)
        return set->soft_blocks;
    return swl_soft_executor(SWL_SOFT_AUTO) == SWL_SOFT_BLOCKS ? SOFT_BLOCKS : 1;
}

ncclResult_t swl_soft_copy(struct soft_nic *nic, void *to, const void *from, size_t bytes)
{
    if (nic->stream == NULL) {
        memcpy(to, from, bytes);
        return ncclSuccess;
    }
    SWL_TRY(SWL_CUDA(swl_gpu_copy(to, from, bytes, nic->stream)));
    return SWL_CUDA(swl_gpu_stream_wait(nic->stream, nic->timeout_ns));
}

/* All of a queue pair but what its peer writes. */
static ncclResult_t copy_qp(struct soft_nic *nic, struct soft_qp *to, const struct soft_qp *from)
{
    const size_t end = offsetof(struct soft_qp, peer_failed);
    const size_t on = offsetof(struct soft_qp, fault_epoch);

    SWL_TRY(swl_soft_copy(nic, to, from, end));
    return swl_soft_copy(nic, (char *)to + on, (const char *)from + on, sizeof(*to) - on);
}

ncclResult_t swl_soft_push_new_qp(struct soft_nic *nic, uint32_t qp)
{
    if (!by_blocks(nic))
        return ncclSuccess;
    return swl_soft_copy(nic, soft_qp_at(nic->device_port, qp), &nic->qps[qp],
                         sizeof(nic->qps[qp]));
}

ncclResult_t swl_soft_push_qp(struct soft_nic *nic, uint32_t qp)
{
    if (!by_blocks(nic))
        return ncclSuccess;
    return copy_qp(nic, soft_qp_at(nic->device_port, qp), &nic->qps[qp]);
}

ncclResult_t swl_soft_pull_qp(struct soft_nic *nic, uint32_t qp, struct soft_qp *state_p)
{
    if (by_blocks(nic))
        return copy_qp(nic, state_p, soft_qp_at(nic->device_port, qp));
    *state_p = nic->qps[qp];
    return ncclSuccess;
}

ncclResult_t swl_soft_push_port(struct soft_nic *nic, const void *part, size_t bytes)
{
    const size_t at = (size_t)((const char *)part - (const char *)nic->port);

    if (!by_blocks(nic))
        return ncclSuccess;
    return swl_soft_copy(nic, (char *)nic->device_port + at, part, bytes);
}

/* Queues where the executor reaches them, zeroed for executors of the host. */
static ncclResult_t open_memory(struct soft_nic *nic)
{
    cudaStream_t stream = NULL;

    nic->memory_bytes = layout(nic, 0);
    if (nic->executor == SWL_SOFT_THREAD)
        SWL_TRY(SWL_CUDA(swl_gpu_host_malloc((void **)&nic->memory, nic->memory_bytes)));
    else if (by_blocks(nic))
        SWL_TRY(
            SWL_CUDA(swl_gpu_shared_malloc((void **)&nic->memory, nic->memory_bytes, &nic->share)));
    else
        SWL_TRY(SWL_CUDA(swl_gpu_malloc((void **)&nic->memory, nic->memory_bytes)));
    (void)layout(nic, (uintptr_t)nic->memory);
    if (!by_blocks(nic)) {
        memset(nic->memory, 0, nic->memory_bytes);
        return ncclSuccess;
    }
    SWL_TRY(SWL_CUDA(swl_gpu_stream_create(&stream)));
    nic->stream = stream;
    return swl_soft_push_port(nic, nic->port, sizeof(*nic->port));
}

static ncclResult_t close_memory(struct soft_nic *nic)
{
    ncclResult_t rc = ncclSuccess, next = ncclSuccess;

    if (nic->stream)
        rc = SWL_CUDA(swl_gpu_stream_destroy(nic->stream));
    nic->stream = NULL;
    if (nic->executor == SWL_SOFT_THREAD)
        next = SWL_CUDA(swl_gpu_host_free(nic->memory));
    else if (by_blocks(nic))
        next = nic->memory ? SWL_CUDA(swl_gpu_shared_free(nic->memory)) : ncclSuccess;
    else
        next = SWL_CUDA(swl_gpu_free(nic->memory));
    nic->memory = NULL;
    return rc != ncclSuccess ? rc : next;
}

/* ---- creation ---- */

static ncclResult_t settings(struct soft_nic *nic, const struct swl_nic_config *config)
{
    struct soft_port *port = nic->port;

    if (!by_blocks(nic)) /* those take the time they take */
        port->link.latency_ns = port->link.jitter_ns = 1000;
    SWL_TRY(swl_host_settings(config, "a software NIC on blocks", swl_soft_can(nic->executor),
                              &port->link, &port->faults));
    port->fault_epoch = 1;
    port->dead_ns = swl_soft_faults_falls(&port->faults, port->faults.begin_ns);
    return ncclSuccess;
}

static bool enroll(struct soft_nic *nic)
{
    for (uint32_t i = 0; i < SOFT_NICS_MAX; i++) {
        struct soft_nic *none = NULL;

        /* release: pairs with the acquire in swl_soft_nic_at() */
        if (__atomic_compare_exchange_n(&table[i], &none, nic, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            nic->id = i;
            return true;
        }
    }
    return false;
}

static ncclResult_t soft_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                                struct swl_nic_region *region_p);

/* NULL: no memory. */
static struct soft_nic *soft_alloc(uint32_t nqps, uint32_t depth, uint32_t executor)
{
    struct soft_nic *nic = calloc(1, sizeof(*nic));

    if (nic == NULL)
        return NULL;
    nic->references = 1;
    nic->max_qps = nqps;
    nic->executor = executor;
    nic->port = calloc(1, port_bytes(nqps));
    nic->looked = calloc(nqps, sizeof(*nic->looked));
    if (nic->port == NULL || nic->looked == NULL)
        goto undo_nic;
    nic->qps = soft_qp_at(nic->port, 0);
    for (uint32_t i = 0; !by_blocks(nic) && i < nqps; i++) {
        nic->qps[i].ops = calloc(depth, sizeof(struct soft_op));
        if (nic->qps[i].ops == NULL)
            goto undo_nic;
    }
    return nic;
undo_nic:
    swl_soft_nic_drop(nic);
    return NULL;
}

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

static ncclResult_t soft_create(struct swl_nic **nic_p, const struct swl_nic_config *config)
{
    uint32_t nqps = config->max_qps ? config->max_qps : 1;
    struct swl_nic_region sink = {0};
    struct soft_nic *nic;
    ncclResult_t rc;

    SWL_TRY(soft_check(config));
    nic = soft_alloc(nqps, config->depth, soft_executor(config));
    if (nic == NULL)
        return swl_no_memory("%u queue pairs of %u entries", nqps, config->depth);
    nic->base.ops = swl_soft_ops();
    nic->rank = nic->port->rank = config->rank;
    nic->device = config->device;
    nic->blocks = by_blocks(nic) ? config->gpu_blocks : 0;
    nic->depth_log2 = (uint32_t)__builtin_ctz(config->depth);
    nic->first_index = config->first_index;
    nic->timeout_ns = config->timeout_ns;
    nic->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    nic->port->pd = (uint32_t)soft_mix(nic->serial) & 0xffffffu;
    rc = settings(nic, config);
    if (rc == ncclSuccess)
        rc = open_memory(nic);
    if (rc != ncclSuccess)
        goto undo_memory;
    rc = soft_reg_mr(&nic->base, nic->sink, 8ull * nqps, SWL_NIC_LOCAL_WRITE, &sink);
    if (rc != ncclSuccess)
        goto undo_memory;
    nic->sink_key = sink.lkey;
    if (!enroll(nic)) {
        rc = swl_fail(ncclSystemError, "rank %u nic: more than %u software NICs in a process",
                      config->rank, SOFT_NICS_MAX);
        goto undo_memory;
    }
    if (!by_blocks(nic)) {
        __atomic_add_fetch(&nic->references, 1, __ATOMIC_RELAXED);
        if (!swl_soft_executor_start(nic)) {
            rc = swl_fail(ncclSystemError, "rank %u nic: no thread to run it", config->rank);
            goto undo_enroll;
        }
    }
    *nic_p = &nic->base;
    return ncclSuccess;
undo_enroll:
    __atomic_store_n(&table[nic->id], NULL, __ATOMIC_RELEASE);
    __atomic_sub_fetch(&nic->references, 1, __ATOMIC_ACQ_REL); /* the executor that never ran */
undo_memory:
    (void)close_memory(nic);
    swl_soft_nic_drop(nic);
    return rc;
}

/* The executor and all peers are out of this NIC's memory. */
static ncclResult_t soft_quiet(struct soft_nic *nic)
{
    if (by_blocks(nic)) /* no kernel of a connected rank runs any more: the group has agreed */
        return ncclSuccess;
    __atomic_store_n(&nic->stop, 1, __ATOMIC_RELEASE);
    soft_kick(nic);
    if (!swl_soft_executor_wait("soft nic: end of the executor", &nic->ended, 1, nic->timeout_ns) ||
        !swl_soft_executor_wait("soft nic: peers inside", &nic->port->users, 0, nic->timeout_ns))
        return swl_fail(ncclSystemError, "rank %u nic: the software NIC did not end", nic->rank);
    return ncclSuccess;
}

/* What the NIC has done, and what went wrong in queue pairs that blocks served; afterwards nobody can
 * know. */
static void report(struct soft_nic *nic)
{
    struct swl_soft_stats stats = {0};

    swl_soft_stats_sum(nic, &stats);
    swl_host_report(nic->rank, "soft", &stats);
    for (uint32_t i = 0; by_blocks(nic) && i < nic->port->nqps; i++) {
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
    struct soft_nic *self = nic;
    ncclResult_t rc, next;

    if (nic == NULL)
        return ncclSuccess;
    __atomic_store_n(&nic->port->dead, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < SOFT_REGIONS; i++)
        __atomic_store_n(&nic->port->regions[i].key, 0, __ATOMIC_SEQ_CST);
    __atomic_compare_exchange_n(&table[nic->id], &self, NULL, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
    SWL_TRY(soft_quiet(nic));
    report(nic);
    for (uint32_t i = 0; i < nic->port->nqps; i++)
        if (nic->qps[i].peer)
            swl_soft_nic_drop(nic->qps[i].peer);
    rc = swl_soft_far_release(nic);
    next = close_memory(nic);
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

    SWL_TRY(swl_soft_region_add(nic->port, nic->serial, ptr, bytes, access, region_p));
    slot = soft_region_slot(region_p->lkey);
    if (by_blocks(nic) && slot < SOFT_OFFERS) {
        swl_soft_far_offer(nic, slot);
        SWL_TRY(swl_soft_push_port(nic, &nic->port->offers[slot], sizeof(nic->port->offers[0])));
    }
    return swl_soft_push_port(nic, &nic->port->regions[slot], sizeof(nic->port->regions[0]));
}

static ncclResult_t soft_dereg_mr(struct swl_nic *base, const struct swl_nic_region *region)
{
    struct soft_nic *nic = soft_of(base);
    SWL_TRY(swl_soft_region_drop(nic->port, region));
    if (by_blocks(nic))
        return swl_soft_push_port(nic, &nic->port->regions[soft_region_slot(region->lkey)],
                                  sizeof(nic->port->regions[0]));
    return swl_soft_region_unused(nic->port, nic->timeout_ns);
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
