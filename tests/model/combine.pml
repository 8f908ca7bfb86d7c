/* combine.pml: flow control of combine between nodes.
 *
 * Every source has K rings, ring r = source * K + k. The gateway of ring r is warp group k % GATEWAYS: with
 * GATEWAYS == K the rings of a source lead to different nodes, with GATEWAYS == 1 to one; several sources
 * share gateways, as the ranks of one node, or of two, do at a third. A ring has `LENGTH(r)` entries.
 *
 * proctype        kernel role (file)
 * requester       ht_combine_request (ht_combine_source.cuh); claims with room_take (channel.cuh)
 * source_coord    ht_combine_source_coord (ht_combine_source.cuh)
 * gateway         ht_combine_gateway (ht_combine_gateway.cuh), in gather_run (gather.cuh)
 * gateway_coord   ht_combine_gateway_coord (ht_combine_gateway.cuh)
 * summer          ht_combine_sum (ht_combine_source.cuh), in gather_run (gather.cuh)
 * server          ht_combine_serve (ht_combine_serve.cuh)
 *
 * What is left out, and why nothing is lost by it:
 * - Payload, headers, addresses. No wait depends on them.
 * - The network. A count arrives when it is posted: a later arrival looks the same as a coordinator that
 *   posts later, and coordinators of the model post whenever they like, ring by ring in any order. Adds of
 *   one queue pair arrive in order, of several in any; the model allows any.
 * - A request and its partial sum are entry i of their rings, from starts of their own (BEGIN_R, BEGIN_P).
 * - A gateway warp sets the mask bit of a request in the step in which it claims it: it waits for nothing in
 *   between. Requesters have two steps, if there are several, so that bits do get set out of order.
 * - Which token goes where is drawn when a summer lists it, in every possible way: requests need only the
 *   lengths of the lists, which are fixed. Tokens of no ring change only who sums which token: ANY_SUMMER
 *   draws that, too.
 * - Summers list one token. Those listed ahead cost them no wait; the landing slots that these fill early are
 *   their own.
 * - Terms that lie in place, entry and exit words: they are there, or wait for nothing that is modelled.
 * - Faults and limits: the model has none, so that whatever would end by a limit stops for ever here.
 *
 * Known-bad variants, which the check must find:
 * ROUNDS          a requester warp takes the items of a channel round by round over its rings
 * CLAIM_FIRST     a requester warp takes a position of any ring in turn, then waits for its credit
 * NO_SLOT         a gateway warp takes a request whose partial sum has no slot, and waits for it
 * WAIT_MORE       a gateway warp that holds one request waits for another
 * WAIT_YOUNGER    a summer waits for the partial sums of its next two tokens together
 * LANDING_BLIND   a gateway warp lists more tokens than it has landing slots */
#ifndef SOURCES
#define SOURCES 1
#endif
#ifndef K
#define K 2
#endif
#ifndef GATEWAYS
#define GATEWAYS 1
#endif
#ifndef REQUESTERS
#define REQUESTERS 1 /* warps of a source */
#endif
#ifndef GATEWAY_WARPS
#define GATEWAY_WARPS 1
#endif
#ifndef SUMMERS
#define SUMMERS 1
#endif
#ifndef LANDING
#define LANDING 0 /* landing slots of a gatherer; 0: every row lies in place */
#endif
#ifndef L0
#define L0 3
#endif
#ifndef L1
#define L1 L0
#endif
#ifndef L2
#define L2 L0
#endif
#ifndef L3
#define L3 L1
#endif
#ifndef BEGIN_R
#define BEGIN_R 0
#endif
#ifndef BEGIN_P
#define BEGIN_P 0
#endif
#define RINGS     (SOURCES * K) /* at most 4 */
#define GATHERERS (GATEWAYS * GATEWAY_WARPS + SOURCES * SUMMERS) /* at most 4 if LANDING */
#define FIRST_SUMMER (GATEWAYS * GATEWAY_WARPS)

#include "ring.pml"

#define LENGTH(r) ((r) == 0 -> L0 : ((r) == 1 -> L1 : ((r) == 2 -> L2 : L3)))
#define GATEWAY(r) (((r) % K) % GATEWAYS)
#if LANDING == 0 || LANDING > 1 || defined(LANDING_BLIND)
#define AHEAD 2 /* source_ahead of gateways */
#else
#define AHEAD 1 /* no more tokens than landing slots */
#endif

