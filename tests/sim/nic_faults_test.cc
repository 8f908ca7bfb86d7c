// Tests of the faults of the software NIC (SWIMLANE_SOFT_FAULTS) as device code meets them.
#include "tests/sim/nic_fixture.h"

namespace
{

struct job {
    nic_world *w;
    uint32_t adds;
    uint32_t ring_every;
    uint32_t flush;
};

uint32_t posted, ended_well;

void post_adds(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[0], &peer = j->w->rank[1];
    struct wait_at at = {SWL_FAULT_QUEUE, SWL_WARP_SENDER, 5, 1};

    if (lane_id() != 0)
        return;
    for (posted = 0; posted < j->adds; posted++) {
        if (!qp_write(&me.qps[0], &me.watch, at, me.data(0), me.payload.lkey, peer.data_at(0),
                      peer.payload.rkey, 512) ||
            !qp_add(&me.qps[0], &me.watch, at, peer.word_at(0), peer.signal.rkey, 1))
            return;
        if ((posted + 1) % j->ring_every == 0)
            qp_ring(&me.qps[0]);
    }
    qp_ring(&me.qps[0]);
    if (!j->flush || qp_flush(&me.qps[0], &me.watch, at))
        ended_well = 1;
}

void run_adds(nic_world &w, uint32_t adds, uint32_t ring_every, uint32_t flush = 1)
{
    job j = {&w, adds, ring_every, flush};

    ended_well = 0;
    nic_grids(j, post_adds, nullptr);
}

void dropped(nic_world &w)
{
    run_adds(w, 2, 2, 0);
    nic_sleep(100000);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    EXPECT_EQ(nic_stats(0).dropped, 1u);
    run_adds(w, 1, 1);
    EXPECT_EQ(ended_well, 1u);
    EXPECT_EQ(*w.rank[1].word(0), 3u);
    EXPECT_EQ(nic_stats(0).dropped, 1u);
}

void dead_doorbell(nic_world &w)
{
    uint64_t begin = simt_now_ns();

    run_adds(w, 4, 4);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    EXPECT_EQ(w.rank[0].record.valid, 1u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_QUEUE));
    EXPECT_EQ(w.rank[0].record.peer, 1u);
    EXPECT_EQ(w.rank[0].record.channel, 5u);
    EXPECT_EQ(w.rank[0].record.expected, 8u);
    EXPECT_EQ(w.rank[0].record.seen, 0u);
    EXPECT_EQ(w.rank[0].bits, SWL_ASYNC_TIMEOUT);
    EXPECT_GE(simt_now_ns() - begin, w.options.timeout_ns);
    EXPECT_LT(simt_now_ns() - begin, 2 * w.options.timeout_ns);
}

uint32_t nth;

void error_at(nic_world &w)
{
    char text[64];

    snprintf(text, sizeof(text), "rank0.link0:error=%u/%s", nth, nth % 2 ? "access" : "retry");
    ASSERT_EQ(swl_soft_faults_set(0, text), ncclSuccess);
    run_adds(w, 100, 4);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), nth / 2) << "adds before the failing entry, no other";
    EXPECT_EQ(w.rank[0].record.valid, 1u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_COMPLETION));
    EXPECT_EQ(w.rank[0].record.peer, 1u);
    EXPECT_TRUE(w.rank[0].record.seen ==
                    (nth % 2 ? SWL_SYNDROME_REMOTE_ACCESS : SWL_SYNDROME_RETRY) ||
                w.rank[0].record.seen == SWL_SYNDROME_FLUSHED)
        << w.rank[0].record.seen;
    EXPECT_EQ(nic_status(w.rank[0]).index, nth);
    EXPECT_EQ(nic_status(w.rank[0]).syndrome,
              static_cast<uint32_t>(nth % 2 ? SWL_SYNDROME_REMOTE_ACCESS : SWL_SYNDROME_RETRY));
}

