/* recovery.pml: rings of two ranks get back in step after calls that were given up.
 *
 * Two ranks of two nodes; each is source of one link, and gateway of the other. Link l goes from rank l to
 * rank 1 - l. Both ranks call until a call has come through under one generation. A rank gives up at any
 * moment, FAILS times in all, also while it recovers; its peer learns of it by poison, early or late. Nobody
 * waits for the peer to have ended the failed call.
 *
 * process     kernel role (file)
 * rank        requester, gateway warps, summers and coordinators in one: what they send, and what they take
 *             (ht_combine_*.cuh); resync_rings, resync_in, resync_out, resync_await_credit (resync.cuh);
 *             call_begin and resync choose the generation (call.cuh, resync.cuh)
 * network     NIC: entries of a queue pair in order, those of different queue pairs in any
 *
 * What is left out, and why nothing is lost by it:
 * - Slots of dispatch: as requests, without an answer. Of route messages the reader takes what is there.
 * - Chunks: a rank may return credit late, one by one.
 * - More ranks of a node: words between them carry the generation and need no exchange.
 * - Poison that a late older word overwrites: the rank then gives up by its own limit, one of FAILS.
 * - The host: ErrorClear and the next call follow at once. An error word tells what poison tells.
 * - Queue pairs in error: their repair is repair.pml; it ends with words and counts that agree.
 *
 * Known-bad variants, which the check must find:
 * ONE_EACH_WAY    two marks: a gateway marks without waiting for the source's, and nobody marks again
 * NO_LAST_MARK    two marks: the gateway goes on when its own is sent and its credit is there. Found with
 *                 UNASKED, where gateways send of their own accord; free while they only answer, as they do
 * TAKE_FIRST      a gateway takes what has come as consumed before the source's first mark */
#ifndef R
#define R 2 /* slots of a ring */
#endif
#ifndef FAILS
#define FAILS 1
#endif
#ifndef N0
#define N0 2 /* requests of a call on link 0 */
#endif
#ifndef N1
#define N1 0
#endif
#ifndef UNASKED
#define UNASKED 0
#endif
#define N(l) ((l) == 0 -> N0 : N1)

mtype = { REQUEST, PARTIAL, CREDIT, MARK };
chan forth[2] = [12] of { mtype, byte }; /* adds from source to gateway; REQUEST: with its generation */
chan back[2] = [12] of { mtype, byte };

/* Of a link, at its source. */
byte sent[2], request_credit[2];           /* posted; word */
byte partial_tail[2];                      /* word */
byte partial_recv[2], partial_credited[2]; /* taken; credit posted */
byte back_mark[2];                         /* word */
byte partial_gen[2 * R];                   /* of the call that slot belongs to */
/* At its gateway. */
byte request_tail[2];                      /* word */
byte request_recv[2], request_credited[2]; /* taken; credit posted */
byte partial_sent[2], partial_credit[2];   /* posted; word */
byte forth_mark[2];                        /* word */
byte request_gen[2 * R];                   /* of the call that slot belongs to */

byte gen[2];
byte told[2];    /* newest generation of poison that was written for a rank */
byte poison[2];  /* the same when it has arrived */
bool through[2]; /* the rank's call has come through */
byte fails;

/* ---- network ---- */

proctype network_forth(byte l) {
    mtype kind;
    byte v;

end_idle:
    do
    :: d_step {
        forth[l]?kind, v;
        if
        :: kind == REQUEST ->
            assert(request_tail[l] - request_recv[l] < R); /* no slot is overwritten before it is taken */
            request_gen[l * R + request_tail[l] % R] = v;
            request_tail[l]++
        :: kind == CREDIT -> partial_credit[l] = partial_credit[l] + v
        :: else -> forth_mark[l] = v
        fi;
        kind = 0;
        v = 0
    }
    od
}

proctype network_back(byte l) {
    mtype kind;
    byte v;

end_idle:
    do
    :: d_step {
        back[l]?kind, v;
        if
        :: kind == PARTIAL ->
            assert(partial_tail[l] - partial_recv[l] < R);
            partial_gen[l * R + partial_tail[l] % R] = v;
            partial_tail[l]++
        :: kind == CREDIT -> request_credit[l] = request_credit[l] + v
        :: else -> back_mark[l] = v
        fi;
        kind = 0;
        v = 0
    }
    od
}

/* Poison comes on its own, as a plain write. */
proctype network_poison(byte to) {
end_idle:
    do
    :: d_step { poison[to] < told[to] -> poison[to] = told[to] }
    od
}

/* ---- ranks ---- */

#define LARGER(a, b) ((a) > (b) -> (a) : (b))

