// Tests of transport/qp.cuh: indices that wrap, full queues, many posters on one queue.
#include "tests/support/nic_fixture.h"

#include <stdlib.h>

namespace
{

struct job {
    nic_world *w;
    uint32_t posters; // of the shared queue
    uint32_t each;    // WRITEs of one poster
    uint32_t batch;   // WRITEs before an add and a ring
    uint32_t lanes;   // posters of one warp
};

uint32_t failures;

void failed()
{
    __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

struct waiter here(const nic_rank &k, uint32_t channel)
{
    return {&k.watch, SWL_FAULT_QUEUE, SWL_WARP_NONE, channel, 1};
}

uint64_t record_of(uint32_t poster, uint32_t i)
{
    return static_cast<uint64_t>(poster + 1) << 32 | (i + 1);
}

// ---- one warp ----

// Rounds of three WRITEs and an add, no ring but those of a full queue; the last ring is the
// flush's.
void post_many(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[0], &peer = j->w->rank[1];
    struct swl_qp *qp = &me.qps[0];

    if (lane_id() != 0)
        return;
    for (uint32_t i = 0; i < j->each; i++) {
        uint32_t value[2] = {i, ~i};
        bool ok = qp_write_inline(qp, here(me, 0), value, 8,
                                  {peer.data_at(16ull * i), peer.payload.rkey}) &&
                  qp_write(qp, here(me, 0), qp_local(me.data(16ull * i), me.payload.lkey, 8),
                           {peer.data_at(16ull * i + 8), peer.payload.rkey}) &&
                  qp_add(qp, here(me, 0), peer.word_at(0), peer.signal.rkey, 1);

        if (!ok) {
            failed();
            return;
        }
        if (j->batch && i % j->batch == 0)
            qp_ring(qp);
    }
    if (!qp_flush(qp, here(me, 0)) || qp->done != qp->reserved)
        failed();
}

void wrap(nic_world &w)
{
    job j = {&w, 1, 100, 3, 1};

    failures = 0;
    for (uint32_t i = 0; i < j.each; i++)
        memset(w.rank[0].data(16 * i), static_cast<int>(i + 1), 8);
    nic_grids(j, post_many, nullptr);
    EXPECT_EQ(failures, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 100u);
    EXPECT_EQ(w.rank[0].qps[0].done, w.options.first_index + 300);
    for (uint32_t i = 0; i < j.each; i++) {
        uint32_t value[2];

        memcpy(value, w.rank[1].data(16 * i), 8);
        EXPECT_EQ(value[0], i);
        EXPECT_EQ(value[1], ~i);
        EXPECT_EQ(*w.rank[1].data(16 * i + 8), static_cast<uint8_t>(i + 1));
    }
    nic_expect_count(w, &swl_soft_stats::entries, 300u);
    nic_expect_count(w, &swl_soft_stats::bad_doorbells, 0u);
}

void never_rung(nic_world &w)
{
    job j = {&w, 1, 100, 0, 1};

    failures = 0;
    nic_grids(j, post_many, nullptr);
    EXPECT_EQ(failures, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 100u);
}

// As many puts as the job says, more than the queue has entries, and one signal behind them.
void put_and_signal(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[0], &peer = j->w->rank[1];
    struct swl_qp *qp = &me.qps[0];
    bool ok = true;

    if (lane_id() != 0)
        return;
    for (uint32_t i = 0; ok && i < j->each; i++)
        ok = qp_write(qp, here(me, 0), qp_local(me.data(8ull * i), me.payload.lkey, 8),
                      {peer.data_at(8ull * i), peer.payload.rkey});
    ok = ok && qp_add(qp, here(me, 0), peer.word_at(0), peer.signal.rkey, 1);
    if (ok)
        qp_ring(qp);
    if (!ok || !qp_flush(qp, here(me, 0)))
        failed();
}

// The signal covers every put before it.
void await_signal(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[1];

    if (lane_id() != 0)
        return;
    while (read_from_nic(me.word(0)) == 0)
        if (!wait_again({&me.watch, SWL_FAULT_ARRIVAL, SWL_WARP_NONE, 0, 0}, 1, 0,
                        SWL_PAUSE("test: signal", 0, 0))) {
            failed();
            return;
        }
    for (uint32_t i = 0; i < j->each; i++) {
        uint64_t value;

        memcpy(&value, me.data(8ull * i), 8);
        if (value != record_of(0, i))
            failed();
    }
}

void more_than_fit(nic_world &w)
{
    const job j = {&w, 1, 1000, 0, 1};

    failures = 0;
    for (uint32_t i = 0; i < j.each; i++) {
        const uint64_t record = record_of(0, i);

        memcpy(w.rank[0].data(8ull * i), &record, 8);
    }
    nic_grids(j, put_and_signal, await_signal);
    EXPECT_EQ(failures, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 1u);
    EXPECT_EQ(w.rank[0].qps[0].done, w.options.first_index + j.each + 1);
    nic_expect_count(w, &swl_soft_stats::entries, j.each + 1ull); // each once
    nic_expect_count(w, &swl_soft_stats::completions, j.each + 1ull);
}

// Rounds of one put on every queue pair, each with a signal of its own behind it on the same queue
// pair.
void put_on_all(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[0], &peer = j->w->rank[1];
    const uint32_t nqps = j->w->options.nqps;
    bool ok = true;

    if (lane_id() != 0)
        return;
    for (uint32_t i = 0; ok && i < j->each * nqps; i++) {
        struct swl_qp *qp = &me.qps[i % nqps];
        const uint32_t value[2] = {i + 1, i + 1};

        ok = qp_write_inline(qp, here(me, 0), value, 8,
                             {peer.data_at(8ull * i), peer.payload.rkey}) &&
             qp_add(qp, here(me, 0), peer.word_at(i % nqps), peer.signal.rkey, 1);
        if (ok)
            qp_ring(qp);
    }
    for (uint32_t q = 0; ok && q < nqps; q++)
        ok = qp_flush(&me.qps[q], here(me, 0));
    if (!ok)
        failed();
}

uint32_t others_were_late; // rounds in which the count of one queue pair said nothing of the others

// A round is there when the count of every queue pair says so.
void await_all(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[1];
    const uint32_t nqps = j->w->options.nqps;

    if (lane_id() != 0)
        return;
    for (uint32_t i = 0; i < j->each; i++)
        for (uint32_t q = 0; q < nqps; q++) {
            uint32_t value[2];

            others_were_late += q > 0 && read_from_nic(me.word(q)) <= i;
            while (read_from_nic(me.word(q)) <= i)
                if (!wait_again({&me.watch, SWL_FAULT_ARRIVAL, SWL_WARP_NONE, q, 0}, i + 1, 0,
                                SWL_PAUSE("test: count", 0, 0))) {
                    failed();
                    return;
                }
            memcpy(value, me.data(8ull * (i * nqps + q)), 8);
            if (value[0] != i * nqps + q + 1 || value[1] != value[0])
                failed();
        }
}

uint32_t fan_in_rounds;

void fan_in(nic_world &w)
{
    const job j = {&w, 1, fan_in_rounds, 0, 1};

    failures = others_were_late = 0;
    nic_grids(j, put_on_all, await_all);
    EXPECT_EQ(failures, 0u);
    EXPECT_GT(others_were_late, 0u) << "the queue pairs were in step: nothing was tested";
    for (uint32_t q = 0; q < w.options.nqps; q++)
        EXPECT_EQ(*w.rank[1].word(q), j.each);
}

// Posting tells nobody: nothing arrives before a ring.
void post_only(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[0], &peer = j->w->rank[1];

    if (lane_id() == 0 && !qp_add(&me.qps[0], here(me, 0), peer.word_at(0), peer.signal.rkey, 1))
        failed();
}

void ring_only(const void *arg)
{
    const job *j = static_cast<const job *>(arg);

    if (lane_id() == 0)
        qp_ring(&j->w->rank[0].qps[0]);
}

NIC_TEST(Qp, NothingIsSentBeforeTheRing, nic_run_all, 1, nic_options())
{
    job j = {&w, 1, 1, 0, 1};

    failures = 0;
    for (int i = 0; i < 5; i++)
        nic_grids(j, post_only, nullptr);
    nic_sleep(100000);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    nic_grids(j, ring_only, nullptr);
    (void)nic_await(&w.rank[0].qps[0]);
    EXPECT_EQ(*w.rank[1].word(0), 5u);
    nic_expect_count(w, &swl_soft_stats::doorbells, 1u);
    nic_grids(j, ring_only, nullptr); /* nothing new: no doorbell */
    nic_sleep(100000);
    nic_expect_count(w, &swl_soft_stats::doorbells, 1u);
    EXPECT_EQ(failures, 0u);
}

// ---- many lanes ----

// qp_shared_write with time between its steps, in which others may overtake.
bool write_slowly(const nic_rank &me, const nic_rank &peer, uint64_t at, uint32_t poster)
{
    struct swl_qp *qp = &me.qps[0];
    struct swl_wqe e;
    uint64_t index;

    if (!qp_shared_reserve(qp, here(me, poster), 1, &index))
        return false;
    for (uint32_t i = 0; i < 4 + poster; i++)
        (void)read_in_gpu(&me.watch.claimed[0]);
    swl_wqe_move(&e, index, SWL_WQE_WRITE, qp->qpn,
                 {reinterpret_cast<uint64_t>(me.data(at)), me.payload.lkey, 8},
                 {peer.data_at(at), peer.payload.rkey});
    qp_put(qp, index, &e);
    return qp_shared_commit(qp, here(me, poster), index, 1);
}

// The WRITEs of a whole batch, from the poster's record `first` on, with one entry after the other.
bool write_together(const nic_rank &me, const nic_rank &peer, const job *j, uint32_t poster,
                    uint32_t first)
{
    struct swl_qp *qp = &me.qps[0];
    uint64_t index;

    if (!qp_shared_reserve(qp, here(me, poster), j->batch, &index))
        return false;
    for (uint32_t i = 0; i < j->batch; i++) {
        const uint64_t at = 8ull * (poster * j->each + first + i);
        const uint64_t record = record_of(poster, first + i);
        struct swl_wqe e;

        memcpy(me.data(at), &record, 8);
        swl_wqe_move(&e, index + i, SWL_WQE_WRITE, qp->qpn,
                     {reinterpret_cast<uint64_t>(me.data(at)), me.payload.lkey, 8},
                     {peer.data_at(at), peer.payload.rkey});
        qp_put(qp, index + i, &e);
    }
    return qp_shared_commit(qp, here(me, poster), index, j->batch);
}

void post_shared(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[0], &peer = j->w->rank[1];
    struct swl_qp *qp = &me.qps[0];
    uint32_t poster =
        static_cast<uint32_t>(block_id()) * j->lanes + static_cast<uint32_t>(lane_id());

    if (static_cast<uint32_t>(lane_id()) >= j->lanes)
        return;
    for (uint32_t i = 0; i < j->each; i++) {
        uint64_t at = 8ull * (poster * j->each + i);
        const uint64_t record = record_of(poster, i);
        const bool together = poster % 4 == 2 && qp->depth_log2 > 4;
        bool ok = true;

        if (!together)
            memcpy(me.data(at), &record, 8); /* only this lane touches these bytes */
        if (together)
            ok = i % j->batch != 0 || write_together(me, peer, j, poster, i);
        else if (poster % 2)
            ok = write_slowly(me, peer, at, poster);
        else
            ok = qp_shared_write(qp, here(me, poster), qp_local(me.data(at), me.payload.lkey, 8),
                                 {peer.data_at(at), peer.payload.rkey});
        if (!ok) {
            failed();
            return;
        }
        if ((i + 1) % j->batch != 0)
            continue;
        if (!qp_shared_add(qp, here(me, poster), peer.word_at(poster), peer.signal.rkey,
                           j->batch)) {
            failed();
            return;
        }
        qp_shared_ring(qp);
    }
    if (!qp_shared_flush(qp, here(me, poster)))
        failed();
}

// One lane for each poster: every add covers the poster's earlier WRITEs.
void watch_shared(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[1];
    uint32_t poster = static_cast<uint32_t>(lane_id());

    if (poster >= j->posters)
        return;
    for (uint64_t seen = 0, checked = 0; checked < j->each;) {
        seen = read_from_nic(me.word(poster));
        for (; checked < seen; checked++) {
            uint64_t record;

            memcpy(&record, me.data(8 * (poster * j->each + checked)), 8);
            if (record != record_of(poster, static_cast<uint32_t>(checked)))
                failed();
        }
        if (checked < j->each &&
            !wait_again({&me.watch, SWL_FAULT_ARRIVAL, SWL_WARP_NONE, poster, 0}, j->each, seen,
                        SWL_PAUSE("test: records", static_cast<int>(poster), 0))) {
            failed();
            return;
        }
    }
}

uint32_t shared_posters, shared_each;

void share(nic_world &w)
{
    /* half of the posters are lanes of one warp, the others blocks of their own */
    job j = {&w, shared_posters, shared_each, 8, shared_posters % 4 == 0 ? 2u : 1u};
    uint64_t entries = static_cast<uint64_t>(j.posters) * (j.each + j.each / j.batch);

    failures = 0;
    nic_grids(j, post_shared, watch_shared, 32, static_cast<int>(j.posters / j.lanes));
    EXPECT_EQ(failures, 0u);
    for (uint32_t p = 0; p < j.posters; p++)
        EXPECT_EQ(*w.rank[1].word(p), j.each);
    nic_expect_count(w, &swl_soft_stats::entries, entries);
    nic_expect_count(w, &swl_soft_stats::completions, entries);
    nic_expect_count(w, &swl_soft_stats::bad_doorbells, 0u);
    nic_expect_count(w, &swl_soft_stats::errors, 0u);
    EXPECT_EQ(w.rank[0].qps[0].done, w.options.first_index + entries);
    EXPECT_EQ(w.rank[0].qps[0].ready, w.rank[0].qps[0].reserved);
    EXPECT_EQ(w.rank[0].qps[0].ringing, 0u);
}

NIC_TEST(Qp, PostersOfOneQueueAllEndAfterAnError, nic_run, 6, nic_options())
{
    job j = {&w, 4, 200, 8, 1};

    failures = 0;
    ASSERT_EQ(swl_host_set_faults(0, "error=100/access"), ncclSuccess);
    nic_grids(j, post_shared, nullptr, 32, 4);
    EXPECT_EQ(failures, 4u);
    EXPECT_EQ(w.rank[0].record.valid, 1u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_COMPLETION));
}

} // namespace

