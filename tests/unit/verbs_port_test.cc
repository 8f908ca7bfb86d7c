// Which port and which of its addresses: names, GID tables, and opening on a scripted machine.
#include "tests/unit/sysfs_tree.h"
#include "transport/rdma_core/port.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace
{

TEST(VerbsHca, NamesMatchAsInNcclIbHca)
{
    const struct {
        const char *spec, *name;
        uint32_t port;
        bool matches;
    } cases[] = {
        {nullptr, "mlx5_0", 1, true},
        {"", "mlx5_0", 1, true},
        {"mlx5", "mlx5_3", 1, true},
        {"mlx5_1", "mlx5_10", 1, true}, // a beginning of the name
        {"=mlx5_1", "mlx5_10", 1, false},
        {"=mlx5_1", "mlx5_1", 2, true},
        {"mlx5_0:1,mlx5_1:2", "mlx5_1", 1, false},
        {"mlx5_0:1,mlx5_1:2", "mlx5_1", 2, true},
        {"=mlx5_0:1", "mlx5_0", 1, true},
        {"^mlx5_0", "mlx5_0", 1, false},
        {"^mlx5_0", "mlx5_1", 1, true},
        {"^=mlx5_1", "mlx5_10", 1, true},
        {"^mlx5_0:2", "mlx5_0", 1, true},
        {"^mlx5_0:2", "mlx5_0", 2, false},
        {"bnxt", "mlx5_0", 1, false},
        {"mlx5_0:x", "mlx5_0", 1, false},
        {"mlx5_0:", "mlx5_0", 3, true},
        {"mlx5_0:4294967297", "mlx5_0", 1, false},
        {",", "mlx5_0", 1, false},
        {"=", "mlx5_0", 1, false},
        {"^", "mlx5_0", 1, true},
    };

    for (const auto &c : cases)
        EXPECT_EQ(swl_hca_matches(c.spec, c.name, c.port), c.matches)
            << (c.spec ? c.spec : "NULL") << " " << c.name << ":" << c.port;
}

struct verbs_gid_entry entry(uint32_t index, uint32_t type, std::vector<uint8_t> bytes)
{
    struct verbs_gid_entry e = {};

    memcpy(e.gid, bytes.data(), bytes.size());
    e.gid_index = index;
    e.gid_type = type;
    return e;
}

const std::vector<uint8_t> v4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
const std::vector<uint8_t> v4_local = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 169, 254, 2, 3};
const std::vector<uint8_t> v6 = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};
const std::vector<uint8_t> link_local = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 7};
const std::vector<uint8_t> none(16);

int choose(std::vector<struct verbs_gid_entry> table, bool ethernet)
{
    const int at = swl_gid_choose(table.data(), static_cast<uint32_t>(table.size()), ethernet);

    return at < 0 ? -1 : static_cast<int>(table[static_cast<size_t>(at)].gid_index);
}

TEST(VerbsGid, EthernetTakesRoutableRoceV2)
{
    const uint32_t v1 = VERBS_GID_ROCE_V1, v2 = VERBS_GID_ROCE_V2;

    EXPECT_EQ(choose({entry(0, v1, link_local), entry(1, v2, link_local), entry(2, v1, v4),
                      entry(3, v2, v4), entry(5, v2, v6)},
                     true),
              3);
    EXPECT_EQ(choose({entry(0, v2, link_local), entry(4, v2, v6), entry(9, v2, v4)}, true), 9);
    EXPECT_EQ(choose({entry(0, v2, link_local), entry(4, v2, v6)}, true), 4);
    EXPECT_EQ(choose({entry(0, v2, link_local), entry(1, v2, v4_local), entry(2, v2, none)}, true),
              -1);
    EXPECT_EQ(choose({entry(0, v1, v4)}, true), -1);
    EXPECT_EQ(choose({}, true), -1);
}