byte claimed[RINGS];        /* claim word of requesters */
byte request_out[RINGS];    /* window */
byte request_tail[RINGS];   /* posted, hence arrived */
byte taken[RINGS];          /* claim word of gateway warps */
byte request_in[RINGS];     /* window */
byte request_credit[RINGS]; /* credited, hence free */
byte partial_out[RINGS];    /* window */
byte partial_tail[RINGS];
byte partial_used[RINGS];   /* window */
byte partial_credit[RINGS];

byte listed[RINGS];         /* entries of tokens that summers have listed */
byte turn[SOURCES];         /* the summer of the next token */
chan tokens[SOURCES * SUMMERS] = [RINGS * L0] of { byte, byte }; /* listed for a summer: position + 1, or 0 */

#if LANDING
byte asked[GATHERERS];      /* rows asked for that have not come */
byte landed[GATHERERS];     /* rows in landing slots */
#endif

/* ---- requester ---- */

#define REQUEST_CREDIT(r, p) ((p) < request_credit[r] + RING)
#define REQUEST(r)           (claimed[r] < LENGTH(r) && REQUEST_CREDIT(r, claimed[r]))

proctype requester(byte s; byte index) {
#if defined(ROUNDS)
    byte item = index;

    do
    :: item < K * L0 ->
        if
        :: item / K < LENGTH(s * K + item % K) ->
            d_step {
                REQUEST_CREDIT(s * K + item % K, item / K);
                finish(request_out[s * K + item % K], item / K, request_tail[s * K + item % K])
            }
        :: else
        fi;
        item = item + REQUESTERS
    :: else -> break
    od
#else
    byte r, p;

    do
#if defined(CLAIM_FIRST)
    :: d_step { claimed[s * K] < LENGTH(s * K) -> r = s * K; p = claimed[r]; claimed[r]++ };
        REQUEST_CREDIT(r, p);
        d_step { finish(request_out[r], p, request_tail[r]); r = 0; p = 0 }
#if K > 1
    :: d_step { claimed[s * K + 1] < LENGTH(s * K + 1) -> r = s * K + 1; p = claimed[r]; claimed[r]++ };
        REQUEST_CREDIT(r, p);
        d_step { finish(request_out[r], p, request_tail[r]); r = 0; p = 0 }
#endif
#elif REQUESTERS == 1 /* nobody else sees the position between claim and finish */
    :: d_step {
        REQUEST(s * K) ->
        finish(request_out[s * K], claimed[s * K], request_tail[s * K]);
        claimed[s * K]++
    }
#if K > 1
    :: d_step {
        REQUEST(s * K + 1) ->
        finish(request_out[s * K + 1], claimed[s * K + 1], request_tail[s * K + 1]);
        claimed[s * K + 1]++
    }
#endif
#else
    :: d_step { REQUEST(s * K) -> r = s * K; p = claimed[r]; claimed[r]++ };
        d_step { finish(request_out[r], p, request_tail[r]); r = 0; p = 0 }
#if K > 1
    :: d_step { REQUEST(s * K + 1) -> r = s * K + 1; p = claimed[r]; claimed[r]++ };
        d_step { finish(request_out[r], p, request_tail[r]); r = 0; p = 0 }
#endif
#endif
    :: claimed[s * K] == LENGTH(s * K) && claimed[s * K + K - 1] == LENGTH(s * K + K - 1) -> break
    od
#endif
}

/* ---- coordinators ---- */

#if !defined(PROMPT)
#define REQUEST_POST(r)                                                                            \
    :: d_step {                                                                                    \
        r / K == s && MAY_POST(request_out[r], BEGIN_R, request_tail[r], LENGTH(r)) ->             \
        post(request_out[r], BEGIN_R, request_tail[r])                                             \
    }
#define PARTIAL_CREDIT(r)                                                                          \
    :: d_step {                                                                                    \
        r / K == s && MAY_CREDIT(partial_used[r], partial_credit[r], LENGTH(r)) ->                 \
        credit(partial_used[r], partial_credit[r])                                                 \
    }
#define SOURCE_DONE(r)                                                                             \
    (r / K != s || (request_tail[r] == LENGTH(r) && partial_credit[r] == LENGTH(r)))

