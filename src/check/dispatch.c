/* dispatch.c: checks of dispatch. Layer: src/check, see check.h; owns no memory.
 *
 * The call lists its tensors once; the stages of the check run over that list. */
#include "src/check/check.h"

#include "src/base/error.h"
#include "src/base/util.h"
#include "src/check/rules.h"

#include <inttypes.h>
#include <string.h>

enum {
    DISPATCH_TOKENS,
    DISPATCH_WEIGHTS,
    DISPATCH_SCALES,
    DISPATCH_INPUTS,
    DISPATCH_OUT_TOKENS = DISPATCH_INPUTS,
    DISPATCH_OUT_WEIGHTS,
    DISPATCH_OUT_SCALES,
    DISPATCH_OUT_IDX,
    DISPATCH_TENSORS
};

static ncclResult_t copy_dispatch(struct swl_tensor *t, const struct swl_dispatch_args *args)
{
    ncclEpDispatchInputs_t in;
    ncclEpDispatchOutputs_t out;

    SWL_ARG(args->inputs, "inputs is NULL");
    SWL_ARG(args->outputs, "outputs is NULL");
    SWL_TRY(swl_struct_copy(&in, sizeof(in), args->inputs, NCCL_EP_DISPATCH_INPUTS_V1_SIZE, 8,
                            "inputs"));
    SWL_TRY(swl_struct_copy(&out, sizeof(out), args->outputs, NCCL_EP_DISPATCH_OUTPUTS_V1_SIZE, 8,
                            "outputs"));
    SWL_TRY(swl_tensor_copy(&t[DISPATCH_TOKENS], in.tokens, "inputs.tokens", true));
    SWL_TRY(swl_tensor_copy(&t[DISPATCH_WEIGHTS], in.topk_weights, "inputs.topk_weights", false));
    SWL_TRY(swl_tensor_copy(&t[DISPATCH_SCALES], in.scales, "inputs.scales", true));
    SWL_TRY(swl_tensor_copy(&t[DISPATCH_OUT_TOKENS], out.tokens, "outputs.tokens", true));
    SWL_TRY(
        swl_tensor_copy(&t[DISPATCH_OUT_WEIGHTS], out.topk_weights, "outputs.topk_weights", false));
    SWL_TRY(swl_tensor_copy(&t[DISPATCH_OUT_SCALES], out.scales, "outputs.scales", true));
    return swl_tensor_copy(&t[DISPATCH_OUT_IDX], out.topk_idx, "outputs.topk_idx", false);
}

static ncclResult_t copy_dispatch_config(const struct swl_dispatch_args *args,
                                         ncclEpLayoutInfo_t *info, ncclEpDispatchConfig_t *config)
{
    *info = NCCL_EP_LAYOUT_INFO_INIT;
    *config = NCCL_EP_DISPATCH_CONFIG_INIT;
    if (args->layout_info)
        SWL_TRY(swl_struct_copy(info, sizeof(*info), args->layout_info, NCCL_EP_LAYOUT_INFO_V1_SIZE,
                                4, "layout_info"));
    if (args->config)
        SWL_TRY(swl_struct_copy(config, sizeof(*config), args->config,
                                NCCL_EP_DISPATCH_CONFIG_V1_SIZE, 4, "config"));
    SWL_ARG((unsigned int)info->recv_topk_idx_kind <= NCCL_EP_EXPERT_ID_GLOBAL,
            "layout_info.recv_topk_idx_kind is %d, not one of ncclEpExpertIdKind_t",
            (int)info->recv_topk_idx_kind);
    SWL_ARG((unsigned int)config->pass_direction <= NCCL_EP_BWD_PASS,
            "config.pass_direction is %d, not one of ncclEpPassDir_t", (int)config->pass_direction);
    SWL_ARG((unsigned int)config->quant_recipe <= NCCL_EP_DISP_QUANT_DS_FP8E3M4,
            "config.quant_recipe is %d, not one of ncclEpDispQuant_t", (int)config->quant_recipe);
    return ncclSuccess;
}

/* Rows for the received tokens: the budget, or (level 1) what is known to arrive. */
static ncclResult_t need_budget(const struct swl_tensor *t, const struct swl_group_info *group,
                                int64_t visible_rows)
{
    if (t->view.rows >= group->recv_rows)
        return ncclSuccess;
    SWL_ARG(group->level == 1 && visible_rows >= 0 && t->view.rows >= (uint64_t)visible_rows,
            "%s has %" PRIu64 " rows, less than max_recv_tokens_per_rank %u", t->field,
            t->view.rows, group->recv_rows);
    return ncclSuccess;
}

