/* handle.c: public functions of handles and of the data path: check, lock, call.
 *
 * Layer: src/api. Owns nothing; everything it knows about a group or a handle is in the info
 * structs of internal.h. */
#include "src/api/scope.h"
#include "src/check/check.h"
#include "src/runtime/result.h"

#include <nccl_ep.h>

/* ---- handle ---- */

static uint64_t handle_bytes(const struct ncclEpGroup *group,
                             const struct swl_handle_config *config)
{
    uint32_t topk = config->topk;

    if (topk == 0)
        topk = swl_info_of_group(group)->nexperts < SWL_MAX_TOPK
                   ? swl_info_of_group(group)->nexperts
                   : SWL_MAX_TOPK;
    return swl_handle_mem_bytes(group, config->layout, topk, config->alignment);
}

static ncclResult_t handle_mem_size(const struct ncclEpGroup *group,
                                    const struct swl_handle_args *args, size_t *size_out)
{
    struct swl_handle_config config;

    SWL_ARG(group, "ep_group is NULL");
    SWL_ARG(size_out, "size_out is NULL");
    SWL_TRY(swl_known_group(group));
    swl_call_rank((int)swl_info_of_group(group)->rank);
    SWL_TRY(swl_check_handle(swl_info_of_group(group), args, &config));
    *size_out = handle_bytes(group, &config);
    return ncclSuccess;
}

SWL_EXPORT ncclResult_t ncclEpHandleMemSize(ncclEpGroup_t ep_group, ncclEpLayout_t layout,
                                            const ncclEpHandleConfig_t *config, size_t *size_out,
                                            int num_topk)
{
    const struct swl_handle_args args = {layout, config, num_topk, NULL};

    swl_call_begin(__func__, -1);
    return swl_call_finish(handle_mem_size(ep_group, &args, size_out));
}

static ncclResult_t init_handle_locked(struct ncclEpHandle **handle_p, struct ncclEpGroup *group,
                                       const struct swl_handle_args *args)
{
    struct swl_handle_config config;
    struct ncclEpHandle *handle = NULL;

    SWL_TRY(swl_check_handle(swl_info_of_group(group), args, &config));
    SWL_TRY(swl_check_handle_memory(&config, handle_bytes(group, &config)));
    SWL_TRY(swl_refuse_capture(NULL));
    SWL_TRY(swl_context_sound());
    SWL_TRY(swl_handle_init(&handle, group, &config));
    *handle_p = handle;
    return ncclSuccess;
}

static ncclResult_t init_handle(struct ncclEpHandle **handle_p, struct ncclEpGroup *group,
                                const struct swl_handle_args *args)
{
    struct swl_scope scope;

    SWL_ARG(handle_p, "handle is NULL");
    *handle_p = NULL;
    SWL_ARG(group, "ep_group is NULL");
    SWL_TRY(swl_scope_enter(&scope, group));
    return swl_scope_leave(&scope, init_handle_locked(handle_p, group, args));
}

SWL_EXPORT ncclResult_t ncclEpInitHandle(ncclEpHandle_t *handle, ncclEpGroup_t ep_group,
                                         ncclEpLayout_t layout, const ncclEpHandleConfig_t *config,
                                         int num_topk, const ncclEpTensor_t *handle_mem)
{
    const struct swl_handle_args args = {layout, config, num_topk, handle_mem};

    swl_call_begin(__func__, -1);
    return swl_call_finish(init_handle(handle, ep_group, &args));
}

static ncclResult_t update_handle_locked(struct ncclEpHandle *handle,
                                         const ncclEpTensor_t *topk_idx,
                                         const ncclEpLayoutInfo_t *layout_info, cudaStream_t stream)
{
    const struct swl_handle_info *info = swl_info_of_handle(handle);
    struct swl_update_call call;

    SWL_TRY(swl_check_update(swl_info_of_group(info->group), info, topk_idx, layout_info, &call));
    SWL_TRY(swl_context_sound());
    call.stream = stream;
    return swl_handle_update(handle, &call);
}

