/* ht_combine.c: enqueue a combine. Layer: src/ops, implements internal.h; owns nothing. */
#include "src/group/group.h"

#include "kernels/common/kernels.h"
#include "src/base/error.h"
#include "src/base/util.h"

static uint32_t dtype_of(ncclDataType_t dtype)
{
    return dtype == ncclBfloat16 ? SWL_BF16 : dtype == ncclFloat16 ? SWL_FP16 : SWL_FP32;
}

ncclResult_t swl_combine(struct ncclEpHandle *handle, const struct swl_combine_call *call)
{
    struct ncclEpGroup *group = handle->info.group;
    const struct swl_open_record entry = swl_memory_entry(handle, &call->tokens, SWL_OP_COMBINE);
    const struct swl_plan_kernel *plan = &group->plan.ht.combine[entry.direct];
    const struct swl_combine_args args = {
        .group = group->tables.group,
        .handle = handle->memory,
        .fingerprint = handle->fingerprint,
        .tokens = call->tokens.data,
        .out_tokens = call->out_tokens.data,
        .nic_blocks = group->plan.nic_blocks,
        .ntokens = call->ntokens,
        .topk = handle->info.topk,
        .row_bytes = call->row_bytes,
        .in_rows = (uint32_t)swl_min_u64(call->tokens.rows, UINT32_MAX),
        .dtype = dtype_of(call->dtype),
        .entry = entry,
        .roles = plan->roles,
        .shared = group->plan.ht.combine_shared[entry.direct],
    };

    SWL_TRY(swl_async_gate(group));
    SWL_TRY(swl_group_repair(group, call->stream));
    return swl_group_launch(group, &swl_ht_combine_desc, plan, &args, call->stream);
}