TEST(VerbsGid, InfinibandTakesTheFirstOrTheRoutersOne)
{
    const std::vector<uint8_t> routed = {0xfe, 0xc0, 0, 0, 0x12, 0x34, 0, 0,
                                         1,    1,    1, 1, 1,    1,    1, 1};

    EXPECT_EQ(choose({entry(0, VERBS_GID_IB, link_local), entry(1, VERBS_GID_IB, v6)}, false), 0);
    EXPECT_EQ(choose({entry(0, VERBS_GID_IB, link_local), entry(1, VERBS_GID_IB, routed)}, false),
              1);
    EXPECT_EQ(choose({entry(0, VERBS_GID_IB, none), entry(2, VERBS_GID_IB, v6)}, false), -1);
}

// A machine whose devices are the strings of `names`; a name with ! is no mlx5 device, with - it
// cannot be opened.
struct Machine {
    std::vector<std::string> names;
    std::vector<struct ibv_device *> list;
    uint32_t ports = 1;
    uint32_t inactive = 0; // bit for each port
    bool ethernet = true, list_fails = false;
    std::vector<struct verbs_gid_entry> gids;
    std::vector<uint16_t> pkeys = {0xffff};
    int open = 0, lists = 0;
} machine;

const std::string &name_of(const void *object)
{
    return machine.names[reinterpret_cast<uintptr_t>(object) - 1];
}

struct ibv_device **get_list(int *n)
{
    machine.list.clear();
    for (size_t i = 0; i < machine.names.size(); i++)
        machine.list.push_back(reinterpret_cast<struct ibv_device *>(i + 1));
    *n = static_cast<int>(machine.list.size());
    machine.list.push_back(nullptr);
    machine.lists += !machine.list_fails;
    return machine.list_fails ? nullptr : machine.list.data();
}

struct ibv_context *open_mlx5(struct ibv_device *device, struct mlx5_context_attr *attr)
{
    EXPECT_EQ(attr->flags, 1u);
    if (name_of(device).find('-') != std::string::npos) {
        errno = EPERM;
        return nullptr;
    }
    machine.open++;
    return reinterpret_cast<struct ibv_context *>(device);
}

int query_port(struct ibv_context *, uint8_t port, struct verbs_port_attr *attr)
{
    if (port > machine.ports)
        return EINVAL;
    attr->state = machine.inactive >> port & 1 ? 1 : VERBS_PORT_ACTIVE;
    attr->active_mtu = 3;
    attr->gid_tbl_len = 16;
    attr->lid = 11;
    attr->link_layer = machine.ethernet ? VERBS_LINK_ETHERNET : VERBS_LINK_INFINIBAND;
    attr->flags = VERBS_PORT_GRH_REQUIRED;
    attr->pkey_tbl_len = static_cast<uint16_t>(machine.pkeys.size());
    return 0;
}

int query_pkey(struct ibv_context *, uint8_t, int index, uint16_t *key_p)
{
    *key_p = htons(machine.pkeys[static_cast<size_t>(index)]);
    return 0;
}

int query_gid_ex(struct ibv_context *, uint32_t, uint32_t index, struct verbs_gid_entry *e,
                 uint32_t flags, size_t bytes)
{
    EXPECT_EQ(flags, 0u);
    EXPECT_EQ(bytes, sizeof(*e));
    for (const auto &g : machine.gids)
        if (g.gid_index == index) {
            *e = g;
            return 0;
        }
    return ENODATA;
}

int query_gid(struct ibv_context *, uint8_t, int index, void *gid)
{
    struct verbs_gid_entry e;

    memset(gid, 0, 16);
    if (query_gid_ex(nullptr, 1, static_cast<uint32_t>(index), &e, 0, sizeof(e)) == 0)
        memcpy(gid, e.gid, 16);
    return 0;
}

