/* scope.c: lock, device and refusals of public functions. Layer: src/api; owns nothing. */
#include "src/api/scope.h"

#include "src/runtime/result.h"

ncclResult_t swl_known_group(const struct ncclEpGroup *group)
{
    SWL_ARG(swl_info_of_group(group)->alive == SWL_GROUP_ALIVE,
            "ep_group is no group, or was destroyed");
    return ncclSuccess;
}

ncclResult_t swl_known_handle(const struct ncclEpHandle *handle)
{
    SWL_ARG(swl_info_of_handle(handle)->alive == SWL_HANDLE_ALIVE,
            "handle is no handle, or was destroyed");
    return ncclSuccess;
}

ncclResult_t swl_scope_device(struct swl_scope *s, int device)
{
    ncclResult_t rc = SWL_CUDA(swl_gpu_current(&s->before));

    s->device = device;
    if (rc != ncclSuccess)
        s->before = device; /* nobody knows what to restore */
    if (rc != ncclSuccess || s->before != device)
        rc = swl_first_failure(rc, SWL_CUDA(swl_gpu_use(device)));
    return rc;
}

ncclResult_t swl_scope_leave(const struct swl_scope *s, ncclResult_t rc)
{
    if (s->before != s->device) {
        ncclResult_t restored = SWL_CUDA(swl_gpu_use(s->before));

        rc = rc == ncclSuccess ? restored : rc;
    }
    if (s->lock)
        swl_gpu_mutex_unlock(s->lock);
    return rc;
}

ncclResult_t swl_scope_enter_anyway(struct swl_scope *s, const struct ncclEpGroup *group)
{
    const struct swl_group_info *info = swl_info_of_group(group);

    swl_call_rank((int)info->rank);
    s->lock = info->lock;
    swl_gpu_mutex_lock(s->lock);
    return swl_scope_device(s, info->device);
}

ncclResult_t swl_scope_enter(struct swl_scope *s, const struct ncclEpGroup *group)
{
    ncclResult_t rc;

    SWL_TRY(swl_known_group(group));
    rc = swl_scope_enter_anyway(s, group);
    if (rc != ncclSuccess)
        swl_gpu_mutex_unlock(s->lock);
    return rc;
}

ncclResult_t swl_scope_enter_handle(struct swl_scope *s, const struct ncclEpHandle *handle)
{
    const struct swl_handle_info *info = swl_info_of_handle(handle);

    SWL_TRY(swl_known_handle(handle));
    if (!info->group)
        return swl_fail(ncclInvalidUsage, "the group of this handle is destroyed");
    return swl_scope_enter(s, info->group);
}

ncclResult_t swl_call_finish(ncclResult_t rc)
{
    swl_call_end();
    return rc;
}

ncclResult_t swl_refuse_capture(cudaStream_t stream)
{
    bool capturing;

    SWL_TRY(SWL_CUDA(swl_gpu_stream_capturing(stream, &capturing)));
    if (capturing)
        return swl_fail(ncclInvalidUsage, "not possible while a stream captures");
    return ncclSuccess;
}

ncclResult_t swl_context_sound(void)
{
    cudaError_t error = swl_gpu_pending_error();

    if (error != cudaSuccess)
        return swl_fail(ncclUnhandledCudaError, "the CUDA context already has an error: %s",
                        swl_gpu_error_text(error));
    return ncclSuccess;
}
