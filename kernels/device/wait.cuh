/* wait.cuh: the body of every wait: poison, deadline, fault record. Layer: kernels; also used by
 * transport/qp.cuh. No other spin loop exists.
 *
 * A wait is
 *   while (!condition) if (!wait_again(waiter, expected, seen, SWL_PAUSE(...))) return false;
 * and ends because (a) the condition holds, (b) this rank or a peer gave the call up (poison), (c)
 * the deadline of the kernel passed, (d) the host asked to stop. In (c) and (d) the first lane to
 * see it writes the fault record and poisons the ranks of its node; the kernel's epilogue tells the
 * other nodes. A wait that cannot name the rank it waits for gives those that can a little more
 * time. */
#pragma once

#include "device.h"
#include "kernels/device/fault.h"

/* What every wait of one kernel looks at. Lives in shared memory, written by one thread before the
 * first block barrier, read-only afterwards. */
struct swl_watch {
    uint64_t *poison;          /* own window: generation << 16 | missing rank + 1; given up when
                                        the generation is at least `gen`. Writers: own GPU, local
                                        peers, and the NIC on behalf of other nodes */
    uint64_t gen;              /* generation of this call */
    const uint64_t *host_stop; /* pinned: not 0 when the host asks to stop */
    uint32_t *claimed;         /* own GPU: 0 until the first fault of a generation */
    uint32_t *async_bits;      /* own GPU: SWL_ASYNC_* of this rank */
    struct swl_fault_record *record; /* pinned */
    char *const *peer_window;        /* [nlocal] windows of the ranks of this node, own included */
    uint64_t poison_at;              /* offset of the poison word in a window */
    const uint64_t *entry;           /* own window: open records [nlocal][2] */
    const uint32_t *local_rank;      /* [nlocal] local index -> rank */
    uint64_t started_ns, deadline_ns;
    uint64_t call;
    uint32_t nlocal;
    uint32_t op;   /* of fault records */
    uint32_t rank; /* own */
    uint32_t pad;
};

/* A lane that waits: what it looks at, and what a fault record says of it. A warp has one for all
 * it does, and says with wait_for what it waits for at the moment. */
struct waiter {
    const struct swl_watch *watch;
    uint32_t kind, role, channel, peer;
};

/* Rank `peer`, or SWL_NO_PEER, has not done what `kind` says. */
SWL_DEV struct waiter wait_for(struct waiter w, uint32_t kind, uint32_t peer)
{
    w.kind = kind;
    w.peer = peer;
    return w;
}

/* What a waiter of a warp is made of. */
SWL_DEV struct waiter waiter_of(const struct swl_watch *watch, uint32_t role, uint32_t channel)
{
    return {watch, SWL_FAULT_NONE, role, channel, SWL_NO_PEER};
}

/* Most looks find nothing and need no acquire; what came with the poison is acquired when it is
 * there. `seen`: what a look has found. */
SWL_DEV bool watch_poisoned(const struct swl_watch *w, uint64_t seen)
{
    if (swl_poison_gen(seen) < w->gen)
        return false;
    (void)read_from_peer(w->poison);
    return true;
}

/* This rank has given the generation up, also if a peer that is behind has overwritten the poison
 * word with its own, smaller generation since: whoever gave up has left a bit. Nothing is read on
 * the strength of it, so that three relaxed loads, under way together, are enough. */
struct watch_look {
    uint64_t poison;
    uint32_t claimed, bits;
};

SWL_DEV struct watch_look watch_look_at(const struct swl_watch *w)
{
    const uint64_t poison = load_relaxed_from_peer(w->poison);
    const uint32_t claimed = load_relaxed_in_gpu(w->claimed),
                   bits = load_relaxed_in_gpu(w->async_bits);

    return {poison, claimed, bits};
}

SWL_DEV bool watch_look_bad(struct watch_look look, uint64_t gen)
{
    return swl_poison_gen(look.poison) >= gen || look.claimed != 0 ||
           (look.bits & SWL_ASYNC_TIMEOUT) != 0;
}

SWL_DEV bool watch_given_up_in(const struct swl_watch *w, uint64_t gen)
{
    return watch_look_bad(watch_look_at(w), gen);
}

SWL_DEV bool watch_given_up(const struct swl_watch *w)
{
    return watch_given_up_in(w, w->gen);
}

/* Every rank of the node gives this call up. Any lane, any number of times. */
SWL_DEV void watch_poison(const struct swl_watch *w, uint32_t missing)
{
    const uint64_t word = swl_poison_word(w->gen, missing);

    for (uint32_t i = 0; i < w->nlocal; i++)
        publish_to_peer((uint64_t *)(w->peer_window[i] + w->poison_at), word);
}