class VerbsPort : public ::testing::Test
{
  protected:
    VerbsPort()
    {
        machine = Machine();
        machine.names = {"mlx5_0"};
        machine.gids = {entry(0, VERBS_GID_ROCE_V1, link_local), entry(3, VERBS_GID_ROCE_V2, v4)};
        memset(&verbs, 0, sizeof(verbs));
        verbs.ibv_get_device_list = get_list;
        verbs.ibv_free_device_list = [](struct ibv_device **) { machine.lists--; };
        verbs.ibv_get_device_name = [](struct ibv_device *d) { return name_of(d).c_str(); };
        verbs.ibv_close_device = [](struct ibv_context *) { return --machine.open, 0; };
        verbs.ibv_query_port = query_port;
        verbs.ibv_query_pkey = query_pkey;
        verbs.ibv_query_gid = query_gid;
        verbs._ibv_query_gid_ex = query_gid_ex;
        verbs.mlx5dv_is_supported = [](struct ibv_device *d) { return name_of(d)[0] != '!'; };
        verbs.mlx5dv_open_device = open_mlx5;
    }
    // Three NICs, of which the last two are near the GPU.
    struct swl_nic_proximity of_three(const SysfsTree &tree)
    {
        tree.pci("pci0000:16/0000:16:01.0/0000:1a:00.0", 0);
        tree.nic("mlx5_0", "pci0000:46/0000:46:01.0/0000:47:00.0", 0);
        tree.nic("mlx5_1", "pci0000:16/0000:16:01.0/0000:1b:00.0", 0);
        tree.nic("mlx5_2", "pci0000:16/0000:16:01.0/0000:1c:00.0", 0);
        machine.names = {"mlx5_0", "mlx5_1", "mlx5_2"};
        return {tree.root.c_str(), "0000:1a:00.0", 0, 0};
    }
    bool open()
    {
        const bool ok = swl_port_open(&verbs, &want, &context, &port, why, sizeof(why));

        EXPECT_EQ(machine.lists, 0);
        EXPECT_EQ(machine.open, ok ? 1 : 0); // every context but the chosen one is closed again
        return ok;
    }
    void expect_why(const char *words)
    {
        EXPECT_FALSE(open());
        EXPECT_NE(std::string(why).find(words), std::string::npos) << why;
    }

    struct swl_verbs verbs;
    struct swl_port_want want = {nullptr, -1, SWL_PORT_DEVX, nullptr, -1};
    struct ibv_context *context = nullptr;
    struct swl_port port = {};
    char why[200] = "";
};

TEST_F(VerbsPort, D_C9_TheFirstValidPartitionKeyIsTakenFullMembersBefore)
{
    const struct {
        std::vector<uint16_t> table;
        int index;
    } cases[] = {{{0xffff}, 0},
                 {{0, 0, 0x8001}, 2},
                 {{0x7fff, 0, 0x8001}, 2},
                 {{0, 0x0001, 0x0002}, 1},
                 {{0x8000, 0x9000}, 1}};

    for (const auto &c : cases) {
        machine.pkeys = c.table;
        ASSERT_TRUE(open()) << why;
        EXPECT_EQ(port.pkey_index, c.index);
        EXPECT_EQ(port.pkey, c.table[static_cast<size_t>(c.index)]);
        machine.open = 0;
    }
    machine.pkeys.clear(); // a device without a table
    ASSERT_TRUE(open()) << why;
    EXPECT_EQ(port.pkey_index, 0);
    EXPECT_EQ(port.pkey, 0);
}

TEST_F(VerbsPort, D_C9_AnEmptyTableOfPartitionKeysIsRefused)
{
    machine.pkeys = {0, 0x8000, 0};
    expect_why("mlx5_0 port 1 has no valid partition key: its table of 3 is empty");
}

