// Queue pairs of the mlx5 NIC over the fake: creation, connection, failure, reset.
#include "tests/support/mlx5_wire.h"
#include "tests/unit/devx_fixture.h"
#include "transport/wqe.h"

#include <set>
#include <string>

namespace
{

using DevxPair = Mlx5Pair;

TEST_F(DevxPair, CreationTellsTheDeviceWhereEverythingIs)
{
    fake.ts_format = 1;
    open();
    const FakeCommand *cq = fake.last(0x400), *created = fake.last(0x500), *init = fake.last(0x502);
    ASSERT_TRUE(cq && created && init);
    EXPECT_EQ(wire::get(cq->in.data(), wire::c_eqn), 7u);
    EXPECT_EQ(wire::get(cq->in.data(), wire::cqc_uar_page), 0x321u);
    EXPECT_EQ(wire::get(cq->in.data(), wire::log_cq_size), 8u);
    EXPECT_EQ(wire::get(created->in.data(), wire::uar_page), 0x321u);
    EXPECT_EQ(wire::get(created->in.data(), wire::pd), 0x4711u);
    EXPECT_EQ(wire::get(created->in.data(), wire::log_sq_size), 8u);
    EXPECT_EQ(wire::get(created->in.data(), wire::ts_format), 1u);
    EXPECT_EQ(wire::get(init->in.data(), wire::vhca_port_num), 1u);
    EXPECT_EQ(wire::get(init->in.data(), wire::pkey_index), 2u); // D-C.9: of a full member
    for (int n = 0; n < 2; n++) {
        const struct swl_qp v = view(n);
        const FakeQp &q = fake.qps.at(v.qpn);

        EXPECT_EQ(q.state, 1u);
        EXPECT_EQ(reinterpret_cast<const uint8_t *>(v.cq), q.completion);
        EXPECT_EQ(reinterpret_cast<uint8_t *>(v.dbr), q.record);
        EXPECT_EQ(v.cq[15], ~0u); // no completion yet
        EXPECT_EQ(v.dbr[1], 0u);
        EXPECT_EQ(v.depth_log2, 8u);
        for (int i = 0; i < 256 * 64; i++)
            ASSERT_EQ(v.sq[i], 0);
        EXPECT_NE(v.doorbell, nullptr);
        EXPECT_NE(v.sink_lkey, 0u);
        EXPECT_EQ(v.reserved, 0u);
        EXPECT_EQ(query(n).state, SWL_NIC_QP_INIT); // without asking the device
    }
    EXPECT_EQ(fake.last(0x50b), nullptr);
}

TEST_F(DevxPair, ConnectionTakesWhatBothEndsSay)
{
    fake.ports[0].mtu = 5;
    fake.ports[1].mtu = 3;
    fake.reads_out = 4;
    fake.reads_in = 3;
    ib.tc = 106;
    ib.sl = 3;
    ib.timeout = 18;
    open();
    for (int n = 0; n < 2; n++) {
        ASSERT_EQ(connect(n), ncclSuccess) << swl_last_error();
        EXPECT_EQ(query(n).state, SWL_NIC_QP_READY);
        const uint8_t *rtr = fake.last(0x503)->in.data(), *rts = fake.last(0x504)->in.data();

        EXPECT_EQ(wire::get(rtr, wire::mtu), 3u);
        EXPECT_EQ(wire::get(rtr, wire::remote_qpn), view(1 - n).qpn);
        EXPECT_EQ(wire::get(rtr, wire::log_rra_max), 3u);
        EXPECT_EQ(wire::get(rts, wire::log_sra_max), 3u);
        EXPECT_EQ(wire::get(rtr, wire::src_addr_index), 3u);
        EXPECT_EQ(wire::get(rtr, wire::rgid_low), 0x0000ffff0a000000u + (n == 0 ? 2 : 1));
        EXPECT_EQ(wire::get(rtr, wire::rmac_high), 0xb0b1u);
        EXPECT_EQ(wire::get(rtr, wire::rmac_low), 0xb2b3b4b5u);
        EXPECT_EQ(wire::get(rtr, wire::dscp), 26u);
        EXPECT_EQ(wire::get(rtr, wire::eth_prio), 3u);
        EXPECT_EQ(wire::get(rtr, wire::ack_timeout), 18u);
        EXPECT_EQ(fake.count("ah"), 0);
        EXPECT_EQ(fake.ah.is_global, 1);
        EXPECT_EQ(fake.ah.static_rate, 0);
        EXPECT_EQ(fake.ah.traffic_class, 106);
    }
}

TEST_F(DevxPair, PacketNumbersCross)
{
    open();
    uint64_t receives[2], sends[2];
    for (int n = 0; n < 2; n++) {
        ASSERT_EQ(connect(n), ncclSuccess);
        receives[n] = wire::get(fake.last(0x503)->in.data(), wire::next_rcv_psn);
        sends[n] = wire::get(fake.last(0x504)->in.data(), wire::next_send_psn);
    }
    EXPECT_EQ(receives[0], sends[1]);
    EXPECT_EQ(receives[1], sends[0]);
    EXPECT_NE(sends[0], sends[1]);
}

TEST_F(DevxPair, OptionsOfBothFirmwaresAreUsedWhereBothHaveThem)
{
    open();
    ASSERT_EQ(connect(0), ncclSuccess);
    EXPECT_EQ(wire::get(fake.last(0x503)->in.data(), wire::ece), 0u);
    close();
    fake.ece = true;
    open();
    ASSERT_EQ(connect(0), ncclSuccess);
    const uint64_t both = (0x70000000u | view(0).qpn) & (0x70000000u | view(1).qpn);
    EXPECT_EQ(wire::get(fake.last(0x503)->in.data(), wire::ece), both);
    EXPECT_EQ(wire::get(fake.last(0x504)->in.data(), wire::ece), both);
}

TEST_F(DevxPair, InfinibandNeedsNoAddressHandle)
{
    for (auto &p : fake.ports)
        p.ethernet = false;
    fake.ports[0].lid = 7;
    fake.ports[1].lid = 8;
    open();
    ASSERT_EQ(connect(0), ncclSuccess) << swl_last_error();
    const uint8_t *rtr = fake.last(0x503)->in.data();
    EXPECT_EQ(wire::get(rtr, wire::rlid), 8u);
    EXPECT_EQ(wire::get(rtr, wire::grh), 0u);
    EXPECT_EQ(wire::get(rtr, wire::rmac_low), 0u);
    EXPECT_EQ(fake.ah.port_num, 0);
    fake.ports[1].flags = VERBS_PORT_GRH_REQUIRED; // seen when a NIC is made
    ASSERT_EQ(nic[1]->ops->destroy(nic[1]), ncclSuccess);
    ASSERT_EQ(create(&nic[1], 1), ncclSuccess);
    ASSERT_EQ(nic[1]->ops->create_qp(nic[1], &qp[1]), ncclSuccess);
    ASSERT_EQ(nic[0]->ops->reset(nic[0], qp[0]), ncclSuccess);
    exchange();
    ASSERT_EQ(connect(0), ncclSuccess) << swl_last_error();
    EXPECT_EQ(wire::get(fake.last(0x503)->in.data(), wire::grh), 1u);
}

TEST_F(DevxPair, ConnectionsThatCannotBeAreRefused)
{
    open();
    struct swl_nic_address strange = {};
    EXPECT_EQ(nic[0]->ops->connect(nic[0], qp[0], &strange), ncclInvalidUsage);
    expect_said("another kind or version");
    ASSERT_EQ(connect(0), ncclSuccess);
    EXPECT_EQ(connect(0), ncclInvalidUsage);
    expect_said("already connected");
    ASSERT_EQ(nic[0]->ops->to_error(nic[0], qp[0]), ncclSuccess);
    EXPECT_EQ(connect(0), ncclInvalidUsage);
    expect_said("in error: reset it");
    fake.ports[1].ethernet = false;
    fake.ports[1].lid = 3;
    ASSERT_EQ(nic[1]->ops->destroy(nic[1]), ncclSuccess);
    ASSERT_EQ(create(&nic[1], 1), ncclSuccess);
    ASSERT_EQ(nic[1]->ops->create_qp(nic[1], &qp[1]), ncclSuccess);
    exchange();
    EXPECT_EQ(connect(1), ncclInvalidUsage);
    expect_said("one end is on InfiniBand");
}

TEST_F(DevxPair, F10_FailedQueuePairsAreNamedWithSyndromeAndEntry)
{
    for (uint32_t entry : {0u, 1u, 127u, 128u, 5000u})
        for (uint8_t syndrome : {0x15, 0x13, 0x05}) {
            open();
            ASSERT_EQ(connect(0), ncclSuccess);
            ASSERT_EQ(connect(1), ncclSuccess);
            fake.break_qp(view(0).qpn, entry, syndrome);
            const struct swl_nic_qp_status s = query(0);
            EXPECT_EQ(s.state, SWL_NIC_QP_ERROR);
            EXPECT_EQ(s.qpn, view(0).qpn);
            EXPECT_EQ(s.syndrome, syndrome);
            EXPECT_EQ(s.index, entry);
            EXPECT_EQ(query(1).state, SWL_NIC_QP_READY);
            const size_t commands = fake.commands.size();
            EXPECT_EQ(query(0).syndrome, syndrome); // known: the device is not asked again
            EXPECT_EQ(fake.commands.size(), commands);
            close();
        }
}

TEST_F(DevxPair, FailureWithoutACompletionHasNoSyndrome)
{
    open();
    ASSERT_EQ(connect(0), ncclSuccess);
    fake.qps.at(view(0).qpn).state = 6; // as a responder that refused a request
    const struct swl_nic_qp_status s = query(0);
    EXPECT_EQ(s.state, SWL_NIC_QP_ERROR);
    EXPECT_EQ(s.syndrome, 0u);
}

TEST_F(DevxPair, ErrorOnDemandFlushes)
{
    open();
    ASSERT_EQ(connect(0), ncclSuccess);
    ASSERT_EQ(nic[0]->ops->to_error(nic[0], qp[0]), ncclSuccess);
    EXPECT_EQ(fake.qps.at(view(0).qpn).state, 6u);
    EXPECT_EQ(query(0).state, SWL_NIC_QP_ERROR);
    EXPECT_EQ(query(0).syndrome, uint32_t{SWL_SYNDROME_FLUSHED});
    const size_t commands = fake.commands.size();
    EXPECT_EQ(nic[0]->ops->to_error(nic[0], qp[0]), ncclSuccess);
    EXPECT_EQ(fake.commands.size(), commands);
}

TEST_F(DevxPair, ResetQueuePairsStartAnewAndRefuseOldPackets)
{
    open();
    for (int round = 0; round < 5; round++) {
        uint64_t old_psn[2];

        for (int n = 0; n < 2; n++) {
            ASSERT_EQ(connect(n), ncclSuccess) << swl_last_error();
            old_psn[n] = wire::get(fake.last(0x504)->in.data(), wire::next_send_psn);
        }
        fake.break_qp(view(0).qpn, 17, 0x15);
        view(0).dbr[1] = 0x1200; // posted
        EXPECT_EQ(query(0).state, SWL_NIC_QP_ERROR);
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(nic[n]->ops->reset(nic[n], qp[n]), ncclSuccess) << swl_last_error();
        EXPECT_EQ(view(0).dbr[1], 0u);
        EXPECT_EQ(view(0).cq[15], ~0u);
        EXPECT_EQ(query(0).state, SWL_NIC_QP_INIT);
        EXPECT_EQ(query(0).syndrome, 0u);
        exchange();
        ASSERT_EQ(connect(1), ncclSuccess);
        const uint64_t expected = wire::get(fake.last(0x503)->in.data(), wire::next_rcv_psn);
        const uint64_t ahead = (expected - old_psn[0]) & 0xffffff;
        EXPECT_GE(ahead, 1u << 22);
        EXPECT_LE(ahead, 3u << 22);
        ASSERT_EQ(nic[1]->ops->reset(nic[1], qp[1]), ncclSuccess);
        exchange();
    }
}

TEST_F(DevxPair, AQueuePairThatFailedToConnectConnectsAfterwards)
{
    for (const char *call :
         {"ibv_create_ah", "mlx5dv_init_obj", "obj_modify 0x503", "obj_modify 0x504"})
        expect_connection_after(call);
}

TEST_F(DevxPair, AQueuePairThatFailedToResetIsInErrorUntilItDoes)
{
    for (const char *step : {"obj_modify 0x50a", "swl_gpu_copy", "obj_modify 0x502"}) {
        open();
        ASSERT_EQ(connect(0), ncclSuccess);
        fake.fail(step);
        EXPECT_NE(nic[0]->ops->reset(nic[0], qp[0]), ncclSuccess) << step;
        EXPECT_EQ(query(0).state, SWL_NIC_QP_ERROR) << step;
        EXPECT_EQ(connect(0), ncclInvalidUsage) << step;
        EXPECT_EQ(nic[0]->ops->reset(nic[0], qp[0]), ncclSuccess) << step << swl_last_error();
        EXPECT_EQ(query(0).state, SWL_NIC_QP_INIT) << step;
        close();
    }
}

} // namespace
