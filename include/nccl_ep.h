/* nccl_ep.h: the expert-parallel API, dispatch and combine of tokens over an NCCL communicator.
 *
 * C11 and C++17. All functions return an ncclResult_t and have C linkage. Every structure that is
 * handed over by pointer starts with `size` and `magic`; fill it with its NCCL_EP_…_INIT macro and
 * set the fields that matter. Structures, descriptors and `sizes` arrays are copied at entry and
 * need to live during the call only. A field that `size` does not cover wholly counts as 0. The
 * library never writes into a caller's structure.
 *
 * Words: a *selection* is one (token, k) pair with a valid expert id; R ranks, E experts, L experts
 * per rank, K selections per token at most, T tokens of this rank in this step. */
#ifndef NCCL_EP_H
#define NCCL_EP_H

#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <nccl.h>

#include "nccl_ep/ep_enums.h"

#define NCCL_EP_MAJOR        0
#define NCCL_EP_MINOR        2
#define NCCL_EP_PATCH        0
#define NCCL_EP_VERSION_CODE (NCCL_EP_MAJOR * 10000 + NCCL_EP_MINOR * 100 + NCCL_EP_PATCH)
#define NCCL_EP_API_VERSION  2

#define NCCL_EP_MAGIC        0xC00FFFEEu /* all structures but tensors */
#define NCCL_EP_TENSOR_MAGIC 0xCAFECAFEu /* tensors made by the caller */

/* Two 4-bit floats in one byte; passed only to NCCL_EP_DISP_QUANT_FWD. */
#ifndef ncclFloat4x2
#    define ncclFloat4x2 ((ncclDataType_t)12)
#endif

#ifdef __cplusplus
#    define NCCL_EP_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#    define NCCL_EP_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

/* Bytes up to and including `field`. */
#define NCCL_EP_FIELD_END(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))
/* True if `ptr` is given and its size covers `field`. */
#define NCCL_EP_HAS_FIELD(ptr, type, field)                                                        \
    ((ptr) != NULL && (ptr)->size >= NCCL_EP_FIELD_END(type, field))

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Structures
 * ------------------------------------------------------------------------------------------- */

typedef struct ncclEpGroup *ncclEpGroup_t;   /* state bound to one communicator */
typedef struct ncclEpHandle *ncclEpHandle_t; /* routing of one step on a group */

/* A dense row-major tensor, last dimension fastest.
 * Storage is `data`, or a registered window (`win_hdl` with `win_offset`), or both, which then
 * agree. A tensor with an extent of 0 needs no storage. Payload is 16-byte aligned; indices,
 * weights, counters and scales are aligned to their element. */
typedef struct ncclEpTensor {
    unsigned int size;
    unsigned int magic;
    unsigned int ndim; /* 1 .. 4 */
    ncclDataType_t datatype;
    void *data;
    ncclWindow_t win_hdl;
    uint64_t win_offset;
    size_t *sizes; /* [ndim] */
} ncclEpTensor_t;

typedef struct {
    unsigned int size;
    unsigned int magic;
} ncclEpTensorAllocConfig_t;

typedef cudaError_t (*ncclEpAllocFn_t)(void **ptr, size_t size, void *context);
typedef cudaError_t (*ncclEpFreeFn_t)(void *ptr, void *context);

/* Allocator of plain device memory: both functions or none. Alive until ncclEpGroupDestroy
 * returned. */
typedef struct {
    ncclEpAllocFn_t alloc_fn;
    ncclEpFreeFn_t free_fn;
    void *context;
} ncclEpAllocConfig_t;

