/* copy.cuh: a warp moves rows from global memory to up to 32 places each. Layer: kernels.
 *
 * Rows travel in pieces through the warp's copy stages, which are used in turn. Lane 0 starts the
 * bulk loads as far ahead as stages are free, also of the row after the present one; the lanes that
 * have a destination store piece after piece. Every lane commits one group of stores per piece, an
 * empty one if it has no destination, so that "all but the newest n groups" means the same pieces
 * in all lanes.
 *
 * A stage is free for piece n when the stores of piece n - nstages have read it. The caller has
 * made the source visible to lane 0 (order_before_bulk_load after an acquire) and waits for the
 * stores (bulk_wait) before it publishes them. When row_copy_end returns true, every load of that
 * row has completed: the source may be freed. No load may outlive the block: copier_drain ends a
 * role. */
#pragma once

#include "kernels/common/block.h"
#include "kernels/device/wait.cuh"

struct copier {
    char *stage;      /* shared: [nstages][piece_bytes] */
    mbarrier *loaded; /* shared: [nstages] */
    uint32_t piece_bytes, nstages;
    uint32_t behind;           /* pieces whose stores may still read when the next load starts */
    uint32_t issued;           /* pieces whose load was started; lane 0's is the true one */
    uint32_t stored;           /* pieces whose stores were committed */
    uint32_t freed;            /* pieces whose stage is free again; wraps below 0 at first */
    uint32_t issue_at;         /* stage of the next load; lane 0's is the true one */
    uint32_t store_at, parity; /* stage and phase of the next piece to be stored */
};

/* A row on its way through the stages. */
struct copy_row {
    const char *src; /* NULL: no row */
    uint32_t begun;  /* bytes whose load was started; lane 0's is the true one */
};

/* All lanes: this warp's part of the block, if it has one. A block barrier must follow before the
 * first copy. */
SWL_DEV void copier_init(struct copier *c, const struct swl_block *b,
                         const struct swl_block_shape *shape)
{
    const uint32_t warp = (uint32_t)warp_id();
    char *shared = (char *)block_shared();

    c->nstages = warp < shape->ncopiers ? shape->nstages : 0;
    c->piece_bytes = shape->piece_bytes;
    c->behind = c->nstages > 3 ? 2 : 1;
    c->stage = shared + b->stages + warp * shape->nstages * shape->piece_bytes;
    c->loaded = (mbarrier *)(shared + b->barriers) + warp * shape->nstages;
    c->issued = c->stored = c->freed = 0;
    c->issue_at = c->store_at = c->parity = 0;
    if (lane_id() == 0) {
        for (uint32_t i = 0; i < c->nstages; i++)
            stage_init(&c->loaded[i], 1);
        stage_init_done();
    }
}

SWL_DEV uint32_t stage_after(const struct copier *c, uint32_t stage)
{
    return stage + 1 == c->nstages ? 0 : stage + 1;
}

/* The next piece is stored, or not wanted. */
SWL_DEV void copier_step(struct copier *c)
{
    c->stored++;
    c->store_at = stage_after(c, c->store_at);
    c->parity ^= c->store_at == 0;
}

/* The next piece. A load of memory that this rank has mapped always completes, and it must before
 * the block may end, so that a given-up call waits for it too; only an expired deadline (plus a
 * second) ends the wait. */
SWL_DEV bool await_piece(const struct copier *c, struct waiter w)
{
    const uint64_t deadline = w.watch->deadline_ns + 1000000000ull;

    while (!stage_test(&c->loaded[c->store_at], c->parity)) {
        if (clock_ns() >= deadline) {
            w.kind = SWL_FAULT_STAGE;
            wait_fault(w, c->stored, 0, SWL_ASYNC_TIMEOUT);
            return false;
        }
        pause_lane(SWL_PAUSE("bulk load in flight", (int)c->stored, (int)w.role), deadline);
    }
    return true;
}

/* Lane 0: start loads of the row while it has pieces and stages are free. */
SWL_DEV void copy_ahead(struct copier *c, struct copy_row *row, uint32_t bytes)
{
    while (row->begun < bytes && (int32_t)(c->issued - c->freed) < (int32_t)c->nstages) {
        const uint32_t n = swl_min_u32(bytes - row->begun, c->piece_bytes);
        mbarrier *loaded = &c->loaded[c->issue_at];

        stage_expect(loaded, n);
        bulk_load(c->stage + c->issue_at * c->piece_bytes, row->src + row->begun, n, loaded);
        c->issued++;
        c->issue_at = stage_after(c, c->issue_at);
        row->begun += n;
    }
}

/* All lanes: the first loads of a row that was not begun ahead. */
SWL_DEV void row_copy_begin(struct copier *c, struct copy_row *row, const char *src, uint32_t bytes)
{
    row->src = src;
    row->begun = 0;
    if (lane_id() == 0)
        copy_ahead(c, row, bytes);
}

/* All lanes: `row`, begun before, goes to `dst` of each lane that has one; meanwhile loads of
 * `next` start (src NULL: there is none). Bytes are those of every row. False: a load did not
 * complete. */
SWL_DEV bool row_copy_end(struct copier *c, struct copy_row *row, struct copy_row *next,
                          uint32_t bytes, char *dst, struct waiter w)
{
    for (uint32_t from = 0; from < bytes; from += c->piece_bytes) {
        /* every lane sees it complete: one stores it, one loads into its stage later */
        if (!warp_all(stage_test(&c->loaded[c->store_at], c->parity)) &&
            !warp_all(await_piece(c, w)))
            return false;
        if (dst)
            bulk_store(dst + from, c->stage + c->store_at * c->piece_bytes,
                       swl_min_u32(bytes - from, c->piece_bytes));
        bulk_commit();
        copier_step(c);
        if (c->behind > 1) /* of this lane: older pieces have left their stages */
            bulk_wait_read<2>();
        else
            bulk_wait_read<1>();
        c->freed = c->stored - c->behind;
        warp_sync(); /* ... of all lanes */
        if (lane_id() == 0) {
            copy_ahead(c, row, bytes);
            if (next->src)
                copy_ahead(c, next, bytes);
        }
    }
    return true;
}

/* All lanes: no load is in flight afterwards, and rows begun are forgotten. */
SWL_DEV void copier_drain(struct copier *c, struct waiter w)
{
    const uint32_t issued = warp_shfl(c->issued, 0);

    while (c->stored != issued) {
        if (lane_id() == 0)
            await_piece(c, w);
        bulk_commit(); /* an empty group: marks count pieces as groups (row_write_mark) */
        copier_step(c);
    }
    bulk_wait_read<0>();
    warp_sync();
    c->freed = c->issued = c->stored;
    c->issue_at = c->store_at;
}

/* All lanes. `dst` of a lane is its destination or NULL; src, bytes equal in all lanes. */
SWL_DEV bool row_copy(struct copier *c, const char *src, uint32_t bytes, char *dst, struct waiter w)
{
    struct copy_row row, none = {0, 0};

    row_copy_begin(c, &row, src, bytes);
    return row_copy_end(c, &row, &none, bytes, dst, w);
}
