/* nic.c: the host side of the software NIC: life, regions, the process-wide table.
 *
 * Layer: transport/soft, behind nic.h. The creator owns the NIC's device memory. The struct itself
 * is counted: the creator, the executor and every connected queue pair of a peer hold a reference,
 * so that a peer's executor may still ask a destroyed NIC, which then answers nobody.
 * Device memory is written directly: it exists only where an executor exists, and every executor of
 * today shares the host's address space. */
#include "transport/soft/executor.h"
#include "transport/soft/host.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/gpu.h"

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
    for (uint32_t i = 0; i < nic->max_qps; i++)
        free(nic->qps[i].ops);
    free(nic->new_faults);
    free(nic->looked);
    free(nic->qps);
    free(nic);
}

/* Bytes of device memory: one line for each queue pair's record and completion, then queues. */
static uint64_t layout(struct soft_nic *nic, uintptr_t base)
{
    uint64_t at = 0;
    uint64_t depth = 1ull << nic->depth_log2;

    nic->doorbells = (uint64_t *)(base + swl_take(&at, 8ull * nic->max_qps));
    nic->sink = (uint64_t *)(base + swl_take(&at, 64));
    for (uint32_t i = 0; i < nic->max_qps; i++) {
        struct soft_qp *qp = &nic->qps[i];

        qp->cq = (uint32_t *)(base + swl_take(&at, SWL_CQE_BYTES));
        qp->dbr = (uint32_t *)(base + swl_take(&at, 64));
        qp->sq = (uint8_t *)(base + swl_take(&at, depth * SWL_WQE_BYTES));
        qp->doorbell = &nic->doorbells[i];
    }
    return at;
}