typedef struct {
    unsigned int size;
    unsigned int magic;
    unsigned int version; /* NCCL_EP_API_VERSION; 0 or 1 selects the older row rule of dispatch */
    ncclEpAlgorithm_t algorithm;
    unsigned int num_experts;                  /* E, at least 1; R need not divide it */
    unsigned int max_dispatch_tokens_per_rank; /* D, at least 1 */
    unsigned int max_recv_tokens_per_rank;     /* X, HT: receive rows, at least D; 0 = eager mode */
    unsigned int max_token_bytes;              /* largest row with scales; HT: multiple of 16 */
    unsigned long rdma_buffer_size;            /* LL exchange buffer; NCCL_EP_AUTO */
    unsigned int num_qp_per_rank;              /* hint */
    unsigned int num_channels;                 /* hint */
    unsigned int max_num_sms;                  /* cap for all kernels; AUTO: LL all, HT 16 */
    ncclEpAllocConfig_t alloc;
    unsigned int enable_mask; /* not 0: ranks can be masked */
    uint64_t timeout_ns;      /* limit of every device wait; 0 = 100 s */
    /* level 2 */
    ncclEpZeroCopyMode_t zero_copy;
    ncclEpOverflowPolicy_t overflow_policy;
    unsigned int num_topk; /* upper bound of K, sizes buffers; 0 = unset */
    unsigned char padding_v2[4];
} ncclEpGroupConfig_t;

/* Optional results of the routing. Counters are int32 or int64, all the same. */
typedef struct {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *expert_counters;    /* [>= L] */
    ncclEpTensor_t *src_rank_counters;  /* [>= R] */
    ncclEpTensor_t *expert_offsets;     /* [>= L], EXPERT_MAJOR */
    ncclEpTensor_t *recv_total_counter; /* [>= 1] */
    /* level 2 */
    ncclEpExpertIdKind_t recv_topk_idx_kind; /* read by ncclEpDispatch only */
    unsigned char padding_v2[4];
} ncclEpLayoutInfo_t;

typedef struct {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *tokens;       /* [T][H] */
    ncclEpTensor_t *topk_weights; /* [T][K] f32 */
    ncclEpTensor_t *scales;
} ncclEpDispatchInputs_t;

typedef struct {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *tokens;
    ncclEpTensor_t *topk_weights;
    ncclEpTensor_t *scales;
    ncclEpTensor_t *topk_idx;
} ncclEpDispatchOutputs_t;

typedef struct {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *tokens;
    ncclEpTensor_t *topk_weights;
    /* level 2 */
    ncclEpTensor_t *scales;
} ncclEpCombineInputs_t;

typedef struct {
    unsigned int size;
    unsigned int magic;
    ncclEpTensor_t *tokens;       /* [T][H] */
    ncclEpTensor_t *topk_weights; /* LL EXPERT_MAJOR: an input, [T][K] f32 */
} ncclEpCombineOutputs_t;

typedef struct {
    unsigned int size;
    unsigned int magic;
    size_t dispatch_output_per_expert_alignment; /* HT EXPERT_MAJOR: 0, 1 or a power of two */
} ncclEpHandleConfig_t;

typedef struct {
    unsigned int size;
    unsigned int magic;
    unsigned int send_only;    /* LL: enqueue the send phase only */
    unsigned int round_scales; /* DS_FP8E3M4: scales rounded up to a power of two */
    ncclEpPassDir_t pass_direction;
    /* level 2 */
    ncclEpDispQuant_t quant_recipe;
} ncclEpDispatchConfig_t;

typedef struct {
    unsigned int size;
    unsigned int magic;
    unsigned int send_only;
    ncclEpPassDir_t pass_direction;
    /* level 2 */
    ncclEpCombQuant_t quant_recipe;
} ncclEpCombineConfig_t;

typedef struct ncclEpCompleteConfig {
    unsigned int size;
    unsigned int magic;
} ncclEpCompleteConfig_t;

#ifdef __cplusplus
} /* extern "C" */
#endif

/* ---------------------------------------------------------------------------------------------
 * Frozen sizes, last members and levels
 * ------------------------------------------------------------------------------------------- */

/* clang-format off */
#define NCCL_EP_TENSOR_V1_SIZE              48u
#define NCCL_EP_TENSOR_V2_SIZE              48u
#define NCCL_EP_TENSOR_SIZE                 NCCL_EP_TENSOR_V2_SIZE
#define NCCL_EP_TENSOR_V1_LAST_FIELD        sizes
#define NCCL_EP_TENSOR_V2_LAST_FIELD        sizes
#define NCCL_EP_TENSOR_CURRENT_VERSION      1

