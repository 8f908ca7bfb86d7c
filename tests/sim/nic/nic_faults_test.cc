// Tests of the faults of software NICs and proxies (SWIMLANE_SOFT_FAULTS) as device code meets
// them.
#include "tests/support/nic_fixture.h"

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
    struct waiter w = {&me.watch, SWL_FAULT_QUEUE, SWL_WARP_SENDER, 5, 1};

    if (lane_id() != 0)
        return;
    for (posted = 0; posted < j->adds; posted++) {
        if (!qp_write(&me.qps[0], w, qp_local(me.data(0), me.payload.lkey, 512),
                      {peer.data_at(0), peer.payload.rkey}) ||
            !qp_add(&me.qps[0], w, peer.word_at(0), peer.signal.rkey, 1))
            return;
        if ((posted + 1) % j->ring_every == 0)
            qp_ring(&me.qps[0]);
    }
    qp_ring(&me.qps[0]);
    if (!j->flush || qp_flush(&me.qps[0], w))
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

NIC_TEST(NicFaults, DeadDoorbellEndsTheWaitWithQueueAndPeer, nic_run_all, 1,
         nic_with_faults("rank0:drop=0+"))
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
    ASSERT_EQ(swl_host_set_faults(0, text), ncclSuccess);
    run_adds(w, 100, 4);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), nth / 2) << "adds before the failing entry, no other";
    EXPECT_EQ(w.rank[0].record.valid, 1u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_COMPLETION));
    EXPECT_EQ(w.rank[0].record.peer, 1u);
    const uint64_t syndrome = w.rank[0].record.seen & 0xff;

    EXPECT_TRUE(syndrome == (nth % 2 ? SWL_SYNDROME_REMOTE_ACCESS : SWL_SYNDROME_RETRY) ||
                syndrome == SWL_SYNDROME_FLUSHED)
        << syndrome;
    EXPECT_EQ(w.rank[0].record.seen >> 8, nic_status(w.rank[0]).qpn);
    EXPECT_EQ(nic_status(w.rank[0]).index, nth);
    EXPECT_EQ(nic_status(w.rank[0]).syndrome,
              static_cast<uint32_t>(nth % 2 ? SWL_SYNDROME_REMOTE_ACCESS : SWL_SYNDROME_RETRY));
}

NIC_TEST(NicFaults, StalledLinkRecovers, nic_run_all, 4, nic_options())
{
    uint64_t begin = simt_now_ns();

    ASSERT_EQ(swl_host_set_faults(0, "stall=0ns+200us"), ncclSuccess);
    run_adds(w, 10, 1);
    EXPECT_EQ(ended_well, 1u);
    EXPECT_EQ(*w.rank[1].word(0), 10u);
    EXPECT_GE(simt_now_ns() - begin, 200000u);
    EXPECT_LT(simt_now_ns() - begin,
              w.options.timeout_ns); // through sockets it takes as long as it does
}

NIC_TEST(NicFaults, StallLongerThanTheLimitEndsTheWait, nic_run_all, 1, nic_options())
{
    ASSERT_EQ(swl_host_set_faults(0, "stall=0ns+100s"), ncclSuccess);
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
    ASSERT_EQ(swl_host_set_faults(1, "dead=0ns"), ncclSuccess);
    nic_sleep(10000);
    run_adds(w, 5, 1);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 5u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_COMPLETION));
    EXPECT_EQ(nic_status(w.rank[0]).syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
}

NIC_TEST(NicFaults, DeadNicSendsNothing, nic_run_all, 1, nic_options())
{
    ASSERT_EQ(swl_host_set_faults(0, "dead=0ns"), ncclSuccess);
    run_adds(w, 5, 1);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_QUEUE));
}

// Every send but the last may get lost: each costs an eighth of the time to give up.
void lossy(nic_world &w)
{
    uint64_t begin = simt_now_ns();

    run_adds(w, 50, 5);
    EXPECT_EQ(ended_well, 1u);
    EXPECT_EQ(*w.rank[1].word(0), 50u);
    EXPECT_GE(nic_stats(0).retries, 20u) << "three of ten, of 100 messages";
    EXPECT_LE(nic_stats(0).retries, 70u);
    EXPECT_GE(simt_now_ns() - begin, 20000u);
    EXPECT_EQ(nic_stats(0).errors, 0u);
}

NIC_TEST(NicFaults, MessageLostEachTimeExceedsItsRetries, nic_run_able, 1,
         nic_with_faults("rank0:loss=1000"))
{
    uint64_t begin = simt_now_ns();

    run_adds(w, 5, 1);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_COMPLETION));
    EXPECT_EQ(nic_status(w.rank[0]).syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
    EXPECT_EQ(nic_status(w.rank[0]).index, 0u);
    EXPECT_EQ(nic_stats(0).retries, 7u) << "of the first message; then nothing more is sent";
    EXPECT_GE(simt_now_ns() - begin, 1000000u) << "retry";
}

