/* ht_dispatch.c: enqueue a dispatch. Layer: src/ops, implements internal.h; owns nothing. */
#include "src/group/group.h"

#include "kernels/common/kernels.h"
#include "src/base/error.h"
#include "src/base/util.h"

ncclResult_t swl_dispatch(struct ncclEpHandle *handle, const struct swl_dispatch_call *call)
{
    struct ncclEpGroup *group = handle->info.group;
    const struct swl_plan_kernel *plan = &group->plan.ht.dispatch;
    const struct swl_open_record entry =
        swl_memory_entry(handle, &call->out_tokens, SWL_OP_DISPATCH);
    const uint32_t direct = entry.direct; /* receivers copy no rows */
    const struct swl_dispatch_args args = {
        .group = group->tables.group,
        .handle = handle->memory,
        .fingerprint = handle->fingerprint,
        .tokens = call->tokens.data,
        .weights = call->weights.data,
        .out_tokens = call->out_tokens.data,
        .out_weights = call->out_weights.data,
        .out_idx = call->out_ids.data,
        .nic_blocks = group->plan.nic_blocks,
        .ntokens = call->ntokens,
        .topk = handle->info.topk,
        .row_bytes = call->row_bytes,
        .out_rows = (uint32_t)swl_min_u64(call->out_tokens.rows, UINT32_MAX),
        .out_weight_rows = (uint32_t)swl_min_u64(call->out_weights.rows, UINT32_MAX),
        .out_idx_rows = (uint32_t)swl_min_u64(call->out_ids.rows, UINT32_MAX),
        .idx_bytes = call->out_ids.elem_bytes,
        .idx_base = call->global_ids ? group->info.rank * group->info.nlocal : 0,
        .entry = entry,
        .roles = direct ? group->plan.ht.dispatch_direct : plan->roles,
        .block = group->plan.ht.dispatch_block[direct],
        .shared = swl_block_of(&group->plan.ht.dispatch_block[direct]),
        .at = swl_handle_layout_of(&group->plan.shape, handle->info.topk),
    };

    SWL_TRY(swl_async_gate(group));
    SWL_TRY(swl_group_repair(group, call->stream));
    return swl_group_launch(group, &swl_ht_dispatch_desc, plan, &args, call->stream);
}