#define NCCL_EP_TENSOR_ALLOC_CONFIG_V1_SIZE         8u
#define NCCL_EP_TENSOR_ALLOC_CONFIG_V2_SIZE         8u
#define NCCL_EP_TENSOR_ALLOC_CONFIG_SIZE            NCCL_EP_TENSOR_ALLOC_CONFIG_V2_SIZE
#define NCCL_EP_TENSOR_ALLOC_CONFIG_V1_LAST_FIELD   magic
#define NCCL_EP_TENSOR_ALLOC_CONFIG_V2_LAST_FIELD   magic
#define NCCL_EP_TENSOR_ALLOC_CONFIG_CURRENT_VERSION 1

#define NCCL_EP_GROUP_CONFIG_V1_SIZE            96u
#define NCCL_EP_GROUP_CONFIG_V2_SIZE            112u
#define NCCL_EP_GROUP_CONFIG_SIZE               NCCL_EP_GROUP_CONFIG_V2_SIZE
#define NCCL_EP_GROUP_CONFIG_V1_LAST_FIELD      timeout_ns
#define NCCL_EP_GROUP_CONFIG_V2_LAST_FIELD      padding_v2
#define NCCL_EP_GROUP_CONFIG_CURRENT_VERSION    2

#define NCCL_EP_LAYOUT_INFO_V1_SIZE             40u
#define NCCL_EP_LAYOUT_INFO_V2_SIZE             48u
#define NCCL_EP_LAYOUT_INFO_SIZE                NCCL_EP_LAYOUT_INFO_V2_SIZE
#define NCCL_EP_LAYOUT_INFO_V1_LAST_FIELD       recv_total_counter
#define NCCL_EP_LAYOUT_INFO_V2_LAST_FIELD       padding_v2
#define NCCL_EP_LAYOUT_INFO_CURRENT_VERSION     2

#define NCCL_EP_DISPATCH_INPUTS_V1_SIZE         32u
#define NCCL_EP_DISPATCH_INPUTS_V2_SIZE         32u
#define NCCL_EP_DISPATCH_INPUTS_SIZE            NCCL_EP_DISPATCH_INPUTS_V2_SIZE
#define NCCL_EP_DISPATCH_INPUTS_V1_LAST_FIELD   scales
#define NCCL_EP_DISPATCH_INPUTS_V2_LAST_FIELD   scales
#define NCCL_EP_DISPATCH_INPUTS_CURRENT_VERSION 1

#define NCCL_EP_DISPATCH_OUTPUTS_V1_SIZE         40u
#define NCCL_EP_DISPATCH_OUTPUTS_V2_SIZE         40u
#define NCCL_EP_DISPATCH_OUTPUTS_SIZE            NCCL_EP_DISPATCH_OUTPUTS_V2_SIZE
#define NCCL_EP_DISPATCH_OUTPUTS_V1_LAST_FIELD   topk_idx
#define NCCL_EP_DISPATCH_OUTPUTS_V2_LAST_FIELD   topk_idx
#define NCCL_EP_DISPATCH_OUTPUTS_CURRENT_VERSION 1

#define NCCL_EP_COMBINE_INPUTS_V1_SIZE          24u
#define NCCL_EP_COMBINE_INPUTS_V2_SIZE          32u
#define NCCL_EP_COMBINE_INPUTS_SIZE             NCCL_EP_COMBINE_INPUTS_V2_SIZE
#define NCCL_EP_COMBINE_INPUTS_V1_LAST_FIELD    topk_weights
#define NCCL_EP_COMBINE_INPUTS_V2_LAST_FIELD    scales
#define NCCL_EP_COMBINE_INPUTS_CURRENT_VERSION  2

#define NCCL_EP_COMBINE_OUTPUTS_V1_SIZE         24u
#define NCCL_EP_COMBINE_OUTPUTS_V2_SIZE         24u
#define NCCL_EP_COMBINE_OUTPUTS_SIZE            NCCL_EP_COMBINE_OUTPUTS_V2_SIZE
#define NCCL_EP_COMBINE_OUTPUTS_V1_LAST_FIELD   topk_weights
#define NCCL_EP_COMBINE_OUTPUTS_V2_LAST_FIELD   topk_weights
#define NCCL_EP_COMBINE_OUTPUTS_CURRENT_VERSION 1

