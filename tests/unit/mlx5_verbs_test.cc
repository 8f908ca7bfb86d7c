// The mlx5 NIC over verbs and the fake: creation, rings, doorbells, connection, failure, reset.
#include "tests/unit/devx_fixture.h"
#include "tests/unit/sysfs_tree.h"
#include "transport/mlx5/mlx5.h"

#include "transport/wqe.h"
#include <unistd.h>

#include <set>
#include <string>

static uid_t user;

/* Who asks: root may more than others. */
extern "C" uid_t geteuid(void) noexcept
{
    return user;
}

namespace
{

class Verbs : public Devx
{
  protected:
    Verbs()
    {
        maker = &swl_mlx5_verbs_maker;
    }
};

class VerbsPair : public Mlx5Pair
{
  protected:
    VerbsPair()
    {
        maker = &swl_mlx5_verbs_maker;
    }
};

TEST_F(Verbs, CreatesAndGivesBackEverythingWithoutFirmwareCommands)
{
    struct swl_nic *nic = nullptr;
    struct swl_nic_caps caps;

    ASSERT_EQ(create(&nic), ncclSuccess) << swl_last_error();
    nic->ops->caps(nic, &caps);
    EXPECT_STREQ(caps.name, "mlx5");
    EXPECT_STREQ(caps.device, "mlx5_0");
    EXPECT_EQ(caps.device_bytes, 0u);
    EXPECT_TRUE(fake.commands.empty());
    EXPECT_EQ(fake.count("gpu"), 0);
    EXPECT_EQ(fake.accesses, std::vector<int>{1}); // sinks
    EXPECT_EQ(nic->ops->destroy(nullptr), ncclSuccess);
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Verbs, SettingsThatNoDeviceHasAreRefused)
{
    struct swl_nic *nic = nullptr;

    config.depth = 3;
    EXPECT_EQ(create(&nic), ncclInvalidArgument);
    expect_said("power of two");
    config.depth = 256;
    fake.max_qp_wr = 1;
    EXPECT_EQ(create(&nic), ncclInvalidUsage);
    expect_said("mlx5_0 has queues of at most 1 entries");
    fake.max_qp_wr = 32768;
    config.first_index = 65535;
    EXPECT_EQ(create(&nic), ncclInvalidUsage);
    expect_said("SWIMLANE_START_POSITION");
    config.first_index = 0;
    fake.atomic = false;
    EXPECT_EQ(create(&nic), ncclSystemError);
    expect_said("mlx5_0 has no remote adds");
}

TEST_F(Verbs, D_C9_QueuesAreNoDeeperThanTheDeviceHasThem)
{
    const struct {
        uint32_t asked;
        int most;
        uint32_t log2; // of blocks: three for an entry, then a power of two
    } cases[] = {{256, 100, 8}, {256, 256, 10}, {16384, 32768, 15}};

    for (const auto &c : cases) {
        struct swl_nic *nic = nullptr;
        struct swl_qp v;
        uint32_t qp;

        config.depth = c.asked;
        fake.max_qp_wr = c.most;
        ASSERT_EQ(create(&nic), ncclSuccess) << swl_last_error();
        ASSERT_EQ(nic->ops->create_qp(nic, &qp), ncclSuccess) << swl_last_error();
        ASSERT_EQ(nic->ops->view(nic, qp, &v), ncclSuccess);
        EXPECT_EQ(v.depth_log2, c.log2);
        EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
    }
}

TEST_F(Verbs, QueuesThatAreNotAsDeviceCodeNeedsThemAreRefused)
{
    struct swl_nic *nic = nullptr;
    uint32_t qp;

    ASSERT_EQ(create(&nic), ncclSuccess);
    fake.wqe_stride = 128;
    EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclSystemError);
    expect_said("of 128 bytes");
    fake.wqe_stride = 64;
    fake.wqe_blocks = 200;
    EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclSystemError);
    expect_said("a queue of 65536 entries");
    fake.wqe_blocks = 3;
    fake.cqe_size = 128;
    EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclSystemError);
    expect_said("a completion queue of 2 entries of 128 bytes");
    fake.cqe_size = 64;
    fake.cqe_count = 32;
    EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclSystemError);
    expect_said("a completion queue of 32 entries");
    fake.cqe_count = 2;
    for (fake.foreign_ring = 3; fake.foreign_ring > 0; fake.foreign_ring--) {
        EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclSystemError);
        expect_said("in memory that the GPU does not reach");
    }
    EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclSuccess) << swl_last_error();
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Verbs, DriverOptionThatIsMissingIsNamed)
{
    struct swl_nic *nic = nullptr;
    uint32_t qp;

    ASSERT_EQ(create(&nic), ncclSuccess);
    fake.map_error = cudaErrorNotPermitted;
    EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclSystemError);
    expect_said("PeerMappingOverride=1");
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Verbs, RegionThatIsRefusedInOnePieceIsRefused)
{
    struct swl_nic *nic = nullptr;
    struct swl_nic_region r;
    void *const remote_memory = reinterpret_cast<void *>(0x123456789000);

    ASSERT_EQ(create(&nic), ncclSuccess);
    fake.max_mr_bytes = 1ull << 30;
    EXPECT_EQ(nic->ops->reg_mr(nic, remote_memory, 3ull << 30, SWL_NIC_REMOTE_WRITE, &r),
              ncclSystemError); // an indirect key takes firmware commands
    expect_said("cannot register 3221225472 bytes");
    EXPECT_TRUE(fake.commands.empty());
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Verbs, PartsOfQueuePairsAreApartAndDoorbellPagesAreMappedOnce)
{
    std::set<std::pair<uintptr_t, uintptr_t>> ranges; // begin, end
    std::set<const void *> doorbells;
    struct swl_nic *nic = nullptr;
    uint32_t qp;

    config.max_qps = 70; // more than a page has records
    ASSERT_EQ(create(&nic), ncclSuccess);
    for (uint32_t i = 0; i < 70; i++) {
        struct swl_qp v;

        ASSERT_EQ(nic->ops->create_qp(nic, &qp), ncclSuccess) << swl_last_error();
        ASSERT_EQ(nic->ops->view(nic, qp, &v), ncclSuccess);
        for (const auto &r : {std::make_pair<const void *, uint64_t>(v.sq, 64ull << v.depth_log2),
                              std::make_pair<const void *, uint64_t>(v.dbr, 8),
                              std::make_pair<const void *, uint64_t>(v.cq, 128)})
            ranges.insert({reinterpret_cast<uintptr_t>(r.first),
                           reinterpret_cast<uintptr_t>(r.first) + r.second});
        ranges.insert({v.sink, v.sink + 8});
        doorbells.insert(v.doorbell);
    }
    EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclInvalidUsage);
    EXPECT_EQ(ranges.size(), 280u);
    uintptr_t end = 0;
    for (const auto &r : ranges) {
        EXPECT_GE(r.first, end);
        end = r.second;
    }
    EXPECT_EQ(doorbells.size(), 4u); // two registers of two pages
    EXPECT_EQ(fake.count("mapping"), 2);
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(VerbsPair, CreationAsksForWhatDeviceCodeNeeds)
{
    open();
    EXPECT_EQ(fake.cq_flags, uint32_t{VERBS_CQ_IGNORE_OVERRUN});
    EXPECT_EQ(fake.signal_all, 0); // old values of adds go to the sink
    for (int n = 0; n < 2; n++) {
        const struct swl_qp v = view(n);
        const FakeQp &q = fake.qps.at(v.qpn);

        EXPECT_EQ(q.state, 1u);
        EXPECT_EQ(reinterpret_cast<const uint8_t *>(v.cq), q.completion);
        EXPECT_EQ(reinterpret_cast<uint8_t *>(v.dbr), q.record);
        EXPECT_EQ(v.sq, q.sq);
        EXPECT_EQ(v.cq_mask, 1u);
        EXPECT_EQ(v.depth_log2, 10u); // 256 entries of three blocks
        EXPECT_EQ(v.scope, SWL_QP_SCOPE_SYS);
        for (int place = 0; place < 2; place++)
            EXPECT_EQ(swl_cqe_opcode(v.cq[16 * place + 15]), uint32_t{SWL_CQE_NONE});
        EXPECT_NE(v.sink_lkey, 0u);
        EXPECT_EQ(query(n).state, SWL_NIC_QP_INIT);
    }
    EXPECT_EQ(fake.modified[1].qp_access_flags, 2u | 4 | 8);
    EXPECT_EQ(fake.modified[1].port_num, 1);
}

