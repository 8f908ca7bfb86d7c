// plan_test.cc: channels, rings, roles and shared memory of a group.
#include "kernels/common/block.h"
#include "src/base/error.h"
#include "src/group/plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace
{

const uint32_t most_threads = 512; // 65536 registers of an SM, 128 of a thread: ptx_check

struct Job {
    swl_topology topology = {};
    std::vector<swl_rank_capabilities> ranks;
    swl_plan_config config = {};
    std::vector<swl_plan> plans;

    // nodes of these sizes, each rank on a device of its own with `nsms` SMs
    explicit Job(const std::vector<int> &nodes, uint32_t sm_cap = 16, uint32_t nsms = 24)
    {
        std::vector<uint64_t> keys;

        for (size_t m = 0; m < nodes.size(); m++)
            keys.insert(keys.end(), (size_t)nodes[m], m);
        EXPECT_EQ(swl_topology_make(&topology, keys.data(), (uint32_t)keys.size()), ncclSuccess);
        ranks.resize(keys.size());
        for (size_t r = 0; r < ranks.size(); r++) {
            ranks[r].uuid[0] = (uint8_t)r;
            ranks[r].uuid[1] = (uint8_t)(r >> 8);
            ranks[r].process = 1;
            ranks[r].nsms = nsms;
            ranks[r].sm_cap = sm_cap;
            ranks[r].shared_bytes = 227 << 10;
            ranks[r].block_threads = most_threads;
        }
        config.nexperts = 256;
        config.max_tokens = 4096;
        config.recv_rows = 4096 * 2;
        config.max_token_bytes = 14336;
        config.max_topk = 8;
    }
    ~Job()
    {
        swl_topology_free(&topology);
    }
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    ncclResult_t make()
    {
        ncclResult_t rc = ncclSuccess;

        plans.assign(ranks.size(), swl_plan{});
        for (uint32_t r = 0; r < ranks.size() && rc == ncclSuccess; r++)
            rc = swl_plan_make(&plans[r], &config, &topology, ranks.data(), r);
        return rc;
    }
    const swl_shape &shape(size_t rank = 0) const
    {
        return plans[rank].shape;
    }
};

uint32_t warps(const swl_roles &roles, int half)
{
    uint32_t n = 0;

    for (const uint8_t(&count)[2] : roles.count)
        n += count[half];
    return n;
}

// What kernels and window count on, for every shape.
void expect_sound(const swl_plan &p)
{
    const swl_shape &s = p.shape;

    EXPECT_GE(s.nchannels, 1u);
    EXPECT_GE(s.nrings, 1u);
    EXPECT_LE(s.nrings, s.nnodes == 2 && s.max_served == 1 ? 2 * s.nchannels : s.nchannels);
    EXPECT_LE(s.ring_slots, SWL_RING_SLOTS_MAX);
    EXPECT_GE(s.chunk_slots, 1u);
    EXPECT_LE(2 * s.chunk_slots, s.ring_slots);
    EXPECT_EQ(s.ring_slots % s.chunk_slots, 0u);
    EXPECT_EQ(s.ring_slots & (s.ring_slots - 1), 0u) << "positions wrap with the word";
    EXPECT_EQ(s.local_slots & (s.local_slots - 1), 0u);
    EXPECT_GE(s.local_slots, 2u);
    for (const swl_plan_kernel *k : {&p.ht.dispatch, &p.ht.combine[0], &p.ht.combine[1]}) {
        EXPECT_EQ(k->blocks, s.nchannels * k->roles.halves);
        EXPECT_LE(k->threads, most_threads);
        EXPECT_GE(k->threads, 32 * warps(k->roles, 0));
        EXPECT_GE(k->threads, 32 * warps(k->roles, 1));
        EXPECT_GT(k->piece_bytes, 0u);
        EXPECT_EQ(k->piece_bytes % 16, 0u);
        EXPECT_LE(k->shared_bytes, 227u << 10);
    }
    for (int direct = 0; direct < 2; direct++) {
        const swl_combine_shape &c = p.ht.combine_shared[direct];

        EXPECT_EQ(c.nwarps, p.ht.combine[direct].threads / 32);
        EXPECT_EQ(c.nservers > 0, !direct) << "who can be read in place needs no server";
        EXPECT_LE(swl_combine_block_of(&c).bytes, p.ht.combine[direct].shared_bytes);
        if (c.nservers) {
            EXPECT_GE(c.nstages, 2u);
            EXPECT_EQ(c.nstages % 2, 0u) << "two banks";
            EXPECT_EQ(c.stage_bytes % 16, 0u);
        }
    }
    EXPECT_GE(p.ht.rings_per_block * s.nchannels, (s.nnodes - 1) * s.nrings);
    EXPECT_GE(p.ht.rings_per_block * s.nchannels, s.max_served * s.nrings);
    EXPECT_EQ(s.nwriters % s.nchannels, 0u);
    EXPECT_EQ(s.ngatherers % s.nchannels, 0u);
    EXPECT_EQ(p.at.bytes, swl_window_of(&s).bytes);
}

TEST(Plan, TestsMakeEveryRingTiny)
{
    Job j({2, 2});

    j.config.max_token_bytes = 16;
    j.config.ring_sizes = {2, 1, 1, 4};
    ASSERT_EQ(j.make(), ncclSuccess) << swl_last_error();
    EXPECT_EQ(j.shape().ring_slots, 2u);
    EXPECT_EQ(j.shape().chunk_slots, 1u);
    EXPECT_EQ(j.shape().fetch_slots, 1u);
    EXPECT_EQ(j.shape().local_slots, 4u);
    EXPECT_EQ(swl_record_slots(&j.shape()), 4u) << "records are small, but no more";
}

TEST(Plan, BuiltInSizesOfTwoNodes)
{
    Job j({4, 4});

    ASSERT_EQ(j.make(), ncclSuccess);
    EXPECT_EQ(j.shape().nchannels, 8u);
    EXPECT_EQ(j.shape().nrings, 16u);
    EXPECT_EQ(j.shape().ring_slots, 64u);
    EXPECT_EQ(j.shape().chunk_slots, 8u);
    EXPECT_EQ(j.shape().local_slots, 8u);
    EXPECT_EQ(j.shape().nwriters, 8u * 10);
    EXPECT_EQ(j.shape().ngatherers, 8u * 19);
    EXPECT_EQ(j.shape().nlocal_experts, 32u);
    EXPECT_EQ(j.plans[0].ht.dispatch.blocks, 16u);
    EXPECT_EQ(j.plans[0].ht.dispatch.threads, 384u);
    EXPECT_EQ(j.plans[0].ht.combine[0].threads, 384u);
    expect_sound(j.plans[0]);
}

TEST(Plan, OneOtherRankGetsTwoRingsOfAChannel)
{
    const struct {
        std::vector<int> nodes;
        uint32_t rings;
    } rows[] = {{{1, 1}, 16}, {{4, 4}, 16},   {{1, 2}, 8},
                {{1, 8}, 8},  {{1, 1, 1}, 8}, {{2, 2, 2, 2}, 8}};

    for (const auto &row : rows) {
        Job j(row.nodes);

        ASSERT_EQ(j.make(), ncclSuccess);
        EXPECT_EQ(j.shape().nchannels, 8u);
        EXPECT_EQ(j.shape().nrings, row.rings);
        for (const swl_plan &p : j.plans)
            expect_sound(p);
    }
}

TEST(Plan, OneNodeHasWritersAndReceiversOnly)
{
    Job j({8});

    ASSERT_EQ(j.make(), ncclSuccess);
    EXPECT_EQ(j.shape().nrings, 1u);
    EXPECT_EQ(j.shape().nserved, 0u);
    EXPECT_EQ(j.shape().nwriters, 8u * 16);
    EXPECT_EQ(j.plans[0].ht.dispatch_block[0].ncopiers, 12u);
    EXPECT_EQ(j.plans[0].ht.dispatch_block[1].ncopiers, 6u);
    EXPECT_EQ(j.plans[0].ht.dispatch_block[1].nstages, 4u);
    EXPECT_EQ(j.shape().ngatherers, 8u * 32);
    EXPECT_EQ(j.plans[0].ht.dispatch.roles.count[SWL_D_FORWARD][1], 0);
    expect_sound(j.plans[0]);
}

TEST(Plan, AllRanksAgreeOnSharedSizes)
{
    Job j({3, 5});

    j.ranks[6].sm_cap = 5;
    j.ranks[2].channel_hint = 7;
    ASSERT_EQ(j.make(), ncclSuccess);
    for (size_t r = 0; r < 8; r++) {
        EXPECT_EQ(j.shape(r).nchannels, 2u);
        EXPECT_EQ(j.shape(r).nrings, j.shape(0).nrings);
        EXPECT_EQ(j.shape(r).nwriters, j.shape(0).nwriters);
        EXPECT_EQ(j.plans[r].at.bytes, j.plans[0].at.bytes);
        expect_sound(j.plans[r]);
    }
    EXPECT_EQ(j.shape(1).local, 1u);
    EXPECT_EQ(j.shape(4).node, 1u);
    EXPECT_EQ(j.shape(4).nlocal, 5u);
}

TEST(Plan, OneSmHoldsBothHalves)
{
    Job j({2, 2}, 1);

    ASSERT_EQ(j.make(), ncclSuccess);
    EXPECT_EQ(j.shape().nchannels, 1u);
    EXPECT_EQ(j.plans[0].ht.dispatch.roles.halves, 1);
    EXPECT_EQ(j.plans[0].ht.dispatch.blocks, 1u);
    EXPECT_EQ(j.plans[0].ht.dispatch.threads, 32u * 16);
    EXPECT_EQ(j.plans[0].ht.combine[0].threads, 32u * 16);
    EXPECT_EQ(j.plans[0].nsms, 1u);
    for (int half = 0; half < 2; half++) { // every role that the other half relies on is there
        EXPECT_GE(warps(j.plans[0].ht.dispatch.roles, half), 5u);
        EXPECT_GE(warps(j.plans[0].ht.combine[0].roles, half), 5u);
    }
    expect_sound(j.plans[0]);
}

TEST(Plan, OneSmOfOneRankLeavesTwoToTheOthers)
{
    Job j({2}, 2);

    j.ranks[1].sm_cap = 1;
    ASSERT_EQ(j.make(), ncclSuccess);
    EXPECT_EQ(j.plans[0].ht.dispatch.roles.halves, 2);
    EXPECT_EQ(j.plans[1].ht.dispatch.roles.halves, 1);
    EXPECT_EQ(j.shape(0).nwriters, j.shape(1).nwriters);
    EXPECT_EQ(j.shape(0).ngatherers, j.shape(1).ngatherers);
    expect_sound(j.plans[0]);
    expect_sound(j.plans[1]);
}

// Every role that a job of this kind has exists, and no other.
void expect_roles(const swl_plan &p)
{
    for (uint32_t role = 0; role < SWL_ROLES; role++) {
        const bool nodes = p.shape.nnodes > 1;
        const uint8_t(&d)[2] = p.ht.dispatch.roles.count[role],
              (&c)[2] = p.ht.combine[0].roles.count[role];

        EXPECT_EQ(d[0] + d[1] > 0, nodes || role == SWL_D_WRITE || role == SWL_D_RECEIVE) << role;
        EXPECT_EQ(c[0] + c[1] > 0, nodes || role == SWL_C_SUM || role == SWL_C_SERVE) << role;
    }
}

TEST(Plan, EveryNumberOfSmsFitsTheRegisters)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{
             {1}, {2}, {1, 1}, {2, 1}, {4, 4}, {3, 5}, std::vector<int>(3, 1), {33}})
        for (uint32_t sms = 1; sms <= 132; sms++)
            for (uint32_t last : {1u, sms}) {
                Job j(nodes, sms, 132);

                j.ranks.back().sm_cap = last;
                ASSERT_EQ(j.make(), ncclSuccess) << sms << " SMs: " << swl_last_error();
                for (const swl_plan &p : j.plans) {
                    expect_sound(p);
                    expect_roles(p);
                    EXPECT_LE(p.nsms, sms);
                }
            }
}

