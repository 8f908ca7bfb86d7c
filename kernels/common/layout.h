/* layout.h: every byte that two parties touch, described once. C and CUDA.
 *
 * swl_shape is what all ranks of a group agree on. From it follow, by one function each, the
 * offsets of the symmetric window (swl_window) and of a handle's memory (swl_handle_layout). Nobody
 * else adds up sizes of these. The rank's private memory, which no other party sees, is laid out by
 * src/group/tables.c.
 *
 * Words: *source* = a rank sending tokens; *gateway* = the rank of another node that serves it
 * there; *served source* j of a gateway; *remote node* n of a source (own node skipped);
 * *local writer* q = one warp of a rank that writes rows into peers of its node.
 * docs/protocol.md names writer, reader and signal of each region. */
#pragma once

#include "kernels/device/hd.h"

#include <assert.h>
#include <stdint.h>

#define SWL_RING_SLOTS_MAX   64u /* a ring's window of finished slots is one 64-bit mask */
#define SWL_TOPK_MAX         64u
#define SWL_RECORD_SLOTS_MAX 64u

/* Agreed at group creation; equal on all ranks except the last block. */
struct swl_shape {
    uint32_t nranks, nnodes;
    uint32_t max_local;  /* ranks of the largest node */
    uint32_t max_served; /* most remote sources that one gateway serves */
    uint32_t nexperts, nlocal_experts;
    uint32_t max_tokens;   /* D */
    uint32_t max_topk;     /* bound of K */
    uint32_t max_rows;     /* X, receive budget */
    uint32_t row_bytes;    /* max_token_bytes */
    uint32_t nchannels;    /* C */
    uint32_t nrings;       /* P, rings per source and remote node */
    uint32_t ring_slots;   /* slots of a network ring, <= 64, multiple of chunk */
    uint32_t chunk_slots;  /* slots sent together, <= ring_slots / 2 */
    uint32_t local_slots;  /* slots of a local ring */
    uint32_t record_slots; /* most slots of one that holds records only */
    uint32_t nwriters;     /* Q, local writers of a rank */
    uint32_t ngatherers;   /* most warps of a rank that gather rows in combine */
    uint32_t fetch_slots;  /* rows a gatherer may have asked of one peer */
    uint32_t wire_fp32;    /* partial sums travel as fp32 */
    uint32_t start_low;    /* test: first position and call number, low word */
    /* own place */
    uint32_t rank, node, local, nlocal, nserved;
};

/* Header of a network slot, followed by its selections, then the row at swl_slot_row_at(). */
struct swl_slot_head {
    uint64_t gen_call; /* generation << 48 | call: another value is another call's slot */
    uint32_t token;    /* index at the source */
    uint32_t n;        /* selections, and the tag of the call (swl_call_tag) */
};
static_assert(sizeof(struct swl_slot_head) == 16, "slot header leaves the GPU");

/* One surviving selection of a token, sorted by (gpu, expert) in every list. */
struct swl_selection {
    uint32_t row;    /* final row at the destination */
    uint32_t expert; /* local expert at the destination */
    float weight;
    uint16_t gpu; /* local index of the destination in its node */
    uint16_t k;   /* place in the source's top-k */
};
static_assert(sizeof(struct swl_selection) == 16, "selections leave the GPU");

/* Record of a local slot, followed by selections[n], then (ring mode) the row. */
struct swl_record {
    uint64_t gen_call;
    uint32_t row;
    uint32_t n;
};
static_assert(sizeof(struct swl_record) == 16, "records leave the GPU");

/* Row request of combine, followed by {row, gpu} pairs. */
struct swl_request {
    uint64_t gen_call;
    uint32_t token;
    uint32_t n; /* rows, and the tag of the call */
};
struct swl_request_row {
    uint32_t row;
    uint32_t gpu;
};
static_assert(sizeof(struct swl_request) == 16 && sizeof(struct swl_request_row) == 8,
              "requests leave the GPU");

