/* wait.cuh: the body of every wait: poison, deadline, fault record. Layer: kernels; also used by
 * transport/qp.cuh. No other spin loop exists.
 *
 * A wait is   while (!condition) if (!wait_again(watch, at, expected, seen, SWL_PAUSE(...))) return false;
 * and ends because (a) the condition holds, (b) this rank or a peer gave the call up (poison), (c)
 * the deadline of the kernel passed, (d) the host asked to stop. In (c) and (d) the first lane to see
 * it writes the fault record and poisons the ranks of its node; the kernel's epilogue tells the other
 * nodes. A wait that cannot name the rank it waits for gives those that can a little more time. */
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
    const uint64_t *entry;           /* own window: entry words [nlocal][2] */
    const uint32_t *local_rank;      /* [nlocal] local index -> rank */
    uint64_t started_ns, deadline_ns;
    uint64_t call;
    uint32_t nlocal;
    uint32_t op;   /* of fault records */
    uint32_t rank; /* own */
    uint32_t pad;
};

/* Where in the program a lane waits. */
struct wait_at {
    uint32_t kind, role, channel, peer;
};

/* Most looks find nothing and need no acquire; what came with the poison is acquired when it is there.
 * `seen`: what a look has found. */
SWL_DEV bool watch_poisoned(const struct swl_watch *w, uint64_t seen)
{
    if (swl_poison_gen(seen) < w->gen)
        return false;
    (void)read_from_peer(w->poison);
    return true;
}

/* This rank has given the generation up, also if a peer that is behind has overwritten the poison
 * word with its own, smaller generation since: whoever gave up has left a bit. Nothing is read on the
 * strength of it, so that three relaxed loads, under way together, are enough. */
struct watch_look {
    uint64_t poison;
    uint32_t claimed, bits;
};

SWL_DEV struct watch_look watch_look_at(const struct swl_watch *w)
{
    const uint64_t poison = peek_from_peer(w->poison);
    const uint32_t claimed = peek_in_gpu(w->claimed), bits = peek_in_gpu(w->async_bits);

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

/* The later of a rank's two entry words (two calls, by parity), or 0 for a rank of another node. */
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
SWL_DEV void watch_fault(const struct swl_watch *w, struct wait_at at, uint64_t expected,
                         uint64_t seen, uint32_t bits)
{
    or_in_gpu(w->async_bits, bits);
    if (cas_in_gpu(w->claimed, 0u, 1u) == 0) {
        struct swl_fault_record *r = w->record;

        r->kind = at.kind;
        r->role = at.role;
        r->channel = at.channel;
        r->peer = at.peer;
        r->op = w->op;
        r->expected = expected;
        r->seen = seen;
        r->call = w->call;
        r->waited_ns = clock_ns() - w->started_ns;
        r->peer_entry = watch_entry_of(w, at.peer);
        publish_to_host(&r->valid, 1u); /* pairs with the acquire in src/failure/async.c */
    }
    watch_poison(w, at.peer);
}

/* Rank at.peer of another node has sent a number above `most`, or out of order. Indices and lengths are made
 * of such numbers, so each is compared before it is used. */
SWL_DEV void watch_bounds(const struct swl_watch *w, struct wait_at at, uint64_t most,
                          uint64_t seen)
{
    at.kind = SWL_FAULT_BOUNDS;
    watch_fault(w, at, most, seen, SWL_ASYNC_TIMEOUT);
}

/* How far a wait is from the rank that is missing (fault.h); 3: it names no other rank. */
SWL_DEV uint32_t wait_tier(const struct swl_watch *w, struct wait_at at)
{
    return at.peer == SWL_NO_PEER || at.peer == w->rank ? 3 : swl_fault_tier(at.kind);
}

/* The time a wait gets: a sixteenth longer for each tier, so that the wait next to the missing rank
 * gives up first and its report names that rank. */
SWL_DEV uint64_t watch_deadline(const struct swl_watch *w, struct wait_at at)
{
    return w->deadline_ns + ((w->deadline_ns - w->started_ns) >> 4) * wait_tier(w, at);
}

/* For what a rank that has given up still tells others: a sixty-fourth of the limit from `since`. */
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

/* Nothing to do yet: true = look again, false = give up. Lanes may call it divergently. `poison`: the
 * word as a relaxed load has found it, which may have been under way together with the wait's own. */
SWL_DEV bool wait_again_seen(const struct swl_watch *w, struct wait_at at, uint64_t expected,
                             uint64_t seen, uint64_t poison, const struct swl_pause *why)
{
    const uint64_t deadline = watch_deadline(w, at);
    const uint64_t now = clock_ns();

    if (watch_poisoned(w, poison)) {
        or_in_gpu(w->async_bits, SWL_ASYNC_TIMEOUT); /* pairs with the epilogue's watch_given_up */
        return false;
    }
    if (now >= deadline || watch_stopped(w, now)) {
        if (now < deadline)
            at.kind = SWL_FAULT_ABORT;
        watch_fault(w, at, expected, seen, SWL_ASYNC_TIMEOUT);
        return false;
    }
    pause_lane(why, deadline);
    return true;
}

SWL_DEV bool wait_again(const struct swl_watch *w, struct wait_at at, uint64_t expected,
                        uint64_t seen, const struct swl_pause *why)
{
    return wait_again_seen(w, at, expected, seen, peek_from_peer(w->poison), why);
}