TEST_F(VerbsPair, ConnectionTakesWhatBothEndsSay)
{
    fake.ports[0].mtu = 5;
    fake.ports[1].mtu = 3;
    fake.reads_in = 3;
    ib.tc = 106;
    ib.sl = 3;
    ib.timeout = 18;
    open();
    uint32_t receives[2], sends[2];
    for (int n = 0; n < 2; n++) {
        ASSERT_EQ(connect(n), ncclSuccess) << swl_last_error();
        EXPECT_EQ(query(n).state, SWL_NIC_QP_READY);
        const struct verbs_qp_attr &rtr = fake.modified[2], &rts = fake.modified[3];

        EXPECT_EQ(rtr.path_mtu, 3u);
        EXPECT_EQ(rtr.dest_qp_num, view(1 - n).qpn);
        EXPECT_EQ(rtr.max_dest_rd_atomic, 8);
        EXPECT_EQ(rts.max_rd_atomic, 8);
        EXPECT_EQ(rtr.ah_attr.is_global, 1);
        EXPECT_EQ(rtr.ah_attr.sgid_index, 3);
        EXPECT_EQ(rtr.ah_attr.traffic_class, 106);
        EXPECT_EQ(rtr.ah_attr.sl, 3);
        EXPECT_EQ(rtr.ah_attr.dgid[15], n == 0 ? 2 : 1);
        EXPECT_EQ(rts.timeout, 18);
        receives[n] = rtr.rq_psn;
        sends[n] = rts.sq_psn;
    }
    EXPECT_EQ(receives[0], sends[1]);
    EXPECT_EQ(receives[1], sends[0]);
}