NIC_TEST(NicFaults, HeldCompletionsOnlyTakeTime, nic_run_able, 1,
         nic_with_faults("rank0:hold=300us"))
{
    uint64_t begin = simt_now_ns();

    run_adds(w, 3, 3, 0);
    nic_sleep(100000);
    EXPECT_EQ(*w.rank[1].word(0), 3u) << "it has arrived";
    EXPECT_EQ(nic_stats(0).completions, 0u) << "nobody was told";
    run_adds(w, 1, 1);
    EXPECT_EQ(ended_well, 1u);
    EXPECT_EQ(nic_stats(0).completions, 8u);
    EXPECT_GE(simt_now_ns() - begin, 300000u);
}

// The NIC is away from 100 us to 300 us. What was posted before is done, what is posted meanwhile
// is not, and afterwards all connections are in error until both ends are reset.
NIC_TEST(NicFaults, RestartedNicHasForgottenItsConnections, nic_run_able, 1, nic_options())
{
    run_adds(w, 5, 1);
    EXPECT_EQ(ended_well, 1u);
    ASSERT_EQ(swl_host_set_faults(0, "restart=100us+200us"), ncclSuccess);
    nic_sleep(150000);
    EXPECT_EQ(nic_status(w.rank[0]).state, SWL_NIC_QP_READY) << "nobody knows yet";
    run_adds(w, 1, 1);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 5u);
    EXPECT_EQ(w.rank[0].record.kind, static_cast<uint32_t>(SWL_FAULT_COMPLETION));
    EXPECT_EQ(w.rank[0].record.seen & 0xff, static_cast<uint64_t>(SWL_SYNDROME_FLUSHED));
    EXPECT_EQ(nic_status(w.rank[0]).state, SWL_NIC_QP_ERROR);
    for (nic_rank &k : w.rank)
        ASSERT_EQ(k.nic->ops->reset(k.nic, 0), ncclSuccess) << swl_last_error();
    for (int r = 0; r < 2; r++)
        nic_connect(w, r, 0);
    nic_arm(w);
    run_adds(w, 5, 1);
    EXPECT_EQ(ended_well, 1u);
    EXPECT_EQ(*w.rank[1].word(0), 10u);
}

