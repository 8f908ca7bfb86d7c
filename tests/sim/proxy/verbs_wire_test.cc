// The verbs wire over a fake of libibverbs: connection, batches, adds in both forms, errors, and a
// failure of every call on the way. On real verbs it runs in the virtual machine (tests/verbs).
#include "tests/sim/proxy/verbs_fixture.h"

namespace
{

TEST_F(VerbsWire, ConnectsBothEndsWithEachOthersNumbers)
{
    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    ASSERT_EQ(fake.queues.size(), 2u);
    FakeQueue *a = fake.queues.begin()->second, *b = fake.queues.rbegin()->second;

    EXPECT_EQ(a->peer, b->qp.qp_num);
    EXPECT_EQ(b->peer, a->qp.qp_num);
    EXPECT_EQ(a->rq_psn, b->sq_psn);
    EXPECT_EQ(b->rq_psn, a->sq_psn);
    EXPECT_EQ(a->rtr.path_mtu, 3u);
    EXPECT_EQ(a->rtr.ah_attr.is_global, 1);
    EXPECT_EQ(a->rtr.ah_attr.sgid_index, 1);
    EXPECT_EQ(a->rtr.ah_attr.dgid[15], 1);
}

TEST_F(VerbsWire, BatchIsOneLinkedPostWithOneCompletion)
{
    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    words[0][1] = 11;
    words[0][2] = 22;
    ASSERT_EQ(post({request(SWL_WQE_NOP, 0, 0), request(SWL_WQE_WRITE, 1, 1),
                    request(SWL_WQE_WRITE, 2, 2), request(SWL_WQE_FETCH_ADD, 3, 3, 1ull << 40),
                    request(SWL_WQE_NOP, 0, 0)}),
              5u);
    EXPECT_EQ(fake.posts, std::vector<size_t>({3}));
    EXPECT_EQ(reinterpret_cast<FakeCq *>(fake.queues.begin()->second->qp.send_cq)->entries.size(),
              1u);
    EXPECT_EQ(words[1][1], 11u);
    EXPECT_EQ(words[1][2], 22u);
    EXPECT_EQ(words[1][3], 1ull << 40);
    expect_done(104);
    EXPECT_TRUE(poll(0).empty());
    ASSERT_EQ(post({request(SWL_WQE_NOP, 0, 0)}), 1u);
    expect_done(105);
}

TEST_F(VerbsWire, NoMoreIsTakenThanTheQueueHolds)
{
    std::vector<struct swl_wire_request> many;

    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    for (int i = 0; i < 12; i++)
        many.push_back(request(SWL_WQE_WRITE, 1, 1));
    EXPECT_EQ(post(many), 8u);
    EXPECT_EQ(post({many[8]}), 0u);
    expect_done(107);
    EXPECT_EQ(post({many.begin() + 8, many.end()}), 4u);
    expect_done(111);
}

// What each end has, and what the pair then uses.
TEST_F(VerbsWire, BothEndsUseTheWorseOfTheirTwoWays)
{
    for (uint32_t a : {SWL_ADDS_ATOMICS, SWL_ADDS_MESSAGES})
        for (uint32_t b : {SWL_ADDS_ATOMICS, SWL_ADDS_MESSAGES}) {
            next = 100;
            words[1][3] = 0;
            ASSERT_EQ(open_both(a, b), ncclSuccess) << swl_last_error();
            for (int i = 0; i < 4; i++) {
                ASSERT_EQ(post({request(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 1u);
                (void)poll(1);
                expect_done(100 + static_cast<uint64_t>(i));
            }
            EXPECT_EQ(words[1][3], 4u);
            EXPECT_EQ(fake.sends, a == SWL_ADDS_MESSAGES || b == SWL_ADDS_MESSAGES ? 4u : 0u)
                << a << b;
            for (struct swl_wire *&w : wire) {
                EXPECT_EQ(w->ops->close(w), ncclSuccess) << swl_last_error();
                w = nullptr;
            }
            fake_end();
            verbs = fake_machine();
        }
}

TEST_F(VerbsWire, AddByMessageIsCompleteWhenThePeerHasAppliedIt)
{
    ASSERT_EQ(open_both(SWL_ADDS_MESSAGES), ncclSuccess) << swl_last_error();
    for (int i = 0; i < 100; i++) {
        const uint64_t value = (i % 3 ? 0 : 1ull << 50) + static_cast<uint64_t>(i),
                       before = words[1][3];

        ASSERT_EQ(post({request(SWL_WQE_FETCH_ADD, 5, 3, value)}), 1u);
        EXPECT_TRUE(poll(0).empty()) << "it has only been sent";
        EXPECT_EQ(words[1][3], before);
        EXPECT_TRUE(poll(1).empty());
        EXPECT_EQ(words[1][3], before + value);
        expect_done(100 + static_cast<uint64_t>(i));
    }
    EXPECT_EQ(fake.dry, 0u);
}

TEST_F(VerbsWire, MessagesTravelInOnePostWithTheWritesBeforeThem)
{
    fake.atomic_cap = 0;
    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    words[0][1] = 11;
    words[0][2] = 22;
    ASSERT_EQ(
        post({request(SWL_WQE_WRITE, 1, 1), request(SWL_WQE_WRITE, 2, 2),
              request(SWL_WQE_FETCH_ADD, 5, 3, 2), request(SWL_WQE_FETCH_ADD, 5, 4, 1ull << 60)}),
        4u);
    EXPECT_EQ(fake.posts, std::vector<size_t>({4}));
    EXPECT_EQ(fake.sends, 2u);
    EXPECT_EQ(words[1][1], 11u);
    EXPECT_EQ(words[1][2], 22u);
    expect_done(101);
    (void)poll(1);
    EXPECT_EQ(words[1][3], 2u);
    EXPECT_EQ(words[1][4], 1ull << 60);
    expect_done(103);
}

TEST_F(VerbsWire, AddBehindAKeyThatHasGoneIsRefused)
{
    static uint64_t more[8];
    struct swl_nic_region of;

    ASSERT_EQ(open_both(SWL_ADDS_MESSAGES), ncclSuccess) << swl_last_error();
    ASSERT_EQ(wire[1]->ops->reg_mr(wire[1], more, sizeof(more), everything, &of), ncclSuccess);
    auto r = request(SWL_WQE_FETCH_ADD, 5, 3, 1);

    r.remote = reinterpret_cast<uintptr_t>(&more[1]);
    r.rkey = of.rkey;
    ASSERT_EQ(post({r}), 1u);
    (void)poll(1);
    expect_done(100);
    EXPECT_EQ(more[1], 1u);
    EXPECT_EQ(wire[1]->ops->dereg_mr(wire[1], &of), ncclSuccess);
    r.index = next++;
    ASSERT_EQ(post({r}), 1u);
    (void)poll(1);
    expect_done(101, SWL_SYNDROME_REMOTE_ACCESS);
    EXPECT_EQ(more[1], 1u);
    EXPECT_EQ(fake.dry, 0u);
}

TEST_F(VerbsWire, AFailedWriteIsNamedAndNotTheAddBehindIt)
{
    ASSERT_EQ(open_both(SWL_ADDS_MESSAGES), ncclSuccess) << swl_last_error();
    ASSERT_EQ(post({request(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 1u);
    (void)poll(1);
    expect_done(100);
    fake.next_status = 10;
    ASSERT_EQ(post({request(SWL_WQE_WRITE, 1, 1), request(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 2u);
    expect_done(101, SWL_SYNDROME_REMOTE_ACCESS);
    (void)poll(1);
    EXPECT_EQ(words[1][3], 1u);
}

TEST_F(VerbsWire, IwarpDeviceIsRefusedByName)
{
    struct swl_nic_config nic = {};
    char why[256] = "";

    fake.transport = VERBS_IWARP;
    EXPECT_EQ(open_both(), ncclSystemError);
    EXPECT_NE(strstr(swl_last_error(), "fake0 is an iWARP device"), nullptr) << swl_last_error();
    EXPECT_FALSE(swl_verbs_wire_usable(&verbs, &nic, why, sizeof(why)));
    EXPECT_NE(strstr(why, "fake0 is an iWARP device"), nullptr) << why;
}

TEST_F(VerbsWire, RefusedMessageComesBackAsASyndrome)
{
    ASSERT_EQ(open_both(SWL_ADDS_MESSAGES), ncclSuccess) << swl_last_error();
    auto good = request(SWL_WQE_FETCH_ADD, 5, 3, 1), bad = request(SWL_WQE_FETCH_ADD, 5, 3, 1),
         later = request(SWL_WQE_FETCH_ADD, 5, 3, 1);

    bad.rkey++;
    ASSERT_EQ(post({good, bad, later}), 3u);
    EXPECT_TRUE(poll(1).empty());
    EXPECT_EQ(words[1][3], 1u) << "nothing behind the refused one";
    expect_done(100);
    expect_done(101, SWL_SYNDROME_REMOTE_ACCESS);
    EXPECT_TRUE(poll(0).empty());
}

TEST_F(VerbsWire, StatusOfACompletionBecomesASyndrome)
{
    const struct {
        uint32_t status, syndrome;
    } rows[] = {{4, SWL_SYNDROME_LOCAL_PROTECTION},
                {10, SWL_SYNDROME_REMOTE_ACCESS},
                {12, SWL_SYNDROME_RETRY},
                {13, SWL_SYNDROME_RNR_RETRY},
                {21, SWL_SYNDROME_LOCAL_OPERATION}};

    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    for (const auto &row : rows) {
        next = 100;
        ASSERT_EQ(post({request(SWL_WQE_WRITE, 1, 1)}), 1u);
        expect_done(100);
        fake.next_status = row.status;
        ASSERT_EQ(post({request(SWL_WQE_WRITE, 1, 1), request(SWL_WQE_WRITE, 1, 1)}), 2u);
        expect_done(101, row.syndrome);
        EXPECT_TRUE(poll(0).empty()) << "the first error is the last completion";
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(wire[n]->ops->reset(wire[n], qp[n]), ncclSuccess);
        ASSERT_EQ(connect_both(), ncclSuccess);
    }
}

TEST_F(VerbsWire, EventOfTheDeviceEndsItsQueuePair)
{
    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    fake.events.push_back({fake.queues.rbegin()->second, VERBS_EVENT_QP_FATAL});
    EXPECT_FALSE(wire[0]->ops->progress(wire[0])) << "that is the other end's";
    EXPECT_TRUE(poll(0).empty());
    fake.events.push_back({fake.queues.begin()->second, VERBS_EVENT_QP_FATAL});
    for (int i = 0; i < 256; i++)
        (void)wire[0]->ops->progress(wire[0]);
    expect_done(100, SWL_SYNDROME_REMOTE_OPERATION);
}

TEST_F(VerbsWire, FailureOfAnyCallIsReportedAndNothingIsLeft)
{
    for (int at = 1;; at++) {
        ncclResult_t rc;
        std::string said;

        fake_end();
        verbs = fake_machine();
        fake.atomic_cap = at % 2;
        fake.fail_at = at;
        swl_call_begin("test", 0);
        rc = open_both();
        if (rc == ncclSuccess)
            rc = wire[0]->ops->to_error(wire[0], qp[0]);
        for (int n = 0; n < 2 && rc == ncclSuccess; n++)
            rc = wire[n]->ops->reset(wire[n], qp[n]);
        if (rc == ncclSuccess)
            rc = connect_both();
        if (rc == ncclSuccess)
            rc = wire[0]->ops->dereg_mr(wire[0], &region[0]);
        for (struct swl_wire *&w : wire) {
            const ncclResult_t ended = w ? w->ops->close(w) : ncclSuccess;

            rc = rc != ncclSuccess ? rc : ended;
            w = nullptr;
        }
        said = swl_last_error();
        swl_call_end();
        EXPECT_TRUE(fake.alive.empty()) << "call " << at << ", " << fake.failed;
        if (fake.failed.empty()) {
            EXPECT_EQ(rc, ncclSuccess) << said;
            EXPECT_GT(at, 30) << "calls of a whole life";
            if (at % 2 == 1)
                break;
            continue;
        }
        EXPECT_NE(rc, ncclSuccess) << "call " << at << ", " << fake.failed;
        EXPECT_NE(said.find("fake0"), std::string::npos) << fake.failed << ": " << said;
    }
}

// The reason of the call that failed, or that all is well; nothing stays open.
TEST_F(VerbsWire, WhyItIsNotUsableNamesTheCause)
{
    struct swl_nic_config nic = {};
    std::string domain, memory;
    char why[256];
    bool usable;

    for (int at = 1; at < 30; at++) {
        fake_end();
        verbs = fake_machine();
        fake.fail_at = at;
        why[0] = '\0';
        usable = swl_verbs_wire_usable(&verbs, &nic, why, sizeof(why));
        EXPECT_EQ(usable, fake.failed.empty() || fake.failed.find("ibv_de") == 0 ||
                              fake.failed == "ibv_close_device")
            << fake.failed << ": " << why;
        EXPECT_TRUE(fake.alive.empty()) << fake.failed;
        domain = fake.failed == "ibv_alloc_pd" ? why : domain;
        memory = fake.failed == "ibv_reg_mr" ? why : memory;
    }
    EXPECT_EQ(domain, "fake0 gives no protection domain: Cannot allocate memory");
    EXPECT_NE(memory.find("fake0 cannot register memory of the GPU"), std::string::npos) << memory;
    EXPECT_NE(memory.find(": Cannot allocate memory"), std::string::npos) << memory;
}

} // namespace