void stalled(nic_world &w)
{
    uint64_t begin = simt_now_ns();

    ASSERT_EQ(swl_soft_faults_set(0, "stall=0ns+200us"), ncclSuccess);
    run_adds(w, 10, 1);
    EXPECT_EQ(ended_well, 1u);
    EXPECT_EQ(*w.rank[1].word(0), 10u);
    EXPECT_GE(simt_now_ns() - begin, 200000u);
    EXPECT_LT(simt_now_ns() - begin, 1000000u);
}

void stalled_for_good(nic_world &w)
{
    ASSERT_EQ(swl_soft_faults_set(0, "stall=0ns+100s"), ncclSuccess);
    run_adds(w, 10, 1);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_QUEUE));
}

void delayed(nic_world &w)
{
    uint64_t begin = simt_now_ns();

    run_adds(w, 5, 5);
    EXPECT_EQ(ended_well, 1u);
    EXPECT_GE(simt_now_ns() - begin, 50000u);
    EXPECT_EQ(*w.rank[1].word(0), 5u);
}

void dead_peer(nic_world &w)
{
    run_adds(w, 5, 1);
    EXPECT_EQ(ended_well, 1u);
    ASSERT_EQ(swl_soft_faults_set(1, "dead=0ns"), ncclSuccess);
    nic_sleep(10000);
    run_adds(w, 5, 1);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 5u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_COMPLETION));
    EXPECT_EQ(nic_status(w.rank[0]).syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
}

void dead_self(nic_world &w)
{
    ASSERT_EQ(swl_soft_faults_set(0, "dead=0ns"), ncclSuccess);
    run_adds(w, 5, 1);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_QUEUE));
}

void faults_end(nic_world &w)
{
    ASSERT_EQ(swl_soft_faults_set(SWL_SOFT_ALL_RANKS, "drop=0+"), ncclSuccess);
    run_adds(w, 2, 2, 0);
    nic_sleep(100000);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    ASSERT_EQ(swl_soft_faults_set(SWL_SOFT_ALL_RANKS, ""), ncclSuccess);
    run_adds(w, 1, 1);
    EXPECT_EQ(ended_well, 1u);
    EXPECT_EQ(*w.rank[1].word(0), 3u);
    EXPECT_EQ(swl_soft_faults_set(0, "nonsense"), ncclInvalidArgument);
}

} // namespace

TEST(NicFaults, DroppedDoorbellIsCoveredByTheNext)
{
    nic_options o;

    o.faults = "rank0:drop=0";
    nic_run(0, o, dropped);
}

TEST(NicFaults, DeadDoorbellEndsTheWaitWithQueueAndPeer)
{
    nic_options o;

    o.faults = "rank0:drop=0+";
    nic_run(0, o, dead_doorbell);
}

TEST(NicFaults, ErrorCompletionAtTheNthEntryEndsTheWait)
{
    for (uint32_t n : {0u, 1u, 127u, 128u})
        for (uint64_t seed = 0; seed < 4; seed++) {
            SCOPED_TRACE(n);
            nth = n;
            nic_run(seed, nic_options(), error_at);
        }
}

TEST(NicFaults, StalledLinkRecovers)
{
    for (uint64_t seed = 0; seed < 4; seed++)
        nic_run(seed, nic_options(), stalled);
}

TEST(NicFaults, StallLongerThanTheLimitEndsTheWait)
{
    nic_run(0, nic_options(), stalled_for_good);
}

TEST(NicFaults, DelayAndJitterOnlyTakeTime)
{
    nic_options o;

    o.faults = "delay=50us";
    for (uint64_t seed = 0; seed < 4; seed++)
        nic_run(seed, o, delayed);
    o.faults = "delay=50us;jitter=20us";
    for (uint64_t seed = 0; seed < 4; seed++)
        nic_run_on_host(seed, o, delayed);
}

TEST(NicFaults, DeadPeerIsReportedAsRetriesExceeded)
{
    nic_run(0, nic_options(), dead_peer);
}

TEST(NicFaults, DeadNicSendsNothing)
{
    nic_run(0, nic_options(), dead_self);
}

TEST(NicFaults, FaultsEndWhenReplacedAndPostedWorkIsCoveredByTheNextDoorbell)
{
    nic_run(0, nic_options(), faults_end);
}
