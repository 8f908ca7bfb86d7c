/* combine.c: checks of combine. Layer: src/check, see check.h; owns no memory.
 *
 * The call lists its tensors once; the stages of the check run over that list. */
#include "src/check/check.h"

#include "src/base/error.h"
#include "src/base/util.h"
#include "src/check/rules.h"

#include <inttypes.h>
#include <string.h>

enum {
    COMBINE_TOKENS,
    COMBINE_WEIGHTS,
    COMBINE_SCALES,
    COMBINE_INPUTS,
    COMBINE_OUT_TOKENS = COMBINE_INPUTS,
    COMBINE_OUT_WEIGHTS,
    COMBINE_TENSORS
};

static ncclResult_t copy_combine(struct swl_tensor *t, const struct swl_combine_args *args,
                                 ncclEpCombineConfig_t *config)
{
    ncclEpCombineInputs_t in;
    ncclEpCombineOutputs_t out;

    SWL_ARG(args->inputs, "inputs is NULL");
    SWL_ARG(args->outputs, "outputs is NULL");
    SWL_TRY(swl_struct_copy(&in, sizeof(in), args->inputs, NCCL_EP_COMBINE_INPUTS_V1_SIZE, 8,
                            "inputs"));
    SWL_TRY(swl_struct_copy(&out, sizeof(out), args->outputs, NCCL_EP_COMBINE_OUTPUTS_V1_SIZE, 8,
                            "outputs"));
    *config = NCCL_EP_COMBINE_CONFIG_INIT;
    if (args->config)
        SWL_TRY(swl_struct_copy(config, sizeof(*config), args->config,
                                NCCL_EP_COMBINE_CONFIG_V1_SIZE, 4, "config"));
    SWL_ARG((unsigned int)config->pass_direction <= NCCL_EP_BWD_PASS,
            "config.pass_direction is %d, not one of ncclEpPassDir_t", (int)config->pass_direction);
    SWL_ARG((unsigned int)config->quant_recipe <= NCCL_EP_COMB_QUANT_NVFP4,
            "config.quant_recipe is %d, not one of ncclEpCombQuant_t", (int)config->quant_recipe);
    if (config->pass_direction == NCCL_EP_FWD_PASS)
        out.topk_weights = NULL; /* ignored */
    SWL_TRY(swl_tensor_copy(&t[COMBINE_TOKENS], in.tokens, "inputs.tokens", true));
    SWL_TRY(swl_tensor_copy(&t[COMBINE_WEIGHTS], in.topk_weights, "inputs.topk_weights", false));
    SWL_TRY(swl_tensor_copy(&t[COMBINE_SCALES], in.scales, "inputs.scales", false));
    SWL_TRY(swl_tensor_copy(&t[COMBINE_OUT_TOKENS], out.tokens, "outputs.tokens", true));
    return swl_tensor_copy(&t[COMBINE_OUT_WEIGHTS], out.topk_weights, "outputs.topk_weights",
                           false);
}

static ncclResult_t check_combine_rows(const struct swl_tensor *t,
                                       const struct swl_group_info *group,
                                       const struct swl_handle_info *handle)
{
    const struct swl_tensor *in = &t[COMBINE_TOKENS], *out = &t[COMBINE_OUT_TOKENS];

    SWL_TRY(swl_need_2d(in));
    SWL_TRY(swl_need_2d(out));
    SWL_TRY(swl_need_none(&t[COMBINE_SCALES], "a combine without recipe"));
    SWL_TRY(swl_need_row(in, group));
    SWL_TRY(swl_need_dtype(out, in->view.dtype, in->view.dtype));
    SWL_TRY(swl_need_columns(out, in->view.columns, "columns of inputs.tokens"));
    SWL_TRY(swl_need_tokens(out, group, handle));
    return swl_need_window(in, group);
}

static ncclResult_t check_combine_weights(const struct swl_tensor *t,
                                          const struct swl_handle_info *handle,
                                          ncclEpPassDir_t direction)
{
    if (direction == NCCL_EP_FWD_PASS)
        return swl_need_none(&t[COMBINE_WEIGHTS], "the forward pass");
    SWL_TRY(swl_need_weights(&t[COMBINE_WEIGHTS], handle));
    SWL_TRY(swl_need_weights(&t[COMBINE_OUT_WEIGHTS], handle));
    return swl_need_rows(&t[COMBINE_OUT_WEIGHTS], t[COMBINE_OUT_TOKENS].view.rows,
                         "rows of outputs.tokens");
}

ncclResult_t swl_check_combine(const struct swl_group_info *group,
                               const struct swl_handle_info *handle,
                               const struct swl_combine_args *args, struct swl_combine_call *call)
{
    struct swl_tensor t[COMBINE_TENSORS];
    ncclEpCombineConfig_t config;

    SWL_TRY(copy_combine(t, args, &config));
    if (config.quant_recipe == NCCL_EP_COMB_QUANT_NVFP4)
        return swl_fail(ncclInvalidUsage,
                        "config.quant_recipe NVFP4: this build is without FP4 support");
    SWL_TRY(swl_rule_zero_copy(&t[COMBINE_TOKENS], group));
    SWL_TRY(swl_rule_tensors(t, COMBINE_TENSORS, group));
    SWL_TRY(check_combine_rows(t, group, handle));
    SWL_TRY(check_combine_weights(t, handle, config.pass_direction));
    SWL_TRY(swl_rule_no_overlap(t, COMBINE_INPUTS, COMBINE_TENSORS));
    if (config.pass_direction == NCCL_EP_BWD_PASS)
        return swl_fail(ncclInvalidUsage,
                        "config.pass_direction: the backward pass is missing in this version");
    SWL_TRY(swl_rule_routed(handle));
    memset(call, 0, sizeof(*call));
    call->ntokens = (uint32_t)t[COMBINE_OUT_TOKENS].view.rows;
    call->hidden = (uint32_t)t[COMBINE_TOKENS].view.columns;
    call->dtype = t[COMBINE_TOKENS].view.dtype;
    call->row_bytes = (uint32_t)t[COMBINE_TOKENS].view.row_bytes;
    call->tokens = t[COMBINE_TOKENS].view;
    call->out_tokens = t[COMBINE_OUT_TOKENS].view;
    return ncclSuccess;
}
