/* copy.cuh: a warp moves one row from global memory to up to 32 places. Layer: kernels.
 *
 * The row travels through the warp's two copy stages in pieces: lane 0 starts the bulk loads ahead, the
 * lanes that have a destination store piece after piece. Split into begin and end, the loads of a row
 * pass while the warp does something else. The caller has made the
 * source visible to lane 0 (order_before_bulk_load after an acquire) and waits for the stores
 * (bulk_wait<0>) before it publishes them. When row_copy_end returns true, every load has completed:
 * the source may be freed. */
#pragma once

#include "kernels/block.h"
#include "kernels/wait.cuh"

struct copier {
    char *stage;      /* shared: [SWL_STAGES][piece_bytes] */
    mbarrier *loaded; /* shared: [SWL_STAGES] */
    uint32_t piece_bytes;
    uint32_t pieces; /* pieces moved so far: stage and parity of the next one */
};

/* All lanes: this warp's part of the block. A block barrier must follow before the first copy. */
SWL_DEV void copier_init(struct copier *c, const struct swl_block *b, uint32_t piece_bytes)
{
    const uint32_t warp = (uint32_t)warp_id();
    char *shared = (char *)block_shared();

    c->stage = shared + b->stages + warp * SWL_STAGES * piece_bytes;
    c->loaded = (mbarrier *)(shared + b->barriers) + warp * SWL_STAGES;
    c->piece_bytes = piece_bytes;
    c->pieces = 0;
    if (lane_id() == 0) {
        stage_init(&c->loaded[0], 1);
        stage_init(&c->loaded[1], 1);
        stage_init_done();
    }
}

SWL_DEV void copy_start_piece(const struct copier *c, uint32_t piece, const char *src,
                              uint32_t bytes)
{
    stage_expect(&c->loaded[piece & 1], bytes);
    bulk_load(c->stage + (piece & 1) * c->piece_bytes, src, bytes, &c->loaded[piece & 1]);
}

/* A load of this rank's own memory: it always completes, and it must before the block may end, so
 * that a given-up call waits for it too; only an expired deadline (plus a second) ends the wait. */
SWL_DEV bool await_piece(const struct copier *c, uint32_t piece, const struct swl_watch *w,
                         struct wait_at at)
{
    const uint64_t deadline = w->deadline_ns + 1000000000ull;

    while (!stage_test(&c->loaded[piece & 1], piece >> 1 & 1)) {
        if (clock_ns() >= deadline) {
            at.kind = SWL_FAULT_STAGE;
            watch_fault(w, at, piece, 0, SWL_ASYNC_TIMEOUT);
            return false;
        }
        pause_lane(SWL_PAUSE("bulk load in flight", (int)piece, (int)at.role), deadline);
    }
    return true;
}

SWL_DEV uint32_t copy_pieces(const struct copier *c, uint32_t bytes)
{
    return (bytes + c->piece_bytes - 1) / c->piece_bytes;
}

/* Lane 0: start loading piece `i` of a row, if it has one. */
SWL_DEV void copy_start(const struct copier *c, const char *src, uint32_t bytes, uint32_t i)
{
    const uint32_t from = i * c->piece_bytes;

    if (from < bytes)
        copy_start_piece(c, c->pieces + i, src + from,
                         bytes - from < c->piece_bytes ? bytes - from : c->piece_bytes);
}

/* All lanes: start loading a row into both stages. row_copy_end or row_copy_drop must follow. */
SWL_DEV void row_copy_begin(struct copier *c, const char *src, uint32_t bytes)
{
    bulk_wait_read<0>(); /* earlier stores of this lane no longer read the stages */
    warp_sync();
    if (lane_id() == 0) {
        copy_start(c, src, bytes, 0);
        copy_start(c, src, bytes, 1);
    }
}

/* All lanes: the row goes to `dst` of each lane that has one. src, bytes as in row_copy_begin. */
SWL_DEV bool row_copy_end(struct copier *c, const char *src, uint32_t bytes, char *dst,
                          const struct swl_watch *w, struct wait_at at)
{
    const uint32_t n = copy_pieces(c, bytes);

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t piece = c->pieces + i;
        const uint32_t from = i * c->piece_bytes;
        const uint32_t left = bytes - from;

        /* only lanes that store the piece, or load into its stage later, need to see it complete */
        if (!warp_all(!(dst || lane_id() == 0) || await_piece(c, piece, w, at)))
            return false;
        if (dst) {
            bulk_store(dst + from, c->stage + (piece & 1) * c->piece_bytes,
                       left < c->piece_bytes ? left : c->piece_bytes);
            bulk_commit();
        }
        if (i + 2 < n) {
            bulk_wait_read<0>(); /* the stores of this piece have left its stage */
            warp_sync();
            if (lane_id() == 0)
                copy_start(c, src, bytes, i + 2);
        }
    }
    c->pieces += n;
    return true;
}

/* All lanes, instead of row_copy_end: the row is not wanted after all. No load may outlive the block. */
SWL_DEV void row_copy_drop(struct copier *c, uint32_t bytes, const struct swl_watch *w,
                           struct wait_at at)
{
    const uint32_t n = copy_pieces(c, bytes) < 2 ? copy_pieces(c, bytes) : 2;

    if (lane_id() == 0)
        for (uint32_t i = 0; i < n; i++)
            await_piece(c, c->pieces + i, w, at);
    c->pieces += n;
    warp_sync();
}

/* All lanes. `dst` of a lane is its destination or NULL; src, bytes equal in all lanes. False: a load
 * did not complete. */
SWL_DEV bool row_copy(struct copier *c, const char *src, uint32_t bytes, char *dst,
                      const struct swl_watch *w, struct wait_at at)
{
    row_copy_begin(c, src, bytes);
    return row_copy_end(c, src, bytes, dst, w, at);
}
