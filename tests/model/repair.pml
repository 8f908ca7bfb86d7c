/* repair.pml: two hosts connect the queue pairs between their ranks anew.
 *
 * Two ranks, one link each way between them, each with one queue pair at either end, all repaired together. Each
 * rank repairs when it finds its end in error, or is asked, and again when it has given up: FAILS times in all,
 * at any moment, with or without a STOP that says so. A rank that is through posts an add, before its peer is
 * through, too. In the end nobody has anything left to repair: then both ends must be connected to each other
 * as they are now, and each count of adds must equal the word that they went to.
 *
 * process     host code (file)
 * rank swl_qp_recovery_begin, swl_qp_recovery_on_message, swl_qp_recovery_step, stop (src/failure/qp_recovery.c), and who calls them
 * network the NIC: adds that are under way come, until the end that they go to is reset
 *
 * What is left out, and why nothing is lost by it:
 * - More links of a pair: they take the same steps one after the other.
 * - More pairs of a rank: a pair waits for none of the others; a rank is through when all its pairs are.
 * - Sends that find no room are tried again: as a rank that is late.
 * - The end of a process: its connection ends, and the wait with it.
 *
 * Known-bad variants, which the check must find:
 * ANY_ROUND       messages of other rounds are not ignored
 * READ_FIRST      the words are read before the own end is reset
 * FIRST_ASK_COUNTS  of several ASKs of a round, the first says for all whether the peer has an end in error
 * STOP_STAYS      a STOP counts although its rank has begun a new round since
 * NO_ASK_AGAIN    a rank that hears of a newer round does not say ASK again */
#ifndef FAILS
#define FAILS 1
#endif
#define DEEP 8 /* messages under way */

mtype = { ASK, ADDRESS, WORDS, STOP };
chan to[2] = [DEEP] of { mtype, byte, byte, byte }; /* kind, round, round heard of the peer, value */

/* Of a rank, as in struct pair and struct link. */
byte round[2], heard[2], answered[2];
bool broken[2], theirs_broken[2], ask[2], agreed[2], is_reset[2], done[2], stopped[2];
bool address_sent[2], connected[2], told[2], adopted[2], has_theirs[2], dirty[2];
byte mine[2], theirs[2]; /* addresses: how often that end has been reset */
byte words[2];           /* READ_FIRST: the word when the round began */

bool repairing[2], again[2], in_error[2];
byte with[2];            /* the address that the own end is connected to */
byte posted[2];          /* adds that rank i counts as made */
byte under_way[2];       /* of these */
byte landed[2];          /* the word at its peer */
bool posts[2];           /* has posted since the failure */
byte fails;

/* The peer's word that rank i's adds go to is landed[i]. */
proctype network(byte i) {
end_idle:
    do
    :: d_step { under_way[i] > 0 -> under_way[i]--; landed[i]++ }
    od
}

inline start_pair() {
    ask[i] = true;
    agreed[i] = false;
    is_reset[i] = false;
    done[i] = false;
    address_sent[i] = false;
    connected[i] = false;
    told[i] = false;
    adopted[i] = false;
    has_theirs[i] = false;
    theirs[i] = 0;
    broken[i] = broken[i] || dirty[i]
}

inline begin() {
    round[i]++;
    assert(round[i] <= 2 * FAILS + 2); /* one that gave up costs its peer a round at most */
#if defined(READ_FIRST)
    words[i] = landed[1 - i];
#endif
    repairing[i] = true;
    again[i] = false;
    stopped[i] = false;
    broken[i] = in_error[i];
    start_pair();
    answered[i] = heard[i]
}

/* With STOP or, if nothing is heard of it, without: as if it came too late. */
inline give_up() {
    repairing[i] = false;
    again[i] = true;
    stopped[i] = false
}

#if defined(ANY_ROUND)
#define OF_THESE_ROUNDS repairing[i]
#else
#define OF_THESE_ROUNDS (repairing[i] && a == heard[i] && b == round[i])
#endif

