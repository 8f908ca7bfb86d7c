/* rules.c: rules that update, dispatch and combine share. Layer: src/check, see check.h; owns no
 * memory. */
#include "src/check/rules.h"

#include "src/base/error.h"
#include "src/base/util.h"

#include <inttypes.h>

/* Capability of all, then validity of all. */
ncclResult_t swl_rule_tensors(struct swl_tensor *tensors, size_t ntensors,
                              const struct swl_group_info *group)
{
    for (size_t i = 0; i < ntensors; i++)
        SWL_TRY(swl_tensor_capable(&tensors[i], group));
    for (size_t i = 0; i < ntensors; i++)
        SWL_TRY(swl_tensor_check(&tensors[i], group));
    return ncclSuccess;
}

/* No output overlaps another tensor. */
ncclResult_t swl_rule_no_overlap(const struct swl_tensor *tensors, size_t ninputs, size_t ntensors)
{
    for (size_t i = 0; i < ntensors; i++) {
        for (size_t o = i < ninputs ? ninputs : i + 1; o < ntensors; o++)
            SWL_TRY(swl_tensor_no_overlap(&tensors[i], &tensors[o]));
    }
    return ncclSuccess;
}

ncclResult_t swl_need_2d(const struct swl_tensor *t)
{
    SWL_ARG(t->given, "%s is NULL, but required here", t->field);
    SWL_ARG(t->copy.ndim == 2, "%s has %u dimensions, not 2", t->field, t->copy.ndim);
    return ncclSuccess;
}

ncclResult_t swl_need_none(const struct swl_tensor *t, const char *where)
{
    SWL_ARG(!t->given, "%s is given, but must be NULL in %s", t->field, where);
    return ncclSuccess;
}

ncclResult_t swl_need_dtype(const struct swl_tensor *t, ncclDataType_t a, ncclDataType_t b)
{
    SWL_ARG(t->view.dtype == a || t->view.dtype == b, "%s is of %s, not %s%s%s", t->field,
            swl_dtype_name(t->view.dtype), swl_dtype_name(a), a == b ? "" : " or ",
            a == b ? "" : swl_dtype_name(b));
    return ncclSuccess;
}

ncclResult_t swl_need_rows(const struct swl_tensor *t, uint64_t rows, const char *what)
{
    SWL_ARG(t->view.rows == rows, "%s has %" PRIu64 " rows, not %" PRIu64 " (%s)", t->field,
            t->view.rows, rows, what);
    return ncclSuccess;
}

ncclResult_t swl_need_columns(const struct swl_tensor *t, uint64_t columns, const char *what)
{
    SWL_ARG(t->view.columns == columns, "%s has %" PRIu64 " columns, not %" PRIu64 " (%s)",
            t->field, t->view.columns, columns, what);
    return ncclSuccess;
}

/* T of this call: that of the routing if known, else anything up to D. */
ncclResult_t swl_need_tokens(const struct swl_tensor *t, const struct swl_group_info *group,
                             const struct swl_handle_info *handle)
{
    SWL_ARG(t->view.rows <= group->max_tokens,
            "%s has %" PRIu64 " rows, more than max_dispatch_tokens_per_rank %u", t->field,
            t->view.rows, group->max_tokens);
    if (handle->ntokens >= 0)
        SWL_TRY(swl_need_rows(t, (uint64_t)handle->ntokens, "tokens of the handle's routing"));
    return ncclSuccess;
}

/* A payload row without recipe. */
ncclResult_t swl_need_row(const struct swl_tensor *t, const struct swl_group_info *group)
{
    ncclDataType_t dtype = t->view.dtype;

    SWL_ARG(dtype == ncclBfloat16 || dtype == ncclFloat16 || dtype == ncclFloat32,
            "%s is of %s, not bfloat16, float16 or float32", t->field, swl_dtype_name(dtype));
    SWL_ARG(t->view.row_bytes >= 16 && t->view.row_bytes % 16 == 0,
            "%s: a row has %" PRIu64 " bytes, not a multiple of 16", t->field, t->view.row_bytes);
    SWL_ARG(t->view.row_bytes <= group->max_token_bytes,
            "%s: a row has %" PRIu64 " bytes, more than max_token_bytes %u", t->field,
            t->view.row_bytes, group->max_token_bytes);
    return ncclSuccess;
}

/* [rows][K] f32; K is the handle's, or whatever is given while that is unknown. */
ncclResult_t swl_need_weights(const struct swl_tensor *t, const struct swl_handle_info *handle)
{
    SWL_TRY(swl_need_2d(t));
    SWL_TRY(swl_need_dtype(t, ncclFloat32, ncclFloat32));
    if (handle->topk)
        SWL_TRY(swl_need_columns(t, handle->topk, "top-k of the handle"));
    return ncclSuccess;
}

/* Rows that peers store or load directly. */
ncclResult_t swl_need_window(const struct swl_tensor *t, const struct swl_group_info *group)
{
    SWL_ARG(group->zero_copy != NCCL_EP_ZERO_COPY_ON || t->empty || t->view.window,
            "%s is neither a window tensor nor in memory of swimlaneMemAlloc, but zero_copy is ON",
            t->field);
    return ncclSuccess;
}

ncclResult_t swl_rule_zero_copy(const struct swl_tensor *t, const struct swl_group_info *group)
{
    if (group->zero_copy == NCCL_EP_ZERO_COPY_ON && t->given && t->copy.win_hdl &&
        !group->window_pointer)
        return swl_fail(ncclInvalidUsage,
                        "%s: zero_copy ON with a window needs NCCL 2.29.2 or newer, this is %d",
                        t->field, group->nccl_version);
    return ncclSuccess;
}

ncclResult_t swl_rule_state(const struct swl_handle_info *handle)
{
    if (handle->pending)
        return swl_fail(ncclInvalidUsage, "an operation of this handle waits for ncclEpComplete");
    return ncclSuccess;
}

ncclResult_t swl_rule_routed(const struct swl_handle_info *handle)
{
    SWL_TRY(swl_rule_state(handle));
    if (!handle->updated && handle->own_memory)
        return swl_fail(ncclInvalidUsage, "the handle has no routing; call ncclEpUpdateHandle");
    if (!handle->topk)
        return swl_fail(ncclInvalidUsage, "the handle's top-k is not known; give num_topk to "
                                          "ncclEpInitHandle or call ncclEpUpdateHandle");
    return ncclSuccess;
}