/* The later of a rank's two open records (two calls, by parity), or 0 for a rank of another
 * node. */
SWL_DEV uint64_t watch_entry_of(const struct swl_watch *w, uint32_t rank)
{
    for (uint32_t i = 0; i < w->nlocal; i++) {
        if (w->local_rank[i] == rank) {
            const uint64_t even = read_from_peer(w->entry + 2 * i);
            const uint64_t odd = read_from_peer(w->entry + 2 * i + 1);

            return even > odd ? even : odd;
        }
    }
    return 0;
}

/* Record the fault if it is the first of this generation, set `bits`, poison the node. */
SWL_DEV void wait_fault(struct waiter w, uint64_t expected, uint64_t seen, uint32_t bits)
{
    or_in_gpu(w.watch->async_bits, bits);
    if (cas_in_gpu(w.watch->claimed, 0u, 1u) == 0) {
        struct swl_fault_record *r = w.watch->record;

        r->kind = w.kind;
        r->role = w.role;
        r->channel = w.channel;
        r->peer = w.peer;
        r->op = w.watch->op;
        r->expected = expected;
        r->seen = seen;
        r->call = w.watch->call;
        r->waited_ns = clock_ns() - w.watch->started_ns;
        r->peer_entry = watch_entry_of(w.watch, w.peer);
        publish_to_host(&r->valid, 1u); /* pairs with the acquire in src/failure/async.c */
    }
    watch_poison(w.watch, w.peer);
}

/* Rank w.peer of another node has sent a number above `most`, or out of order. Indices and lengths
 * are made of such numbers, so each is compared before it is used. */
SWL_DEV void wait_bounds(struct waiter w, uint64_t most, uint64_t seen)
{
    w.kind = SWL_FAULT_BOUNDS;
    wait_fault(w, most, seen, SWL_ASYNC_TIMEOUT);
}

/* How far a wait is from the rank that is missing (fault.h); 3: it names no other rank. */
SWL_DEV uint32_t wait_tier(struct waiter w)
{
    return w.peer == SWL_NO_PEER || w.peer == w.watch->rank ? 3 : swl_fault_tier(w.kind);
}

/* The time a wait gets: a sixteenth longer for each tier, so that the wait next to the missing rank
 * gives up first and its report names that rank. */
SWL_DEV uint64_t wait_deadline(struct waiter w)
{
    const uint64_t started = w.watch->started_ns, deadline = w.watch->deadline_ns;

    return deadline + ((deadline - started) >> 4) * wait_tier(w);
}

/* For what a rank that has given up still tells others: a sixty-fourth of the limit from
 * `since`. */
SWL_DEV bool wait_to_tell(const struct swl_watch *w, uint64_t since, const struct swl_pause *why)
{
    const uint64_t until = since + ((w->deadline_ns - w->started_ns) >> 6);

    if (clock_ns() >= until)
        return false;
    pause_lane(why, until);
    return true;
}

/* The host word is far away: look at it during one microsecond of each millisecond. */
SWL_DEV bool watch_stopped(const struct swl_watch *w, uint64_t now)
{
    return (now >> 10 & 1023) == 0 && read_from_host(w->host_stop) != 0;
}

/* Nothing to do yet: true = look again, false = give up. Lanes may call it divergently. `poison`:
 * the word as a relaxed load has found it, which may have been under way together with the wait's
 * own. */
SWL_DEV bool wait_again_seen(struct waiter w, uint64_t expected, uint64_t seen, uint64_t poison,
                             const struct swl_pause *why)
{
    const uint64_t deadline = wait_deadline(w);
    const uint64_t now = clock_ns();

    if (watch_poisoned(w.watch, poison)) {
        /* pairs with the epilogue's watch_given_up */
        or_in_gpu(w.watch->async_bits, SWL_ASYNC_TIMEOUT);
        return false;
    }
    if (now >= deadline || watch_stopped(w.watch, now)) {
        if (now < deadline)
            w.kind = SWL_FAULT_ABORT;
        wait_fault(w, expected, seen, SWL_ASYNC_TIMEOUT);
        return false;
    }
    pause_lane(why, deadline);
    return true;
}

SWL_DEV bool wait_again(struct waiter w, uint64_t expected, uint64_t seen,
                        const struct swl_pause *why)
{
    return wait_again_seen(w, expected, seen, load_relaxed_from_peer(w.watch->poison), why);
}