proctype source_coord(byte s) {
    byte n;

    do
    REQUEST_POST(0)
    PARTIAL_CREDIT(0)
#if RINGS > 1
    REQUEST_POST(1)
    PARTIAL_CREDIT(1)
#endif
#if RINGS > 2
    REQUEST_POST(2)
    PARTIAL_CREDIT(2)
#endif
#if RINGS > 3
    REQUEST_POST(3)
    PARTIAL_CREDIT(3)
#endif
    :: ALL_RINGS(SOURCE_DONE) -> break
    od
}

#define REQUEST_CREDITED(r)                                                                        \
    :: d_step {                                                                                    \
        GATEWAY(r) == g && MAY_CREDIT(request_in[r], request_credit[r], LENGTH(r)) ->              \
        credit(request_in[r], request_credit[r])                                                   \
    }
#define PARTIAL_POST(r)                                                                            \
    :: d_step {                                                                                    \
        GATEWAY(r) == g && MAY_POST(partial_out[r], BEGIN_P, partial_tail[r], LENGTH(r)) ->        \
        post(partial_out[r], BEGIN_P, partial_tail[r])                                             \
    }
#define GATEWAY_DONE(r)                                                                            \
    (GATEWAY(r) != g || (request_credit[r] == LENGTH(r) && partial_tail[r] == LENGTH(r)))

proctype gateway_coord(byte g) {
    byte n;

    do
    REQUEST_CREDITED(0)
    PARTIAL_POST(0)
#if RINGS > 1
    REQUEST_CREDITED(1)
    PARTIAL_POST(1)
#endif
#if RINGS > 2
    REQUEST_CREDITED(2)
    PARTIAL_POST(2)
#endif
#if RINGS > 3
    REQUEST_CREDITED(3)
    PARTIAL_POST(3)
#endif
    :: ALL_RINGS(GATEWAY_DONE) -> break
    od
}
#endif

/* ---- gateway warps ---- */

#define PARTIAL_SLOT(r, p) ((p) < partial_credit[r] + RING)
#if defined(NO_SLOT)
#define SLOT_OR_WAIT(r, p) true
#define SLOT_IF_WAITS(r, p) PARTIAL_SLOT(r, p)
#else
#define SLOT_OR_WAIT(r, p) PARTIAL_SLOT(r, p)
#define SLOT_IF_WAITS(r, p) true
#endif
#if LANDING
#define LANDED(i) (landed[i] > 0)
#else
#define LANDED(i) true
#endif

/* claim_try or claim_take of source_prepare, and gather_ask */
#define TAKE(r)                                                                                    \
    :: d_step {                                                                                    \
        held < AHEAD && GATEWAY(r) == g && taken[r] < request_tail[r] && SLOT_OR_WAIT(r, taken[r]) \
        ->                                                                                         \
        if                                                                                         \
        :: held == 0 -> ring0 = r; sum0 = taken[r]                                                 \
        :: else -> ring1 = r; sum1 = taken[r]                                                      \
        fi;                                                                                        \
        finish(request_in[r], taken[r], request_credit[r]); \
        taken[r]++;                                                                                \
        held++;                                                                                    \
        ask(me)                                                                                    \
    }
#define ALL_TAKEN(r) (GATEWAY(r) != g || taken[r] == LENGTH(r))
#if defined(WAIT_MORE)
#define MAY_SUM (held == AHEAD || ALL_RINGS(ALL_TAKEN))
#else
#define MAY_SUM true
#endif

inline ask(i) {
#if LANDING
    asked[i]++
#else
    skip
#endif
}

inline use_landed(i) {
#if LANDING
    landed[i]--
#else
    skip
#endif
}

proctype gateway(byte g; byte me) {
    byte held, ring0, sum0, ring1, sum1; /* requests that this warp has listed, the oldest first */

    do
    TAKE(0)
#if RINGS > 1
    TAKE(1)
#endif
#if RINGS > 2
    TAKE(2)
#endif
#if RINGS > 3
    TAKE(3)
#endif
    :: d_step { /* list_await, gather_token, source_finish: the oldest */
        held > 0 && LANDED(me) && SLOT_IF_WAITS(ring0, sum0) && MAY_SUM ->
        use_landed(me);
        finish(partial_out[ring0], sum0, partial_tail[ring0]);
        ring0 = ring1;
        sum0 = sum1;
        ring1 = 0;
        sum1 = 0;
        held--
    }
    :: held == 0 && ALL_RINGS(ALL_TAKEN) -> break
    od
}

/* ---- summers ---- */