TEST_F(VerbsPort, D_C9_ThePartitionKeyThatWasAskedForIsTakenOrRefusedByItsVariable)
{
    machine.pkeys = {0xffff, 0, 0x8001, 0x0002};
    want.pkey = 3;
    ASSERT_TRUE(open()) << why;
    EXPECT_EQ(port.pkey_index, 3);
    EXPECT_EQ(port.pkey, 0x0002);
    machine.open = 0;
    for (int bad : {1, 4, 32767}) {
        want.pkey = bad;
        expect_why("no valid partition key at SWIMLANE_IB_PKEY=");
        expect_why("of its table of 4 are valid: 0 (0xffff), 2 (0x8001), 3 (0x0002)");
    }
    setenv("NCCL_IB_PKEY", "1", 1);
    want.pkey = 1;
    expect_why("no valid partition key at NCCL_IB_PKEY=1");
    unsetenv("NCCL_IB_PKEY");
}

TEST_F(VerbsPort, FirstActivePortIsTakenWithItsProperties)
{
    machine.ports = 2;
    machine.inactive = 1u << 1;
    ASSERT_TRUE(open()) << why;
    EXPECT_STREQ(port.name, "mlx5_0");
    EXPECT_EQ(port.number, 2);
    EXPECT_EQ(port.mtu, 3);
    EXPECT_EQ(port.lid, 11);
    EXPECT_TRUE(port.ethernet);
    EXPECT_TRUE(port.grh_required);
    EXPECT_EQ(port.gid_index, 3);
    EXPECT_EQ(memcmp(port.gid, v4.data(), 16), 0);
}

TEST_F(VerbsPort, F61_MachinesWithoutRdmaAreNamedAsSuch)
{
    machine.list_fails = true; // NULL with a count: kernels without RDMA
    expect_why("no RDMA device");
    machine.list_fails = false;
    machine.names.clear();
    expect_why("no RDMA device");
}

TEST_F(VerbsPort, DevicesOfOtherMakersAreLeftAlone)
{
    machine.names = {"!rxe0", "mlx5_7"};
    ASSERT_TRUE(open()) << why;
    EXPECT_STREQ(port.name, "mlx5_7");
    machine.open = 0;
    machine.names = {"!rxe0"};
    expect_why("none of 1 RDMA devices is an mlx5 device");
}

TEST_F(VerbsPort, ListOfWantedDevicesIsKept)
{
    machine.names = {"mlx5_0", "mlx5_1"};
    want.hca = "=mlx5_1";
    ASSERT_TRUE(open()) << why;
    EXPECT_STREQ(port.name, "mlx5_1");
    machine.open = 0;
    want.hca = "mlx5_9";
    expect_why("SWIMLANE_IB_HCA allows: mlx5_9");
}

TEST_F(VerbsPort, RefusedDeviceIsNamedAndTheNextOneTaken)
{
    machine.names = {"mlx5_-"};
    expect_why("mlx5_- cannot be opened for DevX: Operation not permitted");
    machine.names = {"mlx5_-", "mlx5_1"};
    EXPECT_TRUE(open()) << why;
}

TEST_F(VerbsPort, InactivePortsAreNamed)
{
    machine.inactive = 1u << 1;
    expect_why("mlx5_0 port 1 is not active");
}

TEST_F(VerbsPort, F87_GidIndexThatIsMissingIsRefusedByName)
{
    want.gid_index = 99;
    expect_why("SWIMLANE_IB_GID_INDEX=99");
    want.gid_index = 1; // a hole
    expect_why("SWIMLANE_IB_GID_INDEX=1");
    want.gid_index = 0;
    ASSERT_TRUE(open()) << why;
    EXPECT_EQ(port.gid_index, 0); // also one that would not be chosen
}

TEST_F(VerbsPort, EthernetWithoutRoutableAddressIsRefused)
{
    machine.gids = {entry(0, VERBS_GID_ROCE_V1, v4), entry(1, VERBS_GID_ROCE_V2, link_local)};
    expect_why("no routable RoCE v2 address");
}

