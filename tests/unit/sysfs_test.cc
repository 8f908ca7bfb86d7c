// Tests of transport/sysfs.c over made-up trees of /sys and /proc.
#include "tests/unit/sysfs_tree.h"
#include "transport/sysfs.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <vector>

namespace
{

const char bridge_a[] = "pci0000:16", bridge_b[] = "pci0000:46", bridge_c[] = "pci0000:c6";

std::string below(const std::string &bridge, const std::string &rest)
{
    return bridge + "/" + rest;
}

struct swl_pci_distance from_gpu(const SysfsTree &tree, const char *nic)
{
    return swl_pci_distance(tree.root.c_str(), "0000:1a:00.0", nic);
}

TEST(Sysfs, NearerNicsHaveSmallerScores)
{
    SysfsTree tree;

    tree.pci(below(bridge_a, "0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1a:00.0"), 0);
    tree.nic("same_switch", below(bridge_a, "0000:16:01.0/0000:17:00.0/0000:18:02.0/0000:1b:00.0"),
             0);
    tree.nic("same_port", below(bridge_a, "0000:16:01.0/0000:17:00.1"), 0);
    tree.nic("same_bridge", below(bridge_a, "0000:16:02.0/0000:19:00.0"), 0);
    tree.nic("same_numa", below(bridge_b, "0000:46:01.0/0000:47:00.0"), 0);
    tree.nic("other_numa", below(bridge_c, "0000:c6:01.0/0000:c7:00.0"), 1);
    tree.file("/sys/class/infiniband/rxe0/node_guid", "0"); // of software: no device
    const struct {
        const char *nic;
        uint32_t level, hops;
    } cases[] = {{"same_switch", SWL_PCI_SWITCH, 4}, {"same_port", SWL_PCI_SWITCH, 4},
                 {"same_bridge", SWL_PCI_BRIDGE, 6}, {"same_numa", SWL_PCI_NUMA, 0},
                 {"other_numa", SWL_PCI_OTHER, 0},   {"rxe0", SWL_PCI_OTHER, 0},
                 {"missing", SWL_PCI_OTHER, 0}};
    uint32_t last = 0;

    for (const auto &c : cases) {
        const struct swl_pci_distance d = from_gpu(tree, c.nic);

        EXPECT_EQ(d.level, c.level) << c.nic;
        EXPECT_EQ(d.hops, c.hops) << c.nic;
        EXPECT_GE(swl_pci_distance_score(d), last) << c.nic;
        last = swl_pci_distance_score(d);
    }
    EXPECT_EQ(swl_pci_distance(tree.root.c_str(), nullptr, "same_port").level, SWL_PCI_OTHER);
    EXPECT_EQ(swl_pci_distance(tree.root.c_str(), "0000:99:00.0", "same_port").level,
              SWL_PCI_OTHER);
}

TEST(Sysfs, F113_NearestFirstAndEquallyNearOnesInTurn)
{
    const uint32_t scores[] = {7, 3, 9, 3, 3};
    const uint32_t order[3][5] = {{1, 3, 4, 0, 2}, {3, 4, 1, 0, 2}, {4, 1, 3, 0, 2}};

    for (uint32_t turn = 0; turn < 9; turn++) {
        std::vector<uint32_t> got(5);

        swl_pci_nearest_first(scores, 5, turn, got.data());
        EXPECT_EQ(got, std::vector<uint32_t>(order[turn % 3], order[turn % 3] + 5)) << turn;
    }
    swl_pci_nearest_first(scores, 0, 4, nullptr);
}

// Names that begin alike are not the same folder.
TEST(Sysfs, AddressesAreComparedAsWholeFolders)
{
    SysfsTree tree;

    tree.pci(below("pci0000:1", "0000:16:01.0/0000:1a:00.0"), -1);
    tree.nic("mlx5_0", below("pci0000:16", "0000:16:01.0/0000:17:00.0"), -1);
    EXPECT_EQ(from_gpu(tree, "mlx5_0").level, SWL_PCI_OTHER);
}

TEST(Sysfs, CpusNearANicAreThoseOfItsDeviceOrNode)
{
    const std::string place = below(bridge_a, "0000:16:01.0/0000:17:00.0");
    SysfsTree tree;
    char cpus[128];

    tree.nic("mlx5_0", place, 1);
    swl_sysfs_cpus(tree.root.c_str(), "mlx5_0", cpus, sizeof(cpus));
    EXPECT_STREQ(cpus, "") << "nothing says which";
    tree.file("/sys/devices/system/node/node1/cpulist", "8-15");
    swl_sysfs_cpus(tree.root.c_str(), "mlx5_0", cpus, sizeof(cpus));
    EXPECT_STREQ(cpus, "8-15");
    tree.file("/sys/devices/" + place + "/local_cpulist", "0-3,9");
    swl_sysfs_cpus(tree.root.c_str(), "mlx5_0", cpus, sizeof(cpus));
    EXPECT_STREQ(cpus, "0-3,9");
    swl_sysfs_cpus(tree.root.c_str(), "mlx5_1", cpus, sizeof(cpus));
    EXPECT_STREQ(cpus, "");
}

TEST(Sysfs, F48_HostsWithManyNics)
{
    char names[40][SWL_SYSFS_NAME];

    for (uint32_t n : {0u, 1u, 8u, 32u, 33u, 64u}) {
        SysfsTree tree;

        for (uint32_t i = 0; i < n; i++)
            tree.nic("mlx5_" + std::to_string(i),
                     below(bridge_a, "0000:16:0" + std::to_string(i % 8) +
                                         ".0/0000:" + std::to_string(100 + i) + ":00.0"),
                     0, 2);
        memset(names, 0x5a, sizeof(names));
        ASSERT_EQ(swl_sysfs_list(tree.root.c_str(), "/sys/class/infiniband", names, 33), n);
        for (uint32_t i = 0; i < 33 && i < n; i++)
            EXPECT_EQ(names[i], "mlx5_" + std::to_string(i)); // mlx5_10 behind mlx5_9
        for (uint32_t i = 33; i < 40; i++)
            EXPECT_EQ(names[i][0], 0x5a) << "written past the end";
        EXPECT_EQ(swl_sysfs_list(tree.root.c_str(), "/sys/class/infiniband", nullptr, 0), n);
    }
}

TEST(Sysfs, F48_NamesOf63CharactersFitAndLongerOnesAreLeftOut)
{
    const std::string longest(63, 'n');
    char names[4][SWL_SYSFS_NAME];
    SysfsTree tree;

    tree.nic(longest, below(bridge_a, "0000:16:01.0/0000:17:00.0"), 0);
    tree.file("/sys/class/infiniband/" + std::string(64, 'm') + "/node_guid", "0");
    ASSERT_EQ(swl_sysfs_list(tree.root.c_str(), "/sys/class/infiniband", names, 4), 1u);
    EXPECT_EQ(names[0], longest);
}

TEST(Sysfs, LinesAndModules)
{
    SysfsTree tree;
    char text[8];

    tree.file("/sys/x", "0123456789");
    EXPECT_TRUE(swl_sysfs_line(tree.root.c_str(), "/sys/x", text, sizeof(text)));
    EXPECT_STREQ(text, "0123456");
    EXPECT_FALSE(swl_sysfs_line(tree.root.c_str(), "/sys/y", text, sizeof(text)));
    EXPECT_STREQ(text, "");
    EXPECT_FALSE(
        swl_sysfs_line(tree.root.c_str(), std::string(600, 'x').c_str(), text, sizeof(text)));
    tree.file("/sys/module/mlx5_ib/refcnt", "0");
    EXPECT_TRUE(swl_sysfs_module(tree.root.c_str(), "mlx5_ib"));
    EXPECT_FALSE(swl_sysfs_module(tree.root.c_str(), "nvidia_peermem"));
}

TEST(Sysfs, HostsAreToldApartByBootAndNetwork)
{
    SysfsTree a, b, c;

    for (SysfsTree *t : {&a, &b, &c})
        t->file("/proc/sys/kernel/random/boot_id", t == &c ? "other" : "same");
    EXPECT_EQ(swl_sysfs_host(a.root.c_str()), swl_sysfs_host(b.root.c_str()));
    EXPECT_NE(swl_sysfs_host(a.root.c_str()), swl_sysfs_host(c.root.c_str()));
    std::filesystem::create_directories(b.root + "/proc/self/ns");
    std::filesystem::create_symlink("net:[4026531840]", b.root + "/proc/self/ns/net");
    EXPECT_NE(swl_sysfs_host(a.root.c_str()), swl_sysfs_host(b.root.c_str()));
}

TEST(Sysfs, DoorbellsNeedTheDriversOption)
{
    SysfsTree with, without, none;
    char why[200] = "";

    if (geteuid() == 0)
        GTEST_SKIP() << "root may always";
    with.file("/proc/driver/nvidia/params", "X: 1\nRegistryDwords: \"PeerMappingOverride=1;\"");
    without.file("/proc/driver/nvidia/params", "X: 1\nRegistryDwords: \"\"");
    EXPECT_TRUE(swl_sysfs_doorbells(with.root.c_str(), why, sizeof(why)));
    EXPECT_TRUE(swl_sysfs_doorbells(none.root.c_str(), why, sizeof(why)));
    EXPECT_FALSE(swl_sysfs_doorbells(without.root.c_str(), why, sizeof(why)));
    EXPECT_NE(std::string(why).find("PeerMappingOverride=1"), std::string::npos) << why;
}

} // namespace
