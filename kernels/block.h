/* block.h: the shared memory of a block, described once. C and CUDA.
 *
 * Every kernel uses the same picture: one common part, words per ring of the block's channel, and
 * per warp a scratch list and two copy stages. The host sizes it, the kernel finds its parts. */
#pragma once

#include "kernels/layout.h"

#define SWL_COMMON_BYTES  512u  /* struct block_common of call.cuh fits */
#define SWL_RING_WORDS    4u    /* u64 per ring, for the source half and for the gateway half */
#define SWL_SCRATCH_BYTES 1408u /* struct warp_scratch of select.cuh fits */
#define SWL_STAGES        2u
#define SWL_PIECE_MAX     8192u

struct swl_block { /* byte offsets in dynamic shared memory */
    uint32_t common;
    uint32_t out_words; /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t in_words;  /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t scratch;   /* [nwarps] of SWL_SCRATCH_BYTES */
    uint32_t barriers;  /* mbarrier [nwarps][SWL_STAGES] */
    uint32_t stages;    /* [nwarps][SWL_STAGES][piece_bytes] */
    uint32_t bytes;
};

SWL_HD struct swl_block swl_block_of(uint32_t nwarps, uint32_t nrings, uint32_t piece_bytes)
{
    struct swl_block b;
    uint64_t at = 0;

    b.common = (uint32_t)swl_take(&at, SWL_COMMON_BYTES);
    b.out_words = (uint32_t)swl_take(&at, 8ull * SWL_RING_WORDS * nrings);
    b.in_words = (uint32_t)swl_take(&at, 8ull * SWL_RING_WORDS * nrings);
    b.scratch = (uint32_t)swl_take(&at, (uint64_t)SWL_SCRATCH_BYTES * nwarps);
    b.barriers = (uint32_t)swl_take(&at, 8ull * SWL_STAGES * nwarps);
    b.stages = (uint32_t)swl_take(&at, (uint64_t)SWL_STAGES * piece_bytes * nwarps);
    b.bytes = (uint32_t)swl_take(&at, 0);
    return b;
}

/* Bytes of a row that a copy stage holds: the row itself if it fits, else the largest multiple of
 * 128 that lets all stages of the block fit; 0 if not even 128 bytes do. */
SWL_HD uint32_t swl_piece_of(uint32_t nwarps, uint32_t nrings, uint32_t row_bytes,
                             uint64_t shared_bytes)
{
    const uint32_t fixed = swl_block_of(nwarps, nrings, 0).bytes + 256;
    const uint64_t stages = (uint64_t)SWL_STAGES * nwarps;
    uint64_t room = shared_bytes > fixed ? (shared_bytes - fixed) / stages : 0;

    room = room / 128 * 128;
    if (room > SWL_PIECE_MAX)
        room = SWL_PIECE_MAX;
    return row_bytes <= room ? row_bytes : (uint32_t)room;
}
