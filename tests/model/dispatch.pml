/* dispatch.pml: flow control of dispatch between nodes.
 *
 * Every source has K rings, ring r = source * K + k. Its gateway is rank k % GATEWAYS of the others: with
 * GATEWAYS == K the rings of a source lead to different nodes, with GATEWAYS == 1 to one. Each gateway shares
 * out what arrives over RECEIVERS ranks of its node. A ring has `LENGTH(r)` entries.
 *
 * proctype        kernel role (file)
 * sender          ht_dispatch_send (ht_dispatch_send.cuh); claims with room_take (channel.cuh)
 * send_coord      ht_dispatch_send_coord (ht_dispatch_send.cuh)
 * forwarder       ht_dispatch_forward (ht_dispatch_forward.cuh), rows with row_write (row_writer.cuh)
 * forward_coord   ht_dispatch_forward_coord (ht_dispatch_forward.cuh)
 * receiver        ht_dispatch_receive (ht_dispatch_receive.cuh)
 *
 * What is left out, and why nothing is lost by it:
 * - Payload, headers, addresses. No wait depends on them.
 * - The network. A count arrives when it is posted: a later arrival looks the same as a coordinator that
 *   posts later, and coordinators of the model post whenever they like, ring by ring in any order.
 * - Calls before and after. A ring is empty between calls; credit of the last call that is still on its way,
 *   and a gateway that has not begun, look the same as roles that are late. BEGIN is where the call begins.
 * - The ranks that want a row are drawn when its slot is taken, in every possible way.
 * - When rows are published: a forwarder may publish whenever it is between rows, and need not before it
 *   waits for credit. The kernel's marks are one choice of that.
 * - Writer warps (ht_dispatch_write.cuh): forwarders whose slots are always there, with local rings of their
 *   own.
 * - A receiver gives credit back in the step in which it takes a record. Giving it later, but before it
 *   waits, leads to the same standstills; see PROMPT in ring.pml. That it ends by the count of rows is not
 *   modelled.
 * - Faults and limits: the model has none, so that whatever would end by a limit stops for ever here.
 *
 * Other orders, and known-bad variants, which the check must find:
 * ROUNDS          a sender warp takes the items of a channel round by round over its rings
 * RING_BY_RING    a forwarder warp takes the slots of one ring before those of the next; bad with ROUNDS
 * NO_FLUSH        a forwarder waits for local credit with rows that it has not published */
#ifndef SOURCES
#define SOURCES 1
#endif
#ifndef K
#define K 2
#endif
#ifndef GATEWAYS
#define GATEWAYS 1
#endif
#ifndef SENDERS
#define SENDERS 1 /* warps of a source */
#endif
#ifndef FORWARDERS
#define FORWARDERS 1 /* warps of a gateway */
#endif
#ifndef RECEIVERS
#define RECEIVERS 1 /* ranks of a gateway's node, 1 or 2 */
#endif
#ifndef LINK
#define LINK 2 /* slots of a local ring */
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
#ifndef BEGIN
#define BEGIN 0
#endif
#define RINGS (SOURCES * K) /* at most 4 */
#define LINKS (GATEWAYS * FORWARDERS * 2)

#include "ring.pml"

#define LENGTH(r)  ((r) == 0 -> L0 : ((r) == 1 -> L1 : ((r) == 2 -> L2 : L3)))
#define GATEWAY(r) (((r) % K) % GATEWAYS)

byte claimed[RINGS];     /* claim word of senders */
byte out_mask[RINGS];
byte recv_tail[RINGS];   /* posted, hence arrived */
byte taken[RINGS];       /* claim word of forwarders */
byte in_mask[RINGS];
byte send_credit[RINGS]; /* credited, hence free */

/* Local ring of forwarder w to receiver d of its node: w * 2 + d. */
byte held[LINKS];      /* written, not published */
byte published[LINKS]; /* not yet taken */

/* ---- senders ---- */

#define SEND_CREDIT(r, p) ((p) < send_credit[r] + RING)
#define MAY_SEND(r)       (claimed[r] < LENGTH(r) && SEND_CREDIT(r, claimed[r]))

proctype sender(byte s; byte index) {
#if defined(ROUNDS)
    byte item = index, r;

    do
    :: item < K * L0 ->
        r = s * K + item % K;
        if
        :: item / K < LENGTH(r) ->
            d_step {
                SEND_CREDIT(r, item / K);
                finish(out_mask[r], item / K, recv_tail[r])
            }
        :: else
        fi;
        item = item + SENDERS
    :: else -> break
    od
#else
    byte r, p;

    do
#if SENDERS == 1 /* nobody else sees the position between claim and finish */
    :: d_step {
        MAY_SEND(s * K) ->
        finish(out_mask[s * K], claimed[s * K], recv_tail[s * K]);
        claimed[s * K]++
    }
#if K > 1
    :: d_step {
        MAY_SEND(s * K + 1) ->
        finish(out_mask[s * K + 1], claimed[s * K + 1], recv_tail[s * K + 1]);
        claimed[s * K + 1]++
    }
#endif
#else
    :: d_step { MAY_SEND(s * K) -> r = s * K; p = claimed[r]; claimed[r]++ };
        d_step { finish(out_mask[r], p, recv_tail[r]); r = 0; p = 0 }
#if K > 1
    :: d_step { MAY_SEND(s * K + 1) -> r = s * K + 1; p = claimed[r]; claimed[r]++ };
        d_step { finish(out_mask[r], p, recv_tail[r]); r = 0; p = 0 }
#endif
#endif
    :: claimed[s * K] == LENGTH(s * K) && claimed[s * K + K - 1] == LENGTH(s * K + K - 1) -> break
    od
#endif
}