TEST_F(VerbsPort, OldLibraryNeedsTheIndexOnEthernet)
{
    verbs._ibv_query_gid_ex = nullptr;
    expect_why("set SWIMLANE_IB_GID_INDEX");
    want.gid_index = 3;
    ASSERT_TRUE(open()) << why;
    EXPECT_EQ(memcmp(port.gid, v4.data(), 16), 0);
}

TEST_F(VerbsPort, NearestDeviceIsTakenAndEquallyNearOnesInTurn)
{
    const SysfsTree tree;
    struct swl_nic_proximity near = of_three(tree);

    want.proximity = &near;
    for (const char *name : {"mlx5_1", "mlx5_2", "mlx5_1"}) {
        machine.open = 0;
        ASSERT_TRUE(open()) << why;
        EXPECT_STREQ(port.name, name);
        near.turn++;
    }
    machine.open = 0;
    want.hca = "mlx5_0"; // the list of the user first
    ASSERT_TRUE(open()) << why;
    EXPECT_STREQ(port.name, "mlx5_0");
    machine.open = 0;
    want.hca = nullptr;
    near.gpu = nullptr; // unknown: all equally far, in turn
    near.turn = 5;
    ASSERT_TRUE(open()) << why;
    EXPECT_STREQ(port.name, "mlx5_2");
}

// Those that are not wanted take no turn: the GPUs share the others evenly.
TEST_F(VerbsPort, TurnsAreAmongTheDevicesOfTheUsersList)
{
    struct swl_nic_proximity near = {nullptr, nullptr, 0, 0};

    machine.names = {"mlx5_0", "!bnxt_0", "mlx5_1", "mlx5_2", "mlx5_3"};
    want.hca = "mlx5_1,mlx5_3";
    want.proximity = &near;
    for (const char *name : {"mlx5_1", "mlx5_3", "mlx5_1", "mlx5_3", "mlx5_1", "mlx5_3"}) {
        machine.open = 0;
        ASSERT_TRUE(open()) << why;
        EXPECT_STREQ(port.name, name) << near.turn;
        near.turn++;
    }
    want.proximity = nullptr;
}

TEST_F(VerbsPort, SeveralNicsAreTheNextInOrderOfDistance)
{
    const SysfsTree tree;
    struct swl_nic_proximity near = of_three(tree);

    want.proximity = &near;
    for (const char *name : {"mlx5_1", "mlx5_2", "mlx5_0"}) {
        machine.open = 0;
        ASSERT_TRUE(open()) << why;
        EXPECT_STREQ(port.name, name);
        EXPECT_EQ(machine.open, 1); // those before it are closed again
        near.nth++;
    }
    machine.open = 0;
    EXPECT_FALSE(open());
    EXPECT_STREQ(why, "3 of the RDMA devices can be used, not the 4 that SWIMLANE_NICS asks for");
    EXPECT_EQ(machine.open, 0);
    machine.inactive = 1u << 1; // port 1 of every device
    EXPECT_FALSE(open());
    EXPECT_NE(std::string(why).find("not active"), std::string::npos) << why;
}

TEST_F(VerbsPort, F48_HostsWithManyNics)
{
    struct swl_nic_proximity near = {"/nonexistent", "0000:1a:00.0", 63, 0};

    for (uint32_t n : {1u, 8u, 32u, 33u, 64u}) {
        machine.names.clear();
        for (uint32_t i = 0; i < n; i++)
            machine.names.push_back("mlx5_" + std::string(56, 'x') + std::to_string(10 + i));
        machine.ports = 2;
        machine.open = 0;
        want.proximity = &near;
        ASSERT_TRUE(open()) << why;
        EXPECT_EQ(port.name, machine.names[63 % n]); // 63 characters, whole
    }
}

TEST_F(VerbsPort, OldLibraryIsEnoughOnInfiniband)
{
    verbs._ibv_query_gid_ex = nullptr;
    machine.ethernet = false;
    ASSERT_TRUE(open()) << why;
    EXPECT_EQ(port.gid_index, 0);
}

} // namespace