#define LEFT(r)     (listed[r] < LENGTH(r))
#define SOME_LEFT   (LEFT(s * K) || LEFT(s * K + K - 1))
#define CAME(r, at) ((at) <= partial_tail[r])

#if defined(ANY_SUMMER)
#define NEXT_TURN 0
#else
#define NEXT_TURN ((turn[s] + 1) % SUMMERS)
#endif

/* The next token of the source: its rings and its summer. */
inline list_token() {
    if
    :: LEFT(s * K) -> listed[s * K]++; x = listed[s * K]
#if K > 1
    :: LEFT(s * K + 1) -> listed[s * K + 1]++; y = listed[s * K + 1]
    :: LEFT(s * K) && LEFT(s * K + 1) ->
        listed[s * K]++;
        listed[s * K + 1]++;
        x = listed[s * K];
        y = listed[s * K + 1]
#endif
    fi;
#if SUMMERS > 1 && defined(ANY_SUMMER)
    if
    :: turn[s] = 0
    :: turn[s] = 1
    fi;
#endif
    tokens[s * SUMMERS + turn[s]]!x, y;
    x = 0;
    y = 0;
    turn[s] = NEXT_TURN
}

inline next_token(a, b) {
    do
    :: empty(tokens[me - FIRST_SUMMER]) && SOME_LEFT -> list_token()
    :: empty(tokens[me - FIRST_SUMMER]) && !SOME_LEFT -> break
    :: nempty(tokens[me - FIRST_SUMMER]) -> tokens[me - FIRST_SUMMER]?a, b; ask(me); break
    od
}

inline sum_up(a, b) {
    if
    :: a -> finish(partial_used[s * K], a - 1, partial_credit[s * K])
    :: else
    fi;
    if
    :: b -> finish(partial_used[s * K + K - 1], b - 1, partial_credit[s * K + K - 1])
    :: else
    fi
}

#if defined(WAIT_YOUNGER)
#define YOUNGER_CAME (CAME(s * K, c) && CAME(s * K + K - 1, d))
#else
#define YOUNGER_CAME true
#endif

/* Summer `me - FIRST_SUMMER` of all; a, b: the oldest token's positions + 1 in the source's rings, or 0. */
proctype summer(byte s; byte me) {
    byte a, b, x, y;
#if defined(WAIT_YOUNGER)
    byte c, d;

    atomic { next_token(a, b); next_token(c, d) };
#else
    atomic { next_token(a, b) };
#endif
    do
    :: a == 0 && b == 0 -> break
    :: atomic {
        (a || b) && CAME(s * K, a) && CAME(s * K + K - 1, b) && LANDED(me) && YOUNGER_CAME ->
        sum_up(a, b);
        use_landed(me);
#if defined(WAIT_YOUNGER)
        a = c;
        b = d;
        c = 0;
        d = 0;
        next_token(c, d)
#else
        a = 0;
        b = 0;
        next_token(a, b)
#endif
    }
    od
}

/* ---- servers ---- */

#if LANDING
/* A server gives one row of a gatherer after another, in turns; here in any order, so that one stands for
 * all. It waits for nobody: the landing slot came with the request. That it ends by the count of rows is
 * not modelled. */
#define SERVE(i) :: d_step { asked[i] > 0 -> asked[i]--; landed[i]++; assert(landed[i] <= LANDING) }

proctype server() {
end_idle:
    do
    SERVE(0)
#if GATHERERS > 1
    SERVE(1)
#endif
#if GATHERERS > 2
    SERVE(2)
#endif
#if GATHERERS > 3
    SERVE(3)
#endif
    od
}
#endif

init {
    byte i;

    atomic {
#if !defined(PROMPT)
        for (i : 0 .. SOURCES - 1) {
            run source_coord(i)
        }
        for (i : 0 .. GATEWAYS - 1) {
            run gateway_coord(i)
        }
#endif
        for (i : 0 .. SOURCES * REQUESTERS - 1) {
            run requester(i / REQUESTERS, i % REQUESTERS)
        }
        for (i : 0 .. GATEWAYS * GATEWAY_WARPS - 1) {
            run gateway(i / GATEWAY_WARPS, i)
        }
        for (i : 0 .. SOURCES * SUMMERS - 1) {
            run summer(i / SUMMERS, FIRST_SUMMER + i)
        }
#if LANDING
        run server()
#endif
        i = 0
    }
}
