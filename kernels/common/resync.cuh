/* resync.cuh: bring the rings back in step after a given-up call, without zeroing. Layer: kernels.
 *
 * Run by warp 0 of block 0 in the first kernel after the host cleared a failure. Three marks travel
 * on each link, each an add that brings the peer's mark word up to a value of the new generation;
 * adds execute in order, so a mark that arrived means that all older data and counts have landed:
 *   source  -> gateway  2 * gen      "nothing of the old generation follows"
 *   gateway -> source   2 * gen      "the same; and I have taken all of yours as consumed"
 *   source  -> gateway  2 * gen + 1  "and I all of yours"
 * Neither side sends anything new before the other has said that it counts anew: it would be taken
 * for old. Taking means: the consumer of a ring moves its position to the tail and returns the
 * missing credit, so that both ends agree. Marks of an attempt that failed show an older
 * generation. Words between ranks of a node need no exchange: they carry the new generation. Model:
 * tests/model/recovery.pml. */
#pragma once

#include "kernels/common/connection.cuh"
#include "kernels/common/ring.cuh"
#include "kernels/device/wait.cuh"

#define SWL_RESYNC_FAILED (1ull << 63)

/* The newest generation that anybody gave up, as far as this rank knows, but at least `least`:
 * kernels are told by poison, the host by error words, and each may know more than the other. */
SWL_DEV uint64_t newest_given_up(const struct swl_state *s, const struct swl_watch *w,
                                 uint64_t least)
{
    const uint64_t poison = swl_poison_gen(read_from_peer(w->poison));
    const uint64_t newest = poison > s->heard ? poison : s->heard;

    return newest > least ? newest : least;
}

/* The lane that owns the connection; the rank at its other end adds to `word`. */
SWL_DEV bool await_nic_count(const struct connection &c, const uint64_t *word, uint64_t want,
                             struct waiter w)
{
    w.peer = c.rank;
    for (;;) {
        const uint64_t seen = read_from_nic(word);

        if (seen >= want)
            return true;
        if (!qp_poll(c.qp, w) ||
            !wait_again(w, want, seen, SWL_PAUSE("recovery: count from rank", w.peer, 0)))
            return false;
    }
}

/* Bring the mark of a ring at its other end up to `value`, after all that was posted. */
SWL_DEV bool resync_mark(const struct swl_device_group *g, enum ring_side side, uint32_t ring,
                         uint64_t value, struct waiter w)
{
    const struct connection conn = connection_of(g, side, ring);
    const uint64_t words = side == RINGS_OUT ? g->at.ht.forth_mark : g->at.ht.back_mark;
    uint64_t *sent = (side == RINGS_OUT ? g->ht.forth_sent : g->ht.back_sent) + ring;

    if (!connection_poll(conn, w) || !connection_tell(conn, words, value - *sent, w))
        return false;
    *sent = value;
    return true;
}

/* Source side of ring x: partial sums are consumed here. */
SWL_DEV bool resync_out(const struct swl_device_group *g, uint32_t x, struct waiter w)
{
    const struct connection conn = connection_of(g, RINGS_OUT, x);
    uint64_t tail;

    if (!await_nic_count(conn, own_word(g, g->at.ht.back_mark, x), 2 * w.watch->gen, w))
        return false;
    tail = read_from_nic(own_word(g, g->at.ht.partial_tail, x));
    if (!connection_add(conn, g->at.ht.partial_credit, tail - g->ht.now.partial_credited[x], w))
        return false;
    g->ht.now.partial_recv[x] = g->ht.next.partial_recv[x] = tail;
    g->ht.now.partial_credited[x] = g->ht.next.partial_credited[x] = tail;
    g->ht.partial_used[x] = 0;
    if (x % g->shape.nrings == 0)
        g->bases_seen[x / g->shape.nrings] =
            read_from_nic(own_word(g, g->at.bases_tail, x / g->shape.nrings));
    return resync_mark(g, RINGS_OUT, x, 2 * w.watch->gen + 1, w);
}

/* Gateway side of ring y: slots and requests are consumed here. */
SWL_DEV bool resync_in(const struct swl_device_group *g, uint32_t y, struct waiter w)
{
    const struct connection conn = connection_of(g, RINGS_IN, y);
    const uint32_t j = y / g->shape.nrings;
    uint64_t slots, requests;

    if (!await_nic_count(conn, own_word(g, g->at.ht.forth_mark, y), 2 * w.watch->gen, w))
        return false;
    slots = read_from_nic(own_word(g, g->at.ht.recv_tail, y));
    requests = read_from_nic(own_word(g, g->at.ht.request_tail, y));
    if (!connection_add(conn, g->at.ht.send_credit, slots - g->ht.now.recv_credited[y], w) ||
        !connection_add(conn, g->at.ht.request_credit, requests - g->ht.now.request_credited[y], w))
        return false;
    g->ht.now.recv[y] = g->ht.next.recv[y] = slots;
    g->ht.now.recv_credited[y] = g->ht.next.recv_credited[y] = slots;
    g->ht.now.request_recv[y] = g->ht.next.request_recv[y] = requests;
    g->ht.now.request_credited[y] = g->ht.next.request_credited[y] = requests;
    if (y % g->shape.nrings == 0) {
        g->counts_seen[j] = read_from_nic(own_word(g, g->at.counts_tail, j));
        g->overflow_seen[j] = read_from_nic(own_word(g, g->at.overflow_tail, j));
    }
    return resync_mark(g, RINGS_IN, y, 2 * w.watch->gen, w);
}

