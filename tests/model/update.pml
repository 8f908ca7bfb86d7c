/* update.pml: what ranks of two nodes tell each other in update, several updates behind each other.
 *
 * Node 0 has ranks 0 and 1, node 1 has the others: one, which then serves both, or two (RANKS=4). Each buffer
 * holds the number of the update that its content is of; each reader asserts that it is its own.
 *
 * process     kernel role (file)
 * rank        route_exchange (route_exchange.cuh) and route_result (route_result.cuh), run by block 0; before
 *             them send_counts, and between them work of this rank alone
 * network     NIC: entries of a queue pair in order, those of different queue pairs in any
 *
 * What is left out, and why nothing is lost by it:
 * - The other blocks: they meet block 0 at grid barriers and touch nothing of other ranks.
 * - Counts and bases. Whose share crosses a budget is drawn by the destination, among the other ranks.
 * - A step that reads or writes several words waits for nothing in between.
 *
 * Known-bad variants, which the check must find:
 * ONE_TABLE       counts_table is not double
 * LOOK_LATER      a gateway finds out whose share crosses from counts_in when it forwards, not before it
 *                 sends the bases
 * NO_ORDER        the third trip's counts are awaited before the own ones are sent */
#ifndef RANKS
#define RANKS 3
#endif
#ifndef UPDATES
#define UPDATES 2
#endif
#ifndef CROSSING
#define CROSSING 1 /* 0: nobody's share crosses a budget */
#endif
#define NOBODY RANKS

#define NODE(r) ((r) / 2)
#if RANKS == 3
#define GATEWAY(r) ((r) == 2 -> 0 : 2) /* of source r in the other node */
#else
#define GATEWAY(r) (((r) + 2) % 4)
#endif
/* The rank of d's node that brings the rows of s. */
#define BRINGS(s, d) (NODE(s) == NODE(d) -> (s) : GATEWAY(s))

mtype = { COUNTS, FIX };
chan forth[RANKS] = [4] of { mtype, byte }; /* of a source to its gateway: which, number of the update */
chan back[RANKS] = [2] of { byte };         /* of the gateway to the source: bases */

/* At the gateway of a source. */
byte counts_in[RANKS], counts_tail[RANKS], counts_seen[RANKS];
byte overflow_in[RANKS], overflow_tail[RANKS], overflow_seen[RANKS];
bool crossing[RANKS * RANKS]; /* source * RANKS + destination: noted */
/* At a source. */
byte bases_in[RANKS], bases_tail[RANKS], bases_seen[RANKS];
/* At a destination; second index: the source, or the local rank that says so. */
#define AT(d, s) ((d) * RANKS + (s))
#if defined(ONE_TABLE)
#define TABLE(u, d, s) AT(d, s)
#else
#define TABLE(u, d, s) ((u) % 2 * RANKS * RANKS + AT(d, s))
#endif
byte counts_table[2 * RANKS * RANKS];
byte counts_ready[RANKS * RANKS], base_ready[RANKS * RANKS];
byte overflow_table[RANKS * RANKS], overflow_ready[RANKS * RANKS];
byte crosses[RANKS]; /* the source whose share crosses the budget of a destination */
/* At the rank that brings the rows of a source. */
byte bases_of[RANKS * RANKS]; /* destination, source */

proctype network(byte s) {
    mtype kind;
    byte u;

end_idle:
    do
    :: d_step {
        forth[s]?kind, u;
        if
        :: kind == COUNTS -> counts_in[s] = u; counts_tail[s]++
        :: else -> overflow_in[s] = u; overflow_tail[s]++
        fi;
        kind = 0;
        u = 0
    }
    :: d_step { back[s]?u -> bases_in[s] = u; bases_tail[s]++; u = 0 }
    od
}

#define LOCAL(r)  (NODE(r) == NODE(me))
#define SERVES(s) (NODE(s) != NODE(me) && GATEWAY(s) == me)
#define ALL_RANKS(what) (what(0) && what(1) && what(2) && what(RANKS - 1))

#define COUNTS_CAME(s)  (!SERVES(s) || counts_tail[s] > counts_seen[s])
#define COUNTS_READY(r) (!LOCAL(r) || counts_ready[AT(me, r)] == u)
#define BASE_READY(r)   (!LOCAL(r) || base_ready[AT(me, r)] == u)
#if defined(LOOK_LATER)
#define CROSSES_BUDGET(s, d) (crosses[d] == s)
#else
#define CROSSES_BUDGET(s, d) (crossing[AT(s, d)])
#endif
#define FIX_DUE(s)                                                                                 \
    (SERVES(s) && ((LOCAL(0) && CROSSES_BUDGET(s, 0)) || (LOCAL(1) && CROSSES_BUDGET(s, 1)) ||     \
                   (LOCAL(2) && CROSSES_BUDGET(s, 2)) || (LOCAL(RANKS - 1) && CROSSES_BUDGET(s, RANKS - 1))))
#define FIX_CAME(s) (!FIX_DUE(s) || overflow_tail[s] > overflow_seen[s])