TEST_F(VerbsPair, ConnectionsThatCannotBeAreRefused)
{
    open();
    struct swl_nic_address strange = {};
    EXPECT_EQ(nic[0]->ops->connect(nic[0], qp[0], &strange), ncclInvalidUsage);
    expect_said("another kind or version");
    ASSERT_EQ(connect(0), ncclSuccess);
    EXPECT_EQ(connect(0), ncclInvalidUsage);
    expect_said("already connected");
    ASSERT_EQ(nic[0]->ops->to_error(nic[0], qp[0]), ncclSuccess);
    EXPECT_EQ(query(0).syndrome, uint32_t{SWL_SYNDROME_FLUSHED});
    EXPECT_EQ(connect(0), ncclInvalidUsage);
    expect_said("in error: reset it");
}

TEST_F(VerbsPair, F10_FailedQueuePairsAreNamedWithSyndromeAndEntry)
{
    for (uint32_t entry : {0u, 1u, 127u, 5000u})
        for (int behind = 0; behind < 3; behind++) { // flushed entries
            open();
            ASSERT_EQ(connect(0), ncclSuccess);
            ASSERT_EQ(connect(1), ncclSuccess);
            fake.break_qp(view(0).qpn, entry, 0x13);
            for (uint32_t i = 1; i <= static_cast<uint32_t>(behind); i++)
                fake.break_qp(view(0).qpn, entry + i, 0x05);
            const struct swl_nic_qp_status s = query(0);
            EXPECT_EQ(s.state, SWL_NIC_QP_ERROR);
            EXPECT_EQ(s.qpn, view(0).qpn);
            EXPECT_EQ(s.syndrome, behind < 2 ? 0x13u : 0x05u);
            EXPECT_TRUE(behind == 2 || s.index == entry) << s.index;
            EXPECT_EQ(query(0).syndrome, s.syndrome);
            EXPECT_EQ(query(1).state, SWL_NIC_QP_READY);
            close();
        }
}