/* A rank gives up: by its own limit, or since its peer has. */
#define OR_GIVE_UP                                                                                 \
    :: d_step { fails > 0 -> fails--; told[y] = LARGER(told[y], gen[i]) }; goto recover             \
    :: d_step { poison[i] >= gen[i] -> told[y] = LARGER(told[y], gen[i]) }; goto recover
#define AWAIT(what)                                                                                \
    if                                                                                             \
    :: what                                                                                        \
    OR_GIVE_UP                                                                                     \
    fi

/* resync_in: requests that have come are consumed; their credit goes back. */
inline take_requests() {
    back[y]!CREDIT, request_tail[y] - request_credited[y];
    request_recv[y] = request_tail[y];
    request_credited[y] = request_tail[y]
}

/* resync_out: the same for partial sums. */
inline take_partials() {
    forth[i]!CREDIT, partial_tail[i] - partial_credited[i];
    partial_recv[i] = partial_tail[i];
    partial_credited[i] = partial_tail[i]
}

#define ROOM (partial_sent[y] - partial_credit[y] < R)

inline answer() {
    back[y]!PARTIAL, gen[i];
    partial_sent[y]++
}

/* Rank i: source of link i, gateway of link y. */
proctype rank(byte i) {
    byte asked, got, took; /* of this call: requests posted, partial sums taken, requests taken */
    byte given;           /* UNASKED: partial sums posted */
    byte y = 1 - i;

call:
    do
    /* source */
    :: d_step {
        asked < N(i) && sent[i] - request_credit[i] < R ->
        forth[i]!REQUEST, gen[i];
        sent[i]++;
        asked++
    }
    :: d_step {
        got < N(i) && partial_recv[i] < partial_tail[i] ->
        assert(partial_gen[i * R + partial_recv[i] % R] == gen[i]);
        partial_recv[i]++;
        got++
    }
    :: d_step {
        partial_credited[i] < partial_recv[i] ->
        forth[i]!CREDIT, 1;
        partial_credited[i]++
    }
    /* gateway */
    :: d_step {
        took < N(y) && request_recv[y] < request_tail[y] && (ROOM || UNASKED) ->
        assert(request_gen[y * R + request_recv[y] % R] == gen[i]);
        request_recv[y]++;
        took++;
#if !UNASKED
        answer();
#endif
        skip
    }
#if UNASKED
    :: d_step { given < N(y) && ROOM -> answer(); given++ }
#endif
    :: d_step {
        request_credited[y] < request_recv[y] ->
        back[y]!CREDIT, 1;
        request_credited[y]++
    }
    :: asked == N(i) && got == N(i) && partial_credited[i] == partial_recv[i] && took == N(y) &&
        (given == N(y) || !UNASKED) && request_credited[y] == request_recv[y] -> break
    OR_GIVE_UP
    od;
    through[i] = true;
    if
    :: gen[y] == gen[i] && through[y]
    :: d_step { poison[i] >= gen[i] -> told[y] = LARGER(told[y], gen[i]); through[i] = false }; goto recover
    fi;
    goto ended;

recover:
    skip;
    d_step {
        asked = 0;
        got = 0;
        took = 0;
        given = 0;
        gen[i] = LARGER(gen[i], poison[i]) + 1;
        assert(gen[i] <= FAILS + 1);
        forth[i]!MARK, 2 * gen[i]
#if defined(ONE_EACH_WAY)
        ;
        back[y]!MARK, 2 * gen[i]
#endif
    };
#if defined(TAKE_FIRST)
    d_step { take_requests() };
#endif
    AWAIT(forth_mark[y] >= 2 * gen[i]);
    d_step {
#if !defined(TAKE_FIRST)
        take_requests();
#endif
#if !defined(ONE_EACH_WAY)
        back[y]!MARK, 2 * gen[i];
#endif
        skip
    };
    AWAIT(back_mark[i] >= 2 * gen[i]);
    d_step {
        take_partials()
#if !defined(ONE_EACH_WAY) && !defined(NO_LAST_MARK)
        ;
        forth[i]!MARK, 2 * gen[i] + 1
#endif
    };
    /* resync_await_credit */
    AWAIT(request_credit[i] >= sent[i]);
#if !defined(ONE_EACH_WAY) && !defined(NO_LAST_MARK)
    AWAIT(forth_mark[y] >= 2 * gen[i] + 1);
#endif
    AWAIT(partial_credit[y] >= partial_sent[y]);
    goto call;

ended:
    assert(sent[i] == request_recv[i] && partial_sent[i] == partial_recv[i])
}

init {
    atomic {
        fails = FAILS;
        gen[0] = 1;
        gen[1] = 1;
        run network_forth(0);
        run network_back(0);
        run network_forth(1);
        run network_back(1);
        run network_poison(0);
        run network_poison(1);
        run rank(0);
        run rank(1)
    }
}