#define NCCL_EP_HANDLE_CONFIG_V1_SIZE           16u
#define NCCL_EP_HANDLE_CONFIG_V2_SIZE           16u
#define NCCL_EP_HANDLE_CONFIG_SIZE              NCCL_EP_HANDLE_CONFIG_V2_SIZE
#define NCCL_EP_HANDLE_CONFIG_V1_LAST_FIELD     dispatch_output_per_expert_alignment
#define NCCL_EP_HANDLE_CONFIG_V2_LAST_FIELD     dispatch_output_per_expert_alignment
#define NCCL_EP_HANDLE_CONFIG_CURRENT_VERSION   1

#define NCCL_EP_DISPATCH_CONFIG_V1_SIZE         20u
#define NCCL_EP_DISPATCH_CONFIG_V2_SIZE         24u
#define NCCL_EP_DISPATCH_CONFIG_SIZE            NCCL_EP_DISPATCH_CONFIG_V2_SIZE
#define NCCL_EP_DISPATCH_CONFIG_V1_LAST_FIELD   pass_direction
#define NCCL_EP_DISPATCH_CONFIG_V2_LAST_FIELD   quant_recipe
#define NCCL_EP_DISPATCH_CONFIG_CURRENT_VERSION 2

#define NCCL_EP_COMBINE_CONFIG_V1_SIZE          16u
#define NCCL_EP_COMBINE_CONFIG_V2_SIZE          20u
#define NCCL_EP_COMBINE_CONFIG_SIZE             NCCL_EP_COMBINE_CONFIG_V2_SIZE
#define NCCL_EP_COMBINE_CONFIG_V1_LAST_FIELD    pass_direction
#define NCCL_EP_COMBINE_CONFIG_V2_LAST_FIELD    quant_recipe
#define NCCL_EP_COMBINE_CONFIG_CURRENT_VERSION  2

#define NCCL_EP_COMPLETE_CONFIG_V1_SIZE         8u
#define NCCL_EP_COMPLETE_CONFIG_V2_SIZE         8u
#define NCCL_EP_COMPLETE_CONFIG_SIZE            NCCL_EP_COMPLETE_CONFIG_V2_SIZE
#define NCCL_EP_COMPLETE_CONFIG_V1_LAST_FIELD   magic
#define NCCL_EP_COMPLETE_CONFIG_V2_LAST_FIELD   magic
#define NCCL_EP_COMPLETE_CONFIG_CURRENT_VERSION 1
/* clang-format on */

/* ---------------------------------------------------------------------------------------------
 * Initial values: size and magic set, the rest zero
 * ------------------------------------------------------------------------------------------- */

/* The bare designators, for clients that write further designators after them. */
#define NCCL_EP_TENSOR_INIT_INLINE                                                                 \
    .size = (unsigned int)sizeof(ncclEpTensor_t), .magic = NCCL_EP_TENSOR_MAGIC

#ifdef __cplusplus

/* Compound literals and (before C++20) designators are extensions in C++. */
template <typename T> constexpr T ncclEpStructInit_(unsigned int magic)
{
    T value = {};
    value.size = static_cast<unsigned int>(sizeof(T));
    value.magic = magic;
    return value;
}

constexpr ncclEpGroupConfig_t ncclEpGroupConfigInit_(unsigned int magic)
{
    ncclEpGroupConfig_t value = ncclEpStructInit_<ncclEpGroupConfig_t>(magic);
    value.version = NCCL_EP_API_VERSION;
    return value;
}

#    define NCCL_EP_STRUCT_INIT(type, magic) (ncclEpStructInit_<type>(magic))
#    define NCCL_EP_GROUP_CONFIG_INIT        (ncclEpGroupConfigInit_(NCCL_EP_MAGIC))

#else

#    define NCCL_EP_STRUCT_INIT(type, magic_) ((type){.size = sizeof(type), .magic = (magic_)})
#    define NCCL_EP_GROUP_CONFIG_INIT                                                              \
        ((ncclEpGroupConfig_t){.size = sizeof(ncclEpGroupConfig_t),                                \
                               .magic = NCCL_EP_MAGIC,                                             \
                               .version = NCCL_EP_API_VERSION})

#endif