TEST(Plan, TooFewRegistersAreRefusedByAllRanks)
{
    Job j({2}, 1);

    j.ranks[1].block_threads = 480;
    EXPECT_EQ(j.make(), ncclInvalidUsage);
    EXPECT_NE(std::string(swl_last_error()).find("registers"), std::string::npos);
    for (uint32_t r = 0; r < 2; r++)
        EXPECT_EQ(swl_plan_make(&j.plans[r], &j.config, &j.topology, j.ranks.data(), r),
                  ncclInvalidUsage);
    for (swl_rank_capabilities &f : j.ranks)
        f.sm_cap = 16; // two blocks a channel: a half each
    j.ranks[1].block_threads = 512;
    EXPECT_EQ(j.make(), ncclSuccess);
}

TEST(Plan, RanksOfADeviceShareItsSms)
{
    Job j({4}, 16, 24);

    for (swl_rank_capabilities &f : j.ranks)
        f.uuid[0] = 0;
    ASSERT_EQ(j.make(), ncclSuccess);
    EXPECT_EQ(j.plans[0].ht.dispatch.blocks, 6u); // 24 SMs, 4 ranks
    expect_sound(j.plans[0]);
    for (swl_rank_capabilities &f : j.ranks)
        f.process = (uint64_t)(&f - j.ranks.data()); // time slices instead
    ASSERT_EQ(j.make(), ncclSuccess);
    EXPECT_EQ(j.plans[0].ht.dispatch.blocks, 16u);
}