// A queue pair made anew is numbered from zero, whatever the old one had completed.
TEST_F(VerbsPair, ResetMakesAQueuePairAnewInTheSameMemory)
{
    open();
    const int blocks = fake.count("host");
    for (int round = 0; round < 5; round++) {
        ASSERT_EQ(connect(0), ncclSuccess) << swl_last_error();
        ASSERT_EQ(connect(1), ncclSuccess);
        fake.qps.at(view(0).qpn).executed = 1;
        (*fake.qps.at(view(0).qpn).completed)++;
        fake.break_qp(view(0).qpn, 17, 0x15);
        view(0).dbr[1] = 0x1200; // posted
        EXPECT_EQ(query(0).state, SWL_NIC_QP_ERROR);
        const uint32_t old = view(0).qpn;
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(nic[n]->ops->reset(nic[n], qp[n]), ncclSuccess) << swl_last_error();
        EXPECT_NE(view(0).qpn, old);
        EXPECT_EQ(view(0).dbr[1], 0u);
        EXPECT_EQ(swl_cqe_opcode(view(0).cq[15]), uint32_t{SWL_CQE_NONE});
        EXPECT_EQ(swl_cqe_opcode(view(0).cq[31]), uint32_t{SWL_CQE_NONE});
        EXPECT_EQ(*fake.qps.at(view(0).qpn).completed, 0u);
        EXPECT_EQ(query(0).state, SWL_NIC_QP_INIT);
        EXPECT_EQ(query(0).syndrome, 0u);
        EXPECT_EQ(fake.count("host"), blocks);
        exchange();
    }
}

TEST_F(VerbsPair, AQueuePairThatFailedToConnectConnectsAfterwards)
{
    for (const char *call : {"ibv_modify_qp 2", "ibv_modify_qp 3"})
        expect_connection_after(call);
}

TEST_F(VerbsPair, AQueuePairThatFailedToResetIsInErrorUntilItDoes)
{
    for (const char *call : {"ibv_destroy_qp", "ibv_destroy_cq", "mlx5dv_create_cq",
                             "ibv_create_qp", "mlx5dv_init_obj", "ibv_modify_qp 1"}) {
        struct swl_qp v;

        open();
        ASSERT_EQ(connect(0), ncclSuccess);
        fake.fail(call);
        EXPECT_EQ(nic[0]->ops->reset(nic[0], qp[0]), ncclSystemError) << call;
        EXPECT_EQ(query(0).state, SWL_NIC_QP_ERROR) << call;
        EXPECT_EQ(connect(0), ncclInvalidUsage) << call;
        EXPECT_EQ(nic[0]->ops->to_error(nic[0], qp[0]), ncclSuccess) << call;
        EXPECT_EQ(nic[0]->ops->view(nic[0], qp[0], &v), ncclInvalidUsage) << call;
        EXPECT_EQ(nic[0]->ops->address(nic[0], qp[0], &address[0]), ncclInvalidUsage) << call;
        expect_said("lost by a failed reset");
        EXPECT_EQ(nic[0]->ops->reset(nic[0], qp[0]), ncclSuccess) << call << swl_last_error();
        EXPECT_EQ(query(0).state, SWL_NIC_QP_INIT) << call;
        close();
    }
}

// ---- the second NIC of a rank

