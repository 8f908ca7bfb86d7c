// Tests of the proxy's front end over a wire of the test: batches, wires without room, many queues,
// errors that the wire reports. What all NICs have in common is tested in nic_… and qp_test.cc.
#include "tests/support/nic_fixture.h"

namespace
{

nic_options over_loop()
{
    nic_options o;

    o.ops = loop_ops();
    o.executor = SWL_SOFT_ENGINE;
    loop_next = loop_behaviour();
    return o;
}

struct swl_wqe add(const nic_rank &peer, struct swl_qp *qp, uint64_t word)
{
    struct swl_wqe e;

    swl_wqe_fetch_add(&e, qp->reserved, qp->qpn, 1, {qp->sink, qp->sink_lkey, 8},
                      {peer.word_at(word), peer.signal.rkey});
    return e;
}

void post_adds(nic_world &w, uint32_t qp, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        nic_raw(&w.rank[0].qps[qp], add(w.rank[1], &w.rank[0].qps[qp], qp));
    nic_raw_ring(&w.rank[0].qps[qp]);
}

void batch(nic_world &w)
{
    loop_count = {};
    post_adds(w, 0, 100);
    EXPECT_EQ(nic_await(&w.rank[0].qps[0]).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
    EXPECT_EQ(*w.rank[1].word(0), 100u);
}

void all_queues(nic_world &w)
{
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t qp = 0; qp < w.options.nqps; qp++)
            post_adds(w, qp, 1 + qp % 7);
    for (uint32_t qp = 0; qp < w.options.nqps; qp++) {
        EXPECT_EQ(nic_await(&w.rank[0].qps[qp]).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
        EXPECT_EQ(*w.rank[1].word(qp), 3 * (1 + qp % 7));
    }
}

// The tenth request fails: nine are done, the rest is flushed, other queues go on.
void wire_fails(nic_world &w)
{
    struct swl_qp *qp = &w.rank[0].qps[0];
    nic_seen seen;

    post_adds(w, 0, 30);
    seen = nic_await(qp);
    EXPECT_EQ(seen.opcode, static_cast<uint32_t>(SWL_CQE_ERROR));
    EXPECT_EQ(seen.syndrome, static_cast<uint32_t>(SWL_SYNDROME_RNR_RETRY));
    EXPECT_EQ(seen.index, (w.options.first_index + 9) & 0xffff);
    nic_sleep(1000000);
    nic_look(&seen);
    EXPECT_EQ(seen.syndrome, static_cast<uint32_t>(SWL_SYNDROME_FLUSHED));
    EXPECT_EQ(seen.index, (w.options.first_index + 29) & 0xffff);
    EXPECT_EQ(nic_status(w.rank[0]).syndrome, static_cast<uint32_t>(SWL_SYNDROME_RNR_RETRY));
    EXPECT_EQ(nic_status(w.rank[0]).index, w.options.first_index + 9);
    EXPECT_EQ(*w.rank[1].word(0), 9u);
    post_adds(w, 1, 5);
    EXPECT_EQ(nic_await(&w.rank[0].qps[1]).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
}

// An entry of a wrong shape waits for its turn behind a slow wire.
NIC_TEST(Proxy, WrongEntryFailsAfterAllBeforeIt, nic_run, 1, over_loop())
{
    struct swl_qp *qp = &w.rank[0].qps[0];
    struct swl_wqe e;
    nic_seen seen;

    for (int i = 0; i < 20; i++)
        nic_raw(qp, add(w.rank[1], qp, 0));
    e = add(w.rank[1], qp, 0);
    e.word[7] = 1;
    nic_raw(qp, e);
    nic_raw(qp, add(w.rank[1], qp, 0));
    nic_raw_ring(qp);
    seen = nic_await(qp);
    EXPECT_EQ(seen.syndrome, static_cast<uint32_t>(SWL_SYNDROME_LOCAL_OPERATION));
    EXPECT_EQ(seen.index, (w.options.first_index + 20) & 0xffff);
    EXPECT_EQ(*w.rank[1].word(0), 20u);
}

NIC_TEST(Proxy, OnlySignalledEntriesComplete, nic_run, 1, over_loop())
{
    struct swl_qp *qp = &w.rank[0].qps[0];
    struct swl_wqe e;
    nic_seen seen;

    for (int i = 0; i < 4; i++) {
        e = add(w.rank[1], qp, 0);
        if (i != 2)
            e.word[2] = 0;
        nic_raw(qp, e);
    }
    nic_raw_ring(qp);
    nic_sleep(1000000);
    seen = {qp, 0, 0, 0, 0};
    nic_look(&seen);
    EXPECT_EQ(*w.rank[1].word(0), 4u);
    EXPECT_EQ(seen.opcode, static_cast<uint32_t>(SWL_CQE_DONE));
    EXPECT_EQ(seen.index, (w.options.first_index + 2) & 0xffff) << "the only signalled entry";
}

NIC_TEST(Proxy, PeerOfAnotherKindIsRefused, nic_run, 1, over_loop())
{
    struct swl_nic *nic = w.rank[0].nic;
    struct swl_nic_address a;

    ASSERT_EQ(nic->ops->address(nic, 0, &a), ncclSuccess);
    EXPECT_EQ(nic->ops->connect(nic, 0, &a), ncclInvalidUsage) << "twice";
    memset(&a, 7, sizeof(a));
    EXPECT_EQ(nic->ops->connect(nic, 0, &a), ncclInvalidUsage);
    EXPECT_NE(strstr(swl_last_error(), "another kind"), nullptr);
}

} // namespace

TEST(Proxy, NewEntriesOfAQueueGoToTheWireTogether)
{
    const nic_options o = over_loop();

    loop_next.room = 1000;
    nic_run(0, o, batch);
    EXPECT_EQ(loop_count.most, 32u);
    EXPECT_LE(loop_count.posts, 5u);
}

TEST(Proxy, WireWithoutRoomGetsTheRestLater)
{
    const nic_options o = over_loop();

    loop_next.room = loop_next.turn = 1;
    nic_run(0, o, batch);
    EXPECT_EQ(loop_count.most, 1u);
}

TEST(Proxy, ManyQueuePairsAreServed)
{
    for (uint64_t first : {0ull, (1ull << 16) - 5, (1ull << 32) - 5}) {
        nic_options o = over_loop();

        o.nqps = 300;
        o.depth = 32;
        o.first_index = first;
        nic_run(1, o, all_queues);
    }
}

TEST(Proxy, ErrorOfTheWireNamesItsEntryAndStopsThatQueueOnly)
{
    nic_options o = over_loop();

    o.nqps = 2;
    o.first_index = 65530;
    loop_next.fail_at = 9;
    loop_next.syndrome = SWL_SYNDROME_RNR_RETRY;
    nic_run(0, o, wire_fails);
    loop_next = loop_behaviour();
}