static ncclResult_t update_handle(struct ncclEpHandle *handle, const ncclEpTensor_t *topk_idx,
                                  const ncclEpLayoutInfo_t *layout_info, cudaStream_t stream)
{
    struct swl_scope scope;

    SWL_ARG(handle, "handle is NULL");
    SWL_ARG(topk_idx, "topk_idx is NULL");
    SWL_TRY(swl_scope_enter_handle(&scope, handle));
    return swl_scope_leave(&scope, update_handle_locked(handle, topk_idx, layout_info, stream));
}

SWL_EXPORT ncclResult_t ncclEpUpdateHandle(ncclEpHandle_t handle, const ncclEpTensor_t *topk_idx,
                                           const ncclEpLayoutInfo_t *layout_info,
                                           cudaStream_t stream)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(update_handle(handle, topk_idx, layout_info, stream));
}

struct create_handle_args {
    struct swl_handle_args init;
    const ncclEpTensor_t *topk_idx;
    const ncclEpLayoutInfo_t *layout_info;
    cudaStream_t stream;
};

/* Both halves are checked before the first has an effect. */
static ncclResult_t create_handle_locked(struct ncclEpHandle **handle_p, struct ncclEpGroup *group,
                                         struct create_handle_args *args)
{
    struct swl_handle_info fresh = {.layout = args->init.layout, .ntokens = -1};
    struct ncclEpHandle *handle = NULL;
    struct swl_update_call call;
    ncclResult_t rc;

    SWL_TRY(swl_check_update(swl_info_of_group(group), &fresh, args->topk_idx, args->layout_info,
                             &call));
    args->init.num_topk = (int)call.topk;
    SWL_TRY(swl_refuse_capture(args->stream));
    SWL_TRY(init_handle_locked(&handle, group, &args->init));
    call.stream = args->stream;
    rc = swl_handle_update(handle, &call);
    if (rc != ncclSuccess) {
        swl_handle_destroy(handle);
        return rc;
    }
    *handle_p = handle;
    return ncclSuccess;
}

static ncclResult_t create_handle(struct ncclEpHandle **handle_p, struct ncclEpGroup *group,
                                  struct create_handle_args *args)
{
    struct swl_scope scope;