TEST(Qp, IndicesWrapAtEveryWidth)
{
    for (uint64_t first : {0ull, (1ull << 15) - 3, (1ull << 16) - 3, (1ull << 31) - 3,
                           (1ull << 32) - 3, (1ull << 48) - 100})
        for (uint32_t depth : {2u, 8u, 128u}) {
            nic_options o;

            SCOPED_TRACE(::testing::Message() << "first " << first << " depth " << depth);
            o.first_index = first;
            o.depth = depth;
            nic_run_all(first % 5, o, wrap);
        }
}

TEST(Qp, DeepestQueueWraps)
{
    nic_options o;

    o.first_index = 65500;
    o.depth = nic_on_verbs() ? 8192 : 32768; /* Soft-RoCE has no longer completion queue */
    nic_run_all(1, o, wrap);
}

TEST(Qp, FullQueueIsRungByThePoster)
{
    nic_options o;

    o.depth = 4;
    for (uint64_t seed = 0; seed < 4; seed++)
        nic_run_all(seed, o, never_rung);
}

TEST(Qp, F08_MorePutsThanEntriesOfTheQueue)
{
    for (uint32_t depth : {4u, 256u})
        for (uint64_t seed = 0; seed < 2; seed++) {
            nic_options o;

            SCOPED_TRACE(depth);
            o.depth = depth;
            nic_run_all(seed, o, more_than_fit);
        }
}

