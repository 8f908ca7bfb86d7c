/* block.h: the shared memory of a block, described once. C and CUDA.
 *
 * Route and dispatch use one picture: a common part, words per ring of the block's channel, and per
 * warp a scratch list, the state of its links to the ranks of the node, and copy stages. Combine has its
 * own: instead of copy stages a warp has a ring of units, which hold pieces of rows on their way, and the
 * lists of the tokens it works on. The host sizes it, the kernel finds its parts. */
#pragma once

#include "kernels/layout.h"

#define SWL_COMMON_BYTES  512u  /* struct block_common of call.cuh fits */
#define SWL_GROUP_BYTES   1024u /* struct swl_device_group of args.h fits */
#define SWL_RING_WORDS    4u    /* u64 per ring, for the source half and for the gateway half */
#define SWL_SCRATCH_BYTES 1536u /* struct warp_scratch of select.cuh fits */
#define SWL_LINK_BYTES    40u   /* struct link_state of row_writer.cuh */
#define SWL_TARGET_BYTES  32u   /* struct link_target of row_writer.cuh fits */
#define SWL_STAGES_MAX    4u
#define SWL_PIECE_MAX     16384u

/* What a block's shared memory is made for; equal in all blocks of a kernel. */
struct swl_block_shape {
    uint32_t nwarps, nrings;
    uint32_t nlinks;  /* ranks of the largest node in kernels that write rows to them, else 0 */
    uint32_t nplaces; /* ranks in the same kernels, else 0 */
    uint32_t ncopiers, nstages, piece_bytes; /* the first ncopiers warps have copy stages */
};

struct swl_block { /* byte offsets in dynamic shared memory */
    uint32_t common;
    uint32_t group;     /* struct swl_device_group, in the same kernels as links */
    uint32_t out_words; /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t in_words;  /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t places;    /* u32 [nplaces] */
    uint32_t scratch;   /* [nwarps] of SWL_SCRATCH_BYTES */
    uint32_t links;     /* [nwarps][nlinks] of SWL_LINK_BYTES */
    uint32_t targets;   /* [nlinks] of SWL_TARGET_BYTES */
    uint32_t barriers;  /* mbarrier [ncopiers][nstages] */
    uint32_t stages;    /* [ncopiers][nstages][piece_bytes] */
    uint32_t bytes;
};

SWL_HD struct swl_block swl_block_of(const struct swl_block_shape *s)
{
    struct swl_block b;
    uint64_t at = 0;

    b.common = (uint32_t)swl_take(&at, SWL_COMMON_BYTES);
    b.group = (uint32_t)swl_take(&at, s->nlinks ? SWL_GROUP_BYTES : 0);
    b.out_words = (uint32_t)swl_take(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.in_words = (uint32_t)swl_take(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.places = (uint32_t)swl_take(&at, 4ull * s->nplaces);
    b.scratch = (uint32_t)swl_take(&at, (uint64_t)SWL_SCRATCH_BYTES * s->nwarps);
    b.links = (uint32_t)swl_take(&at, (uint64_t)SWL_LINK_BYTES * s->nwarps * s->nlinks);
    b.targets = (uint32_t)swl_take(&at, (uint64_t)SWL_TARGET_BYTES * s->nlinks);
    b.barriers = (uint32_t)swl_take(&at, 8ull * s->nstages * s->ncopiers);
    b.stages = (uint32_t)swl_take(&at, (uint64_t)s->nstages * s->piece_bytes * s->ncopiers);
    b.bytes = (uint32_t)swl_take(&at, 0);
    return b;
}

/* Stages and pieces for rows of row_bytes: as few, equal pieces as give a copier three stages; two
 * stages where even the smallest pieces are too large. nstages 0: nothing fits. A copy engine likes
 * large pieces that are whole lines, and a warp spends as long on a small one. */
SWL_HD void swl_block_fit(struct swl_block_shape *s, uint32_t row_bytes, uint64_t shared_bytes)
{
    uint32_t pieces = (row_bytes + SWL_PIECE_MAX - 1) / SWL_PIECE_MAX;
    uint64_t fixed, room;

    s->nstages = SWL_STAGES_MAX;
    s->piece_bytes = 0;
    fixed = swl_block_of(s).bytes + 256;
    room = shared_bytes > fixed ? (shared_bytes - fixed) / s->ncopiers : 0;
    do {
        s->piece_bytes = swl_round_up((row_bytes + pieces - 1) / pieces, 128);
        s->nstages = swl_min_u32((uint32_t)(room / s->piece_bytes), SWL_STAGES_MAX);
        pieces++;
    } while (s->nstages < 3 && s->piece_bytes > 1024);
    if (s->nstages < 2)
        s->nstages = 0;
}

/* ---- combine ---- */

#define SWL_UNIT_BYTES      2048u /* four 16-byte vectors for each lane */
#define SWL_UNITS_MAX       16u
#define SWL_KEY_BYTES       256u /* keys of struct warp_scratch */
#define SWL_LIST_HEAD_BYTES 32u  /* struct sum_list of terms.cuh */
#define SWL_TERM_BYTES      24u  /* struct sum_term of terms.cuh */

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
    uint32_t scratch;   /* [nwarps] of swl_combine_scratch_bytes */
    uint32_t barriers;  /* mbarrier [nwarps][nunits] */
    uint32_t units;     /* [nwarps][nunits][unit_bytes] */
    uint32_t bytes;
};

SWL_HD uint32_t swl_list_bytes(uint32_t terms)
{
    return swl_round_up(SWL_LIST_HEAD_BYTES + SWL_TERM_BYTES * terms, 16);
}

/* A warp's scratch list; a gatherer's has only keys, and its lists behind them. */
SWL_HD uint32_t swl_combine_scratch_bytes(const struct swl_combine_shape *s)
{
    const uint32_t lists = SWL_KEY_BYTES + s->nlists * swl_list_bytes(s->terms);

    return lists > SWL_SCRATCH_BYTES ? lists : SWL_SCRATCH_BYTES;
}

SWL_HD struct swl_combine_block swl_combine_block_of(const struct swl_combine_shape *s)
{
    struct swl_combine_block b;
    uint64_t at = 0;

    b.common = (uint32_t)swl_take(&at, SWL_COMMON_BYTES);
    b.out_words = (uint32_t)swl_take(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.in_words = (uint32_t)swl_take(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.scratch = (uint32_t)swl_take(&at, (uint64_t)s->nwarps * swl_combine_scratch_bytes(s));
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
    if (row_bytes > 0 && row_bytes < SWL_UNIT_BYTES) /* multiples of 32: half is whole vectors */
        s->unit_bytes = swl_round_up(row_bytes, 32);
    while (s->unit_bytes > 128 && room / s->unit_bytes < 4)
        s->unit_bytes = swl_round_up(s->unit_bytes / 2, 32);
    s->nunits = swl_min_u32((uint32_t)(room / s->unit_bytes), SWL_UNITS_MAX);
    if (s->nunits < 2)
        s->nunits = 0;
}
