// The mlx5 NIC over the fake: creation, doorbells, rings, regions.
#include "tests/support/mlx5_wire.h"
#include "tests/unit/devx_fixture.h"

#include <cerrno>
#include <set>
#include <vector>

namespace
{

TEST_F(Devx, CreatesAndGivesBackEverything)
{
    struct swl_nic *nic = nullptr;
    struct swl_nic_caps caps;

    ASSERT_EQ(create(&nic), ncclSuccess) << swl_last_error();
    nic->ops->caps(nic, &caps);
    EXPECT_STREQ(caps.name, "mlx5");
    EXPECT_EQ(caps.max_depth, 32768u);
    EXPECT_EQ(caps.gpu_blocks, 0u);
    EXPECT_EQ(caps.served, nullptr);
    EXPECT_GT(caps.device_bytes, 4u * 2 * 256 * 64);
    EXPECT_EQ(fake.count("gpu"), 1);
    EXPECT_EQ(nic->ops->destroy(nullptr), ncclSuccess);
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Devx, D_C9_QueuesAreNoDeeperThanTheDeviceHasThem)
{
    struct swl_nic *nic = nullptr;
    struct swl_qp v;
    uint32_t qp;

    fake.log_max_qp = 7;
    ASSERT_EQ(create(&nic), ncclSuccess) << swl_last_error();
    ASSERT_EQ(nic->ops->create_qp(nic, &qp), ncclSuccess) << swl_last_error();
    ASSERT_EQ(nic->ops->view(nic, qp, &v), ncclSuccess);
    EXPECT_EQ(v.depth_log2, 7u);
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Devx, SettingsThatNoDeviceHasAreRefused)
{
    struct swl_nic *nic = nullptr;

    for (uint32_t depth : {0u, 1u, 3u, 65536u}) {
        config.depth = depth;
        EXPECT_EQ(create(&nic), ncclInvalidArgument);
        expect_said("power of two");
    }
    config.depth = 256;
    config.first_index = 65535;
    EXPECT_EQ(create(&nic), ncclInvalidUsage);
    expect_said("SWIMLANE_START_POSITION");
    config.first_index = 1ull << 32;
    fake.log_max_qp = 0;
    EXPECT_EQ(create(&nic), ncclInvalidUsage);
    expect_said("at most 1 entries");
    fake.log_max_qp = 15;
    fake.cqe_version = 0;
    EXPECT_EQ(create(&nic), ncclSystemError);
    expect_said("version 0");
    fake.cqe_version = 1;
    fake.atomic = false;
    EXPECT_EQ(create(&nic), ncclSystemError);
    expect_said("no remote adds");
    fake.atomic = true;
    ib.tc = 256;
    EXPECT_EQ(create(&nic), ncclInvalidArgument);
    expect_said("mlx5_0 port 1: SWIMLANE_IB_TC");
    ib.tc = -1;
    ib.gid_index = 99;
    EXPECT_EQ(create(&nic), ncclSystemError);
    expect_said("SWIMLANE_IB_GID_INDEX=99");
}

TEST_F(Devx, F61_MachineWithoutDevicesIsNamed)
{
    struct swl_nic *nic = nullptr;

    fake.ports.clear();
    EXPECT_EQ(create(&nic), ncclSystemError);
    expect_said("no RDMA device");
    EXPECT_EQ(nic, nullptr);
}

// ---- doorbells

TEST_F(Devx, DoorbellsAreAPageOfTheirOwnWhereThereIsOne)
{
    const struct {
        uint32_t kinds, asked;
        int bytes;
    } cases[] = {{7, 1, 8}, {6, 2, 8}, {4, 3, 512}};

    for (const auto &c : cases) {
        struct swl_nic *nic = nullptr;

        fake.uar_kinds = c.kinds;
        fake.uar_asked.clear();
        ASSERT_EQ(create(&nic), ncclSuccess) << swl_last_error();
        EXPECT_EQ(fake.uar_asked.size(), c.asked);
        EXPECT_EQ(fake.uar_asked[0], 0x80000000u);
        EXPECT_EQ(fake.pinned_bytes, c.bytes);
        EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
    }
}

TEST_F(Devx, DriverOptionThatIsMissingIsNamed)
{
    struct swl_nic *nic = nullptr;

    for (cudaError_t error : {cudaErrorNotPermitted, cudaErrorNotSupported}) {
        fake.map_error = error;
        EXPECT_EQ(create(&nic), ncclSystemError);
        expect_said("PeerMappingOverride=1");
        expect_said("mlx5_0");
    }
    fake.map_error = cudaSuccess;
    fake.uar_kinds = 0;
    EXPECT_EQ(create(&nic), ncclSystemError);
    expect_said("no doorbell registers: Operation not supported");
}

// ---- rings

// Queue pair 0 of a NIC with rings by this way.
void expect_rings(struct swl_nic *nic, const char *kind, uint32_t scope, bool device_bytes)
{
    struct swl_nic_caps caps;
    struct swl_qp view;
    uint32_t qp;

    ASSERT_EQ(nic->ops->create_qp(nic, &qp), ncclSuccess) << swl_last_error();
    ASSERT_EQ(nic->ops->view(nic, qp, &view), ncclSuccess);
    nic->ops->caps(nic, &caps);
    EXPECT_EQ(fake.count(kind), 1);
    EXPECT_EQ(fake.count("gpu") + fake.count("host"), 1); // none is left of earlier tries
    EXPECT_EQ(view.scope, scope);
    EXPECT_EQ(caps.device_bytes > 0, device_bytes);
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Devx, RingsLieInTheGpuByDmabuf)
{
    struct swl_nic *nic = nullptr;

    ASSERT_EQ(create(&nic), ncclSuccess);
    EXPECT_EQ(fake.umem_in.comp_mask, 1u);
    EXPECT_EQ(fake.umem_in.addr, nullptr);
    EXPECT_EQ(fake.umem_in.access, 1u);
    EXPECT_EQ(fake.umem_in.pgsz_bitmap, ~0xfffull);
    EXPECT_EQ(fake.umem_in.size % 65536, 0u);
    EXPECT_EQ(open_fds(), fds); // closed after the registration
    expect_rings(nic, "gpu", SWL_QP_SCOPE_GPU, true);
}

TEST_F(Devx, RingsLieInTheGpuByPeerMemoryWhereNoDmabufIsTaken)
{
    for (int missing = 0; missing < 3; missing++) {
        struct swl_nic *nic = nullptr;

        fake.gpu_dmabuf = missing != 0;
        fake.umem_dmabuf = missing != 1;
        verbs = fake_verbs();
        if (missing == 2)
            verbs.mlx5dv_devx_umem_reg_ex = nullptr;
        ASSERT_EQ(create(&nic), ncclSuccess) << swl_last_error();
        expect_rings(nic, "gpu", SWL_QP_SCOPE_GPU, true);
    }
}

TEST_F(Devx, RingsLieInTheHostWhereTheGpuIsOutOfReach)
{
    struct swl_nic *nic = nullptr;

    fake.umem_dmabuf = fake.peer_memory = false;
    ASSERT_EQ(create(&nic), ncclSuccess) << swl_last_error();
    expect_rings(nic, "host", SWL_QP_SCOPE_SYS, false);
}

TEST_F(Devx, RingsThatNobodyReachesAreAnErrorWithAllReasons)
{
    struct swl_nic *nic = nullptr;

    fake.gpu_dmabuf = fake.peer_memory = false;
    fake.fail_name = "mlx5dv_devx_umem_reg";
    fake.fail_at = 2; // the first is the GPU's memory
    EXPECT_EQ(create(&nic), ncclSystemError);
    expect_said("mlx5_0 cannot reach its queues");
    expect_said("dmabuf: a fake error");
    expect_said("peer memory (module nvidia-peermem): Bad address");
    expect_said("host memory: Cannot allocate memory");
}

// Ranges of one NIC's queue pairs, as the device was told.
TEST_F(Devx, PartsOfQueuePairsAreApartAlignedAndInside)
{
    for (uint32_t depth : {2u, 64u, 256u, 4096u}) {
        std::set<std::pair<uint64_t, uint64_t>> ranges; // begin, end
        struct swl_nic *nic = nullptr;
        uint32_t qp;

        config.max_qps = 5;
        config.depth = depth;
        fake.commands.clear();
        ASSERT_EQ(create(&nic), ncclSuccess) << swl_last_error();
        for (int i = 0; i < 5; i++) {
            struct swl_qp view;

            ASSERT_EQ(nic->ops->create_qp(nic, &qp), ncclSuccess) << swl_last_error();
            ASSERT_EQ(nic->ops->view(nic, qp, &view), ncclSuccess);
            const uint64_t cq = wire::get(fake.last(0x400)->in.data(), wire::cq_umem_offset);
            const uint64_t sink = view.sink - reinterpret_cast<uintptr_t>(view.cq) + cq;
            ranges.insert({sink, sink + 8});
        }
        for (const FakeCommand &c : fake.commands) {
            const bool cq = c.opcode == 0x400;
            const uint8_t *in = c.in.data();
            uint64_t ring, record;

            if (!cq && c.opcode != 0x500)
                continue;
            ring = wire::get(in, cq ? wire::cq_umem_offset : wire::wq_umem_offset);
            record = wire::get(in, cq ? wire::cqc_dbr_addr : wire::dbr_addr);
            EXPECT_EQ(ring % 4096, 0u);
            EXPECT_EQ(record % 64, 0u);
            ranges.insert({ring, ring + 64ull * depth});
            ranges.insert({record, record + 64});
        }
        EXPECT_EQ(ranges.size(), 25u);
        uint64_t end = 0;
        for (const auto &r : ranges) {
            EXPECT_GE(r.first, end);
            end = r.second;
        }
        EXPECT_LE(end, fake.umem_in.size);
        EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclInvalidUsage);
        expect_said("more than 5 queue pairs");
        EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
    }
}

