/* async.c: errors that show up after a call has returned: their bits, sentences and consequences.
 *
 * Layer: src/, implements internal.h. Reads the pinned words of struct swl_pinned, which kernels
 * write (ErrorClear alone writes them here), and the alarms of the node. Touches no device. */
#include "src/group.h"

#include "src/base/error.h"
#include "src/fault.h"
#include "transport/rdma.h"

#include <inttypes.h>
#include <stdio.h>

/* After one of these the rings are out of step until ErrorClear. */
#define FAILED (SWL_ASYNC_TIMEOUT | SWL_ASYNC_BAD_HANDLE)

static uint64_t settled_of(const struct ncclEpGroup *group)
{
    /* pairs with the release of the last block of a kernel */
    return __atomic_load_n(&group->pinned->settled, __ATOMIC_ACQUIRE);
}

static bool alarm_rings(struct ncclEpGroup *group)
{
    return swl_alarm_rings(&group->alarm, group->pinned->clears, settled_of(group));
}

/* Of the own kernels, and bit 0 when the node's alarms tell of a call that another rank gave up. */
static uint32_t bits_of(struct ncclEpGroup *group)
{
    /* pairs with the release of the last block of a kernel */
    const uint32_t own = __atomic_load_n(&group->pinned->bits, __ATOMIC_ACQUIRE);

    return alarm_rings(group) ? own | SWL_ASYNC_TIMEOUT : own;
}

static ncclResult_t refuse_failed(struct ncclEpGroup *group)
{
    const struct swl_fault_record *record = &group->pinned->record;
    char text[512];

    /* pairs with the release in wait.cuh: a set word means a whole record */
    if (__atomic_load_n(&record->valid, __ATOMIC_ACQUIRE) != 0)
        swl_fault_text(record, group->info.rank, group->timeout_ns, text, sizeof(text));
    else if (alarm_rings(group))
        swl_alarm_text(group->alarm.heard, group->info.rank, text, sizeof(text));
    else
        snprintf(text, sizeof(text), "an earlier operation failed");
    return swl_fail(ncclSystemError, "%s%s%s; the group refuses work until ncclEpErrorClear", text,
                    group->rdma ? "; network " : "", group->rdma ? swl_rdma_name(group->rdma) : "");
}

ncclResult_t swl_async_gate(struct ncclEpGroup *group)
{
    const uint32_t bits = bits_of(group);

    if (bits & FAILED)
        return refuse_failed(group);
    if ((bits & SWL_ASYNC_OVERFLOW) && group->info.overflow == NCCL_EP_OVERFLOW_TRAP)
        return swl_fail(ncclInvalidUsage,
                        "an earlier operation had more rows than there was room for: %" PRIu64
                        " rows dropped since creation, max_recv_tokens_per_rank is %" PRIu32
                        "; the group refuses work until ncclEpErrorClear",
                        __atomic_load_n(&group->pinned->dropped, __ATOMIC_ACQUIRE),
                        group->info.recv_rows);
    return ncclSuccess;
}

ncclResult_t swl_group_async_bits(struct ncclEpGroup *group, int *bits_p)
{
    *bits_p = (int)bits_of(group);
    return ncclSuccess;
}

/* Every clear is told to the device, also if nothing failed here: another rank may have failed in a
 * call that this one came through, and the kernels find out by the poison word, and by the
 * generation that the host has heard of, whether there is anything to recover. The pinned words may
 * change before the copy runs; then the copy takes the later ones, which is what it is for. */
ncclResult_t swl_group_clear(struct ncclEpGroup *group)
{
    struct swl_pinned *pinned = group->pinned;
    const cudaStream_t stream = group->boot.stream;
    bool capturing = false;

    __atomic_store_n(&pinned->record.valid, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&pinned->bits, 0, __ATOMIC_RELEASE);
    swl_alarm_clear(&group->alarm, settled_of(group));
    __atomic_store_n(&pinned->heard, swl_poison_gen(group->alarm.heard), __ATOMIC_RELEASE);
    __atomic_store_n(&pinned->clears, pinned->clears + 1, __ATOMIC_RELEASE);
    SWL_TRY(swl_group_enter(group, stream, &capturing));
    SWL_TRY(SWL_CUDA(swl_gpu_copy(group->tables.clears, &pinned->clears, SWL_CLEAR_BYTES, stream)));
    return swl_group_leave(group, stream, capturing);
}
