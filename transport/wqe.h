/* wqe.h: the bytes of mlx5 work requests, doorbells and completions. C and CUDA.
 *
 * Layer: transport, below everything; used by posters (qp.cuh), by the software NIC and by hardware
 * drivers. All fields are big-endian in memory. The structs hold 32-bit words exactly as memory
 * holds them, so that a word is loaded or stored without another conversion. The host and the GPU
 * are little-endian. tests/unit/wqe_test.cc compares every byte with infiniband/mlx5dv.h.
 * Only work requests of one 64-byte block are made: their completion names the next index. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/device/hd.h"

#define SWL_WQE_BYTES      64u        /* one block of a send queue */
#define SWL_WQE_INLINE_MAX 28u        /* payload bytes that fit into a block */
#define SWL_WQE_DEPTH_MAX  32768u     /* so that differences of 16-bit indices are unambiguous */
#define SWL_WQE_BYTES_MAX  (1u << 30) /* payload of one work request */
#define SWL_CQE_BYTES      64u
#define SWL_DBR_SEND       1u /* word of the doorbell record that send queues use */

enum swl_wqe_opcode {
    SWL_WQE_NOP = 0x00,
    SWL_WQE_WRITE = 0x08,
    SWL_WQE_READ = 0x10,
    SWL_WQE_FETCH_ADD = 0x12,
};

#define SWL_WQE_SIGNALLED 0x08u /* flags: always make a completion */
#define SWL_WQE_INLINE    0x80000000u

enum swl_cqe_opcode {
    SWL_CQE_DONE = 0, /* a requester's work request succeeded */
    SWL_CQE_ERROR = 13,
    SWL_CQE_NONE = 15, /* nothing was ever completed */
};

/* syndrome of an error completion, number, sentence */
#define SWL_SYNDROMES(X)                                                                           \
    X(LOCAL_LENGTH, 0x01, "local length error")                                                    \
    X(LOCAL_OPERATION, 0x02, "local queue pair operation error")                                   \
    X(LOCAL_PROTECTION, 0x04, "local protection error")                                            \
    X(FLUSHED, 0x05, "flushed after an earlier error")                                             \
    X(BAD_RESPONSE, 0x10, "bad response")                                                          \
    X(LOCAL_ACCESS, 0x11, "local access error")                                                    \
    X(REMOTE_REQUEST, 0x12, "remote invalid request")                                              \
    X(REMOTE_ACCESS, 0x13, "remote access error")                                                  \
    X(REMOTE_OPERATION, 0x14, "remote operation error")                                            \
    X(RETRY, 0x15, "transport retries exceeded")                                                   \
    X(RNR_RETRY, 0x16, "receiver not ready")                                                       \
    X(REMOTE_ABORTED, 0x22, "remote aborted")

enum swl_syndrome {
    SWL_SYNDROME_NONE = 0,
#define SWL_SYNDROME_ENUM(name, number, text) SWL_SYNDROME_##name = number,
    SWL_SYNDROMES(SWL_SYNDROME_ENUM)
#undef SWL_SYNDROME_ENUM
};

struct swl_wqe {
    uint32_t word[16];
};
static_assert(sizeof(struct swl_wqe) == SWL_WQE_BYTES, "the NIC reads blocks of this size");

struct swl_cqe {
    uint32_t word[16];
};
static_assert(sizeof(struct swl_cqe) == SWL_CQE_BYTES, "the NIC writes blocks of this size");

/* Words of a completion that software reads. */
#define SWL_CQE_SYNDROME_WORD 13 /* hardware bytes, vendor syndrome, syndrome */
#define SWL_CQE_QPN_WORD      14 /* opcode of the work request, queue pair number */
#define SWL_CQE_LAST_WORD     15 /* 16-bit index, signature, opcode and owner */

SWL_HD uint32_t swl_be32(uint32_t v)
{
    return v >> 24 | (v >> 8 & 0xff00u) | (v << 8 & 0xff0000u) | v << 24;
}