/* clang-format off */
#define NCCL_EP_TENSOR_INIT              NCCL_EP_STRUCT_INIT(ncclEpTensor_t, NCCL_EP_TENSOR_MAGIC)
#define NCCL_EP_TENSOR_ALLOC_CONFIG_INIT NCCL_EP_STRUCT_INIT(ncclEpTensorAllocConfig_t, NCCL_EP_MAGIC)
#define NCCL_EP_LAYOUT_INFO_INIT         NCCL_EP_STRUCT_INIT(ncclEpLayoutInfo_t, NCCL_EP_MAGIC)
#define NCCL_EP_DISPATCH_INPUTS_INIT     NCCL_EP_STRUCT_INIT(ncclEpDispatchInputs_t, NCCL_EP_MAGIC)
#define NCCL_EP_DISPATCH_OUTPUTS_INIT    NCCL_EP_STRUCT_INIT(ncclEpDispatchOutputs_t, NCCL_EP_MAGIC)
#define NCCL_EP_COMBINE_INPUTS_INIT      NCCL_EP_STRUCT_INIT(ncclEpCombineInputs_t, NCCL_EP_MAGIC)
#define NCCL_EP_COMBINE_OUTPUTS_INIT     NCCL_EP_STRUCT_INIT(ncclEpCombineOutputs_t, NCCL_EP_MAGIC)
#define NCCL_EP_HANDLE_CONFIG_INIT       NCCL_EP_STRUCT_INIT(ncclEpHandleConfig_t, NCCL_EP_MAGIC)
#define NCCL_EP_DISPATCH_CONFIG_INIT     NCCL_EP_STRUCT_INIT(ncclEpDispatchConfig_t, NCCL_EP_MAGIC)
#define NCCL_EP_COMBINE_CONFIG_INIT      NCCL_EP_STRUCT_INIT(ncclEpCombineConfig_t, NCCL_EP_MAGIC)
#define NCCL_EP_COMPLETE_CONFIG_INIT     NCCL_EP_STRUCT_INIT(ncclEpCompleteConfig_t, NCCL_EP_MAGIC)
/* clang-format on */

/* ---------------------------------------------------------------------------------------------
 * Functions
 *
 * Common: ncclInvalidArgument for malformed calls, ncclInvalidUsage for what is not possible here
 * or now; swimlaneLastError() of swimlane.h has the sentence. A refused call has enqueued nothing
 * and changed nothing. A group or a handle that was destroyed is refused with ncclInvalidArgument,
 * until a later one has got its address. "Collective" calls are made by all ranks of the group in
 * the same order. Data-path calls enqueue on the given stream only and never wait on the host.
 * ------------------------------------------------------------------------------------------- */

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the library, NCCL_EP_VERSION_CODE (environment SWIMLANE_REPORT_VERSION replaces
 * it). */
ncclResult_t ncclEpGetVersion(int *version);

/* Make a descriptor with its own `sizes` array; data and window are unset. Only the descriptor is
 * allocated. config may be NULL. Release it with ncclEpTensorDestroy. */
ncclResult_t ncclEpTensorAlloc(ncclEpTensor_t **tensor, unsigned int ndim, ncclDataType_t datatype,
                               const size_t *sizes, const ncclEpTensorAllocConfig_t *config);

/* Release a descriptor of ncclEpTensorAlloc; its data is the caller's. NULL does nothing. */
ncclResult_t ncclEpTensorDestroy(ncclEpTensor_t *tensor);

/* Create a group on all ranks of `comm`. Collective, blocks the host. The ranks compare their
 * configuration; if one rank refuses, all return an error. `comm` must outlive the group. Each step
 * takes at most SWIMLANE_SETUP_TIMEOUT_MS (60 s), whatever timeout_ns is. */
ncclResult_t ncclEpCreateGroup(ncclEpGroup_t *ep_group, ncclComm_t comm,
                               const ncclEpGroupConfig_t *config);

/* Wait for the group's work (bounded by its time limit), then for the other ranks (bounded as
 * creation is), and release it. Collective. NULL does nothing. Handles still alive may only be
 * destroyed afterwards. The group is gone after every code but ncclInvalidUsage (a stream
 * captures). */
ncclResult_t ncclEpGroupDestroy(ncclEpGroup_t ep_group);

/* Bytes of handle memory for ncclEpInitHandle, equal on all ranks. config may be NULL. */
ncclResult_t ncclEpHandleMemSize(ncclEpGroup_t ep_group, ncclEpLayout_t layout,
                                 const ncclEpHandleConfig_t *config, size_t *size_out,
                                 int num_topk);

