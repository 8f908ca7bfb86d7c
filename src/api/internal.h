/* internal.h: what the public functions (src/api) call, and what they know about a group and a
 * handle before they call it.
 *
 * Layer: src/api, between api/check and group/handle/dispatch/combine. The info structs are the
 * first members of struct ncclEpGroup and struct ncclEpHandle, so that arguments can be checked
 * (and the checks tested) with nothing but these structs. Views point into the caller's memory and
 * are valid during the call only. Every function here is called with the group's lock held and the
 * group's device current, except swl_group_create and swl_group_destroy (device current, no lock);
 * all arguments are valid, so that only states, resources and peers can still fail. */
#ifndef SWL_INTERNAL_H
#define SWL_INTERNAL_H

#include "src/runtime/runtime.h"

#include <nccl_ep.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_options;

#define SWL_MAX_TOPK        64u
#define SWL_MAX_RANKS       4096u
#define SWL_MAX_EXPERTS     (1u << 20)
#define SWL_MAX_TOKEN_BYTES (256u << 10)
/* First NCCL whose windows tell a pointer (ncclWinGetUserPtr). */
#define SWL_NCCL_WINDOW_POINTERS 22902

/* ---- description of a group, first member of struct ncclEpGroup; fixed after creation except
 * the region table ---- */

/* One allocation of swimlaneMemAlloc. */
struct swl_region {
    void *base;
    uint64_t bytes;  /* as asked for */
    uint64_t offset; /* of `base` in the symmetric memory, equal on all ranks */
};

#define SWL_GROUP_ALIVE 0x70756f7267u

struct swl_group_info {
    uint64_t alive; /* SWL_GROUP_ALIVE, from the end of creation to that of destruction */
    ncclEpAlgorithm_t algorithm;
    uint32_t level; /* 1 if the version of the configuration is at most 1, else 2 */
    uint32_t nranks, rank;
    uint32_t nexperts;   /* E */
    uint32_t nlocal;     /* L = ceil(E / R) */
    uint32_t max_tokens; /* D */
    uint32_t recv_rows;  /* X; 0 = eager mode */
    uint32_t max_token_bytes;
    uint32_t max_topk; /* num_topk of the configuration; 0 = unset */
    ncclEpZeroCopyMode_t zero_copy;
    ncclEpOverflowPolicy_t overflow; /* TRAP or DROP, never AUTO */
    bool enable_mask;
    int device;
    ncclComm_t comm;
    int nccl_version;
    ncclResult_t (*window_pointer)(ncclComm_t, ncclWindow_t, void **); /* NULL: NCCL too old */
    struct swl_gpu_mutex *lock;
    const struct swl_region *regions; /* [nregions], changed under the lock */
    uint32_t nregions;
};

/* ---- description of a handle, first member of struct ncclEpHandle ---- */
#define SWL_HANDLE_ALIVE 0x656c646e6168u

struct swl_handle_info {
    uint64_t alive;            /* SWL_HANDLE_ALIVE */
    struct ncclEpGroup *group; /* NULL: orphan, its group is gone */
    ncclEpLayout_t layout;
    uint32_t topk;     /* K; 0 = not yet known */
    int64_t ntokens;   /* T of the last update through this handle; -1 = none */
    uint32_t id_bytes; /* 4 or 8 of the last update; 0 = none */
    bool updated;      /* an update went through this handle */
    bool own_memory;   /* library memory: no use before an update */
    bool pending;      /* a send phase waits for ncclEpComplete */
};

static inline const struct swl_group_info *swl_info_of_group(const struct ncclEpGroup *group)
{
    return (const struct swl_group_info *)(const void *)group;
}

static inline const struct swl_handle_info *swl_info_of_handle(const struct ncclEpHandle *handle)
{
    return (const struct swl_handle_info *)(const void *)handle;
}

/* ---- checked arguments ---- */

/* A dense tensor of the caller: rows x row_bytes. All zero if it was not given (then !given);
 * data may be NULL if it is empty. */
struct swl_view {
    bool given;
    bool shared; /* lies in library memory: peers reach it at `offset` */
    bool window; /* window tensor of either kind */
    ncclDataType_t dtype;
    uint32_t elem_bytes;
    void *data;         /* local address */
    uint64_t offset;    /* in the symmetric memory, if shared */
    uint64_t rows;      /* first extent */
    uint64_t columns;   /* product of the other extents */
    uint64_t row_bytes; /* columns * elem_bytes */
};