inline hear() {
    to[i]?kind, a, b, v;
    if
    :: kind == ASK ->
        if
        :: a > heard[i] ->
            heard[i] = a;
            theirs_broken[i] = v;
            if
            :: repairing[i] ->
                start_pair();
#if !defined(STOP_STAYS)
                stopped[i] = false;
#endif
#if defined(NO_ASK_AGAIN)
                ask[i] = false;
#endif
                answered[i] = heard[i]
            :: else
            fi
        :: else
        fi;
#if !defined(FIRST_ASK_COUNTS)
        theirs_broken[i] = theirs_broken[i] || (a == heard[i] && v);
#endif
        if
        :: repairing[i] && b == round[i] -> agreed[i] = true
        :: else
        fi
    :: kind != ASK && OF_THESE_ROUNDS ->
        if
        :: kind == STOP -> stopped[i] = true
        :: kind == ADDRESS -> theirs[i] = v; has_theirs[i] = true
        :: kind == WORDS && !adopted[i] -> posted[i] = v; adopted[i] = true
        :: else
        fi
    :: else
    fi;
    kind = 0;
    a = 0;
    b = 0;
    v = 0
}

#define AGREED (repairing[i] && !done[i] && !stopped[i] && agreed[i] && !ask[i])
#define MENDS  (AGREED && (broken[i] || theirs_broken[i]))
#define WANTS(r) (again[r] || in_error[r] || heard[r] > answered[r])
#define QUIET(r) (!repairing[r] && !WANTS(r) && empty(to[r]))

proctype rank(byte i) {
    mtype kind;
    byte a, b, v;
    byte y = 1 - i;

    do
    :: d_step { nempty(to[i]) -> hear() }
    :: d_step { !repairing[i] && WANTS(i) -> begin() }
    /* swl_qp_recovery_step */
    :: d_step { repairing[i] && stopped[i] && nfull(to[y]) -> give_up(); to[y]!STOP, round[i], heard[i], 0 }
    :: d_step { repairing[i] && !stopped[i] && !done[i] && ask[i] && nfull(to[y]) ->
        to[y]!ASK, round[i], heard[i], broken[i];
        ask[i] = false
    }
    :: d_step { AGREED && !broken[i] && !theirs_broken[i] -> done[i] = true }
    :: d_step { MENDS && !is_reset[i] ->
        dirty[i] = true;
        mine[i]++;
        in_error[i] = false;
        under_way[y] = 0; /* what comes later is for an end that is no more */
        is_reset[i] = true
    }
    :: d_step { MENDS && is_reset[i] && !address_sent[i] && nfull(to[y]) ->
        to[y]!ADDRESS, round[i], heard[i], mine[i];
        address_sent[i] = true
    }
    :: d_step { MENDS && address_sent[i] && has_theirs[i] && !connected[i] ->
        with[i] = theirs[i];
        connected[i] = true
    }
    :: d_step { MENDS && connected[i] && !told[i] && nfull(to[y]) ->
#if defined(READ_FIRST)
        to[y]!WORDS, round[i], heard[i], words[i];
#else
        to[y]!WORDS, round[i], heard[i], landed[y];
#endif
        told[i] = true
    }
    :: d_step { MENDS && told[i] && adopted[i] -> done[i] = true; dirty[i] = false }
    :: d_step { repairing[i] && done[i] -> repairing[i] = false }
    /* the limit */
    :: d_step { repairing[i] && fails > 0 && nfull(to[y]) ->
        fails--;
        give_up();
        to[y]!STOP, round[i], heard[i], 0
    }
    :: d_step { repairing[i] && fails > 0 -> fails--; give_up() }
    /* the next kernel; an add reaches the end that this one is connected to */
    :: d_step { !repairing[i] && !WANTS(i) && !posts[i] ->
        posts[i] = true;
        posted[i]++;
        if
        :: with[i] == mine[y] -> under_way[i]++
        :: else -> in_error[i] = true
        fi
    }
    :: d_step { QUIET(0) && QUIET(1) && posts[0] && posts[1] ->
        assert(with[i] == mine[y]);
        assert(posted[i] == landed[i] + under_way[i])
    }; break
    od
}

init {
    atomic {
        fails = FAILS;
        in_error[0] = true;
        if
        :: in_error[1] = true
        :: skip
        fi;
        /* an add of each rank is under way, one of rank 0 is lost */
        posted[0] = 2;
        under_way[0] = 1;
        posted[1] = 1;
        under_way[1] = 1;
        run network(0);
        run network(1);
        run rank(0);
        run rank(1)
    }
}
