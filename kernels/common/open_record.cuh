/* open_record.cuh: "my tensors are open for this call", between the ranks of a node. Layer:
 * kernels.
 *
 * No rank stores into, or loads from, a peer's user memory before the peer's open record of this
 * call, and none runs more than one call ahead of a local peer, since it waits for the words of all
 * of them. Two slots by parity of the call: a rank may post n + 1 before a peer has looked at n,
 * but not n + 2, for which it needs the peer's n + 1. */
#pragma once

#include "kernels/common/args.h"
#include "kernels/common/connection.cuh"
#include "kernels/common/ring.cuh"
#include "kernels/device/wait.cuh"

/* One warp of the kernel. Earlier kernels of the stream have ended, so the word also says that the
 * user no longer reads or writes the tensor. */
SWL_DEV void open_record_post(const struct swl_device_group *g, const struct swl_open_record *e,
                              uint64_t gen, uint64_t call)
{
    const uint64_t mine = 2ull * g->shape.local + (call & 1);
    const struct vec16 low = {{e->op, e->direct, e->memory, e->rows}};
    const struct vec16 high = {{(uint32_t)e->offset, (uint32_t)(e->offset >> 32), e->row_bytes,
                                e->dtype | (uint32_t)e->topk << 16}};

    for (uint32_t i = lane_id(); i < g->shape.nlocal; i += 32) {
        struct vec16 *to = (struct vec16 *)(g->peer_window[i] + g->at.open_record +
                                            mine * sizeof(struct swl_open_record));

        store_data(to, low);
        store_data(to + 1, high);
    }
    /* one fence; pairs with the acquire in await_open_record */
    order_before_publish(SWL_SCOPE_SYS);
    for (uint32_t i = lane_id(); i < g->shape.nlocal; i += 32)
        post_to_peer(peer_word(g, i, g->at.entry, mine), gen_word(gen, call));
}

SWL_DEV const struct swl_open_record *open_record_of(const struct swl_device_group *g,
                                                     uint32_t local, uint64_t call)
{
    return (const struct swl_open_record *)(g->window + g->at.open_record) + 2 * local + (call & 1);
}

SWL_DEV bool await_open_record(const struct swl_device_group *g, uint32_t local, struct waiter w)
{
    const uint64_t *word = own_word(g, g->at.entry, 2 * local + (w.watch->call & 1));
    const uint64_t want = gen_word(w.watch->gen, w.watch->call);

    w.kind = SWL_FAULT_ENTRY;
    w.peer = g->local_rank[local];
    for (;;) {
        const uint64_t seen = read_from_peer(word);

        if (seen == want) {
            const struct swl_open_record *e = open_record_of(g, local, w.watch->call);

            if (e->op == w.watch->op)
                return true;
            w.kind = SWL_FAULT_WRONG_CALL;
            wait_fault(w, w.watch->op, e->op, SWL_ASYNC_TIMEOUT);
            return false;
        }
        if (!wait_again(w, want, seen, SWL_PAUSE("entry of rank", w.peer, w.watch->call)))
            return false;
    }
}

/* One lane: the rows of local rank `local` are like this rank's own. Else the number of a row does
 * not say where it is, and a list does not say how much of a slot it takes. */
SWL_DEV bool check_open_record(const struct swl_device_group *g, uint32_t local, struct waiter w)
{
    const struct swl_open_record *own = open_record_of(g, g->shape.local, w.watch->call);
    const struct swl_open_record *e = open_record_of(g, local, w.watch->call);
    uint32_t want = own->row_bytes, seen = e->row_bytes;

    w.kind = SWL_FAULT_WRONG_ROWS;
    w.peer = g->local_rank[local];
    if (want == seen) {
        w.kind = SWL_FAULT_WRONG_TYPE;
        want = own->dtype;
        seen = e->dtype;
    }
    if (want == seen) {
        w.kind = SWL_FAULT_WRONG_TOPK;
        want = own->topk;
        seen = e->topk;
    }
    if (want == seen)
        return true;
    wait_fault(w, want, seen, SWL_ASYNC_TIMEOUT);
    return false;
}

/* One lane: a count from rank w.peer of another node carries the tag of a call like this rank's
 * own. */
SWL_DEV bool check_tag(const struct swl_open_record *own, uint32_t tagged, struct waiter w)
{
    const uint32_t want = swl_call_tag(own), seen = tagged & ~SWL_TAG_COUNT;

    if (want == seen)
        return true;
    if (want >> 17 != seen >> 17) {
        w.kind = SWL_FAULT_WRONG_ROWS;
        wait_fault(w, own->row_bytes, (uint64_t)(seen >> 17) * 16, SWL_ASYNC_TIMEOUT);
    } else if (want >> 13 != seen >> 13) {
        w.kind = SWL_FAULT_WRONG_TYPE;
        wait_fault(w, own->dtype, seen >> 13 & 15, SWL_ASYNC_TIMEOUT);
    } else {
        w.kind = SWL_FAULT_WRONG_TOPK;
        wait_fault(w, own->topk, (seen >> 7 & 63) + 1, SWL_ASYNC_TIMEOUT);
    }
    return false;
}

/* All lanes: the count in a header {call, tagged count} that rank w.peer of another node wrote, or
 * -1 for one that does not belong to this call. */
SWL_DEV int tagged_count(const struct swl_open_record *own, uint64_t call, uint64_t seen,
                         uint32_t tagged, struct waiter w)
{
    const uint32_t n = tagged & SWL_TAG_COUNT;
    bool ok = true;

    w.kind = SWL_FAULT_WRONG_CALL;
    if (lane_id() == 0) {
        if (seen != call)
            wait_fault(w, call, seen, SWL_ASYNC_TIMEOUT);
        ok = seen == call && check_tag(own, tagged, w);
        if (ok && n > own->topk) {
            wait_fault(w, own->topk, n, SWL_ASYNC_TIMEOUT);
            ok = false;
        }
    }
    return warp_all(ok) ? (int)n : -1;
}

/* All lanes of a warp that touches peers; afterwards every lane may read the entry records. */
SWL_DEV bool await_open_records(const struct swl_device_group *g, struct waiter w)
{
    bool ok = true;

    for (uint32_t i = lane_id(); ok && i < g->shape.nlocal; i += 32)
        ok = await_open_record(g, i, w);
    ok = warp_all(ok);
    warp_sync(); /* what one lane acquired is every lane's, this rank's own record included */
    for (uint32_t i = lane_id(); ok && i < g->shape.nlocal; i += 32)
        ok = check_open_record(g, i, w);
    return warp_all(ok);
}