/* Create a handle. handle_mem, if given, is a 1D uint8 tensor of at least ncclEpHandleMemSize bytes
 * that stays the caller's; it is not written here, so that a handle opened over the bytes of an
 * earlier one goes on with its routing. num_topk <= 0 (HT): taken from the group or from the first
 * update. Local, does not block. */
ncclResult_t ncclEpInitHandle(ncclEpHandle_t *handle, ncclEpGroup_t ep_group, ncclEpLayout_t layout,
                              const ncclEpHandleConfig_t *config, int num_topk,
                              const ncclEpTensor_t *handle_mem);

/* Set the routing of the next dispatches. topk_idx: [T][K] int32 or int64 global expert ids,
 * negative = none. HT: collective, enqueued on `stream`; results of layout_info (may be NULL) are
 * written in stream order. LL: host only, layout_info must be NULL. */
ncclResult_t ncclEpUpdateHandle(ncclEpHandle_t handle, const ncclEpTensor_t *topk_idx,
                                const ncclEpLayoutInfo_t *layout_info, cudaStream_t stream);

/* ncclEpInitHandle with K of topk_idx and library memory, then ncclEpUpdateHandle. */
ncclResult_t ncclEpCreateHandle(ncclEpHandle_t *handle, ncclEpGroup_t ep_group,
                                ncclEpLayout_t layout, const ncclEpTensor_t *topk_idx,
                                const ncclEpLayoutInfo_t *layout_info,
                                const ncclEpHandleConfig_t *config, cudaStream_t stream);

/* Release a handle; work already enqueued stays safe. Caller's handle memory must outlive that
 * work. NULL does nothing. Local, does not block. */
ncclResult_t ncclEpHandleDestroy(ncclEpHandle_t handle);

/* Send this rank's tokens to the ranks of their experts. Collective, enqueued on `stream`. Row
 * size, type and K are equal on all ranks. Inputs and outputs must live until the stream has passed
 * the work. Of this and every other call no output may overlap another tensor. config may be
 * NULL. */
ncclResult_t ncclEpDispatch(ncclEpHandle_t handle, const ncclEpDispatchInputs_t *inputs,
                            const ncclEpDispatchOutputs_t *outputs,
                            const ncclEpLayoutInfo_t *layout_info,
                            const ncclEpDispatchConfig_t *config, cudaStream_t stream);

/* Return the experts' rows to the tokens' ranks and add them up in a fixed order. Collective,
 * enqueued on `stream`; row size, type and K are equal on all ranks. config may be NULL. */
ncclResult_t ncclEpCombine(ncclEpHandle_t handle, const ncclEpCombineInputs_t *inputs,
                           const ncclEpCombineOutputs_t *outputs,
                           const ncclEpCombineConfig_t *config, cudaStream_t stream);

/* Enqueue the receive phase of a send_only operation on `stream`. Success without effect if
 * nothing is pending and for HT groups. config may be NULL. */
ncclResult_t ncclEpComplete(ncclEpHandle_t handle, const ncclEpCompleteConfig_t *config,
                            cudaStream_t stream);

/* Copy the mask (R ints on the device: 1 active, 0 masked) in stream order. */
ncclResult_t ncclEpMaskQuery(ncclEpGroup_t ep_group, int *mask_status, cudaStream_t stream);

/* Replace the mask by R ints of host memory, copied before return, in stream order. */
ncclResult_t ncclEpMaskUpdate(ncclEpGroup_t ep_group, const int *mask, cudaStream_t stream);

/* Make all ranks active again. Collective among the active ranks; waits for `stream`. */
ncclResult_t ncclEpMaskClean(ncclEpGroup_t ep_group, cudaStream_t stream);

/* Errors found by the device so far: bit 0 time limit, 1 receive overflow, 2 expert id out of
 * range, 3 handle memory that does not fit. Does not wait. */
ncclResult_t ncclEpGetAsyncError(ncclEpGroup_t ep_group, int *error_out);

/* Clear these bits and let the group accept work again. Does not wait. After a time limit call it
 * on all ranks, when the streams of the failed calls are synchronised: a call that is still running
 * can set its bits again. The next call brings the ranks back in step. */