/* The peers have taken everything this rank ever sent; with the marks the credit has come. */
SWL_DEV bool resync_await_credit(const struct swl_device_group *g, struct waiter w)
{
    for (uint32_t x = lane_id(); x < side_rings(g, RINGS_OUT); x += 32) {
        const struct connection conn = connection_of(g, RINGS_OUT, x);

        if (!await_nic_count(conn, own_word(g, g->at.ht.send_credit, x), g->ht.now.sent[x], w) ||
            !await_nic_count(conn, own_word(g, g->at.ht.request_credit, x),
                             g->ht.now.request_sent[x], w))
            return false;
    }
    for (uint32_t y = lane_id(); y < side_rings(g, RINGS_IN); y += 32) {
        const struct connection conn = connection_of(g, RINGS_IN, y);

        if (!await_nic_count(conn, own_word(g, g->at.ht.forth_mark, y), 2 * w.watch->gen + 1, w) ||
            !await_nic_count(conn, own_word(g, g->at.ht.partial_credit, y),
                             g->ht.now.partial_sent[y], w))
            return false;
    }
    return true;
}

/* Every rank marks all its out links first, so that the waits below have no cycle: gateways wait
 * for the first marks, sources for gateways, gateways for the last marks. */
SWL_DEV bool resync_rings(const struct swl_device_group *g, struct waiter w)
{
    bool ok = true;

    for (uint32_t x = lane_id(); ok && x < side_rings(g, RINGS_OUT); x += 32)
        ok = resync_mark(g, RINGS_OUT, x, 2 * w.watch->gen, w);
    ok = warp_all(ok);
    for (uint32_t y = lane_id(); ok && y < side_rings(g, RINGS_IN); y += 32)
        ok = resync_in(g, y, w);
    ok = warp_all(ok);
    for (uint32_t x = lane_id(); ok && x < side_rings(g, RINGS_OUT); x += 32)
        ok = resync_out(g, x, w);
    ok = warp_all(ok);
    return warp_all(ok && resync_await_credit(g, w));
}

/* Words between ranks of the node start again under the new generation. */
SWL_DEV void resync_local(const struct swl_device_group *g)
{
    const uint64_t start = g->shape.start_low;
    const uint32_t links = g->shape.nlocal * g->shape.nwriters;
    const uint32_t fetches = g->shape.nlocal * g->shape.ngatherers;

    for (uint32_t i = lane_id(); i < links; i += 32)
        g->ht.local_sent[i] = g->ht.local_taken[i] = start;
    for (uint32_t i = lane_id(); i < fetches; i += 32)
        g->ht.fetch_asked[i] = g->ht.fetch_given[i] = start;
}

/* Warp 0 of block 0. Publishes state->resynced in any case; the other blocks wait for it. */
SWL_DEV void resync(const struct swl_device_group *g, struct swl_watch *w)
{
    const struct waiter waiter = waiter_of(w, SWL_WARP_PROLOGUE, 0);
    struct swl_state *s = g->state;
    const uint64_t gen = s->gen;
    const uint64_t told = warp_shfl(newest_given_up(s, w, 0), 0);
    const uint64_t failed = told > gen ? told : gen;
    const bool given_up = told >= gen || warp_shfl(read_in_gpu(&s->claimed), 0) != 0;
    bool ok = true;

    warp_sync();
    if (given_up) { /* a call was given up: new generation, everything counts anew */
        if (lane_id() == 0) {
            const uint64_t start = g->shape.start_low;

            publish_in_gpu(&s->gen, failed + 1);
            publish_in_gpu(&s->call, start); /* other blocks load them in call_begin */
            publish_in_gpu(&s->epoch, start);
            publish_in_gpu(&s->claimed, 0u); /* other blocks look at it in call_begin */
            w->gen = failed + 1;
        }
        warp_sync();
        resync_local(g);
        ok = resync_rings(g, wait_for(waiter, SWL_FAULT_RESYNC, SWL_NO_PEER));
    }
    warp_sync();
    if (lane_id() == 0) /* pairs with await_resynced */
        publish_in_gpu(&s->resynced, s->clears | (ok ? 0 : SWL_RESYNC_FAILED));
    warp_sync();
}