static ncclResult_t check_dispatch_forward(const struct swl_tensor *t,
                                           const struct swl_group_info *group,
                                           const struct swl_handle_info *handle,
                                           int64_t visible_rows)
{
    const struct swl_tensor *weights = &t[DISPATCH_OUT_WEIGHTS], *idx = &t[DISPATCH_OUT_IDX];

    SWL_TRY(swl_need_weights(&t[DISPATCH_WEIGHTS], handle));
    SWL_TRY(
        swl_need_rows(&t[DISPATCH_WEIGHTS], t[DISPATCH_TOKENS].view.rows, "rows of inputs.tokens"));
    SWL_TRY(swl_need_weights(weights, handle));
    SWL_TRY(swl_need_2d(idx));
    SWL_TRY(swl_need_dtype(idx, ncclInt64, ncclInt32));
    if (handle->topk)
        SWL_TRY(swl_need_columns(idx, handle->topk, "top-k of the handle"));
    SWL_TRY(need_budget(weights, group, visible_rows));
    return need_budget(idx, group, visible_rows);
}

static bool quantised(ncclDataType_t dtype)
{
    return dtype == ncclFloat32 || dtype == ncclFloat16 || dtype == ncclBfloat16 ||
           dtype == ncclFloat8e4m3 || dtype == ncclFloat8e5m2;
}

/* Rows and scale rows that the caller has quantised; they travel unchanged. */
static ncclResult_t check_recipe_forward(const struct swl_tensor *t,
                                         const struct swl_group_info *group,
                                         const ncclEpDispatchConfig_t *config)
{
    const struct swl_tensor *in = &t[DISPATCH_TOKENS], *scales = &t[DISPATCH_SCALES];
    const struct swl_tensor *out = &t[DISPATCH_OUT_TOKENS], *out_scales = &t[DISPATCH_OUT_SCALES];

    SWL_TRY(swl_need_2d(scales));
    SWL_TRY(swl_need_2d(out_scales));
    SWL_ARG(config->round_scales == 0, "config.round_scales is not 0 with recipe FWD");
    SWL_ARG(quantised(in->view.dtype) || in->view.dtype == ncclFloat4x2,
            "inputs.tokens is of %s, which recipe FWD does not carry",
            swl_dtype_name(in->view.dtype));
    SWL_ARG(quantised(scales->view.dtype) || scales->view.dtype == ncclUint8,
            "inputs.scales is of %s, which recipe FWD does not carry",
            swl_dtype_name(scales->view.dtype));
    SWL_TRY(swl_need_dtype(out_scales, scales->view.dtype, scales->view.dtype));
    SWL_TRY(swl_need_columns(out_scales, scales->view.columns, "columns of inputs.scales"));
    SWL_TRY(swl_need_rows(scales, in->view.rows, "rows of inputs.tokens"));
    SWL_TRY(swl_need_rows(out_scales, out->view.rows, "rows of outputs.tokens"));
    SWL_ARG(in->view.row_bytes >= 16 && in->view.row_bytes % 16 == 0 &&
                scales->view.row_bytes >= 16 && scales->view.row_bytes % 16 == 0,
            "rows of %" PRIu64 " and scale rows of %" PRIu64 " bytes are not multiples of 16",
            in->view.row_bytes, scales->view.row_bytes);
    SWL_ARG(in->view.row_bytes + scales->view.row_bytes <= group->max_token_bytes,
            "row and scale row have %" PRIu64 " bytes together, more than max_token_bytes %u",
            in->view.row_bytes + scales->view.row_bytes, group->max_token_bytes);
    SWL_ARG(out->view.window == out_scales->view.window,
            "outputs.tokens and outputs.scales are not both window tensors or both plain");
    return swl_need_window(out_scales, group);
}

