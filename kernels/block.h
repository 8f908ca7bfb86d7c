/* block.h: the shared memory of a block, described once. C and CUDA.
 *
 * Route and dispatch use one picture: a common part, words per ring of the block's channel, and per
 * warp a scratch list and two copy stages. Combine has its own: instead of copy stages a warp has a
 * ring of units, which hold pieces of rows on their way, and the lists of the tokens it works on. The
 * host sizes it, the kernel finds its parts. */
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

/* ---- combine ---- */

#define SWL_UNIT_BYTES      2048u /* four 16-byte vectors for each lane */
#define SWL_UNITS_MAX       16u
#define SWL_LIST_HEAD_BYTES 32u /* struct sum_list of terms.cuh */
#define SWL_TERM_BYTES      24u /* struct sum_term of terms.cuh */

struct swl_combine_shape { /* equal in all blocks */
    uint32_t nwarps, nrings;
    uint32_t nlists; /* tokens that a gatherer works on */
    uint32_t terms;  /* most terms of a token */
    uint32_t unit_bytes, nunits;
};

struct swl_combine_block { /* byte offsets in dynamic shared memory */
    uint32_t common;
    uint32_t out_words; /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t in_words;  /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t scratch;   /* [nwarps] of SWL_SCRATCH_BYTES */
    uint32_t lists;     /* [nwarps][nlists] of swl_list_bytes(terms) */
    uint32_t barriers;  /* mbarrier [nwarps][nunits] */
    uint32_t units;     /* [nwarps][nunits][unit_bytes] */
    uint32_t bytes;
};

SWL_HD uint32_t swl_list_bytes(uint32_t terms)
{
    return swl_round_up(SWL_LIST_HEAD_BYTES + SWL_TERM_BYTES * terms, 16);
}

SWL_HD struct swl_combine_block swl_combine_block_of(const struct swl_combine_shape *s)
{
    struct swl_combine_block b;
    uint64_t at = 0;

    b.common = (uint32_t)swl_take(&at, SWL_COMMON_BYTES);
    b.out_words = (uint32_t)swl_take(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.in_words = (uint32_t)swl_take(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.scratch = (uint32_t)swl_take(&at, (uint64_t)SWL_SCRATCH_BYTES * s->nwarps);
    b.lists = (uint32_t)swl_take(&at, (uint64_t)s->nwarps * s->nlists * swl_list_bytes(s->terms));
    b.barriers = (uint32_t)swl_take(&at, 8ull * s->nunits * s->nwarps);
    b.units = (uint32_t)swl_take(&at, (uint64_t)s->nunits * s->unit_bytes * s->nwarps);
    b.bytes = (uint32_t)swl_take(&at, 0);
    return b;
}

/* Sets unit_bytes and nunits to what fits: units as large as rows need, at least four of them before
 * they get larger. nunits 0: not even two of 128 bytes fit. */
SWL_HD void swl_combine_fit(struct swl_combine_shape *s, uint32_t row_bytes, uint64_t shared_bytes)
{
    uint64_t fixed, room;

    s->unit_bytes = 0;
    s->nunits = SWL_UNITS_MAX;
    fixed = swl_combine_block_of(s).bytes + 256;
    room = shared_bytes > fixed ? (shared_bytes - fixed) / s->nwarps : 0;
    s->unit_bytes = SWL_UNIT_BYTES;
    if (row_bytes < SWL_UNIT_BYTES) /* multiples of 32: half a unit is whole vectors */
        s->unit_bytes = swl_round_up(row_bytes, 32);
    while (s->unit_bytes > 128 && room / s->unit_bytes < 4)
        s->unit_bytes = swl_round_up(s->unit_bytes / 2, 32);
    s->nunits = swl_min_u32((uint32_t)(room / s->unit_bytes), SWL_UNITS_MAX);
    if (s->nunits < 2)
        s->nunits = 0;
}
