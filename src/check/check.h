/* check.h: all argument checks of the public functions, from caller's structs to checked calls.
 *
 * Layer: src/check, between api and internal.h. Pure: reads the caller's structs and the info
 * structs, changes nothing, so that it runs without a group. The order is that of docs: pointers,
 * struct size and magic, enumerations, capability, tensors, presence and shapes, then the handle's
 * state; the first violation decides. Well-formed calls for what this version does not do yet end
 * in InvalidUsage. */
#ifndef SWL_CHECK_H
#define SWL_CHECK_H

#include "src/api/internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Copy a caller's struct into `to` (to_bytes, zeroed first): what `size` covers, in whole fields of
 * `unit` bytes beyond the level 1 size. `from` must not be NULL. */
ncclResult_t swl_struct_copy(void *to, size_t to_bytes, const void *from, size_t v1_bytes,
                             size_t unit, const char *name);

/* Arguments that are malformed whatever the group is: fill *config as far as possible. */
ncclResult_t swl_check_group(const ncclEpGroupConfig_t *user, uint32_t nranks,
                             struct swl_group_config *config);

struct swl_handle_args {
    ncclEpLayout_t layout;
    const ncclEpHandleConfig_t *config; /* NULL = defaults */
    int num_topk;
    const ncclEpTensor_t *memory; /* NULL = library memory */
};
/* Everything but the size of the memory, which swl_check_handle_memory compares. */
ncclResult_t swl_check_handle(const struct swl_group_info *group,
                              const struct swl_handle_args *args, struct swl_handle_config *config);
ncclResult_t swl_check_handle_memory(const struct swl_handle_config *config, uint64_t need_bytes);

ncclResult_t swl_check_update(const struct swl_group_info *group,
                              const struct swl_handle_info *handle, const ncclEpTensor_t *topk_idx,
                              const ncclEpLayoutInfo_t *layout_info, struct swl_update_call *call);

struct swl_dispatch_args {
    const ncclEpDispatchInputs_t *inputs;
    const ncclEpDispatchOutputs_t *outputs;
    const ncclEpLayoutInfo_t *layout_info; /* may be NULL */
    const ncclEpDispatchConfig_t *config;  /* may be NULL */
    int64_t visible_rows; /* level 1 groups: rows of the current routing if known, else -1 */
};
ncclResult_t swl_check_dispatch(const struct swl_group_info *group,
                                const struct swl_handle_info *handle,
                                const struct swl_dispatch_args *args,
                                struct swl_dispatch_call *call);

struct swl_combine_args {
    const ncclEpCombineInputs_t *inputs;
    const ncclEpCombineOutputs_t *outputs;
    const ncclEpCombineConfig_t *config; /* may be NULL */
};
ncclResult_t swl_check_combine(const struct swl_group_info *group,
                               const struct swl_handle_info *handle,
                               const struct swl_combine_args *args, struct swl_combine_call *call);

ncclResult_t swl_check_complete(const ncclEpCompleteConfig_t *user);

#ifdef __cplusplus
}
#endif
#endif
