/* ring.pml: positions, windows and hold-back of chunks, as in kernels/common/ring.cuh; included by the models.
 *
 * Positions count from 0 at the begin of the call. Nothing but the ring's end depends on where in its ring a
 * call begins: `begin`. A window is a mask of RING bits instead of 64: positions of one end that are finished
 * and not yet passed on lie within one ring, which `finish` asserts. */
#ifndef RING
#define RING 2 /* slots of a network ring, at most 4 */
#endif
#ifndef CHUNK
#define CHUNK 1 /* slots sent, or credited, together */
#endif

#define BIT(p)              (1 << ((p) % RING))
#define FINISHED(window, p) ((window & BIT(p)) != 0)

/* slots_to_post: are n finished slots from `sent` on enough? A chunk is, and so is what is left until the
 * ring's end or `end`, the end of the call. At the begin of a call of at least a chunk: one slot, then as
 * many as before. */
#define POST_ENOUGH(begin, sent, n, end)                                                           \
    (n >= CHUNK || (begin + sent + n) % RING == 0 || sent + n == end ||                            \
     (sent < CHUNK && end >= CHUNK && n >= sent))
/* Credit: a whole chunk, or all that is left. */
#define CREDIT_ENOUGH(from, n, end) (n >= CHUNK || from + n == end)

#define POST_1(window, begin, sent, end)                                                           \
    (FINISHED(window, sent) && POST_ENOUGH(begin, sent, 1, end))
#define CREDIT_1(window, from, end) (FINISHED(window, from) && CREDIT_ENOUGH(from, 1, end))
#if CHUNK == 1
#define MAY_POST   POST_1
#define MAY_CREDIT CREDIT_1
#elif CHUNK == 2
#define MAY_POST(window, begin, sent, end)                                                         \
    (POST_1(window, begin, sent, end) || (FINISHED(window, sent) && FINISHED(window, sent + 1)))
#define MAY_CREDIT(window, from, end)                                                              \
    (CREDIT_1(window, from, end) || (FINISHED(window, from) && FINISHED(window, from + 1)))
#else
#error "chunks of 1 and 2"
#endif

/* PROMPT: coordinators pass on at once what is finished, in the step that finishes it, so that there are no
 * coordinators. With chunks of 1 this loses no state in which everything stands still: what a coordinator may
 * do it may do until it does it, and nothing that anybody waits for becomes false by it. So the other steps
 * of a run with late coordinators are possible with prompt ones, and lead to the same standstill. */
#if defined(PROMPT) && CHUNK > 1
#error "PROMPT needs chunks of 1"
#endif

/* A warp has finished slot `p`: mask_finish_in_block. No window overflows. */
inline finish(window, p, passed_on) {
    assert(!FINISHED(window, p));
    window = window | BIT(p);
#if defined(PROMPT)
    do
    :: FINISHED(window, passed_on) ->
        window = window & ~BIT(passed_on);
        passed_on++
    :: else -> break
    od;
#endif
    skip
}

/* A coordinator posts a run of finished slots: a chunk at most, not beyond the ring's end. n is 0 before and
 * after. */
inline post(window, begin, sent) {
    do
    :: n < CHUNK && FINISHED(window, sent + n) && (n == 0 || (begin + sent + n) % RING != 0) ->
        window = window & ~BIT(sent + n);
        n++
    :: else -> break
    od;
    sent = sent + n;
    n = 0
}

/* A coordinator credits the whole run. */
inline credit(window, from) {
    do
    :: n < RING && FINISHED(window, from + n) ->
        window = window & ~BIT(from + n);
        n++
    :: else -> break
    od;
    from = from + n;
    n = 0
}

#if RINGS == 1
#define ALL_RINGS(what) (what(0))
#elif RINGS == 2
#define ALL_RINGS(what) (what(0) && what(1))
#elif RINGS == 3
#define ALL_RINGS(what) (what(0) && what(1) && what(2))
#else
#define ALL_RINGS(what) (what(0) && what(1) && what(2) && what(3))
#endif
