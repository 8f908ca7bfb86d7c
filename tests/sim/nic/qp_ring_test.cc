// Tests of transport/qp.cuh over a completion queue that is a ring of two, as verbs make it: a
// scripted device takes the entries and writes their completions, by ones or by many.
#include "tests/support/nic_fixture.h"

namespace
{

// The device's end of one queue pair and what a run asks of both ends.
struct ring_job {
    nic_world *w;
    struct swl_qp *qp; // the poster's view
    uint32_t *cq;      // two completions
    uint64_t first, entries, fails_at;
    uint32_t step;    // entries that the device takes without a pause
    uint32_t posters; // 1: qp_…, more: qp_shared_…, a block each
};

uint32_t failures;

struct waiter here(const nic_rank &k)
{
    return {&k.watch, SWL_FAULT_QUEUE, SWL_WARP_NONE, 0, 1};
}

bool post_one(const ring_job *j, uint64_t i)
{
    nic_rank &me = j->w->rank[0];

    if (j->posters > 1)
        return qp_shared_write(j->qp, here(me), qp_local(me.data(8), 1, 8), {2, 3});
    return qp_write(j->qp, here(me), qp_local(me.data(8), 1, 8), {2, 3}) &&
           (i % 5 != 0 || qp_poll(j->qp, here(me)));
}

void post(const void *arg)
{
    const ring_job *j = static_cast<const ring_job *>(arg);
    nic_rank &me = j->w->rank[0];
    const uint64_t each = j->entries / j->posters;
    bool ok = true;

    if (lane_id() != 0)
        return;
    for (uint64_t i = 0; ok && i < each; i++) {
        ok = post_one(j, i);
        if (i % 3 == 0 && j->posters > 1)
            qp_shared_ring(j->qp);
        else if (i % 3 == 0)
            qp_ring(j->qp);
    }
    if (!ok || !(j->posters > 1 ? qp_shared_flush(j->qp, here(me)) : qp_flush(j->qp, here(me))))
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

// The completion of entry i takes the place that i names.
void complete(const ring_job *j, uint64_t i)
{
    struct swl_cqe c;

    swl_cqe_make(&c, i, SWL_WQE_WRITE, j->qp->qpn,
                 i < j->fails_at    ? SWL_SYNDROME_NONE
                 : i == j->fails_at ? SWL_SYNDROME_REMOTE_ACCESS
                                    : SWL_SYNDROME_FLUSHED);
    uint32_t *at = j->cq + (i & 1) * (SWL_CQE_BYTES / 4);
    /* pairs with read_completion */
    publish_to_peer(at + SWL_CQE_SYNDROME_WORD, c.word[SWL_CQE_SYNDROME_WORD]);
    publish_to_peer(at + SWL_CQE_LAST_WORD, c.word[SWL_CQE_LAST_WORD]);
}

// Entry i must be there, whole.
void take(const ring_job *j, uint64_t i)
{
    const uint64_t depth = 1ull << j->qp->depth_log2;
    struct swl_wqe w;

    memcpy(&w, j->qp->sq + (i & (depth - 1)) * SWL_WQE_BYTES, sizeof(w));
    if (swl_wqe_index(&w) != (i & 0xffff) || swl_wqe_qpn(&w) != j->qp->qpn)
        __atomic_fetch_add(&failures, 100, __ATOMIC_RELAXED);
    complete(j, i);
}

void device(const void *arg)
{
    const ring_job *j = static_cast<const ring_job *>(arg);
    nic_rank &me = j->w->rank[1];
    const uint64_t last = j->fails_at == UINT64_MAX ? j->first + j->entries : j->fails_at + 1;
    uint64_t at = j->first;

    if (lane_id() != 0 || block_id() != 0)
        return;
    while (at < last) {
        const uint64_t value = read_doorbell(j->qp->doorbell);
        const uint64_t end =
            value == 0 ? at : swl_index_after(at, swl_doorbell_index(value)); // 0: never rung

        for (uint32_t n = 0; at < end && n < j->step; n++)
            take(j, at++);
        if (at == end && at < last &&
            !wait_again({&me.watch, SWL_FAULT_ARRIVAL, SWL_WARP_NONE, 0, 0}, last, at,
                        SWL_PAUSE("test: doorbell", 0, 0)))
            return;
    }
}

// Completions come by `stall`, and a look finds all of them: also one that begins at an older
// count.
void look_after(const void *arg)
{
    const ring_job *j = static_cast<const ring_job *>(arg);
    uint64_t done = j->first, last = j->first;
    uint32_t syndrome;

    for (int round = 0; lane_id() == 0 && round < 12; round++) {
        for (uint32_t i = 0; i < j->step; i++)
            complete(j, last++);
        const uint64_t older = qp_completed(j->qp, done, &syndrome);

        done = qp_completed(j->qp, older, &syndrome);
        if (older != last || done != last || syndrome != 0)
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    }
}

struct ring_case {
    uint64_t entries, fails_at;
    uint32_t step, posters;
} ask;

void ring_of_two(nic_world &w)
{
    ring_job j = {&w,          &w.rank[0].qps[0], nullptr,  w.options.first_index,
                  ask.entries, UINT64_MAX,        ask.step, ask.posters};
    const uint64_t sq_bytes = w.options.depth * 64ull;
    struct swl_qp v = {};
    uint8_t *memory = nullptr;

    ASSERT_EQ(swl_gpu_malloc(reinterpret_cast<void **>(&memory), sq_bytes + 256), cudaSuccess);
    memset(memory, 0, sq_bytes + 256);
    v.sq = memory;
    j.cq = reinterpret_cast<uint32_t *>(memory + sq_bytes);
    memset(j.cq, 0xff, 128);
    v.cq = j.cq;
    v.cq_mask = 1;
    v.dbr = reinterpret_cast<uint32_t *>(memory + sq_bytes + 128);
    v.doorbell = reinterpret_cast<uint64_t *>(memory + sq_bytes + 192);
    v.qpn = 77;
    v.depth_log2 = static_cast<uint32_t>(__builtin_ctz(w.options.depth));
    v.scope = SWL_QP_SCOPE_SYS;
    v.reserved = v.ready = v.rung = v.done = j.first;
    *j.qp = v;
    if (ask.fails_at != UINT64_MAX)
        j.fails_at = j.first + ask.fails_at;
    failures = 0;
    nic_grids(j, post, device, 32, static_cast<int>(ask.posters));
    if (ask.fails_at == UINT64_MAX) {
        EXPECT_EQ(failures, 0u);
        EXPECT_EQ(j.qp->done, j.first + j.entries);
    } else {
        EXPECT_EQ(failures, ask.posters);
        EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_COMPLETION));
        EXPECT_LE(j.qp->done, j.fails_at);
    }
    EXPECT_EQ(swl_gpu_free(memory), cudaSuccess);
}