TEST(Plan, TooManyRanksOnADeviceAreRefusedWithTheNumbers)
{
    Job j({4}, 16, 3);

    for (swl_rank_capabilities &f : j.ranks)
        f.uuid[0] = 0;
    ASSERT_EQ(j.make(), ncclInvalidUsage);
    EXPECT_NE(std::string(swl_last_error()).find("4 ranks share"), std::string::npos);
    EXPECT_NE(std::string(swl_last_error()).find("3 SMs"), std::string::npos);
}

// A rank that has its device for itself shares it with nobody.
TEST(Plan, D_C7_OneRankOnASmallDeviceIsNotSaidToShareIt)
{
    Job j({1, 1}, 1, 2);

    for (swl_rank_capabilities &f : j.ranks)
        f.nic_blocks = 2;
    ASSERT_EQ(j.make(), ncclInvalidUsage);
    const std::string said = swl_last_error();

    EXPECT_NE(said.find("the device of rank 0 has 2 SMs"), std::string::npos) << said;
    EXPECT_EQ(said.find("share"), std::string::npos) << said;
}

// A kernel behind one that waits for it in the same queue never starts.
TEST(Plan, D_B3_RanksOfADeviceAndProcessNeedAQueueEach)
{
    Job j({33}, 1, 132);

    for (swl_rank_capabilities &f : j.ranks) {
        f.uuid[0] = 0;
        f.queues = f.most_queues = 32;
    }
    ASSERT_EQ(j.make(), ncclInvalidUsage);
    for (const char *word : {"33 ranks of a process share the device of rank 0", "it has 32"})
        EXPECT_NE(std::string(swl_last_error()).find(word), std::string::npos) << word;
    j.ranks[32].process = 2;
    EXPECT_EQ(j.make(), ncclSuccess);
    for (swl_rank_capabilities &f : j.ranks)
        f.queues = 31;
    ASSERT_EQ(j.make(), ncclInvalidUsage);
    for (const char *word : {"32 ranks", "CUDA has 31", "CUDA_DEVICE_MAX_CONNECTIONS to 32"})
        EXPECT_NE(std::string(swl_last_error()).find(word), std::string::npos) << word;
    for (swl_rank_capabilities &f : j.ranks)
        f.queues = 0; // the emulator
    EXPECT_EQ(j.make(), ncclSuccess);
}