SWL_HD uint32_t swl_be16(uint32_t v)
{
    return (v >> 8 & 0xffu) | (v << 8 & 0xff00u);
}

SWL_HD void swl_wqe_control(struct swl_wqe *w, uint64_t index, uint32_t opcode, uint32_t qpn,
                            uint32_t segments)
{
    w->word[0] = swl_be32(((uint32_t)index & 0xffffu) << 8 | opcode);
    w->word[1] = swl_be32(qpn << 8 | segments);
    w->word[2] = swl_be32(SWL_WQE_SIGNALLED);
    w->word[3] = 0;
}

SWL_HD void swl_wqe_remote(struct swl_wqe *w, uint64_t remote, uint32_t rkey)
{
    w->word[4] = swl_be32((uint32_t)(remote >> 32));
    w->word[5] = swl_be32((uint32_t)remote);
    w->word[6] = swl_be32(rkey);
    w->word[7] = 0;
}

/* A data pointer in segment 2 (at = 8) or 3 (at = 12). */
SWL_HD void swl_wqe_pointer(struct swl_wqe *w, int at, uint64_t local, uint32_t lkey,
                            uint32_t bytes)
{
    w->word[at] = swl_be32(bytes);
    w->word[at + 1] = swl_be32(lkey);
    w->word[at + 2] = swl_be32((uint32_t)(local >> 32));
    w->word[at + 3] = swl_be32((uint32_t)local);
}

SWL_HD void swl_wqe_clear(struct swl_wqe *w, int from)
{
    for (int i = from; i < 16; i++)
        w->word[i] = 0;
}

/* Nothing; completes in order. */
SWL_HD void swl_wqe_nop(struct swl_wqe *w, uint64_t index, uint32_t qpn)
{
    swl_wqe_control(w, index, SWL_WQE_NOP, qpn, 1);
    swl_wqe_clear(w, 4);
}

/* One end of the memory that a work request moves. */
struct swl_wqe_local {
    uint64_t at;
    uint32_t lkey;
    uint32_t bytes;
};
struct swl_wqe_remote {
    uint64_t at;
    uint32_t rkey;
};

/* RDMA WRITE or READ (opcode) of local.bytes between local and remote memory. */
SWL_HD void swl_wqe_move(struct swl_wqe *w, uint64_t index, uint32_t opcode, uint32_t qpn,
                         struct swl_wqe_local local, struct swl_wqe_remote remote)
{
    swl_wqe_control(w, index, opcode, qpn, 3);
    swl_wqe_remote(w, remote.at, remote.rkey);
    swl_wqe_pointer(w, 8, local.at, local.lkey, local.bytes);
    swl_wqe_clear(w, 12);
}

/* RDMA WRITE of `bytes` (a multiple of 4, at most SWL_WQE_INLINE_MAX) carried in the block. */
SWL_HD void swl_wqe_inline(struct swl_wqe *w, uint64_t index, uint32_t qpn, const uint32_t *data,
                           uint32_t bytes, struct swl_wqe_remote remote)
{
    swl_wqe_control(w, index, SWL_WQE_WRITE, qpn, 2 + (bytes + 4 + 15) / 16);
    swl_wqe_remote(w, remote.at, remote.rkey);
    w->word[8] = swl_be32(SWL_WQE_INLINE | bytes);
    for (uint32_t i = 0; i < SWL_WQE_INLINE_MAX / 4; i++)
        w->word[9 + i] = 4 * i < bytes ? data[i] : 0;
}

/* Add `value` to the 8 remote bytes; the old value lands in the 8 bytes at sink. */
SWL_HD void swl_wqe_fetch_add(struct swl_wqe *w, uint64_t index, uint32_t qpn, uint64_t value,
                              struct swl_wqe_local sink, struct swl_wqe_remote remote)
{
    swl_wqe_control(w, index, SWL_WQE_FETCH_ADD, qpn, 4);
    swl_wqe_remote(w, remote.at, remote.rkey);
    w->word[8] = swl_be32((uint32_t)(value >> 32));
    w->word[9] = swl_be32((uint32_t)value);
    w->word[10] = 0;
    w->word[11] = 0;
    swl_wqe_pointer(w, 12, sink.at, sink.lkey, 8);
}