void stalls(nic_world &w)
{
    struct swl_qp qp = {};
    uint32_t *cq = nullptr;

    ASSERT_EQ(swl_gpu_malloc(reinterpret_cast<void **>(&cq), 2 * SWL_CQE_BYTES), cudaSuccess);
    qp.depth_log2 = 15;
    qp.cq = cq;
    qp.cq_mask = 1;
    for (uint32_t stall : {1u, 2u, 3u, 32767u, 32768u}) {
        const ring_job j = {&w, &qp, cq, w.options.first_index, 0, UINT64_MAX, stall, 1};

        memset(cq, 0xff, 2 * SWL_CQE_BYTES);
        failures = 0;
        nic_grids(j, look_after, nullptr, 32, 1);
        EXPECT_EQ(failures, 0u) << stall;
    }
    EXPECT_EQ(swl_gpu_free(cq), cudaSuccess);
}

void run(uint32_t depth, uint64_t first, uint64_t seed)
{
    nic_options o;

    SCOPED_TRACE(::testing::Message() << "depth " << depth << " first " << first << " step "
                                      << ask.step << " posters " << ask.posters);
    o.depth = depth;
    o.first_index = first;
    o.executor = SWL_SOFT_ENGINE;
    nic_run(seed, o, ring_of_two);
}

} // namespace

TEST(QpRing, EveryEntryCompletesWhereverTheRingsWrap)
{
    for (uint64_t first : {0ull, 1ull, (1ull << 16) - 7, (1ull << 32) - 8})
        for (uint32_t depth : {2u, 4u, 64u})
            for (uint32_t step : {1u, 2u, 3u, 1000u}) {
                ask = {211, UINT64_MAX, step, 1};
                run(depth, first, first + step);
            }
}

TEST(QpRing, DeepestQueueWraps)
{
    ask = {70000, UINT64_MAX, 50000, 1};
    run(32768, 65536, 0);
}

// Hardware writes 16 bits of the index. The poster looks again when up to a whole queue has
// completed, the 32768 entries of the deepest one, and its 64-bit count goes through several wraps.
TEST(QpRing, F112_NoWrapOfTheCounterIsLostWhileTheReaderStalls)
{
    for (uint64_t first : {65535ull, (1ull << 32) - 40000})
        for (uint32_t step : {32767u, 1000000u}) {
            ask = {200000, UINT64_MAX, step, 1};
            run(32768, first, first + step);
        }
}

TEST(QpRing, F112_TheCountNeverGoesBack)
{
    nic_options o;

    o.executor = SWL_SOFT_ENGINE;
    for (uint64_t first : {0ull, 65530ull, (1ull << 32) - 40000}) {
        o.first_index = first;
        nic_run(first, o, stalls);
    }
}

TEST(QpRing, PostersThatShareAQueue)
{
    for (uint32_t posters : {2u, 5u, 8u})
        for (uint32_t depth : {4u, 128u})
            for (uint32_t step : {1u, 3u, 1000u}) {
                ask = {posters * 60, UINT64_MAX, step, posters};
                run(depth, (1ull << 16) - 20, posters + step);
            }
}

// Entry by entry: the failure is in either place of the ring, alone or with others behind it.
TEST(QpRing, AFailureEndsThePosterWithASyndrome)
{
    for (uint64_t at = 0; at < 6; at++)
        for (uint32_t step : {1u, 2u, 1000u})
            for (uint32_t posters : {1u, 4u}) {
                ask = {40, at, step, posters};
                run(8, 65536, at);
            }
}