TEST(Plan, HintsAreUpperBounds)
{
    Job j({2, 2});

    j.ranks[1].qp_hint = 3;
    j.ranks[0].qp_hint = 100;
    j.ranks[0].chunk_hint = 64;
    j.config.max_token_bytes = 28672;
    ASSERT_EQ(j.make(), ncclSuccess);
    EXPECT_EQ(j.shape().nrings, 3u);
    EXPECT_EQ(j.shape().ring_slots, 32u); // 64 slots of 28 KiB would be too large a ring
    EXPECT_EQ(j.shape().chunk_slots, 16u);
    j.config.max_token_bytes = 1024;
    ASSERT_EQ(j.make(), ncclSuccess);
    EXPECT_EQ(j.shape().ring_slots, 64u);
    EXPECT_EQ(j.shape().chunk_slots, 32u);
    expect_sound(j.plans[0]);
}

TEST(Plan, AnyShapeIsSound)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{
             {1}, {1, 1}, {8, 4}, {3, 1, 1}, std::vector<int>(20, 2), std::vector<int>(64, 1)})
        for (uint32_t row : {16u, 256u, 14336u, 262144u})
            for (uint32_t cap : {1u, 2u, 3u, 16u, 24u})
                for (uint32_t topk : {1u, 64u}) {
                    Job j(nodes, cap);

                    j.config.max_token_bytes = row;
                    j.config.max_topk = topk;
                    j.config.nexperts = 3 * (uint32_t)j.ranks.size() + 1;
                    ASSERT_EQ(j.make(), ncclSuccess) << swl_last_error();
                    for (const swl_plan &p : j.plans)
                        expect_sound(p);
                }
}