    SWL_ARG(handle_p, "handle is NULL");
    *handle_p = NULL;
    SWL_ARG(group, "ep_group is NULL");
    SWL_ARG(args->topk_idx, "topk_idx is NULL");
    SWL_TRY(swl_scope_enter(&scope, group));
    return swl_scope_leave(&scope, create_handle_locked(handle_p, group, args));
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are the API's. */
SWL_EXPORT ncclResult_t ncclEpCreateHandle(ncclEpHandle_t *handle, ncclEpGroup_t ep_group,
                                           ncclEpLayout_t layout, const ncclEpTensor_t *topk_idx,
                                           const ncclEpLayoutInfo_t *layout_info,
                                           const ncclEpHandleConfig_t *config, cudaStream_t stream)
{
    struct create_handle_args args = {{layout, config, 0, NULL}, topk_idx, layout_info, stream};

    swl_call_begin(__func__, -1);
    return swl_call_finish(create_handle(handle, ep_group, &args));
}

static ncclResult_t destroy_handle(struct ncclEpHandle *handle)
{
    struct swl_scope scope;

    if (!handle)
        return ncclSuccess;
    SWL_TRY(swl_known_handle(handle));
    if (!swl_info_of_handle(handle)->group)
        return swl_handle_destroy(handle);
    SWL_TRY(swl_scope_enter_handle(&scope, handle));
    return swl_scope_leave(&scope, swl_handle_destroy(handle));
}

SWL_EXPORT ncclResult_t ncclEpHandleDestroy(ncclEpHandle_t handle)
{
    swl_call_begin(__func__, -1);
    return swl_call_finish(destroy_handle(handle));
}

/* ---- data path ---- */

/* Level 1 clients may bring fewer rows than the budget when the host can see that they suffice. */
static ncclResult_t visible_rows(const struct ncclEpHandle *handle, cudaStream_t stream,
                                 int64_t *rows_p)
{
    bool capturing;

    *rows_p = -1;
    if (swl_info_of_group(swl_info_of_handle(handle)->group)->level > 1)
        return ncclSuccess;
    SWL_TRY(SWL_CUDA(swl_gpu_stream_capturing(stream, &capturing)));
    if (!capturing)
        *rows_p = swl_handle_recv_rows(handle);
    return ncclSuccess;
}

static ncclResult_t dispatch_locked(struct ncclEpHandle *handle, struct swl_dispatch_args *args,
                                    cudaStream_t stream)
{
    const struct swl_handle_info *info = swl_info_of_handle(handle);
    struct swl_dispatch_call call;

    SWL_TRY(visible_rows(handle, stream, &args->visible_rows));
    SWL_TRY(swl_check_dispatch(swl_info_of_group(info->group), info, args, &call));
    SWL_TRY(swl_context_sound());
    call.stream = stream;
    return swl_dispatch(handle, &call);
}

static ncclResult_t dispatch(struct ncclEpHandle *handle, struct swl_dispatch_args *args,
                             cudaStream_t stream)
{
    struct swl_scope scope;

    SWL_ARG(handle, "handle is NULL");
    SWL_ARG(args->inputs, "inputs is NULL");
    SWL_ARG(args->outputs, "outputs is NULL");
    SWL_TRY(swl_scope_enter_handle(&scope, handle));
    return swl_scope_leave(&scope, dispatch_locked(handle, args, stream));
}

SWL_EXPORT ncclResult_t ncclEpDispatch(ncclEpHandle_t handle, const ncclEpDispatchInputs_t *inputs,
                                       const ncclEpDispatchOutputs_t *outputs,
                                       const ncclEpLayoutInfo_t *layout_info,
                                       const ncclEpDispatchConfig_t *config, cudaStream_t stream)
{
    struct swl_dispatch_args args = {inputs, outputs, layout_info, config, -1};

    swl_call_begin(__func__, -1);
    return swl_call_finish(dispatch(handle, &args, stream));
}

static ncclResult_t combine_locked(struct ncclEpHandle *handle, const struct swl_combine_args *args,
                                   cudaStream_t stream)
{
    const struct swl_handle_info *info = swl_info_of_handle(handle);
    struct swl_combine_call call;

    SWL_TRY(swl_check_combine(swl_info_of_group(info->group), info, args, &call));
    SWL_TRY(swl_context_sound());
    call.stream = stream;
    return swl_combine(handle, &call);
}

static ncclResult_t combine(struct ncclEpHandle *handle, const struct swl_combine_args *args,
                            cudaStream_t stream)
{
    struct swl_scope scope;

    SWL_ARG(handle, "handle is NULL");
    SWL_ARG(args->inputs, "inputs is NULL");
    SWL_ARG(args->outputs, "outputs is NULL");
    SWL_TRY(swl_scope_enter_handle(&scope, handle));
    return swl_scope_leave(&scope, combine_locked(handle, args, stream));
}

SWL_EXPORT ncclResult_t ncclEpCombine(ncclEpHandle_t handle, const ncclEpCombineInputs_t *inputs,
                                      const ncclEpCombineOutputs_t *outputs,
                                      const ncclEpCombineConfig_t *config, cudaStream_t stream)
{
    const struct swl_combine_args args = {inputs, outputs, config};

    swl_call_begin(__func__, -1);
    return swl_call_finish(combine(handle, &args, stream));
}

/* Nothing is ever pending in a high throughput group. */
static ncclResult_t complete(const struct ncclEpHandle *handle,
                             const ncclEpCompleteConfig_t *config)
{
    SWL_ARG(handle, "handle is NULL");
    SWL_TRY(swl_known_handle(handle));
    SWL_TRY(swl_check_complete(config));
    if (!swl_info_of_handle(handle)->group)
        return swl_fail(ncclInvalidUsage, "the group of this handle is destroyed");
    return ncclSuccess;
}

SWL_EXPORT ncclResult_t ncclEpComplete(ncclEpHandle_t handle, const ncclEpCompleteConfig_t *config,
                                       cudaStream_t stream)
{
    (void)stream;
    swl_call_begin(__func__, -1);
    return swl_call_finish(complete(handle, config));
}
