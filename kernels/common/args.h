/* args.h: what the host hands to the kernels. C and CUDA; plain data, pointers are device
 * addresses.
 *
 * swl_device_group is written once at group creation and read-only afterwards. swl_state is the
 * private, mutable state of the rank on its device: read by every block at the start of a kernel,
 * advanced by the last block of a kernel to finish. The argument structs carry one call. */
#pragma once

#include "kernels/common/block.h"
#include "kernels/common/faults.h"
#include "kernels/common/layout.h"
#include "transport/rdma_view.h"

/* The rank at the other end of rings: out of this one the gateway in remote node n, into it served
 * source j. */
struct swl_ring_end {
    uint32_t rank, node;
    uint32_t index; /* of this rank at that end: j at a gateway, n at a source */
    uint32_t local; /* local index of that rank in its node */
};

/* Positions of the rings, [n][P] at the source and [served][P] at the gateway. `now` is what a
 * kernel starts from; coordinators write `next`; the last block copies. The four source arrays lie
 * directly behind each other in this order, and so do the five gateway arrays. */
struct swl_positions {
    uint64_t *sent, *request_sent, *partial_recv, *partial_credited; /* [n * P + p] */
    uint64_t *recv, *recv_credited, *request_recv, *request_credited,
        *partial_sent; /* [j * P + p] */
};
#define SWL_POSITION_ARRAYS_OUT 4u
#define SWL_POSITION_ARRAYS_IN  5u

struct swl_state {
    uint64_t gen;      /* generation, 16 bits used; + 1 with each recovery */
    uint64_t call;     /* number of the next dispatch or combine */
    uint64_t epoch;    /* number of the next route update */
    uint64_t clears;   /* ErrorClear calls; written by the host in stream order, with `heard` */
    uint64_t heard;    /* newest generation that the host knew to be given up at the last of them */
    uint64_t cleared;  /* of them, those whose recovery has been looked after */
    uint64_t resynced; /* released by block 0 when rings are back in step: == clears */
    uint64_t dropped;  /* rows dropped since creation */
    /* of the running kernel; zeroed by its last block */
    uint32_t ticket, barrier;
    uint32_t claimed, async_bits; /* claimed: until the recovery; the bits: of the running kernel */
    uint32_t received, served, gathered, pad;
    uint32_t turns[2]; /* taken by writers to peers, and to the own rank */
    /* 1, or 2 after a call that was given up: the other blocks have ended. Zeroed, with the ticket,
     * by the last of the NIC's blocks */
    uint32_t nic_closing, nic_ticket;
};

struct swl_ht_group {
    struct swl_positions now, next;
#define ARRAY(type, name, count)
#define HT_ARRAY(name, count) uint64_t *name;
#define POSITIONS(name, count)
#define COPIED_END
#include "kernels/common/arrays.def"
};

struct swl_device_group {
    struct swl_shape shape;
    struct swl_window at;
    char *window; /* own window */
#define ARRAY(type, name, count) type *name;
#define HT_ARRAY(name, count)
#define POSITIONS(name, count)
#define COPIED_END
#include "kernels/common/arrays.def"
    struct swl_ht_group ht;
    struct swl_rdma_view net; /* link n * P + p, then (remote nodes) * P + j * P + p */
    struct swl_state *state;
    uint32_t route_blocks, route_warps; /* grid of the route kernel; chunks = blocks * warps */
    struct swl_fault_record *record;    /* pinned */
    uint32_t *host_bits;                /* pinned: async bits as of the last finished kernel */
    uint64_t *host_dropped;             /* pinned */
    const uint64_t *host_stop;          /* pinned: not 0 = give up */
    uint64_t *host_settled;             /* pinned: swl_settled_word */
    uint64_t *error_word;               /* pinned, read by the hosts of all ranks of this node */
    uint64_t timeout_ns;
    uint64_t per_expert; /* 2^40 / experts of a rank, rounded up */
    uint32_t trap;       /* overflow sets bit 1 */
};
static_assert(sizeof(struct swl_device_group) <= SWL_GROUP_BYTES &&
                  sizeof(struct swl_device_group) % 8 == 0,
              "picture of block.h; copied in words");