// F-13; the full form with SWL_TEST_LONG=1.
TEST(Qp, F13PostersOfOneQueueLoseTearAndReorderNothing)
{
    bool full = getenv("SWL_TEST_LONG") != nullptr;

    for (uint32_t posters = 2; posters <= 8; posters++)
        for (uint64_t seed = 0; seed < (full ? 4 : nic_on_verbs() ? 1 : 2); seed++) {
            nic_options o;

            SCOPED_TRACE(posters);
            o.depth = 128;
            o.first_index = 65536 - 50;
            o.timeout_ns = 100000000000ull;
            shared_posters = posters;
            shared_each = full ? 10000 : 400;
            nic_run_all(seed, o, share);
        }
}

TEST(Qp, F13PostersOfShortQueuesAcrossBoundaries)
{
    const uint64_t starts[] = {(1ull << 16) - 20, (1ull << 32) - 20};

    for (uint32_t posters = 2; posters <= 8; posters++)
        for (uint32_t depth : {4u, 128u})
            for (uint64_t start : starts) {
                nic_options o;

                SCOPED_TRACE(testing::Message()
                             << posters << " posters, depth " << depth << ", from " << start);
                o.depth = depth;
                o.first_index = start;
                o.timeout_ns = 100000000000ull;
                shared_posters = posters;
                shared_each = 24;
                nic_run_all(posters, o, share);
            }
}

