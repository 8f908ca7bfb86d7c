// How two ends of a connection reach each other, and what the user's settings come to.
#include "transport/nic.h"
#include "transport/rdma_core/path.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

namespace
{

struct rc_end end_of(bool ethernet)
{
    struct rc_end e = {};

    e.qpn = 0x101;
    e.psn = 0x777;
    e.lid = ethernet ? 0 : 9;
    e.mtu = 5;
    e.ethernet = ethernet;
    e.log_reads_out = 4;
    e.log_reads_in = 4;
    for (uint8_t i = 0; i < 16; i++)
        e.gid[i] = static_cast<uint8_t>(1 + i);
    return e;
}

struct Ends {
    struct rc_end mine, theirs;
    struct rc_tuning tuning = {1, 3, 2, 0, 20, 7};
    struct rc_path path = {};
    const char *why = nullptr;

    explicit Ends(bool ethernet) : mine(end_of(ethernet)), theirs(end_of(ethernet))
    {
        theirs.qpn = 0x202;
        theirs.psn = 0x888;
    }
    bool plan()
    {
        return swl_rc_path(&path, &mine, &theirs, &tuning, &why);
    }
    void expect_refused(const char *words)
    {
        EXPECT_FALSE(plan());
        ASSERT_NE(why, nullptr);
        EXPECT_NE(std::string(why).find(words), std::string::npos) << why;
    }
};

TEST(Mlx5Path, TakesTheSmallerMtuOfBothEnds)
{
    for (uint8_t a = 1; a <= 5; a++)
        for (uint8_t b = 1; b <= 5; b++) {
            Ends e(true);

            e.mine.mtu = a;
            e.theirs.mtu = b;
            ASSERT_TRUE(e.plan());
            EXPECT_EQ(e.path.mtu, a < b ? a : b);
        }
}

TEST(Mlx5Path, D_C9_PartitionsHaveToMatch)
{
    const struct {
        uint16_t mine, theirs;
        const char *why;
    } cases[] = {{0xffff, 0xffff, nullptr},
                 {0xffff, 0x7fff, nullptr},
                 {0, 0x8001, nullptr},
                 {0x8001, 0, nullptr},
                 {0x8001, 0x8002, "different partitions (SWIMLANE_IB_PKEY)"},
                 {0x0001, 0x0001, "limited members of their partition"}};

    for (const auto &c : cases) {
        Ends e(false);

        e.mine.pkey = c.mine;
        e.theirs.pkey = c.theirs;
        if (c.why)
            e.expect_refused(c.why);
        else
            EXPECT_TRUE(e.plan()) << e.why;
    }
}

TEST(Mlx5Path, RefusesAnMtuThatIsNone)
{
    Ends e(false);

    e.theirs.mtu = 0;
    e.expect_refused("MTU");
    e.theirs.mtu = 6;
    e.expect_refused("MTU");
}

TEST(Mlx5Path, CrossesNumbersOfPacketsAndQueuePairs)
{
    Ends e(true);

    ASSERT_TRUE(e.plan());
    EXPECT_EQ(e.path.remote_qpn, 0x202u);
    EXPECT_EQ(e.path.send_psn, 0x777u);
    EXPECT_EQ(e.path.recv_psn, 0x888u);
}

TEST(Mlx5Path, RefusesAddressesThatNameNoQueuePair)
{
    Ends e(true);

    e.theirs.qpn = 0;
    e.expect_refused("no queue pair");
    e.theirs.qpn = 0x1000000;
    e.expect_refused("no queue pair");
    e.theirs.qpn = 5;
    e.theirs.psn = 0x1000000;
    e.expect_refused("no queue pair");
}

TEST(Mlx5Path, ReadsUnderWayStayBelowWhatThePeerServes)
{
    Ends e(true);

    e.mine.log_reads_out = 6;
    e.mine.log_reads_in = 5;
    e.theirs.log_reads_out = 2;
    e.theirs.log_reads_in = 3;
    ASSERT_TRUE(e.plan());
    EXPECT_EQ(e.path.log_sra, 3);
    EXPECT_EQ(e.path.log_rra, 2);
    e.mine.log_reads_out = e.theirs.log_reads_in = 20; // the field has three bits
    ASSERT_TRUE(e.plan());
    EXPECT_EQ(e.path.log_sra, 7);
}

TEST(Mlx5Path, OptionsAreThoseThatBothEndsOffer)
{
    Ends e(true);

    e.mine.ece = 0xf0f0;
    ASSERT_TRUE(e.plan());
    EXPECT_EQ(e.path.ece, 0u);
    e.theirs.ece = 0x3ff0;
    ASSERT_TRUE(e.plan());
    EXPECT_EQ(e.path.ece, 0x30f0u);
}

TEST(Mlx5Path, RefusesTwoLinkLayers)
{
    Ends e(true);

    e.theirs.ethernet = 0;
    e.expect_refused("InfiniBand");
}

TEST(Mlx5Path, InfinibandOfOneSubnetGoesByLid)
{
    Ends e(false);

    ASSERT_TRUE(e.plan());
    EXPECT_FALSE(e.path.global);
    EXPECT_EQ(e.path.rlid, 9);
    EXPECT_EQ(e.path.hop_limit, 0);
    e.theirs.lid = 0;
    e.expect_refused("LID");
}

TEST(Mlx5Path, GlobalHeaderWhereOneOfThePortsRequiresIt)
{
    for (int side = 0; side < 2; side++) {
        Ends e(false);

        (side ? e.mine : e.theirs).grh_required = 1;
        ASSERT_TRUE(e.plan());
        EXPECT_TRUE(e.path.global);
        EXPECT_EQ(e.path.rlid, 9);
        EXPECT_EQ(e.path.hop_limit, 255);
        EXPECT_EQ(e.path.gid_index, 3);
        EXPECT_EQ(memcmp(e.path.rgid, e.theirs.gid, 16), 0);
    }
}

TEST(Mlx5Path, GlobalHeaderAndRoutersLidBetweenSubnets)
{
    Ends e(false);

    e.theirs.gid[0] = 0xfd;
    ASSERT_TRUE(e.plan());
    EXPECT_TRUE(e.path.global);
    EXPECT_EQ(e.path.rlid, 0x0506); // bytes 4 and 5 of the GID
    e.theirs.gid[4] = e.theirs.gid[5] = 0;
    ASSERT_TRUE(e.plan());
    EXPECT_EQ(e.path.rlid, 9);
}

TEST(Mlx5Path, RefusesAPeerWithoutGidWhereItIsNeeded)
{
    Ends e(true);

    memset(e.theirs.gid, 0, sizeof(e.theirs.gid));
    e.expect_refused("GID");
}

TEST(Mlx5Path, SourcePortsSpreadInTheRangeOfRoce)
{
    std::set<uint16_t> seen;

    for (uint32_t q = 0; q < 64; q++) {
        Ends e(true);

        e.mine.qpn = 0x800 + q;
        e.theirs.qpn = 0x900 + q;
        ASSERT_TRUE(e.plan());
        EXPECT_GE(e.path.udp_sport, 0xc000);
        seen.insert(e.path.udp_sport);
    }
    EXPECT_GT(seen.size(), 48u);
}

struct swl_nic_ib unset()
{
    return {nullptr, -1, -1, -1, 0, 0, -1};
}

TEST(Mlx5Tuning, UnsetMeansBuiltIn)
{
    const struct swl_nic_ib ib = unset();
    struct rc_tuning t;
    const char *note, *why;

    ASSERT_TRUE(swl_rc_tuning(&t, &ib, true, &note, &why));
    EXPECT_EQ(note, nullptr);
    EXPECT_EQ(t.sl, 0);
    EXPECT_EQ(t.tclass, 0);
    EXPECT_EQ(t.timeout, 20);
    EXPECT_EQ(t.retries, 7);
}

TEST(Mlx5Tuning, F87_TrafficClassOnBothLinkLayers)
{
    const struct {
        int32_t tc;
        bool good;
        uint8_t applied;
    } cases[] = {{-1, true, 0}, {0, true, 0}, {106, true, 106}, {255, true, 255}, {256, false, 0}};

    for (const auto &c : cases)
        for (bool ethernet : {false, true}) {
            struct swl_nic_ib ib = unset();
            struct rc_tuning t = {};
            const char *note, *why;

            ib.tc = c.tc;
            ASSERT_EQ(swl_rc_tuning(&t, &ib, ethernet, &note, &why), c.good) << c.tc;
            EXPECT_EQ(why != nullptr, !c.good);
            if (why)
                EXPECT_NE(std::string(why).find("SWIMLANE_IB_TC"), std::string::npos);
            else
                EXPECT_EQ(t.tclass, ethernet ? c.applied : 0) << c.tc;
            EXPECT_EQ(note != nullptr, c.good && !ethernet && c.tc >= 0) << c.tc;
        }
}

TEST(Mlx5Tuning, EachValueOutOfRangeIsRefusedByName)
{
    const struct {
        int32_t sl;
        uint32_t timeout, retries;
        bool ethernet;
        const char *name;
    } cases[] = {{8, 0, 0, true, "SWIMLANE_IB_SL"},
                 {16, 0, 0, false, "SWIMLANE_IB_SL"},
                 {-1, 32, 0, true, "SWIMLANE_IB_TIMEOUT"},
                 {-1, 0, 8, false, "SWIMLANE_IB_RETRY_CNT"}};

    for (const auto &c : cases) {
        struct swl_nic_ib ib = unset();
        struct rc_tuning t;
        const char *note, *why;

        ib.sl = c.sl;
        ib.timeout = c.timeout;
        ib.retry_cnt = c.retries;
        ASSERT_FALSE(swl_rc_tuning(&t, &ib, c.ethernet, &note, &why));
        EXPECT_NE(std::string(why).find(c.name), std::string::npos) << why;
    }
}

} // namespace