/* "My tensor is open for this call": what peers may do with it. */
struct swl_open_record {
    uint32_t op;     /* enum swl_op */
    uint32_t direct; /* 1: rows are at `offset` of my shared memory number `memory` */
    uint32_t memory; /* index into the shared memories of the group */
    uint32_t rows;   /* rows the caller's tensor has */
    uint64_t offset; /* bytes from the memory's base to row 0 */
    /* equal on all ranks of a call */
    uint32_t row_bytes;
    uint16_t dtype; /* ncclDataType_t */
    uint16_t topk;
};
static_assert(sizeof(struct swl_open_record) == 32, "open records leave the GPU");

/* What ranks of other nodes, which see no open record, find beside a count of at most 64 in its
 * lower seven bits: K, type and row size (modulo 512 KiB) of the sender's call. */
#define SWL_TAG_COUNT 127u
SWL_HD uint32_t swl_call_tag(const struct swl_open_record *e)
{
    return (e->row_bytes / 16 & 0x7fffu) << 17 | (e->dtype & 15u) << 13 |
           ((e->topk - 1u) & 63u) << 7;
}

SWL_HD uint32_t swl_slot_row_at(uint32_t topk)
{
    return (uint32_t)(sizeof(struct swl_slot_head) + topk * sizeof(struct swl_selection));
}

SWL_HD uint32_t swl_slot_bytes(const struct swl_shape *s)
{
    return swl_round_up(swl_slot_row_at(s->max_topk) + s->row_bytes, 128);
}

/* Of a record with its selections. */
SWL_HD uint32_t swl_local_head_bytes(uint32_t topk)
{
    return (uint32_t)(sizeof(struct swl_record) + topk * sizeof(struct swl_selection));
}

/* Of the row in a local slot: where a line begins, which copy engines like. */
SWL_HD uint32_t swl_local_row_at(uint32_t topk)
{
    return swl_round_up(swl_local_head_bytes(topk), 128);
}

SWL_HD uint32_t swl_local_slot_bytes(const struct swl_shape *s)
{
    return swl_round_up(swl_local_row_at(s->max_topk) + s->row_bytes, 128);
}

SWL_HD uint32_t swl_request_bytes(const struct swl_shape *s)
{
    return swl_round_up(
        (uint32_t)(sizeof(struct swl_request) + s->max_topk * sizeof(struct swl_request_row)), 16);
}

/* Where the destination's tensor is peer-addressable, rows do not travel in slots: the same ring is
 * then one of many small slots, a record each. Power of two, at least local_slots. */
SWL_HD uint32_t swl_record_bytes(const struct swl_shape *s)
{
    return swl_round_up(swl_local_head_bytes(s->max_topk), 32);
}

SWL_HD uint32_t swl_record_slots(const struct swl_shape *s)
{
    const uint64_t ring = (uint64_t)s->local_slots * swl_local_slot_bytes(s);
    uint32_t slots = s->local_slots;

    while (slots < s->record_slots && 2ull * slots * swl_record_bytes(s) <= ring)
        slots *= 2;
    return slots;
}

/* A partial sum: one row of the payload's type, or of fp32 (at most twice as long). */
SWL_HD uint32_t swl_partial_bytes(const struct swl_shape *s)
{
    return swl_round_up(s->row_bytes * (s->wire_fp32 ? 2 : 1), 128);
}

SWL_HD uint32_t swl_remote_nodes(const struct swl_shape *s)
{
    return s->nnodes - 1;
}

/* Words of a count message: tok[max_local], sel[max_local][L], ring_n[P]. */
SWL_HD uint32_t swl_count_words(const struct swl_shape *s)
{
    return swl_round_up(s->max_local * (1 + s->nlocal_experts) + s->nrings, 4);
}

/* Byte offsets from the window base, equal on all ranks. Words that others add to come first, up to
 * signal_bytes, and are registered with strict ordering. */
struct swl_ht_window {
#define REGION(name, element_bytes, count)
#define HT_REGION(name, element_bytes, count) uint64_t name;
#define SIGNALS_END
#include "kernels/common/window.def"
};

struct swl_window {
#define REGION(name, element_bytes, count) uint64_t name;
#define HT_REGION(name, element_bytes, count)
#define SIGNALS_END uint64_t signal_bytes;
#include "kernels/common/window.def"
    uint64_t bytes;
    struct swl_ht_window ht;
};