ncclResult_t ncclEpErrorClear(ncclEpGroup_t ep_group);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* ---------------------------------------------------------------------------------------------
 * The binary interface, frozen (LP64)
 * ------------------------------------------------------------------------------------------- */

/* clang-format off */
#define NCCL_EP_ASSERT_AT_(type, field, at) \
    NCCL_EP_STATIC_ASSERT(offsetof(type, field) == (at), #type "." #field " has moved")
#define NCCL_EP_ASSERT_SIZE_(type, name) \
    NCCL_EP_STATIC_ASSERT(sizeof(type) == NCCL_EP_##name##_SIZE, #type " has changed its size"); \
    NCCL_EP_STATIC_ASSERT(NCCL_EP_FIELD_END(type, NCCL_EP_##name##_V1_LAST_FIELD) == NCCL_EP_##name##_V1_SIZE, \
                          #type " level 1 does not end with its last field"); \
    NCCL_EP_STATIC_ASSERT(NCCL_EP_FIELD_END(type, NCCL_EP_##name##_V2_LAST_FIELD) == NCCL_EP_##name##_V2_SIZE, \
                          #type " level 2 does not end with its last field"); \
    NCCL_EP_ASSERT_AT_(type, size, 0); \
    NCCL_EP_ASSERT_AT_(type, magic, 4)

NCCL_EP_ASSERT_SIZE_(ncclEpTensor_t, TENSOR);
NCCL_EP_ASSERT_AT_(ncclEpTensor_t, ndim, 8);
NCCL_EP_ASSERT_AT_(ncclEpTensor_t, datatype, 12);
NCCL_EP_ASSERT_AT_(ncclEpTensor_t, data, 16);
NCCL_EP_ASSERT_AT_(ncclEpTensor_t, win_hdl, 24);
NCCL_EP_ASSERT_AT_(ncclEpTensor_t, win_offset, 32);
NCCL_EP_ASSERT_AT_(ncclEpTensor_t, sizes, 40);

NCCL_EP_ASSERT_SIZE_(ncclEpTensorAllocConfig_t, TENSOR_ALLOC_CONFIG);

NCCL_EP_STATIC_ASSERT(sizeof(ncclEpAllocConfig_t) == 24, "ncclEpAllocConfig_t has changed its size");
NCCL_EP_ASSERT_AT_(ncclEpAllocConfig_t, alloc_fn, 0);
NCCL_EP_ASSERT_AT_(ncclEpAllocConfig_t, free_fn, 8);
NCCL_EP_ASSERT_AT_(ncclEpAllocConfig_t, context, 16);

NCCL_EP_ASSERT_SIZE_(ncclEpGroupConfig_t, GROUP_CONFIG);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, version, 8);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, algorithm, 12);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, num_experts, 16);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, max_dispatch_tokens_per_rank, 20);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, max_recv_tokens_per_rank, 24);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, max_token_bytes, 28);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, rdma_buffer_size, 32);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, num_qp_per_rank, 40);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, num_channels, 44);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, max_num_sms, 48);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, alloc, 56);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, enable_mask, 80);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, timeout_ns, 88);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, zero_copy, 96);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, overflow_policy, 100);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, num_topk, 104);
NCCL_EP_ASSERT_AT_(ncclEpGroupConfig_t, padding_v2, 108);

NCCL_EP_ASSERT_SIZE_(ncclEpLayoutInfo_t, LAYOUT_INFO);
NCCL_EP_ASSERT_AT_(ncclEpLayoutInfo_t, expert_counters, 8);
NCCL_EP_ASSERT_AT_(ncclEpLayoutInfo_t, src_rank_counters, 16);
NCCL_EP_ASSERT_AT_(ncclEpLayoutInfo_t, expert_offsets, 24);
NCCL_EP_ASSERT_AT_(ncclEpLayoutInfo_t, recv_total_counter, 32);
NCCL_EP_ASSERT_AT_(ncclEpLayoutInfo_t, recv_topk_idx_kind, 40);
NCCL_EP_ASSERT_AT_(ncclEpLayoutInfo_t, padding_v2, 44);