/* Warps of a channel: role r has count[r][0] warps on the odd block and count[r][1] on the even
 * one; with one SM both halves share a block. */
#define SWL_ROLES 6
struct swl_roles {
    uint8_t count[SWL_ROLES][2];
    uint8_t halves; /* blocks per channel: 2, or 1 */
    uint8_t pad[3];
};
enum swl_dispatch_role {
    SWL_D_SEND,
    SWL_D_SEND_COORD,
    SWL_D_FORWARD,
    SWL_D_FORWARD_COORD,
    SWL_D_WRITE,
    SWL_D_RECEIVE
};
enum swl_combine_role {
    SWL_C_REQUEST,
    SWL_C_SOURCE_COORD,
    SWL_C_SUM,
    SWL_C_GATEWAY,
    SWL_C_GATEWAY_COORD,
    SWL_C_SERVE
};

static_assert((int)SWL_WARP_SENDER + SWL_D_RECEIVE == SWL_WARP_RECEIVER &&
                  (int)SWL_WARP_REQUESTER + SWL_C_SERVE == SWL_WARP_SERVER,
              "fault records name the role of a warp by its place");

#define SWL_ROWS_UNKNOWN UINT32_MAX /* count of a mailbox while a replayed update runs */

struct swl_route_args {
    const struct swl_device_group *group;
    char *handle;
    uint64_t fingerprint; /* of the handle's group and layout; written into its head */
    const void *ids;
    uint32_t id_bytes, tokens, topk, alignment;
    uint64_t *mailbox;     /* pinned {seq:32, count:32}, or NULL */
    uint32_t seq;          /* captured: of the last update before */
    uint32_t captured;     /* into a graph: may run any number of times */
    uint32_t int_bytes;    /* of the counters below */
    uint32_t nic_blocks;   /* last blocks of the grid, which run the software NIC */
    void *expert_counters; /* [L] or NULL */
    void *recv_total;      /* [1] or NULL */
    void *src_counters;    /* [nranks] or NULL: rows delivered per source */
};

struct swl_dispatch_args {
    const struct swl_device_group *group;
    const char *handle;
    uint64_t fingerprint; /* that the handle's head must have */
    const char *tokens;   /* [T][row_bytes] */
    const float *weights; /* [T][K] */
    char *out_tokens;     /* [out_rows][row_bytes] */
    float *out_weights;   /* [out_weight_rows][K] */
    void *out_idx;        /* [out_idx_rows][K] */
    uint32_t nic_blocks;  /* last blocks of the grid, which run the software NIC */
    uint32_t ntokens, topk, row_bytes;
    uint32_t out_rows, out_weight_rows, out_idx_rows;
    uint32_t idx_bytes;           /* 4 or 8 */
    uint32_t idx_base;            /* added to local ids: 0, or the first id of this rank */
    struct swl_open_record entry; /* how peers reach out_tokens */
    struct swl_roles roles;
    struct swl_block_shape block; /* nrings: most rings of one channel, source or gateway side */
    struct swl_block shared;      /* of that shape */
    struct swl_handle_layout at;  /* of `handle` */
};

enum swl_dtype { SWL_BF16, SWL_FP16, SWL_FP32 };

struct swl_combine_args {
    const struct swl_device_group *group;
    const char *handle;
    uint64_t fingerprint; /* that the handle's head must have */
    const char *tokens;   /* experts' output, [in_rows][row_bytes] */
    char *out_tokens;     /* [T][row_bytes] */
    uint32_t nic_blocks;  /* last blocks of the grid, which run the software NIC */
    uint32_t ntokens, topk, row_bytes;
    uint32_t in_rows;
    uint32_t dtype;               /* enum swl_dtype */
    struct swl_open_record entry; /* how peers reach `tokens` */
    struct swl_roles roles;
    struct swl_combine_shape shared; /* of a block */
};