/* Fields of a block as a NIC reads them. */
SWL_HD uint32_t swl_wqe_opcode(const struct swl_wqe *w)
{
    return swl_be32(w->word[0]) & 0xffu;
}

SWL_HD uint32_t swl_wqe_modifier(const struct swl_wqe *w)
{
    return swl_be32(w->word[0]) >> 24;
}

SWL_HD uint32_t swl_wqe_index(const struct swl_wqe *w)
{
    return swl_be32(w->word[0]) >> 8 & 0xffffu;
}

SWL_HD uint32_t swl_wqe_qpn(const struct swl_wqe *w)
{
    return swl_be32(w->word[1]) >> 8;
}

SWL_HD uint32_t swl_wqe_segments(const struct swl_wqe *w)
{
    return swl_be32(w->word[1]) & 0x3fu;
}

SWL_HD uint32_t swl_wqe_flags(const struct swl_wqe *w)
{
    return swl_be32(w->word[2]);
}

/* The 64-bit value in words at and at + 1. */
SWL_HD uint64_t swl_wqe_long(const struct swl_wqe *w, int at)
{
    return (uint64_t)swl_be32(w->word[at]) << 32 | swl_be32(w->word[at + 1]);
}

/* Word of the doorbell record: one past the last posted index. */
SWL_HD uint32_t swl_dbr_value(uint64_t end)
{
    return swl_be32((uint32_t)end & 0xffffu);
}

/* The doorbell's 8 bytes: one past the last posted index, and the queue pair. */
SWL_HD uint64_t swl_doorbell_value(uint64_t end, uint32_t qpn)
{
    return swl_be32(((uint32_t)end & 0xffffu) << 8) | (uint64_t)swl_be32(qpn << 8) << 32;
}

SWL_HD uint32_t swl_doorbell_index(uint64_t doorbell)
{
    return swl_be32((uint32_t)doorbell) >> 8 & 0xffffu;
}

SWL_HD uint32_t swl_doorbell_qpn(uint64_t doorbell)
{
    return swl_be32((uint32_t)(doorbell >> 32)) >> 8;
}

/* The 64-bit index with these 16 low bits that is at or after `from`, less than 65536 away. */
SWL_HD uint64_t swl_index_after(uint64_t from, uint32_t low)
{
    return from + ((low - (uint32_t)from) & 0xffffu);
}

/* A completion: opcode SWL_CQE_DONE with syndrome 0, or SWL_CQE_ERROR with its syndrome. */
SWL_HD void swl_cqe_make(struct swl_cqe *c, uint64_t index, uint32_t wqe_opcode, uint32_t qpn,
                         uint32_t syndrome)
{
    uint32_t opcode = syndrome ? SWL_CQE_ERROR : SWL_CQE_DONE;

    for (int i = 0; i < 13; i++)
        c->word[i] = 0;
    c->word[SWL_CQE_SYNDROME_WORD] = syndrome << 24;
    c->word[SWL_CQE_QPN_WORD] = swl_be32(wqe_opcode << 24 | qpn);
    c->word[SWL_CQE_LAST_WORD] = swl_be16((uint32_t)index & 0xffffu) | opcode << 28;
}

SWL_HD uint32_t swl_cqe_opcode(uint32_t last_word)
{
    return last_word >> 28;
}

SWL_HD uint32_t swl_cqe_index(uint32_t last_word)
{
    return swl_be16(last_word & 0xffffu);
}

SWL_HD uint32_t swl_cqe_syndrome(uint32_t syndrome_word)
{
    return syndrome_word >> 24;
}