// The other end of a NIC that restarts: its requests end with retries exceeded.
void peer_restarted(nic_world &w)
{
    ASSERT_EQ(swl_host_set_faults(1, "restart=0us+200us"), ncclSuccess);
    nic_sleep(10000);
    run_adds(w, 5, 1);
    EXPECT_EQ(ended_well, 0u);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    EXPECT_EQ(nic_status(w.rank[0]).syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
}

uint64_t word_now(const nic_world &w, uint64_t i)
{
    return __atomic_load_n(w.rank[1].word(i), __ATOMIC_ACQUIRE);
}

// Both queue pairs get a message at the same time, again and again: either is first.
void cross(nic_world &w)
{
    uint32_t first[2] = {0, 0};

    for (int round = 0; round < 30; round++) {
        const uint64_t before[2] = {word_now(w, 0), word_now(w, 1)};

        for (uint32_t i = 0; i < 2; i++) {
            struct swl_qp *qp = &w.rank[0].qps[i];
            struct swl_wqe e;

            swl_wqe_fetch_add(&e, qp->reserved, qp->qpn, 1, {qp->sink, qp->sink_lkey, 8},
                              {w.rank[1].word_at(i), w.rank[1].signal.rkey});
            nic_raw(qp, e);
            nic_raw_ring(qp);
        }
        for (int look = 0; look < 1000; look++) {
            const bool here[2] = {word_now(w, 0) != before[0], word_now(w, 1) != before[1]};

            if (here[0] || here[1]) {
                first[0] += here[0] && !here[1];
                first[1] += here[1] && !here[0];
                break;
            }
            nic_sleep(1000);
        }
        for (uint32_t i = 0; i < 2; i++)
            EXPECT_EQ(nic_await(&w.rank[0].qps[i]).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
    }
    EXPECT_GE(first[0], 3u);
    EXPECT_GE(first[1], 3u);
}

// Twelve WRITEs to one place in one go, then an add: the last one of the text is the last to land
// only if nothing was reordered. The add comes behind all of them.
uint64_t landed[64], nlanded;

void in_any_order(nic_world &w)
{
    nic_rank &me = w.rank[0], &peer = w.rank[1];
    struct swl_qp *qp = &me.qps[0];
    struct swl_wqe e;

    for (uint64_t i = 0; i < 12; i++) {
        memcpy(me.data(i * 8), &i, sizeof(i));
        swl_wqe_move(&e, qp->reserved, SWL_WQE_WRITE, qp->qpn,
                     {me.data_at(i * 8), me.payload.lkey, 8}, {peer.data_at(0), peer.payload.rkey});
        nic_raw(qp, e);
    }
    swl_wqe_fetch_add(&e, qp->reserved, qp->qpn, 1, {qp->sink, qp->sink_lkey, 8},
                      {peer.word_at(0), peer.signal.rkey});
    nic_raw(qp, e);
    nic_raw_ring(qp);
    EXPECT_EQ(nic_await(qp).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
    EXPECT_EQ(*peer.word(0), 1u);
    EXPECT_GT(nic_stats(0).reordered, 0u);
    EXPECT_EQ(nic_stats(0).completions, 13u);
    memcpy(&landed[nlanded++ % 64], peer.data(0), 8);
}

NIC_TEST(NicFaults, WhatBlocksCannotDoIsRefused, nic_run, 1, nic_options())
{
    struct swl_nic_config config = {};
    struct swl_nic *nic;

    config.depth = 2;
    config.timeout_ns = 1000000000ull;
    config.settings.executor = SWL_SOFT_BLOCKS;
    config.gpu_blocks = 1;
    for (const char *text : {"jitter=1us", "reorder=on", "loss=5", "hold=1us", "restart=1us+1us"}) {
        config.settings.faults = text;
        EXPECT_EQ(swl_soft_ops()->create(&nic, &config), ncclInvalidUsage);
        EXPECT_NE(strstr(swl_last_error(), "which a software NIC on blocks cannot do"), nullptr)
            << swl_last_error();
        if (w.options.executor == SWL_SOFT_BLOCKS) {
            EXPECT_EQ(swl_host_set_faults(0, text), ncclInvalidUsage);
        }
    }
}

NIC_TEST(NicFaults, FaultsEndWhenReplacedAndPostedWorkIsCoveredByTheNextDoorbell, nic_run_all, 1,
         nic_options())
{
    ASSERT_EQ(swl_host_set_faults(SWL_HOST_ALL_RANKS, "drop=0+"), ncclSuccess);
    run_adds(w, 2, 2, 0);
    nic_sleep(100000);
    EXPECT_EQ(*w.rank[1].word(0), 0u);
    ASSERT_EQ(swl_host_set_faults(SWL_HOST_ALL_RANKS, ""), ncclSuccess);
    run_adds(w, 1, 1);
    EXPECT_EQ(ended_well, 1u);
    EXPECT_EQ(*w.rank[1].word(0), 3u);
    EXPECT_EQ(swl_host_set_faults(0, "nonsense"), ncclInvalidArgument);
}

} // namespace

TEST(NicFaults, DroppedDoorbellIsCoveredByTheNext)
{
    nic_options o;

    o.faults = "rank0:drop=0";
    nic_run_all(0, o, dropped);
}

TEST(NicFaults, ErrorCompletionAtTheNthEntryEndsTheWait)
{
    for (uint32_t n : {0u, 1u, 127u, 128u})
        for (uint64_t seed = 0; seed < 4; seed++) {
            SCOPED_TRACE(n);
            nth = n;
            nic_run_all(seed, nic_options(), error_at);
        }
}

TEST(NicFaults, DelayAndJitterOnlyTakeTime)
{
    nic_options o;

    o.faults = "delay=50us";
    for (uint64_t seed = 0; seed < 4; seed++)
        nic_run_all(seed, o, delayed);
    o.faults = "delay=50us;jitter=20us";
    for (uint64_t seed = 0; seed < 4; seed++)
        nic_run_able(seed, o, delayed);
}

TEST(NicFaults, DeadPeerIsReportedAsRetriesExceeded)
{
    nic_options o;

    if (nic_on_verbs())
        GTEST_SKIP() << "a device sends again for half a minute, which the emulator's clock does "
                        "not wait for";
    o.timeout_ns = 3000000000ull; // over TCP the peer is missed after a second
    nic_run_all(0, o, dead_peer);
}

TEST(NicFaults, LostMessagesAreSentAgain)
{
    nic_options o;

    o.faults = "loss=300;retry=80us";
    for (uint64_t seed = 1; seed < 5; seed++)
        nic_run_able(seed, o, lossy);
    o.faults = "rank0:loss=300;seed=7;retry=80us";
    nic_run_able(0, o, lossy);
}

TEST(NicFaults, RestartingPeerDoesNotAnswer)
{
    nic_options o;

    if (nic_on_verbs())
        GTEST_SKIP() << "a device sends again for half a minute";
    o.timeout_ns = 3000000000ull;
    nic_run_able(0, o, peer_restarted);
}

TEST(NicFaults, JitterReordersQueuePairsAmongEachOther)
{
    nic_options o;

    o.nqps = 2;
    o.faults = "jitter=50us";
    nic_run_able(1, o, cross);
}

// The same seed gives the same order, also where time is not the emulator's to give.
TEST(NicFaults, WritesOfAQueueLandInAnyOrderByTheSeed)
{
    nic_options o;
    uint64_t others = 0;

    o.faults = "rank0:seed=3;reorder=on";
    nlanded = 0;
    nic_run_proxies(0, o, in_any_order);
    nic_run_proxies(0, o, in_any_order);
    for (uint64_t i = 0; i < nlanded / 2; i++)
        EXPECT_EQ(landed[i], landed[i + nlanded / 2]);
    o.faults = "rank0:reorder=on";
    for (uint64_t seed = 1; seed < 6; seed++)
        nic_run_proxies(seed, o, in_any_order);
    for (uint64_t i = 0; i < nlanded; i++)
        others += landed[i] != 11;
    EXPECT_GT(others, nlanded / 2);
}
