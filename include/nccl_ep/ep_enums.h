/* ep_enums.h: enumerations of the expert-parallel API. Valid C11 and C++17, includes nothing.
 *
 * Every enumeration is four bytes wide. A value outside its list is refused with
 * ncclInvalidArgument. */
#ifndef NCCL_EP_ENUMS_H
#define NCCL_EP_ENUMS_H

/* "Choose for me" in numeric configuration fields. */
#define NCCL_EP_AUTO 0

/* How a group exchanges tokens. */
typedef enum {
    NCCL_EP_ALGO_LOW_LATENCY = 0,    /* LL: few tokens, shortest time */
    NCCL_EP_ALGO_HIGH_THROUGHPUT = 1 /* HT: many tokens, link bandwidth */
} ncclEpAlgorithm_t;

/* Order of received rows. LL: EXPERT_MAJOR, RANK_MAJOR. HT: EXPERT_MAJOR, FLAT. */
typedef enum {
    NCCL_EP_LAYOUT_UNSET = 0,        /* always refused */
    NCCL_EP_LAYOUT_EXPERT_MAJOR = 1, /* one row per (token, local expert), zones by expert */
    NCCL_EP_LAYOUT_RANK_MAJOR = 2,   /* one row per token, zones by source rank */
    NCCL_EP_LAYOUT_FLAT = 3          /* one row per token, by (source rank, token index) */
} ncclEpLayout_t;

typedef enum { NCCL_EP_FWD_PASS = 0, NCCL_EP_BWD_PASS = 1 } ncclEpPassDir_t;

/* Direct access of peers to the caller's window tensors. */
typedef enum {
    NCCL_EP_ZERO_COPY_AUTO = 0, /* used where possible, results identical */
    NCCL_EP_ZERO_COPY_OFF = 1,
    NCCL_EP_ZERO_COPY_ON = 2 /* required: plain tensors are refused where it matters */
} ncclEpZeroCopyMode_t;

/* What happens to rows beyond the receive budget (HT). */
typedef enum {
    NCCL_EP_OVERFLOW_AUTO = 0, /* TRAP */
    NCCL_EP_OVERFLOW_TRAP = 1, /* dropped, async error bit 1, group refuses until cleared */
    NCCL_EP_OVERFLOW_DROP = 2  /* dropped, work goes on */
} ncclEpOverflowPolicy_t;

/* Numbering of the expert ids that dispatch returns. */
typedef enum {
    NCCL_EP_EXPERT_ID_AUTO = 0,  /* LOCAL */
    NCCL_EP_EXPERT_ID_LOCAL = 1, /* 0 .. experts of this rank - 1 */
    NCCL_EP_EXPERT_ID_GLOBAL = 2 /* as in topk_idx */
} ncclEpExpertIdKind_t;

/* How dispatch carries rows. */
typedef enum {
    NCCL_EP_DISP_QUANT_NONE = 0,      /* as they are */
    NCCL_EP_DISP_QUANT_FWD = 1,       /* already quantised by the caller, with scale rows */
    NCCL_EP_DISP_QUANT_DS_FP8E3M4 = 2 /* bf16 quantised to e4m3 with one f32 scale per 128 */
} ncclEpDispQuant_t;

/* How combine carries rows. */
typedef enum {
    NCCL_EP_COMB_QUANT_NONE = 0,
    NCCL_EP_COMB_QUANT_NVFP4 = 1 /* bf16 carried as FP4 pairs with block scales */
} ncclEpCombQuant_t;

#endif