static void settings(struct soft_nic *nic, const struct swl_nic_config *config)
{
    const char *link = config->soft_link ? config->soft_link : "";
    const char *faults = config->soft_faults ? config->soft_faults : "";
    size_t at = 0;

    nic->link.latency_ns = 1000;
    nic->link.jitter_ns = 1000;
    if (*link != '\0') {
        if (swl_soft_link_parse(link, &nic->link.ns_per_mib, &nic->link.latency_ns))
            nic->link.jitter_ns = 0;
        else
            swl_log(
                SWL_LEVEL_WARN,
                "rank %u nic: SWIMLANE_SOFT_LINK '%s' is not gbps:us, e.g. 400:3; no link model",
                nic->rank, link);
    }
    if (!swl_soft_faults_parse(&nic->faults, faults, nic->rank, &at)) {
        swl_log(SWL_LEVEL_WARN, "rank %u nic: SWIMLANE_SOFT_FAULTS is malformed at '%s'; no faults",
                nic->rank, faults + at);
        (void)swl_soft_faults_parse(&nic->faults, "", nic->rank, &at);
    }
    nic->faults.begin_ns = swl_gpu_now_ns();
    nic->dead_ns = UINT64_MAX;
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
static struct soft_nic *soft_alloc(uint32_t nqps, uint32_t depth)
{
    struct soft_nic *nic = calloc(1, sizeof(*nic));

    if (nic == NULL)
        return NULL;
    nic->references = 1;
    nic->qps = calloc(nqps, sizeof(*nic->qps));
    nic->looked = calloc(nqps, sizeof(*nic->looked));
    if (nic->qps == NULL || nic->looked == NULL)
        goto undo_nic;
    nic->max_qps = nqps;
    for (uint32_t i = 0; i < nqps; i++) {
        nic->qps[i].ops = calloc(depth, sizeof(struct soft_op));
        if (nic->qps[i].ops == NULL)
            goto undo_nic;
    }
    return nic;
undo_nic:
    swl_soft_nic_drop(nic);
    return NULL;
}

static ncclResult_t soft_check(const struct swl_nic_config *config)
{
    if (swl_soft_executor_missing())
        return swl_fail(ncclInvalidUsage, "rank %u nic: %s", config->rank,
                        swl_soft_executor_missing());
    if (config->max_qps > SOFT_QPS_MAX)
        return swl_fail(ncclInvalidUsage, "rank %u nic: %u queue pairs, at most %u", config->rank,
                        config->max_qps, SOFT_QPS_MAX);
    if (config->depth < 2 || config->depth > SWL_WQE_DEPTH_MAX ||
        (config->depth & (config->depth - 1)) != 0)
        return swl_fail(ncclInvalidArgument,
                        "rank %u nic: a queue of %u entries; a power of two from 2 to %u is needed",
                        config->rank, config->depth, SWL_WQE_DEPTH_MAX);
    return ncclSuccess;
}

static ncclResult_t soft_create(struct swl_nic **nic_p, const struct swl_nic_config *config)
{
    uint32_t nqps = config->max_qps ? config->max_qps : 1;
    struct swl_nic_region sink = {0};
    struct soft_nic *nic;
    ncclResult_t rc;

    SWL_TRY(soft_check(config));
    nic = soft_alloc(nqps, config->depth);
    if (nic == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: no memory for %u queue pairs of %u entries",
                        config->rank, nqps, config->depth);
    nic->base.ops = swl_soft_ops();
    nic->rank = config->rank;
    nic->device = config->device;
    nic->depth_log2 = (uint32_t)__builtin_ctz(config->depth);
    nic->first_index = config->first_index;
    nic->timeout_ns = config->timeout_ns;
    nic->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
    nic->pd = (uint32_t)soft_mix(nic->serial) & 0xffffffu;
    settings(nic, config);
    nic->memory_bytes = layout(nic, 0);
    rc = SWL_CUDA(swl_gpu_malloc((void **)&nic->memory, nic->memory_bytes));
    if (rc != ncclSuccess)
        goto undo_alloc;
    memset(nic->memory, 0, nic->memory_bytes);
    (void)layout(nic, (uintptr_t)nic->memory);
    rc = soft_reg_mr(&nic->base, nic->sink, 64, SWL_NIC_LOCAL_WRITE, &sink);
    if (rc != ncclSuccess)
        goto undo_memory;
    nic->sink_key = sink.lkey;
    if (!enroll(nic)) {
        rc = swl_fail(ncclSystemError, "rank %u nic: more than %u software NICs in a process",
                      config->rank, SOFT_NICS_MAX);
        goto undo_memory;
    }
    __atomic_add_fetch(&nic->references, 1, __ATOMIC_RELAXED);
    swl_soft_executor_start(nic);
    *nic_p = &nic->base;
    return ncclSuccess;
undo_memory:
    (void)swl_gpu_free(nic->memory);
undo_alloc:
    swl_soft_nic_drop(nic);
    return rc;
}

static ncclResult_t soft_destroy(struct swl_nic *base)
{
    struct soft_nic *nic = soft_of(base);
    struct soft_nic *self = nic;
    ncclResult_t rc;

    if (nic == NULL)
        return ncclSuccess;
    __atomic_store_n(&nic->dead, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < SOFT_REGIONS; i++)
        __atomic_store_n(&nic->regions[i].key, 0, __ATOMIC_SEQ_CST);
    __atomic_compare_exchange_n(&table[nic->id], &self, NULL, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
    __atomic_store_n(&nic->stop, 1, __ATOMIC_RELEASE);
    soft_kick(nic);
    if (!swl_soft_executor_wait("soft nic: end of the executor", &nic->ended, 1, nic->timeout_ns) ||
        !swl_soft_executor_wait("soft nic: peers inside", &nic->users, 0, nic->timeout_ns))
        return swl_fail(ncclSystemError, "rank %u nic: the software NIC did not end", nic->rank);
    for (uint32_t i = 0; i < nic->nqps; i++)
        if (nic->qps[i].peer)
            swl_soft_nic_drop(nic->qps[i].peer);
    rc = SWL_CUDA(swl_gpu_free(nic->memory));
    swl_soft_nic_drop(nic);
    return rc;
}

static void soft_caps(const struct swl_nic *base, struct swl_nic_caps *caps_p)
{
    const struct soft_nic *nic = (const struct soft_nic *)base;

    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->name = "soft";
    caps_p->max_depth = SWL_WQE_DEPTH_MAX;
    caps_p->max_qps = SOFT_QPS_MAX;
    caps_p->max_region_bytes = UINT64_MAX;
    caps_p->device_bytes = nic->memory_bytes;
}

static ncclResult_t soft_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                                struct swl_nic_region *region_p)
{
    struct soft_nic *nic = soft_of(base);
    uint32_t tag, slot;

    if (ptr == NULL || bytes == 0)
        return swl_fail(ncclInvalidArgument, "rank %u nic: cannot register %llu bytes at %p",
                        nic->rank, (unsigned long long)bytes, ptr);
    if ((access & SWL_NIC_RELAXED) && (access & SWL_NIC_REMOTE_ADD))
        return swl_fail(ncclInvalidArgument, "rank %u nic: a relaxed region cannot take adds",
                        nic->rank);
    for (slot = 0; slot < SOFT_REGIONS; slot++)
        if (nic->regions[slot].key == 0)
            break;
    if (slot == SOFT_REGIONS)
        return swl_fail(ncclSystemError, "rank %u nic: more than %u registered regions", nic->rank,
                        SOFT_REGIONS);
    nic->regions[slot].uses++;
    tag = (uint32_t)soft_mix(nic->serial << 20 ^ (uint64_t)slot << 10 ^ nic->regions[slot].uses);
    nic->regions[slot].access = access;
    nic->regions[slot].pd = nic->pd;
    nic->regions[slot].address = (uint64_t)(uintptr_t)ptr;
    nic->regions[slot].bytes = bytes;
    nic->regions[slot].memory = ptr;
    region_p->lkey = (tag | 1u << 16) << 16 | slot << 8 | (nic->regions[slot].uses & 0xffu);
    region_p->lkey |= 1u << 31;
    region_p->rkey = region_p->lkey;
    region_p->address = nic->regions[slot].address;
    /* release: pairs with Mem::key in soft_reach */
    __atomic_store_n(&nic->regions[slot].key, region_p->lkey, __ATOMIC_SEQ_CST);
    return ncclSuccess;
}

static ncclResult_t soft_dereg_mr(struct swl_nic *base, const struct swl_nic_region *region)
{
    struct soft_nic *nic = soft_of(base);
    struct soft_region *r = &nic->regions[(region->lkey >> 8) & (SOFT_REGIONS - 1)];

    if (region->lkey == 0 || r->key != region->lkey)
        return swl_fail(ncclInvalidArgument, "rank %u nic: key 0x%08x is not registered", nic->rank,
                        region->lkey);
    __atomic_store_n(&r->key, 0, __ATOMIC_SEQ_CST);
    if (!swl_soft_executor_wait("soft nic: users of a region", &nic->users, 0, nic->timeout_ns))
        return swl_fail(ncclSystemError, "rank %u nic: a region is still in use", nic->rank);
    return ncclSuccess;
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