struct swl_group_config {
    ncclEpAlgorithm_t algorithm;
    uint32_t level;
    uint32_t nexperts, max_tokens, recv_rows, max_token_bytes, max_topk;
    ncclEpZeroCopyMode_t zero_copy;
    ncclEpOverflowPolicy_t overflow; /* TRAP or DROP */
    bool enable_mask;
    uint64_t rdma_bytes;               /* rdma_buffer_size; 0 = auto */
    uint32_t nqps, nchannels, max_sms; /* hints; 0 = not set */
    uint64_t timeout_ns;               /* 0 = not set */
    const struct swl_options *options; /* read from the environment; copied by the group */
    ncclEpAllocConfig_t alloc;         /* both callbacks or none */
};

struct swl_handle_config {
    ncclEpLayout_t layout;
    uint32_t topk;      /* 0 = not yet known */
    uint32_t alignment; /* >= 1 */
    void *memory;       /* caller's handle memory, NULL = library memory */
    uint64_t memory_bytes;
};

struct swl_update_call {
    struct swl_view topk_idx; /* [T][K], 4- or 8-byte ids */
    uint32_t ntokens, topk;
    uint32_t counter_bytes; /* 4 or 8, of all given counters; 0 = none given */
    struct swl_view expert_counters, src_rank_counters, expert_offsets, recv_total;
    cudaStream_t stream;
};

struct swl_dispatch_call {
    uint32_t ntokens, hidden; /* T, H */
    ncclDataType_t dtype;
    uint32_t row_bytes;
    struct swl_view tokens, weights; /* inputs */
    struct swl_view out_tokens, out_weights, out_ids;
    bool global_ids; /* out_ids numbers the experts of all ranks, else those of this rank */
    cudaStream_t stream;
};

struct swl_combine_call {
    uint32_t ntokens, hidden;
    ncclDataType_t dtype;
    uint32_t row_bytes;
    struct swl_view tokens; /* input */
    struct swl_view out_tokens;
    cudaStream_t stream;
};

/* ---- group (src/group/) ---- */

/* Collective. `refused` != ncclSuccess: this rank's arguments were refused and `config` may be
 * partly filled; the rank only joins the status exchange so that the others return too, and gets
 * `refused` back. *group_p is set on success only. */
ncclResult_t swl_group_create(struct ncclEpGroup **group_p, ncclComm_t comm,
                              const struct swl_group_config *config, ncclResult_t refused);
/* Collective, bounded. After any code but ncclInvalidUsage the group is gone; handles still alive
 * become orphans. */
ncclResult_t swl_group_destroy(struct ncclEpGroup *group);
/* Bits SWL_ASYNC_…. Never blocks. */
ncclResult_t swl_group_async_bits(struct ncclEpGroup *group, int *bits_p);
ncclResult_t swl_group_clear(struct ncclEpGroup *group);
/* `key` is one of SWIMLANE_QUERY_…. */
ncclResult_t swl_group_query(struct ncclEpGroup *group, int key, uint64_t *value_p);

/* Collective, same order and bytes on all ranks. `refused` != ncclSuccess: the call was refused on
 * this rank, bytes is 0, and it only joins the agreement, which then fails on all ranks. */
ncclResult_t swl_mem_alloc(struct ncclEpGroup *group, uint64_t bytes, ncclResult_t refused,
                           void **ptr_p);
/* Collective. `ptr` is the start of a region of this group, or NULL, which does nothing. `refused`
 * as above: no rank frees then. */
ncclResult_t swl_mem_free(struct ncclEpGroup *group, void *ptr, ncclResult_t refused);

/* ---- handle (src/ops/handle.c) ---- */

/* Pure function of the group and its arguments; topk >= 1. Multiple of 256. */
uint64_t swl_handle_mem_bytes(const struct ncclEpGroup *group, ncclEpLayout_t layout, uint32_t topk,
                              uint32_t alignment);
/* Host only; leaves the bytes of config->memory untouched. */
ncclResult_t swl_handle_init(struct ncclEpHandle **handle_p, struct ncclEpGroup *group,
                             const struct swl_handle_config *config);
/* Enqueues the route kernel; sets topk, ntokens, id_bytes, updated in the info on success. */
ncclResult_t swl_handle_update(struct ncclEpHandle *handle, const struct swl_update_call *call);
/* Host only. Also for orphans (called without lock then). Refuses a pending handle. */
ncclResult_t swl_handle_destroy(struct ncclEpHandle *handle);
/* Rows of the last update from the mailbox; -1 = not yet visible. Never waits. */
int64_t swl_handle_recv_rows(const struct ncclEpHandle *handle);

/* ---- data path (src/ops): state of the group first, then the launch ---- */
ncclResult_t swl_dispatch(struct ncclEpHandle *handle, const struct swl_dispatch_call *call);
ncclResult_t swl_combine(struct ncclEpHandle *handle, const struct swl_combine_call *call);

#ifdef __cplusplus
}
#endif
#endif
