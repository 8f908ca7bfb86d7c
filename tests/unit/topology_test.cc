// topology_test.cc: nodes, local ranks, gateways and served sources.
#include "src/group/topology.h"

#include <gtest/gtest.h>

#include <vector>

namespace
{

struct Topology {
    swl_topology t = {};

    explicit Topology(const std::vector<uint64_t> &keys)
    {
        EXPECT_EQ(swl_topology_make(&t, keys.data(), (uint32_t)keys.size()), ncclSuccess);
    }
    ~Topology()
    {
        swl_topology_free(&t);
    }
    Topology(const Topology &) = delete;
    Topology &operator=(const Topology &) = delete;
};

std::vector<uint64_t> nodes_of(const std::vector<int> &sizes)
{
    std::vector<uint64_t> keys;

    for (size_t m = 0; m < sizes.size(); m++)
        keys.insert(keys.end(), (size_t)sizes[m], 100 - m);
    return keys;
}

// Every list of served sources, taken together, is every (source, remote node) pair once.
void expect_consistent(const swl_topology &t)
{
    uint32_t most = 0;

    for (uint32_t g = 0; g < t.nranks; g++) {
        std::vector<uint32_t> sources(t.nranks);
        const uint32_t n = swl_topology_served(&t, g, sources.data());

        most = n > most ? n : most;
        for (uint32_t j = 0; j < n; j++) {
            EXPECT_EQ(swl_topology_gateway(&t, sources[j], t.rank_node[g]), g);
            EXPECT_EQ(swl_topology_served_index(&t, sources[j], t.rank_node[g]), j);
            if (j > 0) {
                EXPECT_LT(sources[j - 1], sources[j]);
            }
        }
    }
    EXPECT_EQ(t.max_served, most);
    for (uint32_t s = 0; s < t.nranks; s++) {
        EXPECT_EQ(swl_topology_rank(&t, t.rank_node[s], t.rank_local[s]), s);
        for (uint32_t m = 0; m < t.nnodes; m++) {
            if (m == t.rank_node[s])
                continue;
            const uint32_t n = swl_topology_remote(t.rank_node[s], m);

            EXPECT_LT(n, t.nnodes - 1);
            EXPECT_EQ(swl_topology_remote_node(t.rank_node[s], n), m);
            EXPECT_EQ(t.rank_node[swl_topology_gateway(&t, s, m)], m);
        }
    }
}

TEST(Topology, NodesAreOrderedByTheirLowestRank)
{
    Topology o({7, 3, 7, 3, 9});

    EXPECT_EQ(o.t.nnodes, 3u);
    EXPECT_EQ(o.t.max_local, 2u);
    EXPECT_EQ(std::vector<uint32_t>(o.t.rank_node, o.t.rank_node + 5),
              (std::vector<uint32_t>{0, 1, 0, 1, 2}));
    EXPECT_EQ(std::vector<uint32_t>(o.t.rank_local, o.t.rank_local + 5),
              (std::vector<uint32_t>{0, 0, 1, 1, 0}));
    expect_consistent(o.t);
}

TEST(Topology, EvenNodesServeTheirRail)
{
    Topology o(nodes_of({4, 4, 4}));

    EXPECT_EQ(o.t.max_served, 2u);
    for (uint32_t s = 0; s < 12; s++)
        for (uint32_t m = 0; m < 3; m++)
            EXPECT_EQ(swl_topology_gateway(&o.t, s, m), m * 4 + s % 4);
    expect_consistent(o.t);
}

TEST(Topology, UnevenNodesWrapAround)
{
    Topology o(nodes_of({3, 5}));

    EXPECT_EQ(o.t.max_local, 5u);
    EXPECT_EQ(swl_topology_gateway(&o.t, 3 + 4, 0), 1u); // local 4 of 5 is served by local 1 of 3
    EXPECT_EQ(o.t.max_served, 2u);
    EXPECT_EQ(swl_topology_served(&o.t, 3 + 3, nullptr), 0u); // nobody has local index 3 there
    expect_consistent(o.t);
}

TEST(Topology, AnyShapeIsConsistent)
{
    for (const std::vector<int> &sizes : std::vector<std::vector<int>>{
             {1}, {8}, {1, 1, 1, 1, 1}, {3, 1}, {8, 4}, {1, 7, 2, 5}, {16, 3, 16}}) {
        Topology o(nodes_of(sizes));

        EXPECT_EQ(o.t.nnodes, sizes.size());
        expect_consistent(o.t);
    }
}

TEST(Topology, ManyRanksOnManyNodes)
{
    std::vector<uint64_t> keys(4096);

    for (size_t r = 0; r < keys.size(); r++)
        keys[r] = r / 8;
    Topology o(keys);

    EXPECT_EQ(o.t.nnodes, 512u);
    EXPECT_EQ(o.t.max_served, 511u);
}

} // namespace
