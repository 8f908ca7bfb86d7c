/* order.c: operations of a group come one behind the other, whatever their streams, and can be
 * waited for.
 *
 * Layer: src/group; memory: group.h. */
#include "src/group/group.h"

#include "src/base/error.h"
#include "src/base/util.h"
#include "src/runtime/result.h"

#define POLL_MOST_NS UINT64_C(1000000)

ncclResult_t swl_group_enter(struct ncclEpGroup *group, cudaStream_t stream, bool *capturing_p)
{
    SWL_TRY(SWL_CUDA(swl_gpu_stream_capturing(stream, capturing_p)));
    if (*capturing_p || !group->enqueued)
        return ncclSuccess;
    /* handles of streams do not tell streams apart (per-thread default, re-used addresses) */
    return SWL_CUDA(swl_gpu_stream_wait_event(stream, group->last));
}

ncclResult_t swl_group_leave(struct ncclEpGroup *group, cudaStream_t stream, bool capturing)
{
    if (capturing)
        return ncclSuccess;
    SWL_TRY(SWL_CUDA(swl_gpu_event_record(group->last, stream)));
    group->enqueued = true;
    return ncclSuccess;
}

cudaError_t swl_group_await(const struct ncclEpGroup *group, uint64_t limit_ns)
{
    const uint64_t end = swl_gpu_now_ns() + limit_ns;
    uint64_t pause = 1000;
    bool done = !group->enqueued, failed = false;
    cudaError_t error = cudaSuccess;

    while (!done) {
        error = swl_gpu_event_done(group->last, &done);
        if (error == cudaSuccess && done)
            break;
        if (error != cudaSuccess && failed)
            break;
        failed = error != cudaSuccess;
        if (swl_gpu_now_ns() >= end)
            return cudaErrorNotReady;
        swl_gpu_sleep_ns(pause);
        pause = swl_min_u64(2 * pause, POLL_MOST_NS);
    }
    return error;
}

ncclResult_t swl_group_drain(struct ncclEpGroup *group)
{
    cudaError_t error = swl_group_await(group, group->timeout_ns);
    char time[32];

    if (error != cudaErrorNotReady)
        return swl_cuda_result(error, "the wait for the group's work");
    swl_time_text(group->timeout_ns, time, sizeof(time));
    return swl_fail(ncclSystemError, "work of the group has not ended after %s", time);
}
