/* units.cuh: a warp's ring of units in shared memory. Layer: kernels.
 *
 * A unit holds a piece of a row, has an mbarrier, and is used in turn. Lanes start bulk loads, each into
 * a unit of its own; whoever reads a unit waits for it first. A unit may be loaded again when what was
 * in it has been read: by bulk stores (bulk_wait_read), or by plain loads of the lanes (warp_sync: the
 * load is started after it, and a copy that is started later cannot overtake loads that returned). */
#pragma once

#include "kernels/block.h"
#include "kernels/wait.cuh"

struct units {
    char *at;         /* shared: [n][bytes] */
    mbarrier *loaded; /* shared: [n] */
    uint32_t bytes, n;
};

struct unit_turn { /* the next unit of a walk round the ring */
    uint32_t unit, parity;
};

/* All lanes: this warp's units. A block barrier must follow before the first load. */
SWL_DEV struct units units_init(const struct swl_combine_block *b, uint32_t bytes, uint32_t n)
{
    const uint32_t first = (uint32_t)warp_id() * n;
    char *shared = (char *)block_shared();
    const struct units u = {shared + b->units + first * bytes,
                            (mbarrier *)(shared + b->barriers) + first, bytes, n};

    for (uint32_t i = lane_id(); i < n; i += 32) {
        stage_init(&u.loaded[i], 1);
        stage_init_done();
    }
    return u;
}

/* `by` units further; at most n. */
SWL_DEV struct unit_turn unit_ahead(const struct units *u, struct unit_turn t, uint32_t by)
{
    t.unit += by;
    if (t.unit >= u->n) {
        t.unit -= u->n;
        t.parity ^= 1;
    }
    return t;
}

SWL_DEV char *unit_at(const struct units *u, struct unit_turn t)
{
    return u->at + t.unit * u->bytes;
}

/* One lane, which has ordered the source before its bulk loads. */
SWL_DEV void unit_load(const struct units *u, struct unit_turn t, const char *src, uint32_t bytes)
{
    stage_expect(&u->loaded[t.unit], bytes);
    bulk_load(unit_at(u, t), src, bytes, &u->loaded[t.unit]);
}

/* A load completes without anybody's help, and it must before the block may end, so that a given-up
 * call waits for it too; only an expired deadline (plus a second) ends the wait. */
SWL_DEV bool await_unit(const struct units *u, struct unit_turn t, const struct swl_watch *w,
                        struct wait_at at)
{
    uint64_t deadline;

    if (stage_test(&u->loaded[t.unit], t.parity)) /* as a rule */
        return true;
    deadline = w->deadline_ns + 1000000000ull;
    while (!stage_test(&u->loaded[t.unit], t.parity)) {
        if (clock_ns() >= deadline) {
            at.kind = SWL_FAULT_STAGE;
            watch_fault(w, at, t.unit, 0, SWL_ASYNC_TIMEOUT);
            return false;
        }
        pause_lane(SWL_PAUSE("bulk load in flight", (int)t.unit, (int)at.role), deadline);
    }
    return true;
}
