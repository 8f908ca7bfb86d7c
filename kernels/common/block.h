/* block.h: the shared memory of a block, described once. C and CUDA.
 *
 * Route and dispatch use one picture: a common part, words per ring of the block's channel, and per
 * warp a scratch list, the state of its links to the ranks of the node, and copy stages. Combine
 * has its own: a warp has the lists of the tokens it works on, and only the warps that serve rows
 * have stages. The host sizes it, the kernel finds its parts. */
#pragma once

#include "kernels/common/layout.h"

#include <stdbool.h>

#define SWL_COMMON_BYTES     512u  /* struct block_common of call.cuh fits */
#define SWL_GROUP_BYTES      1024u /* struct swl_device_group of args.h fits */
#define SWL_RING_WORDS       5u    /* u64 per ring, for the source half and for the gateway half */
#define SWL_SCRATCH_BYTES    1536u /* struct warp_scratch of select.cuh fits */
#define SWL_LOCAL_RING_BYTES 40u   /* struct local_ring of row_writer.cuh */
#define SWL_TARGET_BYTES     32u   /* struct local_target of row_writer.cuh fits */
#define SWL_STAGES_MAX       4u
#define SWL_PIECE_MAX        16384u

/* What a block's shared memory is made for; equal in all blocks of a kernel. */
struct swl_block_shape {
    uint32_t nwarps, nrings;
    /* ranks of the largest node in kernels that write rows to them, else 0 */
    uint32_t nlocal_rings;
    uint32_t nplaces;                        /* ranks in the same kernels, else 0 */
    uint32_t ncopiers, nstages, piece_bytes; /* the first ncopiers warps have copy stages */
};

struct swl_block { /* byte offsets in dynamic shared memory */
    uint32_t common;
    uint32_t group;       /* struct swl_device_group, in the same kernels as local_rings */
    uint32_t out_words;   /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t in_words;    /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t places;      /* u32 [nplaces] */
    uint32_t scratch;     /* [nwarps] of SWL_SCRATCH_BYTES */
    uint32_t local_rings; /* [nwarps][nlocal_rings] of SWL_LOCAL_RING_BYTES */
    uint32_t targets;     /* [nlocal_rings] of SWL_TARGET_BYTES */
    uint32_t barriers;    /* mbarrier [ncopiers][nstages] */
    uint32_t stages;      /* [ncopiers][nstages][piece_bytes] */
    uint32_t bytes;
};

