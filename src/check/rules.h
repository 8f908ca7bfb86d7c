/* rules.h: rules that update, dispatch and combine share. Layer: src/check, below check.h. Each
 * returns InvalidArgument (or InvalidUsage) with a sentence unless its rule holds. */
#ifndef SWL_CHECK_RULES_H
#define SWL_CHECK_RULES_H

#include "src/check/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Capability of all, then validity of all. */
ncclResult_t swl_rule_tensors(struct swl_tensor *tensors, size_t ntensors,
                              const struct swl_group_info *group);

/* No output overlaps another tensor. */
ncclResult_t swl_rule_no_overlap(const struct swl_tensor *tensors, size_t ninputs, size_t ntensors);

ncclResult_t swl_need_2d(const struct swl_tensor *t);

ncclResult_t swl_need_none(const struct swl_tensor *t, const char *where);

ncclResult_t swl_need_dtype(const struct swl_tensor *t, ncclDataType_t a, ncclDataType_t b);

ncclResult_t swl_need_rows(const struct swl_tensor *t, uint64_t rows, const char *what);

ncclResult_t swl_need_columns(const struct swl_tensor *t, uint64_t columns, const char *what);

/* T of this call: that of the routing if known, else anything up to D. */
ncclResult_t swl_need_tokens(const struct swl_tensor *t, const struct swl_group_info *group,
                             const struct swl_handle_info *handle);

/* A payload row without recipe. */
ncclResult_t swl_need_row(const struct swl_tensor *t, const struct swl_group_info *group);

/* [rows][K] f32; K is the handle's, or whatever is given while that is unknown. */
ncclResult_t swl_need_weights(const struct swl_tensor *t, const struct swl_handle_info *handle);

/* Rows that peers store or load directly. */
ncclResult_t swl_need_window(const struct swl_tensor *t, const struct swl_group_info *group);

ncclResult_t swl_rule_zero_copy(const struct swl_tensor *t, const struct swl_group_info *group);

ncclResult_t swl_rule_state(const struct swl_handle_info *handle);

ncclResult_t swl_rule_routed(const struct swl_handle_info *handle);

#ifdef __cplusplus
}
#endif
#endif