// ---- regions

TEST_F(Devx, RegionsOfTheGpuGoByDmabufWithTheirOwnAddress)
{
    struct swl_nic *nic = nullptr;
    struct swl_nic_region r;
    struct swl_qp view;
    uint32_t qp;

    ASSERT_EQ(create(&nic), ncclSuccess);
    ASSERT_EQ(nic->ops->create_qp(nic, &qp), ncclSuccess);
    ASSERT_EQ(nic->ops->view(nic, qp, &view), ncclSuccess);
    uint8_t *inside = view.sq + 100; // any memory of the GPU
    ASSERT_EQ(nic->ops->reg_mr(nic, inside, 5000, SWL_NIC_REMOTE_WRITE, &r), ncclSuccess);
    EXPECT_EQ(r.address, reinterpret_cast<uintptr_t>(inside));
    EXPECT_EQ(fake.dmabuf_iova, r.address);
    EXPECT_EQ(fake.dmabuf_offset, r.address % 4096);
    EXPECT_NE(r.lkey, r.rkey);
    EXPECT_EQ(open_fds(), fds);
    EXPECT_EQ(nic->ops->dereg_mr(nic, &r), ncclSuccess);
    EXPECT_EQ(nic->ops->dereg_mr(nic, &r), ncclInvalidArgument);
    expect_said("is not registered");
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Devx, SignalsAreStrictAndPayloadIsRelaxed)
{
    struct swl_nic *nic = nullptr;
    struct swl_nic_region r;
    uint64_t words[8];
    const unsigned all = SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE | SWL_NIC_REMOTE_READ;

    ASSERT_EQ(create(&nic), ncclSuccess);
    EXPECT_EQ(fake.accesses, std::vector<int>{1}); // sinks: nobody else writes there
    ASSERT_EQ(nic->ops->reg_mr(nic, words, 64, all | SWL_NIC_REMOTE_ADD, &r), ncclSuccess);
    EXPECT_EQ(fake.accesses.back(), 1 | 2 | 4 | 8);
    ASSERT_EQ(nic->ops->reg_mr(nic, words, 64, all | SWL_NIC_RELAXED, &r), ncclSuccess);
    EXPECT_EQ(fake.accesses.back(), 1 | 2 | 4 | 1 << 20);
    EXPECT_EQ(nic->ops->reg_mr(nic, words, 64, SWL_NIC_RELAXED | SWL_NIC_REMOTE_ADD, &r),
              ncclInvalidArgument);
    EXPECT_EQ(nic->ops->reg_mr(nic, nullptr, 64, all, &r), ncclInvalidArgument);
    EXPECT_EQ(nic->ops->reg_mr(nic, words, 0, all, &r), ncclInvalidArgument);
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess); // takes the regions with it
}