SWL_HD struct swl_block swl_block_of(const struct swl_block_shape *s)
{
    struct swl_block b;
    uint64_t at = 0;

    b.common = (uint32_t)swl_layout_reserve(&at, SWL_COMMON_BYTES);
    b.group = (uint32_t)swl_layout_reserve(&at, s->nlocal_rings ? SWL_GROUP_BYTES : 0);
    b.out_words = (uint32_t)swl_layout_reserve(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.in_words = (uint32_t)swl_layout_reserve(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.places = (uint32_t)swl_layout_reserve(&at, 4ull * s->nplaces);
    b.scratch = (uint32_t)swl_layout_reserve(&at, (uint64_t)SWL_SCRATCH_BYTES * s->nwarps);
    b.local_rings = (uint32_t)swl_layout_reserve(&at, (uint64_t)SWL_LOCAL_RING_BYTES * s->nwarps *
                                                          s->nlocal_rings);
    b.targets = (uint32_t)swl_layout_reserve(&at, (uint64_t)SWL_TARGET_BYTES * s->nlocal_rings);
    b.barriers = (uint32_t)swl_layout_reserve(&at, 8ull * s->nstages * s->ncopiers);
    b.stages =
        (uint32_t)swl_layout_reserve(&at, (uint64_t)s->nstages * s->piece_bytes * s->ncopiers);
    b.bytes = (uint32_t)swl_layout_reserve(&at, 0);
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

#define SWL_STEP_MAX           4u     /* pieces that a server loads together */
#define SWL_SERVER_BYTES       65536u /* of its stages, more where they are only two */
#define SWL_KEY_BYTES          256u   /* keys of struct warp_scratch */
#define SWL_LIST_HEAD_BYTES    32u    /* struct sum_list of contributions.cuh */
#define SWL_CONTRIBUTION_BYTES 24u    /* struct contribution of contributions.cuh */

struct swl_combine_shape { /* equal in all blocks */
    uint32_t nwarps, nrings;
    uint32_t nlists;                         /* tokens that a gatherer works on */
    uint32_t contributions;                  /* most contributions of a token */
    uint32_t nservers, nstages, stage_bytes; /* the last nservers warps have stages */
};

struct swl_combine_block { /* byte offsets in dynamic shared memory */
    uint32_t common;
    uint32_t out_words; /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t in_words;  /* u64 [SWL_RING_WORDS][nrings] */
    uint32_t scratch;   /* [nwarps] of swl_combine_scratch_bytes */
    uint32_t barriers;  /* mbarrier [nservers][nstages] */
    uint32_t stages;    /* [nservers][nstages][stage_bytes] */
    uint32_t bytes;
};

SWL_HD uint32_t swl_list_bytes(uint32_t contributions)
{
    return swl_round_up(SWL_LIST_HEAD_BYTES + SWL_CONTRIBUTION_BYTES * contributions, 16);
}

/* A warp's scratch list; a gatherer's has only keys, and its lists behind them. */
SWL_HD uint32_t swl_combine_scratch_bytes(const struct swl_combine_shape *s)
{
    const uint32_t lists = SWL_KEY_BYTES + s->nlists * swl_list_bytes(s->contributions);

    return lists > SWL_SCRATCH_BYTES ? lists : SWL_SCRATCH_BYTES;
}

SWL_HD struct swl_combine_block swl_combine_block_of(const struct swl_combine_shape *s)
{
    struct swl_combine_block b;
    uint64_t at = 0;

    b.common = (uint32_t)swl_layout_reserve(&at, SWL_COMMON_BYTES);
    b.out_words = (uint32_t)swl_layout_reserve(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.in_words = (uint32_t)swl_layout_reserve(&at, 8ull * SWL_RING_WORDS * s->nrings);
    b.scratch =
        (uint32_t)swl_layout_reserve(&at, (uint64_t)s->nwarps * swl_combine_scratch_bytes(s));
    b.barriers = (uint32_t)swl_layout_reserve(&at, 8ull * s->nstages * s->nservers);
    b.stages =
        (uint32_t)swl_layout_reserve(&at, (uint64_t)s->nstages * s->stage_bytes * s->nservers);
    b.bytes = (uint32_t)swl_layout_reserve(&at, 0);
    return b;
}

/* Stages of servers, an even number: a row in as few, equal pieces as give a server two of them.
 * False: not even small ones fit. */
SWL_HD bool swl_combine_fit(struct swl_combine_shape *s, uint32_t row_bytes, uint64_t shared_bytes)
{
    uint32_t pieces = (row_bytes + SWL_PIECE_MAX - 1) / SWL_PIECE_MAX;
    uint64_t fixed, room;

    s->nstages = 2 * SWL_STEP_MAX;
    s->stage_bytes = 0;
    fixed = swl_combine_block_of(s).bytes + 256;
    if (s->nservers == 0 || fixed > shared_bytes)
        return fixed <= shared_bytes;
    room = (shared_bytes - fixed) / s->nservers;
    if (room > SWL_SERVER_BYTES)
        room = SWL_SERVER_BYTES;
    do {
        s->stage_bytes = swl_round_up((row_bytes + pieces - 1) / pieces, 16);
        s->nstages = swl_min_u32((uint32_t)(room / s->stage_bytes), 2 * SWL_STEP_MAX) & ~1u;
        pieces++;
    } while (s->nstages < 2 && s->stage_bytes > 128);
    return s->nstages >= 2;
}