TEST(Plan, TooLittleSharedMemoryIsRefusedByAllRanks)
{
    Job j({2});

    j.ranks[1].shared_bytes = 16 << 10;
    EXPECT_EQ(j.make(), ncclInvalidUsage);
}

// The window of the documented formula: docs/memory.md.
TEST(Plan, RouteScratchStaysSmall)
{
    Job j(std::vector<int>(512, 8), 16, 24);

    j.config.max_tokens = 128;
    j.config.nexperts = 4096;
    j.plans.resize(1);
    ASSERT_EQ(swl_plan_make(&j.plans[0], &j.config, &j.topology, j.ranks.data(), 0), ncclSuccess);
    const swl_plan &p = j.plans[0];
    const uint64_t bins = p.shape.nranks + swl_route_lists(&p.shape);

    EXPECT_LE(4 * bins * p.route.blocks * (p.route.threads / 32), SWL_ROUTE_SCRATCH_BYTES);
    EXPECT_EQ(p.shape.ring_slots, 16u);
    EXPECT_EQ(p.shape.nrings, 1u);
    expect_sound(p);
}

TEST(Plan, FingerprintTellsGroupsApart)
{
    Job a({2, 2}), b({2, 2}), c({1, 3});

    b.config.max_tokens++;
    ASSERT_EQ(a.make(), ncclSuccess);
    ASSERT_EQ(b.make(), ncclSuccess);
    ASSERT_EQ(c.make(), ncclSuccess);
    const uint64_t first = swl_plan_fingerprint(&a.plans[0], &a.topology, 3);

    EXPECT_EQ(first, swl_plan_fingerprint(&a.plans[0], &a.topology, 3));
    EXPECT_NE(first, swl_plan_fingerprint(&a.plans[0], &a.topology, 1));
    EXPECT_NE(first, swl_plan_fingerprint(&a.plans[1], &a.topology, 3));
    EXPECT_NE(first, swl_plan_fingerprint(&b.plans[0], &b.topology, 3));
    EXPECT_NE(first, swl_plan_fingerprint(&c.plans[0], &c.topology, 3));
}

} // namespace