TEST_F(Devx, OldLibraryRegistersPayloadStrict)
{
    struct swl_nic *nic = nullptr;
    struct swl_nic_region r;
    uint64_t words[8];

    verbs.ibv_reg_mr_iova2 = nullptr;
    ASSERT_EQ(create(&nic), ncclSuccess);
    ASSERT_EQ(nic->ops->reg_mr(nic, words, 64, SWL_NIC_REMOTE_WRITE | SWL_NIC_RELAXED, &r),
              ncclSuccess);
    EXPECT_EQ(fake.accesses.back(), 2);
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Devx, RegionsOfTheGpuAreNeverTakenFromTheHost)
{
    struct swl_nic *nic = nullptr;

    fake.umem_dmabuf = false; // rings by peer memory
    fake.mr_dmabuf = false;
    ASSERT_EQ(create(&nic), ncclSuccess) << swl_last_error();
    EXPECT_EQ(fake.accesses.size(), 1u); // by peer memory
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
    fake.umem_dmabuf = true;
    fake.peer_memory = false; // rings by dmabuf, regions by no way
    EXPECT_EQ(create(&nic), ncclSystemError);
    expect_said("dmabuf: Operation not supported");
    expect_said("peer memory (module nvidia-peermem): Bad address");
}

using DevxPair = Mlx5Pair;

