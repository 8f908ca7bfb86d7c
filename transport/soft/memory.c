/* memory.c: software NICs of the process by their numbers, and the memory of each.
 *
 * Layer: transport/soft. Owns the process-wide table. Executors of the host and the host share
 * memory. Blocks have port and queues in device memory: the host changes a shadow and copies the
 * changed part, and reads state back by copies. */
#include "transport/soft/state.h"

#include "kernels/device/hd.h"
#include "src/base/error.h"
#include "src/runtime/result.h"

#include <stdlib.h>
#include <string.h>

/* The table: a NIC is claimed by compare-and-swap and looked up without a lock. */
static struct soft_nic *table[SOFT_NICS_MAX];

struct soft_nic *swl_soft_nic_at(uint32_t id)
{
    /* acquire: pairs with swl_soft_enroll() */
    return id < SOFT_NICS_MAX ? __atomic_load_n(&table[id], __ATOMIC_ACQUIRE) : NULL;
}

bool swl_soft_enroll(struct soft_nic *nic)
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

void swl_soft_withdraw(struct soft_nic *nic)
{
    struct soft_nic *self = nic;

    (void)__atomic_compare_exchange_n(&table[nic->id], &self, NULL, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_RELAXED);
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

/* Bytes of port and queue pairs. */
static uint64_t port_bytes(uint32_t nqps)
{
    return sizeof(struct soft_port) + nqps * (uint64_t)sizeof(struct soft_qp);
}

struct soft_nic *swl_soft_alloc(uint32_t nqps, uint32_t depth, uint32_t executor)
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
    for (uint32_t i = 0; !soft_by_blocks(nic) && i < nqps; i++) {
        nic->qps[i].ops = calloc(depth, sizeof(struct soft_op));
        if (nic->qps[i].ops == NULL)
            goto undo_nic;
    }
    return nic;
undo_nic:
    swl_soft_nic_drop(nic);
    return NULL;
}

/* ---- memory ---- */

/* Bytes of the NIC's memory: one line for each queue pair's record and completion, then queues. */
static uint64_t layout(struct soft_nic *nic, uintptr_t base)
{
    uint64_t at = 0;
    uint64_t depth = 1ull << nic->depth_log2;

    if (soft_by_blocks(nic))
        nic->device_port =
            (struct soft_port *)(base + swl_layout_reserve(&at, port_bytes(nic->max_qps)));
    nic->doorbells = (uint64_t *)(base + swl_layout_reserve(&at, 8ull * nic->max_qps));
    nic->sink = (uint64_t *)(base + swl_layout_reserve(&at, 8ull * nic->max_qps));
    for (uint32_t i = 0; i < nic->max_qps; i++) {
        struct soft_qp *qp = &nic->qps[i];

        qp->cq = (uint32_t *)(base + swl_layout_reserve(&at, SWL_CQE_BYTES));
        qp->dbr = (uint32_t *)(base + swl_layout_reserve(&at, 64));
        qp->sq = (uint8_t *)(base + swl_layout_reserve(&at, depth * SWL_WQE_BYTES));
        if (soft_by_blocks(nic))
            qp->due = (struct soft_due *)(base +
                                          swl_layout_reserve(&at, depth * sizeof(struct soft_due)));
        qp->doorbell = &nic->doorbells[i];
    }
    return at;
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
    if (!soft_by_blocks(nic))
        return ncclSuccess;
    return swl_soft_copy(nic, soft_qp_at(nic->device_port, qp), &nic->qps[qp],
                         sizeof(nic->qps[qp]));
}

ncclResult_t swl_soft_push_qp(struct soft_nic *nic, uint32_t qp)
{
    if (!soft_by_blocks(nic))
        return ncclSuccess;
    return copy_qp(nic, soft_qp_at(nic->device_port, qp), &nic->qps[qp]);
}

ncclResult_t swl_soft_pull_qp(struct soft_nic *nic, uint32_t qp, struct soft_qp *state_p)
{
    if (soft_by_blocks(nic))
        return copy_qp(nic, state_p, soft_qp_at(nic->device_port, qp));
    *state_p = nic->qps[qp];
    return ncclSuccess;
}

ncclResult_t swl_soft_push_port(struct soft_nic *nic, const void *part, size_t bytes)
{
    const size_t at = (size_t)((const char *)part - (const char *)nic->port);

    if (!soft_by_blocks(nic))
        return ncclSuccess;
    return swl_soft_copy(nic, (char *)nic->device_port + at, part, bytes);
}

ncclResult_t swl_soft_open_memory(struct soft_nic *nic)
{
    cudaStream_t stream = NULL;

    nic->memory_bytes = layout(nic, 0);
    if (nic->executor == SWL_SOFT_THREAD)
        SWL_TRY(SWL_CUDA(swl_gpu_host_malloc((void **)&nic->memory, nic->memory_bytes)));
    else if (soft_by_blocks(nic))
        SWL_TRY(
            SWL_CUDA(swl_gpu_shared_malloc((void **)&nic->memory, nic->memory_bytes, &nic->share)));
    else
        SWL_TRY(SWL_CUDA(swl_gpu_malloc((void **)&nic->memory, nic->memory_bytes)));
    (void)layout(nic, (uintptr_t)nic->memory);
    if (!soft_by_blocks(nic)) {
        memset(nic->memory, 0, nic->memory_bytes);
        return ncclSuccess;
    }
    SWL_TRY(SWL_CUDA(swl_gpu_stream_create(&stream)));
    nic->stream = stream;
    return swl_soft_push_port(nic, nic->port, sizeof(*nic->port));
}

ncclResult_t swl_soft_close_memory(struct soft_nic *nic)
{
    ncclResult_t rc = ncclSuccess, next = ncclSuccess;

    if (nic->stream)
        rc = SWL_CUDA(swl_gpu_stream_destroy(nic->stream));
    nic->stream = NULL;
    if (nic->executor == SWL_SOFT_THREAD)
        next = SWL_CUDA(swl_gpu_host_free(nic->memory));
    else if (soft_by_blocks(nic))
        next = nic->memory ? SWL_CUDA(swl_gpu_shared_free(nic->memory)) : ncclSuccess;
    else
        next = SWL_CUDA(swl_gpu_free(nic->memory));
    nic->memory = NULL;
    return rc != ncclSuccess ? rc : next;
}