SWL_HD struct swl_window swl_window_of(const struct swl_shape *s)
{
    struct swl_window w;
    uint64_t at = 0;
    const uint64_t g = s->max_local, n = swl_remote_nodes(s), j = s->max_served;
    const uint64_t np = n * s->nrings, jp = j * s->nrings, k = s->ring_slots;
    const uint64_t l = s->nlocal_experts;

#define REGION(name, element_bytes, count)                                                         \
    w.name = swl_layout_reserve(&at, (count) * (element_bytes));
#define HT_REGION(name, element_bytes, count) REGION(ht.name, element_bytes, count)
#define SIGNALS_END                           w.signal_bytes = at = (at + 4095) & ~(uint64_t)4095;
#include "kernels/common/window.def"
    w.bytes = swl_layout_reserve(&at, 0);
    return w;
}

/* Lists of a route: one per ring toward another node, then one of the tokens for the own node. */
SWL_HD uint32_t swl_route_lists(const struct swl_shape *s)
{
    return swl_remote_nodes(s) * s->nrings + 1;
}

/* What a route counts tokens in: bins of rows (rows.cuh), then its lists. */
SWL_HD uint32_t swl_row_bins(const struct swl_shape *s)
{
    return s->nranks;
}
SWL_HD uint32_t swl_route_bins(const struct swl_shape *s)
{
    return swl_row_bins(s) + swl_route_lists(s);
}

#define SWL_HANDLE_MAGIC  0x53574c48u /* "SWLH" */
#define SWL_HANDLE_FORMAT 1u
#define SWL_ROW_NONE      0xffffffffu /* no route, a repeated id, or dropped */

/* Bits of the id words of a handle. */
#define SWL_ID_MASK       0x000fffffu
#define SWL_ID_VALID      0x80000000u /* a route: not negative, in range, first of its kind */
#define SWL_ID_FIRST_ROW  0x40000000u /* first selection of the token in its row */
#define SWL_ID_FIRST_NODE 0x20000000u /* first selection of the token in that node */

/* First bytes of a handle's memory; written by Update only, read by everybody else. */
struct swl_handle_head {
    uint32_t magic, format;
    uint64_t fingerprint; /* of the shape, the layout and K */
    uint32_t id_bytes;    /* width of the topk_idx that was given */
    uint32_t topk;
    uint32_t tokens; /* T */
    uint32_t alignment;
    uint32_t recv_rows;  /* rows delivered to this rank */
    uint32_t recv_total; /* before dropping */
    uint32_t complete;   /* 1: the update ran to its end */
    uint32_t pad[5];
};
static_assert(sizeof(struct swl_handle_head) == 64, "handle memory is kept across processes");

struct swl_handle_layout { /* byte offsets from the start of handle memory */
    uint64_t head;         /* swl_handle_head                                        */
    uint64_t row;          /* u32 [D][K]  final row at the destination, or none      */
    uint64_t id;           /* u32 [D][K]  id and flags                               */
    uint64_t at;           /* u32 [D][K]  place in its ring, at first-of-node        */
    uint64_t list;         /* u32 [D * min(K, N)]  tokens, list by list              */
    uint64_t list_start;   /* u32 [lists + 1]                                        */
    uint64_t recv_n;       /* u32 [served][P]  slots each served source sends me     */
    uint64_t bytes;        /* multiple of 256                                        */
};

SWL_HD struct swl_handle_layout swl_handle_layout_of(const struct swl_shape *s, uint32_t topk)
{
    struct swl_handle_layout h;
    uint64_t at = 0;
    const uint64_t dk = (uint64_t)s->max_tokens * topk;

    h.head = swl_layout_reserve(&at, sizeof(struct swl_handle_head));
    h.row = swl_layout_reserve(&at, 4 * dk);
    h.id = swl_layout_reserve(&at, 4 * dk);
    h.at = swl_layout_reserve(&at, s->nnodes > 1 ? 4 * dk : 0);
    h.list = swl_layout_reserve(&at, 4ull * s->max_tokens * swl_min_u32(topk, s->nnodes));
    h.list_start = swl_layout_reserve(&at, 4ull * (swl_route_lists(s) + 1));
    h.recv_n = swl_layout_reserve(&at, 4ull * s->max_served * s->nrings);
    h.bytes = (at + 255) & ~(uint64_t)255;
    return h;
}