/* ---- coordinators ---- */

#if !defined(PROMPT)
#define SEND_POST(r)                                                                               \
    :: d_step {                                                                                    \
        r / K == s && MAY_POST(out_mask[r], BEGIN, recv_tail[r], LENGTH(r)) ->                   \
        post(out_mask[r], BEGIN, recv_tail[r])                                                   \
    }
#define SEND_DONE(r) (r / K != s || recv_tail[r] == LENGTH(r))

proctype send_coord(byte s) {
    byte n;

    do
    SEND_POST(0)
#if RINGS > 1
    SEND_POST(1)
#endif
#if RINGS > 2
    SEND_POST(2)
#endif
#if RINGS > 3
    SEND_POST(3)
#endif
    :: ALL_RINGS(SEND_DONE) -> break
    od
}

#define FORWARD_CREDIT(r)                                                                          \
    :: d_step {                                                                                    \
        GATEWAY(r) == g && MAY_CREDIT(in_mask[r], send_credit[r], LENGTH(r)) ->                  \
        credit(in_mask[r], send_credit[r])                                                       \
    }
#define FORWARD_DONE(r) (GATEWAY(r) != g || send_credit[r] == LENGTH(r))

proctype forward_coord(byte g) {
    byte n;

    do
    FORWARD_CREDIT(0)
#if RINGS > 1
    FORWARD_CREDIT(1)
#endif
#if RINGS > 2
    FORWARD_CREDIT(2)
#endif
#if RINGS > 3
    FORWARD_CREDIT(3)
#endif
    :: ALL_RINGS(FORWARD_DONE) -> break
    od
}
#endif

/* ---- forwarders ---- */

#define ALL_TAKEN(r) (GATEWAY(r) != g || taken[r] == LENGTH(r))

#define TAKE(r)                                                                                    \
    :: d_step { GATEWAY(r) == g && taken[r] < recv_tail[r] && MY_TURN(r) ->                        \
        ring = r;                                                                                  \
        position = taken[r];                                                                       \
        taken[r]++                                                                                 \
    };                                                                                             \
        forward()
#if defined(RING_BY_RING) /* for four rings; every gateway begins with another source */
#define PLACE(r)    ((r / K + SOURCES - g) % SOURCES)
#define AFTER(r, q) (GATEWAY(q) != g || PLACE(q) >= PLACE(r) || taken[q] == LENGTH(q))
#define MY_TURN(r)  (AFTER(r, 0) && AFTER(r, 1) && AFTER(r, 2) && AFTER(r, 3))
#else
#define MY_TURN(r) true
#endif

#define TO(w, d)      ((w) * 2 + (d))
#define HAS_ROOM(l)   (held[l] + published[l] < LINK)
#define FITS(set)     ((!(set & 1) || HAS_ROOM(TO(w, 0))) && (!(set & 2) || HAS_ROOM(TO(w, 1))))
#define HOLDS_ROWS(w) (held[TO(w, 0)] + held[TO(w, 1)] > 0)

/* row_write_flush */
inline flush() {
    published[TO(w, 0)] = published[TO(w, 0)] + held[TO(w, 0)];
    published[TO(w, 1)] = published[TO(w, 1)] + held[TO(w, 1)];
    held[TO(w, 0)] = 0;
    held[TO(w, 1)] = 0
}

/* forward_slot: the ranks that want the row; row_write_open and row_write; the slot is free. */
inline forward() {
    atomic {
        if
        :: set = 1
#if RECEIVERS > 1
        :: set = 2
        :: set = 3
#endif
        fi;
#if !defined(NO_FLUSH)
        if
        :: !FITS(set) -> flush()
        :: else
        fi
#endif
    };
    d_step {
        FITS(set) ->
        held[TO(w, 0)] = held[TO(w, 0)] + (set & 1);
        held[TO(w, 1)] = held[TO(w, 1)] + set / 2;
        finish(in_mask[ring], position, send_credit[ring]);
        ring = 0;
        position = 0;
        set = 0
    }
}

proctype forwarder(byte g; byte w) {
    byte ring, position, set;

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
    :: d_step { HOLDS_ROWS(w) -> flush() } /* marks, claim_idle */
    :: !HOLDS_ROWS(w) && ALL_RINGS(ALL_TAKEN) -> break /* behind row_write_end */
    od
}

/* ---- receivers ---- */

#define RECEIVE(l)                                                                                 \
    :: d_step { l % 2 == d && l / 2 / FORWARDERS == g && published[l] > 0 -> published[l]-- }

proctype receiver(byte g; byte d) {
end_idle:
    do
    RECEIVE(0)
    RECEIVE(1)
#if LINKS > 2
    RECEIVE(2)
    RECEIVE(3)
#endif
#if LINKS > 4
    RECEIVE(4)
    RECEIVE(5)
    RECEIVE(6)
    RECEIVE(7)
#endif
    od
}

init {
    byte i;

    atomic {
#if !defined(PROMPT)
        for (i : 0 .. SOURCES - 1) {
            run send_coord(i)
        }
        for (i : 0 .. GATEWAYS - 1) {
            run forward_coord(i)
        }
#endif
        for (i : 0 .. SOURCES * SENDERS - 1) {
            run sender(i / SENDERS, i % SENDERS)
        }
        for (i : 0 .. GATEWAYS * FORWARDERS - 1) {
            run forwarder(i / FORWARDERS, i)
        }
        for (i : 0 .. GATEWAYS * RECEIVERS - 1) {
            run receiver(i / RECEIVERS, i % RECEIVERS)
        }
        i = 0
    }
}