/* Rows and their type; scales go with recipes only. */
static ncclResult_t check_dispatch_rows(const struct swl_tensor *t,
                                        const struct swl_group_info *group,
                                        const struct swl_handle_info *handle,
                                        const ncclEpDispatchConfig_t *config)
{
    const struct swl_tensor *in = &t[DISPATCH_TOKENS], *out = &t[DISPATCH_OUT_TOKENS];

    SWL_TRY(swl_need_2d(in));
    SWL_TRY(swl_need_2d(out));
    SWL_ARG(config->quant_recipe != NCCL_EP_DISP_QUANT_DS_FP8E3M4,
            "config.quant_recipe DS_FP8E3M4 is not one of a high throughput group");
    if (config->quant_recipe == NCCL_EP_DISP_QUANT_NONE) {
        SWL_TRY(swl_need_none(&t[DISPATCH_SCALES], "a dispatch without recipe"));
        SWL_TRY(swl_need_none(&t[DISPATCH_OUT_SCALES], "a dispatch without recipe"));
        SWL_TRY(swl_need_row(in, group));
    } else {
        SWL_TRY(check_recipe_forward(t, group, config));
    }
    SWL_TRY(swl_need_tokens(in, group, handle));
    SWL_TRY(swl_need_dtype(out, in->view.dtype, in->view.dtype));
    SWL_TRY(swl_need_columns(out, in->view.columns, "columns of inputs.tokens"));
    return swl_need_window(out, group);
}

static void fill_dispatch(const struct swl_tensor *t, bool global_ids,
                          struct swl_dispatch_call *call)
{
    memset(call, 0, sizeof(*call));
    call->ntokens = (uint32_t)t[DISPATCH_TOKENS].view.rows;
    call->hidden = (uint32_t)t[DISPATCH_TOKENS].view.columns;
    call->dtype = t[DISPATCH_TOKENS].view.dtype;
    call->row_bytes = (uint32_t)t[DISPATCH_TOKENS].view.row_bytes;
    call->tokens = t[DISPATCH_TOKENS].view;
    call->weights = t[DISPATCH_WEIGHTS].view;
    call->out_tokens = t[DISPATCH_OUT_TOKENS].view;
    call->out_weights = t[DISPATCH_OUT_WEIGHTS].view;
    call->out_ids = t[DISPATCH_OUT_IDX].view;
    call->global_ids = global_ids;
}

static ncclResult_t missing_dispatch(const ncclEpDispatchConfig_t *config)
{
    if (config->pass_direction == NCCL_EP_BWD_PASS)
        return swl_fail(ncclInvalidUsage,
                        "config.pass_direction: the backward pass is missing in this version");
    if (config->quant_recipe != NCCL_EP_DISP_QUANT_NONE)
        return swl_fail(ncclInvalidUsage,
                        "config.quant_recipe: recipes are missing in this version");
    return ncclSuccess;
}

ncclResult_t swl_check_dispatch(const struct swl_group_info *group,
                                const struct swl_handle_info *handle,
                                const struct swl_dispatch_args *args,
                                struct swl_dispatch_call *call)
{
    struct swl_tensor t[DISPATCH_TENSORS];
    ncclEpDispatchConfig_t config;
    ncclEpLayoutInfo_t info;

    SWL_TRY(copy_dispatch(t, args));
    SWL_TRY(copy_dispatch_config(args, &info, &config));
    SWL_TRY(swl_rule_zero_copy(&t[DISPATCH_OUT_TOKENS], group));
    SWL_TRY(swl_rule_tensors(t, DISPATCH_TENSORS, group));
    SWL_TRY(check_dispatch_rows(t, group, handle, &config));
    if (config.pass_direction == NCCL_EP_FWD_PASS) {
        SWL_TRY(check_dispatch_forward(t, group, handle, args->visible_rows));
    } else {
        SWL_TRY(swl_need_none(&t[DISPATCH_WEIGHTS], "the backward pass"));
        SWL_TRY(swl_need_none(&t[DISPATCH_OUT_WEIGHTS], "the backward pass"));
        SWL_TRY(swl_need_none(&t[DISPATCH_OUT_IDX], "the backward pass"));
    }
    SWL_TRY(need_budget(&t[DISPATCH_OUT_TOKENS], group, args->visible_rows));
    SWL_TRY(swl_rule_no_overlap(t, DISPATCH_INPUTS, DISPATCH_TENSORS));
    SWL_TRY(missing_dispatch(&config));
    SWL_TRY(swl_rule_routed(handle));
    fill_dispatch(t, info.recv_topk_idx_kind == NCCL_EP_EXPERT_ID_GLOBAL, call);
    return ncclSuccess;
}
