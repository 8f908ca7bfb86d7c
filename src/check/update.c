/* update.c: checks of the routing input. Layer: src/check, see check.h; owns no memory.
 *
 * The call lists its tensors once; the stages of the check run over that list. */
#include "src/check/check.h"

#include "src/base/error.h"
#include "src/base/util.h"
#include "src/check/rules.h"

#include <inttypes.h>
#include <string.h>

enum { UPDATE_IDX, UPDATE_EXPERTS, UPDATE_OFFSETS, UPDATE_TOTAL, UPDATE_SOURCES, UPDATE_TENSORS };

static ncclResult_t copy_counters(struct swl_tensor *t, const ncclEpLayoutInfo_t *user,
                                  ncclEpLayout_t layout, uint32_t nranks)
{
    ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
    struct swl_tensor *sources = &t[UPDATE_SOURCES];

    if (user)
        SWL_TRY(swl_struct_copy(&info, sizeof(info), user, NCCL_EP_LAYOUT_INFO_V1_SIZE, 4,
                                "layout_info"));
    if (layout == NCCL_EP_LAYOUT_FLAT)
        info.expert_offsets = NULL; /* ignored */
    SWL_TRY(swl_tensor_copy(&t[UPDATE_EXPERTS], info.expert_counters, "layout_info.expert_counters",
                            false));
    SWL_TRY(swl_tensor_copy(&t[UPDATE_OFFSETS], info.expert_offsets, "layout_info.expert_offsets",
                            false));
    SWL_TRY(swl_tensor_copy(&t[UPDATE_TOTAL], info.recv_total_counter,
                            "layout_info.recv_total_counter", false));
    SWL_TRY(
        swl_tensor_copy(sources, info.src_rank_counters, "layout_info.src_rank_counters", false));
    /* Filled where it can be; ignored otherwise, as older clients expect. */
    if (sources->given && (sources->copy.ndim != 1 || sources->extent[0] < nranks))
        SWL_TRY(swl_tensor_copy(sources, NULL, sources->field, false));
    return ncclSuccess;
}

static ncclResult_t check_counter(const struct swl_tensor *t, uint64_t entries, uint32_t *bytes_p)
{
    if (!t->given)
        return ncclSuccess;
    SWL_ARG(t->copy.ndim == 1, "%s has %u dimensions, not 1", t->field, t->copy.ndim);
    SWL_TRY(swl_need_dtype(t, ncclInt32, ncclInt64));
    SWL_ARG(t->view.rows >= entries, "%s has %" PRIu64 " entries, at least %" PRIu64 " are needed",
            t->field, t->view.rows, entries);
    SWL_ARG(*bytes_p == 0 || *bytes_p == t->view.elem_bytes,
            "%s is of %s, unlike the other counters", t->field, swl_dtype_name(t->view.dtype));
    *bytes_p = t->view.elem_bytes;
    return ncclSuccess;
}

static ncclResult_t check_topk_idx(const struct swl_tensor *t, const struct swl_group_info *group,
                                   const struct swl_handle_info *handle)
{
    uint64_t limit = swl_min_u64(group->nexperts, SWL_MAX_TOPK), topk = t->view.columns;

    SWL_TRY(swl_need_2d(t));
    SWL_TRY(swl_need_dtype(t, ncclInt64, ncclInt32));
    SWL_ARG(t->view.rows <= group->max_tokens,
            "topk_idx has %" PRIu64 " rows, more than max_dispatch_tokens_per_rank %u",
            t->view.rows, group->max_tokens);
    if (handle->topk)
        return swl_need_columns(t, handle->topk, "top-k of the handle");
    SWL_ARG(topk >= 1 && topk <= limit,
            "topk_idx has %" PRIu64 " columns, not 1 to %" PRIu64 " (%u experts)", topk, limit,
            group->nexperts);
    SWL_ARG((uint64_t)group->nranks * group->max_tokens * topk <= INT32_MAX,
            "topk_idx has %" PRIu64 " columns: with %u ranks of %u tokens 2^31 selections or more",
            topk, group->nranks, group->max_tokens);
    return ncclSuccess;
}

ncclResult_t swl_check_update(const struct swl_group_info *group,
                              const struct swl_handle_info *handle, const ncclEpTensor_t *topk_idx,
                              const ncclEpLayoutInfo_t *layout_info, struct swl_update_call *call)
{
    struct swl_tensor t[UPDATE_TENSORS];
    uint32_t counter_bytes = 0;

    SWL_ARG(topk_idx, "topk_idx is NULL");
    SWL_TRY(swl_tensor_copy(&t[UPDATE_IDX], topk_idx, "topk_idx", false));
    SWL_TRY(copy_counters(t, layout_info, handle->layout, group->nranks));
    SWL_TRY(swl_rule_tensors(t, UPDATE_TENSORS, group));
    SWL_TRY(check_topk_idx(&t[UPDATE_IDX], group, handle));
    SWL_TRY(check_counter(&t[UPDATE_EXPERTS], group->nlocal, &counter_bytes));
    SWL_TRY(check_counter(&t[UPDATE_OFFSETS], group->nlocal, &counter_bytes));
    SWL_TRY(check_counter(&t[UPDATE_TOTAL], 1, &counter_bytes));
    SWL_TRY(check_counter(&t[UPDATE_SOURCES], group->nranks, &counter_bytes));
    SWL_TRY(swl_rule_no_overlap(t, UPDATE_EXPERTS, UPDATE_TENSORS));
    SWL_TRY(swl_rule_state(handle));
    memset(call, 0, sizeof(*call));
    call->topk_idx = t[UPDATE_IDX].view;
    call->ntokens = (uint32_t)t[UPDATE_IDX].view.rows;
    call->topk = (uint32_t)t[UPDATE_IDX].view.columns;
    call->counter_bytes = counter_bytes;
    call->expert_counters = t[UPDATE_EXPERTS].view;
    call->expert_offsets = t[UPDATE_OFFSETS].view;
    call->recv_total = t[UPDATE_TOTAL].view;
    call->src_rank_counters = t[UPDATE_SOURCES].view;
    return ncclSuccess;
}