inline send_counts() {
    forth[me]!COUNTS, u;
    for (d : 0 .. RANKS - 1) {
        if
        :: LOCAL(d) -> counts_table[TABLE(u, d, me)] = u
        :: else
        fi
    }
}

inline forward_counts() {
    for (s : 0 .. RANKS - 1) {
        if
        :: SERVES(s) ->
            counts_seen[s]++;
            assert(counts_in[s] == u);
            for (d : 0 .. RANKS - 1) {
                if
                :: LOCAL(d) -> counts_table[TABLE(u, d, s)] = u
                :: else
                fi
            }
        :: else
        fi
    }
}

inline tell_counts_ready() {
    for (d : 0 .. RANKS - 1) {
        if
        :: LOCAL(d) -> counts_ready[AT(d, me)] = u
        :: else
        fi
    }
}

inline tell_base_ready() {
    for (d : 0 .. RANKS - 1) {
        if
        :: LOCAL(d) -> base_ready[AT(d, me)] = u
        :: else
        fi
    }
}

inline send_bases() {
    for (s : 0 .. RANKS - 1) {
        assert(counts_table[TABLE(u, me, s)] == u);
        bases_of[AT(me, s)] = u
    }
}

inline forward_bases() {
    for (s : 0 .. RANKS - 1) {
        if
        :: SERVES(s) ->
            for (d : 0 .. RANKS - 1) {
                if
                :: LOCAL(d) ->
                    assert(bases_of[AT(d, s)] == u);
                    crossing[AT(s, d)] = crosses[d] == s
                :: else
                fi
            };
            back[s]!u
        :: s == me ->
            for (d : 0 .. RANKS - 1) {
                assert(!LOCAL(d) || bases_of[AT(d, s)] == u)
            }
        :: else
        fi
    }
}

inline send_overflow_counts() {
    any = false;
    for (d : 0 .. RANKS - 1) {
        if
        :: crosses[d] == me && LOCAL(d) ->
            overflow_table[AT(d, me)] = u;
            overflow_ready[AT(d, me)] = u
        :: crosses[d] == me && !LOCAL(d) -> any = true
        :: else
        fi
    };
    if
    :: any -> forth[me]!FIX, u
    :: else
    fi;
    any = false
}

inline forward_overflow_counts() {
    for (s : 0 .. RANKS - 1) {
#if defined(LOOK_LATER)
        assert(!SERVES(s) || counts_in[s] == u);
#endif
        if
        :: FIX_DUE(s) ->
            overflow_seen[s]++;
            assert(overflow_in[s] == u);
            for (d : 0 .. RANKS - 1) {
                if
                :: LOCAL(d) && CROSSES_BUDGET(s, d) ->
                    overflow_table[AT(d, me)] = u;
                    overflow_ready[AT(d, me)] = u;
                    crossing[AT(s, d)] = false
                :: else
                fi
            }
        :: else
        fi
    }
}

/* The counts of this update are still there when the result is stored. */
inline store_result() {
    for (s : 0 .. RANKS - 1) {
        assert(counts_table[TABLE(u, me, s)] == u)
    }
}

#define MINE           crosses[me]
#define FIX_READY      (MINE == NOBODY || overflow_ready[AT(me, BRINGS(MINE, me))] == u)

proctype rank(byte me) {
    byte u, s, d;
    bool any;

    for (u : 1 .. UPDATES) {
        d_step { send_counts(); s = 0; d = 0 };
        d_step { ALL_RANKS(COUNTS_CAME) -> forward_counts(); tell_counts_ready(); s = 0; d = 0 };
        ALL_RANKS(COUNTS_READY);
        atomic { /* whose share crosses this rank's budget */
            if
            :: MINE = NOBODY
#if CROSSING > 0
            :: me != 0 -> MINE = 0
            :: me != 1 -> MINE = 1
            :: me != 2 -> MINE = 2
#if RANKS > 3
            :: me != 3 -> MINE = 3
#endif
#endif
            fi;
            d_step { send_bases(); tell_base_ready(); s = 0; d = 0 }
        };
        d_step { ALL_RANKS(BASE_READY) -> forward_bases(); s = 0; d = 0 };
        d_step {
            bases_tail[me] > bases_seen[me] ->
            bases_seen[me]++;
            assert(bases_in[me] == u)
        };
#if defined(NO_ORDER)
        d_step { ALL_RANKS(FIX_CAME) -> forward_overflow_counts(); s = 0; d = 0 };
        FIX_READY;
        d_step { send_overflow_counts(); s = 0; d = 0 };
#else
        d_step { send_overflow_counts(); s = 0; d = 0 };
        d_step { ALL_RANKS(FIX_CAME) -> forward_overflow_counts(); s = 0; d = 0 };
        FIX_READY;
#endif
        d_step {
            assert(MINE == NOBODY || overflow_table[AT(me, BRINGS(MINE, me))] == u);
            store_result();
            s = 0;
            d = 0
        }
    }
}

init {
    byte i;

    atomic {
        for (i : 0 .. RANKS - 1) {
            run network(i)
        }
        for (i : 0 .. RANKS - 1) {
            run rank(i)
        }
        i = 0
    }
}