// Each rank finds its own way to the memory of its GPU: of dmabuf and peer memory the one that is
// left, whatever the other rank has.
TEST_F(DevxPair, F101_EitherWayToMemoryOfTheGpuServes)
{
    const struct {
        bool dmabuf, peer_memory;
    } ways[] = {{true, true}, {false, true}, {true, false}};

    for (const auto &one : ways)
        for (const auto &other : ways) {
            for (int n = 0; n < 2; n++) {
                const auto &way = n == 0 ? one : other;

                fake.umem_dmabuf = fake.mr_dmabuf = way.dmabuf;
                fake.peer_memory = way.peer_memory;
                ASSERT_EQ(create(&nic[n], n), ncclSuccess) << swl_last_error();
                ASSERT_EQ(nic[n]->ops->create_qp(nic[n], &qp[n]), ncclSuccess) << swl_last_error();
            }
            EXPECT_EQ(fake.count("gpu"), 2) << "rings in the host, though the GPU is in reach";
            exchange();
            EXPECT_EQ(connect(0), ncclSuccess) << swl_last_error();
            EXPECT_EQ(connect(1), ncclSuccess) << swl_last_error();
            close();
        }
}

// On one rank or on both: one sentence with both reasons, the other rank's NIC is whole, nothing is
// left.
TEST_F(DevxPair, F101_NoWayIsOneSentenceWithBothReasons)
{
    for (int first : {0, 1}) {
        if (first == 1) {
            ASSERT_EQ(create(&nic[0], 0), ncclSuccess) << swl_last_error();
        }
        fake.mr_dmabuf = fake.peer_memory = false; // rings go by dmabuf
        for (int n = first; n < 2; n++) {
            EXPECT_EQ(create(&nic[n], n), ncclSystemError);
            expect_said("mlx5_" + std::to_string(n));
            expect_said("dmabuf: Operation not supported");
            expect_said("peer memory (module nvidia-peermem): Bad address");
            EXPECT_EQ(std::string(swl_last_error()).find('\n'), std::string::npos);
            EXPECT_EQ(nic[n], nullptr);
        }
        fake.mr_dmabuf = fake.peer_memory = true;
        close();
    }
}

// ---- regions that are refused in one piece

void *const remote_memory = reinterpret_cast<void *>(0x123456789000); // nobody touches it
const uint64_t gib = 1ull << 30;