NCCL_EP_ASSERT_SIZE_(ncclEpDispatchInputs_t, DISPATCH_INPUTS);
NCCL_EP_ASSERT_AT_(ncclEpDispatchInputs_t, tokens, 8);
NCCL_EP_ASSERT_AT_(ncclEpDispatchInputs_t, topk_weights, 16);
NCCL_EP_ASSERT_AT_(ncclEpDispatchInputs_t, scales, 24);

NCCL_EP_ASSERT_SIZE_(ncclEpDispatchOutputs_t, DISPATCH_OUTPUTS);
NCCL_EP_ASSERT_AT_(ncclEpDispatchOutputs_t, tokens, 8);
NCCL_EP_ASSERT_AT_(ncclEpDispatchOutputs_t, topk_weights, 16);
NCCL_EP_ASSERT_AT_(ncclEpDispatchOutputs_t, scales, 24);
NCCL_EP_ASSERT_AT_(ncclEpDispatchOutputs_t, topk_idx, 32);

NCCL_EP_ASSERT_SIZE_(ncclEpCombineInputs_t, COMBINE_INPUTS);
NCCL_EP_ASSERT_AT_(ncclEpCombineInputs_t, tokens, 8);
NCCL_EP_ASSERT_AT_(ncclEpCombineInputs_t, topk_weights, 16);
NCCL_EP_ASSERT_AT_(ncclEpCombineInputs_t, scales, 24);

NCCL_EP_ASSERT_SIZE_(ncclEpCombineOutputs_t, COMBINE_OUTPUTS);
NCCL_EP_ASSERT_AT_(ncclEpCombineOutputs_t, tokens, 8);
NCCL_EP_ASSERT_AT_(ncclEpCombineOutputs_t, topk_weights, 16);

NCCL_EP_ASSERT_SIZE_(ncclEpHandleConfig_t, HANDLE_CONFIG);
NCCL_EP_ASSERT_AT_(ncclEpHandleConfig_t, dispatch_output_per_expert_alignment, 8);

NCCL_EP_ASSERT_SIZE_(ncclEpDispatchConfig_t, DISPATCH_CONFIG);
NCCL_EP_ASSERT_AT_(ncclEpDispatchConfig_t, send_only, 8);
NCCL_EP_ASSERT_AT_(ncclEpDispatchConfig_t, round_scales, 12);
NCCL_EP_ASSERT_AT_(ncclEpDispatchConfig_t, pass_direction, 16);
NCCL_EP_ASSERT_AT_(ncclEpDispatchConfig_t, quant_recipe, 20);

NCCL_EP_ASSERT_SIZE_(ncclEpCombineConfig_t, COMBINE_CONFIG);
NCCL_EP_ASSERT_AT_(ncclEpCombineConfig_t, send_only, 8);
NCCL_EP_ASSERT_AT_(ncclEpCombineConfig_t, pass_direction, 12);
NCCL_EP_ASSERT_AT_(ncclEpCombineConfig_t, quant_recipe, 16);

NCCL_EP_ASSERT_SIZE_(ncclEpCompleteConfig_t, COMPLETE_CONFIG);

NCCL_EP_STATIC_ASSERT(sizeof(ncclEpAlgorithm_t) == 4, "enumerations are four bytes");
NCCL_EP_STATIC_ASSERT(sizeof(ncclEpLayout_t) == 4, "enumerations are four bytes");
NCCL_EP_STATIC_ASSERT(sizeof(ncclEpPassDir_t) == 4, "enumerations are four bytes");
NCCL_EP_STATIC_ASSERT(sizeof(ncclEpZeroCopyMode_t) == 4, "enumerations are four bytes");
NCCL_EP_STATIC_ASSERT(sizeof(ncclEpOverflowPolicy_t) == 4, "enumerations are four bytes");
NCCL_EP_STATIC_ASSERT(sizeof(ncclEpExpertIdKind_t) == 4, "enumerations are four bytes");
NCCL_EP_STATIC_ASSERT(sizeof(ncclEpDispQuant_t) == 4, "enumerations are four bytes");
NCCL_EP_STATIC_ASSERT(sizeof(ncclEpCombQuant_t) == 4, "enumerations are four bytes");
NCCL_EP_STATIC_ASSERT(sizeof(ncclDataType_t) == 4, "enumerations are four bytes");
/* clang-format on */

#endif
