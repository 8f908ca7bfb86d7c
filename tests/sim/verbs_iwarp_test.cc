// The verbs wire on an iWARP device: connections by librdmacm, confirmations, ends of connections. Over
// fakes of both libraries; on a real stack it runs in the virtual machine (tests/verbs).
#include "tests/sim/verbs_fixture.h"

namespace
{

class VerbsIwarp : public VerbsWire
{
  protected:
    VerbsIwarp()
    {
        be_iwarp();
    }
    static void be_iwarp()
    {
        fake.transport = VERBS_IWARP;
        fake.atomic_cap = 0;
    }
    // What the serving threads of both ends do, for long enough.
    void serve()
    {
        for (int i = 0; i < 8; i++)
            for (int n = 0; n < 2; n++)
                if (wire[n]) {
                    (void)wire[n]->ops->progress(wire[n]);
                    for (const auto &d : poll(n))
                        done[n].push_back(d);
                }
    }
    uint32_t post_on(int n, const std::vector<struct swl_wire_request> &r)
    {
        return wire[n]->ops->post(wire[n], qp[n], r.data(), static_cast<uint32_t>(r.size()));
    }

    std::vector<struct swl_wire_done> done[2];
};

TEST_F(VerbsIwarp, EndsFindEachOtherAndAddByMessage)
{
    for (int round = 0; round < 3; round++) {
        next = 100;
        done[0].clear();
        ASSERT_EQ(round ? connect_both() : open_both(), ncclSuccess) << swl_last_error();
        serve();
        words[0][1] = 11;
        words[1][3] = 0;
        ASSERT_EQ(post({request(SWL_WQE_WRITE, 1, 1), request(SWL_WQE_FETCH_ADD, 5, 3, 2)}), 2u);
        serve();
        ASSERT_FALSE(done[0].empty());
        EXPECT_EQ(done[0].back().index, 101u);
        EXPECT_EQ(done[0].back().syndrome, 0u);
        EXPECT_EQ(words[1][1], 11u);
        EXPECT_EQ(words[1][3], 2u);
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(wire[n]->ops->reset(wire[n], qp[n]), ncclSuccess);
    }
    EXPECT_EQ(fake.immediates, 0u);
    EXPECT_EQ(fake.dry, 0u);
}

// The end that connects greets the other, which sends nothing before it has been greeted.
TEST_F(VerbsIwarp, NobodySendsBeforeTheConnectionIsOpen)
{
    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    EXPECT_EQ(post({request(SWL_WQE_WRITE, 1, 1)}), 0u);
    serve();
    EXPECT_EQ(fake.sends, 1u);
    for (int n = 0; n < 2; n++) {
        next = 100;
        EXPECT_EQ(post_on(n, {request(SWL_WQE_NOP, 0, 0)}), 1u);
    }
}

TEST_F(VerbsIwarp, RequestThatComesBeforeConnectIsHeld)
{
    struct swl_wire_address a[2];

    for (int first = 0; first < 2; first++) {
        ASSERT_EQ(first ? ncclSuccess : open_both(), ncclSuccess) << swl_last_error();
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(wire[n]->ops->reset(wire[n], qp[n]), ncclSuccess);
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(wire[n]->ops->address(wire[n], qp[n], &a[n]), ncclSuccess);
        ASSERT_EQ(wire[first]->ops->connect(wire[first], qp[first], &a[1 - first]), ncclSuccess);
        serve();
        ASSERT_EQ(wire[1 - first]->ops->connect(wire[1 - first], qp[1 - first], &a[first]),
                  ncclSuccess);
        serve();
        next = 100;
        EXPECT_EQ(post({request(SWL_WQE_NOP, 0, 0)}), 1u);
    }
    EXPECT_EQ(fake.rejected, 0u);
}

// A WRITE of iWARP is sent when it completes, and placed when what is behind it has arrived.
TEST_F(VerbsIwarp, WriteIsCompleteWhenThePeerHasConfirmedIt)
{
    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    serve();
    fake.posts.clear();
    ASSERT_EQ(post({request(SWL_WQE_WRITE, 1, 1), request(SWL_WQE_WRITE, 2, 2)}), 2u);
    EXPECT_EQ(fake.posts, std::vector<size_t>({3})) << "with a confirmation";
    EXPECT_TRUE(poll(0).empty()) << "only sent";
    (void)poll(1);
    expect_done(101);
    ASSERT_EQ(post({request(SWL_WQE_WRITE, 1, 1), request(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 2u);
    EXPECT_EQ(fake.posts.back(), 2u) << "the add confirms";
    serve();
    ASSERT_EQ(post({request(SWL_WQE_WRITE, 1, 1), request(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 2u);
    words[1][4] = 44;
    ASSERT_EQ(post({request(SWL_WQE_READ, 7, 4)}), 1u);
    EXPECT_EQ(fake.posts.back(), 1u) << "a READ confirms itself";
    serve();
    EXPECT_EQ(done[0].back().index, 106u);
    EXPECT_EQ(words[0][7], 44u);
}

TEST_F(VerbsIwarp, RefusedAddIsNamedAndNotTheWriteBeforeIt)
{
    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    serve();
    auto bad = request(SWL_WQE_FETCH_ADD, 5, 3, 1);
    next = 100;
    const auto write = request(SWL_WQE_WRITE, 1, 1);

    bad.index = 101;
    bad.rkey++;
    ASSERT_EQ(post({write, bad}), 2u);
    serve();
    ASSERT_EQ(done[0].size(), 2u);
    EXPECT_EQ(done[0][0].index, 100u);
    EXPECT_EQ(done[0][1].index, 101u);
    EXPECT_EQ(done[0][1].syndrome, static_cast<uint32_t>(SWL_SYNDROME_REMOTE_ACCESS));
}

TEST_F(VerbsIwarp, EndOfTheConnectionIsAnErrorForWhoWantsSomething)
{
    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    serve();
    EXPECT_EQ(wire[1]->ops->close(wire[1]), ncclSuccess);
    wire[1] = nullptr;
    for (int i = 0; i < 40; i++)
        serve();
    EXPECT_TRUE(done[0].empty());
    ASSERT_EQ(post({request(SWL_WQE_WRITE, 1, 1)}), 1u);
    serve();
    ASSERT_EQ(done[0].size(), 1u);
    EXPECT_EQ(done[0][0].index, 100u);
    EXPECT_EQ(done[0][0].syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
}

// The number of before a reset. Whether this end connects at all is a matter of chance.
TEST_F(VerbsIwarp, WrongNumberIsRejected)
{
    struct swl_wire_address a;

    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    for (int i = 0; i < 64 && fake.rejected == 0; i++) {
        ASSERT_EQ(wire[1]->ops->address(wire[1], qp[1], &a), ncclSuccess);
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(wire[n]->ops->reset(wire[n], qp[n]), ncclSuccess);
        ASSERT_EQ(wire[0]->ops->connect(wire[0], qp[0], &a), ncclSuccess);
        done[0].clear();
        for (int k = 0; k < 40; k++) // who waits for nobody seldom looks
            serve();
    }
    EXPECT_GE(fake.rejected, 1u);
    next = 100;
    EXPECT_EQ(post({request(SWL_WQE_WRITE, 1, 1)}), 1u);
    serve();
    ASSERT_EQ(done[0].size(), 1u);
    EXPECT_EQ(done[0][0].syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
    EXPECT_EQ(words[1][1], 0u);
}

TEST_F(VerbsIwarp, AddressOfAnotherKindIsRefused)
{
    struct swl_wire_address a = {};

    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    ASSERT_EQ(wire[0]->ops->reset(wire[0], qp[0]), ncclSuccess);
    EXPECT_EQ(wire[0]->ops->connect(wire[0], qp[0], &a), ncclInvalidUsage);
    EXPECT_NE(strstr(swl_last_error(), "another kind"), nullptr) << swl_last_error();
}

TEST_F(VerbsIwarp, DeviceWithoutAnAddressIsRefusedWithASentence)
{
    fake.has_ip = false;
    EXPECT_EQ(open_both(), ncclSystemError);
    EXPECT_NE(strstr(swl_last_error(), "no IP address"), nullptr) << swl_last_error();
}

TEST_F(VerbsIwarp, ReadsMayWriteWhereverTheOwnerMay)
{
    struct swl_nic_region r;

    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    ASSERT_EQ(wire[0]->ops->reg_mr(wire[0], words[0], 64, SWL_NIC_LOCAL_WRITE, &r), ncclSuccess);
    EXPECT_TRUE(fake.last_access & VERBS_ACCESS_REMOTE_WRITE);
}

// A failed call is an error of the host's call, or of whoever posts; nothing is left in either case. Which
// end connects is a matter of chance: each call is tried several times.
TEST_F(VerbsIwarp, FailureOfAnyCallIsReportedAndNothingIsLeft)
{
    // others are tried in their place
    const std::set<std::string> tolerated = {"ibv_open_device", "ibv_close_device",
                                             "rdma_bind_addr", "rdma_create_id"};
    std::set<std::string> seen;
    int healthy = 0;

    for (int i = 8; healthy < 8; i++) {
        const int at = i / 8;
        ncclResult_t rc;

        fake_end();
        verbs = fake_machine();
        be_iwarp();
        fake.fail_at = at;
        done[0].clear();
        next = 100;
        swl_call_begin("test", 0);
        rc = open_both();
        if (rc == ncclSuccess) {
            serve();
            (void)post({request(SWL_WQE_WRITE, 1, 1)});
            serve();
        }
        const bool moved = !done[0].empty() && done[0].back().syndrome == 0;
        for (struct swl_wire *&w : wire) {
            const ncclResult_t ended = w ? w->ops->close(w) : ncclSuccess;

            rc = rc != ncclSuccess ? rc : ended;
            w = nullptr;
        }
        swl_call_end();
        EXPECT_TRUE(fake.alive.empty()) << "call " << at << ", " << fake.failed;
        if (fake.failed.empty()) {
            healthy++;
            EXPECT_TRUE(moved && rc == ncclSuccess);
        } else if (tolerated.count(fake.failed) == 0) {
            EXPECT_TRUE(!moved || rc != ncclSuccess) << "call " << at << ", " << fake.failed;
        }
        seen.insert(fake.failed);
    }
    for (const char *name :
         {"rdma_create_event_channel", "rdma_create_id", "rdma_bind_addr", "rdma_listen",
          "rdma_resolve_addr", "rdma_resolve_route", "rdma_connect", "rdma_accept"})
        EXPECT_EQ(seen.count(name), 1u) << name;
}

} // namespace