TEST_F(Devx, RegionTooLargeForOnePieceHasOneKey)
{
    const unsigned access = SWL_NIC_REMOTE_WRITE | SWL_NIC_REMOTE_READ | SWL_NIC_RELAXED;
    struct swl_nic *nic = nullptr;
    struct swl_nic_region r;

    ASSERT_EQ(create(&nic), ncclSuccess);
    fake.max_mr_bytes = 2 * gib - 1;
    ASSERT_EQ(nic->ops->reg_mr(nic, remote_memory, 2 * gib - 1, access, &r), ncclSuccess);
    EXPECT_EQ(fake.last(0x200), nullptr); // as long as one piece will do
    ASSERT_EQ(nic->ops->reg_mr(nic, remote_memory, 3 * gib + 4097, access, &r), ncclSuccess)
        << swl_last_error();
    const uint8_t *in = fake.last(0x200)->in.data();
    EXPECT_EQ(fake.count("mr"), 2 + 4);
    EXPECT_EQ(wire::get(in, wire::start_addr), r.address);
    EXPECT_EQ(r.address, reinterpret_cast<uintptr_t>(remote_memory));
    EXPECT_EQ(wire::get(in, wire::mkc_len), 3 * gib + 4097);
    EXPECT_EQ(wire::get(in, wire::mkc_pd), 0x4711u);
    for (unsigned i = 0; i < 4; i++) {
        EXPECT_EQ(wire::get(in, wire::klm_address(i)), r.address + i * gib);
        EXPECT_EQ(wire::get(in, wire::klm_byte_count(i)), i < 3 ? gib : 4097);
        EXPECT_NE(wire::get(in, wire::klm_mkey(i)), 0u);
    }
    EXPECT_EQ(r.lkey & 0xff, wire::get(in, wire::mkey_7_0));
    EXPECT_EQ(r.lkey, r.rkey);
    EXPECT_EQ(nic->ops->dereg_mr(nic, &r), ncclSuccess);
    EXPECT_EQ(fake.count("mr"), 2);
    EXPECT_EQ(fake.count("mkey"), 0);
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Devx, RegionWhosePiecesAreRefusedToo)
{
    struct swl_nic *nic = nullptr;
    struct swl_nic_region r;

    ASSERT_EQ(create(&nic), ncclSuccess);
    fake.max_mr_bytes = gib;
    EXPECT_EQ(nic->ops->reg_mr(nic, remote_memory, 257 * gib, SWL_NIC_REMOTE_WRITE, &r),
              ncclSystemError); // more pieces than a key has
    expect_said("cannot register 275951648768 bytes");
    for (int n = 2; n <= 4; n++) { // the first try is the whole
        fake.fail("ibv_reg_mr", n);
        EXPECT_EQ(nic->ops->reg_mr(nic, remote_memory, 3 * gib, SWL_NIC_REMOTE_WRITE, &r),
                  ncclSystemError);
        EXPECT_EQ(fake.count("mr"), 1);
    }
    fake.fail("obj_create 0x200");
    fake.fail_status = 8;
    EXPECT_EQ(nic->ops->reg_mr(nic, remote_memory, 3 * gib, SWL_NIC_REMOTE_WRITE, &r),
              ncclSystemError);
    expect_said("in pieces of 1 GiB: CREATE_MKEY: firmware status 0x08 (limits exceeded)");
    EXPECT_EQ(fake.count("mr"), 1);
    EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
}

TEST_F(Devx, F38_EachRegistrationFailsOnce)
{
    static uint8_t memory[21][4096];

    for (int error : {ENOMEM, EINVAL, ENOTSUP})
        for (int n = 0; n <= 20; n++) {
            struct swl_nic *nic = nullptr;
            struct swl_nic_region regions[21];
            int made = 0;

            ASSERT_EQ(create(&nic), ncclSuccess);
            fake.fail_name = "ibv_reg_mr";
            fake.fail_at = n + 1;
            fake.fail_errno = error;
            fake.calls = 0;
            while (made <= 20 && nic->ops->reg_mr(nic, memory[made], 4096, SWL_NIC_REMOTE_WRITE,
                                                  &regions[made]) == ncclSuccess)
                made++;
            EXPECT_EQ(made, n);
            expect_said("mlx5_0 cannot register 4096 bytes at");
            expect_said(strerror(error));
            EXPECT_EQ(fake.count("mr"), n + 1);
            EXPECT_TRUE(n == 0 || nic->ops->dereg_mr(nic, &regions[n / 2]) == ncclSuccess);
            EXPECT_EQ(nic->ops->destroy(nic), ncclSuccess);
            EXPECT_EQ(fake.leaks(), "");
        }
}

} // namespace