// F-20: the put and its signal on one queue pair, a count for each queue pair at the receiver.
TEST(Qp, F20_SignalsNeverSpanQueuePairs)
{
    const bool full = getenv("SWL_TEST_LONG") != nullptr;

    for (uint64_t seed = 1; seed <= (full ? 4 : 2); seed++) {
        nic_options o;

        o.nqps = 4;
        o.depth = 64;
        o.faults = "jitter=20us";
        o.executor = SWL_SOFT_ENGINE;
        o.timeout_ns = 100000000000ull;
        fan_in_rounds = 5000;
        nic_run(seed, o, fan_in);
    }
}

// A team of blocks looks at the doorbells of 32 queue pairs at once.
TEST(Qp, MoreQueuePairsThanATeamHasLanesAreServed)
{
#ifdef SIMT_TSAN
    GTEST_SKIP() << "the host reads what lanes have counted";
#endif
    for (uint64_t seed = 0; seed < 4; seed++) {
        nic_options o;

        o.nqps = 150; // of two teams
        o.depth = 16;
        o.executor = SWL_SOFT_BLOCKS;
        if (seed % 2) // some of them kept
            o.room_bytes = 64u << 10;
        fan_in_rounds = 4;
        nic_run(seed, o, fan_in);
    }
}

// F-45: completions come 100 ms after their entries, so that the poster waits for room again and
// again.
TEST(Qp, F45_PosterWaitsForLateCompletions)
{
    for (uint32_t depth : {16u, 64u, 128u}) {
        nic_options o;

        SCOPED_TRACE(depth);
        o.depth = depth;
        o.link = {400, 50000};
        o.timeout_ns = 1000000000000ull;
        nic_run(depth, o, more_than_fit);
    }
}

// Short runs, so that the last doorbell matters: nobody comes after it and covers it.
TEST(Qp, LastDoorbellOfManyPostersIsNeverLost)
{
    for (uint64_t seed = 1; seed <= (nic_on_verbs() ? 20 : 60); seed++) {
        nic_options o;

        o.preempt_per_1000 = 200;
        o.depth = 16;
        shared_posters = 2 + static_cast<uint32_t>(seed % 7);
        shared_each = 8;
        nic_run_all(seed, o, share);
    }
}