TEST_F(Verbs, SecondNicOfARankIsTheNextDevice)
{
    const SysfsTree tree;
    const struct swl_nic_proximity near = {tree.root.c_str(), nullptr, 0, 1};

    config.proximity = &near;
    for (auto by : {&swl_mlx5_verbs_maker, &swl_devx_maker}) {
        struct swl_nic *nic = nullptr;
        struct swl_nic_caps caps;

        fake.ports.resize(2);
        ASSERT_EQ(swl_mlx5_make(&nic, &config, &verbs, by), ncclSuccess) << swl_last_error();
        nic->ops->caps(nic, &caps);
        EXPECT_STREQ(caps.device, "mlx5_1");
        EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
        fake.ports.resize(1);
        EXPECT_EQ(swl_mlx5_make(&nic, &config, &verbs, by), ncclSystemError);
        expect_said("1 of the RDMA devices can be used, not the 2 that SWIMLANE_NICS asks for");
    }
}

// ---- one driver, two ways

// How many firmware commands the way that was chosen has taken to make a NIC; -1: none was made.
int commands_of(const struct swl_nic_config *config, const struct swl_verbs *verbs)
{
    struct swl_nic *nic = nullptr;
    int n;

    fake.commands.clear();
    if (swl_mlx5_create_on(&nic, config, verbs) != ncclSuccess)
        return -1;
    n = static_cast<int>(fake.commands.size());
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
    return n;
}

TEST_F(Verbs, RingsAreWhereTheVariableOrWhatWorksPutsThem)
{
    const SysfsTree tree;
    const struct swl_nic_proximity near = {tree.root.c_str(), nullptr, 0, 0};
    char why[240] = "";

    config.proximity = &near;
    for (bool refused : {false, true})
        for (uint32_t rings : {SWL_MLX5_RINGS_AUTO, SWL_MLX5_RINGS_GPU, SWL_MLX5_RINGS_HOST}) {
            const bool host = rings == SWL_MLX5_RINGS_HOST || (refused && rings == 0);

            fake = FakeMlx5();
            fake.ports = {FakePort()};
            config.settings.rings = rings;
            if (refused) {
                fake.fail_name = "mlx5dv_open_device";
                fake.fail_errno = 95;
                fake.fail_at = 1;
            }
            const bool usable = swl_mlx5_usable_on(&verbs, &config, why, sizeof(why));
            EXPECT_EQ(usable, !refused || rings != SWL_MLX5_RINGS_GPU) << rings << refused << why;
            fake.calls = 0;
            const int n = commands_of(&config, &verbs);
            if (!usable)
                EXPECT_EQ(n, -1);
            else
                EXPECT_EQ(n == 0, host) << rings << refused;
        }
}

// Each rank chooses for itself.
TEST_F(VerbsPair, EndsOfBothWaysConnectWithEachOther)
{
    ASSERT_EQ(create(&nic[0], 0), ncclSuccess) << swl_last_error();
    maker = &swl_devx_maker;
    ASSERT_EQ(create(&nic[1], 1), ncclSuccess) << swl_last_error();
    for (int n = 0; n < 2; n++)
        ASSERT_EQ(nic[n]->ops->create_qp(nic[n], &qp[n]), ncclSuccess) << swl_last_error();
    exchange();
    for (int n = 0; n < 2; n++) {
        ASSERT_EQ(connect(n), ncclSuccess) << swl_last_error();
        EXPECT_EQ(query(n).state, SWL_NIC_QP_READY);
    }
}

// Rings in memory of the GPU did not tell their partition.
TEST_F(Mlx5Pair, D_C9_EndsInDifferentPartitionsAreRefused)
{
    fake.ports[1].pkeys[2] = 0x8124;
    open();
    EXPECT_EQ(connect(0), ncclInvalidUsage);
    expect_said("the ends are in different partitions (SWIMLANE_IB_PKEY)");
}

// ---- would it work: DevX is refused, verbs are not

TEST_F(Verbs, WorksWhereDevxIsRefused)
{
    const SysfsTree tree;
    const struct swl_nic_proximity near = {tree.root.c_str(), nullptr, 0, 0};
    char why[240] = "";

    config.proximity = &near;
    fake.ports.resize(1);
    EXPECT_TRUE(swl_mlx5_way_usable(&verbs, true, &config, why, sizeof(why))) << why;
    fake.fail_name = "mlx5dv_open_device";
    fake.fail_errno = 95;
    fake.fail_at = 1;
    fake.calls = 0;
    EXPECT_FALSE(swl_mlx5_way_usable(&verbs, true, &config, why, sizeof(why)));
    EXPECT_STREQ(why, "mlx5_0 cannot be opened for DevX: Operation not supported");
    EXPECT_TRUE(swl_mlx5_way_usable(&verbs, false, &config, why, sizeof(why))) << why;
    fake = FakeMlx5();
    fake.ports = {FakePort()};
    fake.fail_name = "general_cmd";
    fake.fail_errno = 1;
    fake.fail_at = 1;
    EXPECT_FALSE(swl_mlx5_way_usable(&verbs, true, &config, why, sizeof(why)));
    EXPECT_STREQ(why, "mlx5_0 takes no firmware commands: QUERY_HCA_CAP: Operation not permitted");
    EXPECT_TRUE(swl_mlx5_way_usable(&verbs, false, &config, why, sizeof(why))) << why;
}

// Whom the driver does not let write registers of NICs from the GPU: no mlx5 transport is usable,
// for the right that is missing, and nothing is left open. The choice then takes the next one
// (choice_test).
TEST_F(Verbs, F111_RegistersOutOfReachNameTheMissingRight)
{
    const SysfsTree tree;
    const struct swl_nic_proximity near = {tree.root.c_str(), nullptr, 0, 0};

    tree.file("/proc/driver/nvidia/params", "RegistryDwords: \"\"");
    config.proximity = &near;
    for (bool devx : {true, false})
        for (uid_t who : {0u, 1000u}) {
            char why[240] = "";

            user = who;
            EXPECT_EQ(swl_mlx5_way_usable(&verbs, devx, &config, why, sizeof(why)), who == 0)
                << why;
            EXPECT_EQ(std::string(why).find("without PeerMappingOverride=1") != std::string::npos,
                      who != 0)
                << why;
        }
}

// Firmware that takes commands and gives no page of registers: known before the ranks choose, so
// that auto takes the other way to ring doorbells, and gpu alone another transport.
TEST_F(Verbs, F111_RefusedPageOfRegistersLeavesTheOtherWay)
{
    const SysfsTree tree;
    const struct swl_nic_proximity near = {tree.root.c_str(), nullptr, 0, 0};
    char why[240] = "";

    config.proximity = &near;
    fake.uar_kinds = 0;
    EXPECT_TRUE(swl_mlx5_usable_on(&verbs, &config, why, sizeof(why))) << why;
    struct swl_nic *made = nullptr;
    ASSERT_EQ(swl_mlx5_create_on(&made, &config, &verbs), ncclSuccess) << swl_last_error();
    uint32_t ring = 0;
    EXPECT_EQ(made->ops->create_qp(made, &ring), ncclSuccess) << swl_last_error();
    EXPECT_EQ(made->ops->destroy(made), ncclSuccess);

    config.settings.rings = SWL_MLX5_RINGS_GPU;
    EXPECT_FALSE(swl_mlx5_usable_on(&verbs, &config, why, sizeof(why)));
    EXPECT_STREQ(why, "mlx5_0 gives no doorbell registers: Operation not supported");
    EXPECT_EQ(fake.leaks(), "");
    fake.uar_kinds = 4; // the last choice will do
    EXPECT_TRUE(swl_mlx5_usable_on(&verbs, &config, why, sizeof(why))) << why;
    EXPECT_EQ(fake.leaks(), "");
}

} // namespace
