// group_create_test.cc: creation of groups: agreement, refusal on all ranks, undoing.
#include "tests/support/group_fixture.h"

#include <functional>

namespace
{

TEST(GroupCreate, BlocksOfTheSoftwareNicAreToldApart)
{
    setenv("SWIMLANE_SOFT_EXECUTOR", "blocks", 1);
    setenv("SWIMLANE_SOFT_BLOCKS", "3", 1);
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {1, 1}})
        on_ranks(nodes, [&](swl_rank *rank) {
            ncclEpGroupConfig_t config = small_config();
            ncclEpGroup_t group = nullptr;

            ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess)
                << swimlaneLastError();
            EXPECT_EQ(query(group, SWIMLANE_QUERY_SMS), 2u);
            EXPECT_EQ(query(group, SWIMLANE_QUERY_NIC_SMS), nodes.size() > 1 ? 3u : 0u);
            EXPECT_EQ(query(group, SWIMLANE_QUERY_RINGS) > 0, nodes.size() > 1);
            EXPECT_EQ(query(group, SWIMLANE_QUERY_RING_SLOTS) > 0, nodes.size() > 1);
            EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
        });
    unsetenv("SWIMLANE_SOFT_EXECUTOR");
    unsetenv("SWIMLANE_SOFT_BLOCKS");
}

TEST(GroupCreate, AnyShapeOfNodes)
{
    for (const std::vector<int> &nodes :
         std::vector<std::vector<int>>{{1}, {2}, {1, 1}, {2, 2}, {3, 1}, {1, 2, 1}})
        on_ranks(nodes, [&](swl_rank *rank) {
            ncclEpGroupConfig_t config = small_config();
            ncclEpGroup_t group = nullptr;

            ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess)
                << swimlaneLastError();
            EXPECT_EQ(query(group, SWIMLANE_QUERY_TEAMS), nodes.size());
            EXPECT_EQ(query(group, SWIMLANE_QUERY_SMS), 2u);
            EXPECT_EQ(query(group, SWIMLANE_QUERY_TIMEOUT_NS), 2000000000u);
            EXPECT_EQ(query(group, SWIMLANE_QUERY_PENDING_OPS), 0u);
            EXPECT_EQ(query(group, SWIMLANE_QUERY_ROWS_DROPPED), 0u);
            EXPECT_GT(query(group, SWIMLANE_QUERY_WINDOW_BYTES), 0u);
            EXPECT_GT(query(group, SWIMLANE_QUERY_DEVICE_BYTES),
                      query(group, SWIMLANE_QUERY_WINDOW_BYTES));
            EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
            expect_comm_works(rank);
        });
}

TEST(GroupCreate, SeveralGroupsOnOneCommunicator)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t groups[3] = {};

        for (ncclEpGroup_t &group : groups)
            ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
        for (int i : {1, 0, 2})
            EXPECT_EQ(ncclEpGroupDestroy(groups[i]), ncclSuccess);
    });
}

TEST(GroupCreate, MalformedLinkIsReportedOncePerRank)
{
    setenv("SWIMLANE_SOFT_LINK", "fast", 1);
    testing::internal::CaptureStderr();
    on_ranks({1, 1}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;

        ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
    const std::string log = testing::internal::GetCapturedStderr();

    unsetenv("SWIMLANE_SOFT_LINK");
    EXPECT_EQ(occurrences(log, "SWIMLANE_SOFT_LINK"), IsSkipped() ? 0u : 2u) << log;
}

using change = std::function<void(ncclEpGroupConfig_t &)>;

// `bad` on all ranks, then on the last rank alone: the same code on all ranks, nothing left behind.
void expect_refused(const char *name, const change &bad, ncclResult_t code,
                    std::initializer_list<const char *> words)
{
    SCOPED_TRACE(name);
    for (bool everywhere : {true, false})
        on_ranks({2, 1}, [&](swl_rank *rank) {
            ncclEpGroupConfig_t config = small_config();
            ncclEpGroup_t group = (ncclEpGroup_t)(uintptr_t)16;

            if (everywhere || rank->rank == 2)
                bad(config);
            EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), code);
            EXPECT_EQ(group, nullptr);
            if (everywhere || rank->rank == 2)
                expect_sentence(words);
            else
                expect_sentence({"rank 2"});
            config = small_config();
            ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
            EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        });
}

TEST(GroupCreate, F66BadSettingsAreRefusedOnAllRanks)
{
    const ncclResult_t ia = ncclInvalidArgument;

    expect_refused("experts 0", [](auto &c) { c.num_experts = 0; }, ia, {"num_experts"});
    expect_refused("experts 2^31", [](auto &c) { c.num_experts = 1u << 31; }, ia, {"num_experts"});
    expect_refused("tokens 0", [](auto &c) { c.max_dispatch_tokens_per_rank = 0; }, ia,
                   {"max_dispatch_tokens_per_rank"});
    expect_refused("X < D", [](auto &c) { c.max_recv_tokens_per_rank = 15; }, ia,
                   {"max_recv_tokens_per_rank", "15", "16"});
    expect_refused("bytes 0", [](auto &c) { c.max_token_bytes = 0; }, ia, {"max_token_bytes"});
    expect_refused("bytes 8", [](auto &c) { c.max_token_bytes = 8; }, ia, {"max_token_bytes", "8"});
    expect_refused("bytes 17", [](auto &c) { c.max_token_bytes = 17; }, ia,
                   {"max_token_bytes", "17"});
    expect_refused("algorithm 99", [](auto &c) { c.algorithm = (ncclEpAlgorithm_t)99; }, ia,
                   {"algorithm", "99"});
    expect_refused("eager", [](auto &c) { c.max_recv_tokens_per_rank = 0; }, ncclInvalidUsage,
                   {"max_recv_tokens_per_rank"});
    expect_refused("SMs", [](auto &c) { c.max_num_sms = 1000; }, ncclInvalidUsage,
                   {"max_num_sms", "1000"});
}

TEST(GroupCreate, F66UnevenExpertsAndVersionZeroAreAccepted)
{
    on_ranks({2}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;

        config.num_experts = 3;
        config.version = 0;
        ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        EXPECT_EQ(ncclEpCreateGroup(nullptr, rank->comm, &config), ncclInvalidArgument);
    });
}

// Rank 1 has `other`: all ranks name the field and both values.
void expect_disagreement(const char *field, const char *value, const char *other_value,
                         const change &other)
{
    SCOPED_TRACE(field);
    on_ranks({2, 1}, [&](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;

        if (rank->rank == 1)
            other(config);
        EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclInvalidArgument);
        EXPECT_EQ(group, nullptr);
        expect_sentence({field, value, other_value, "rank 0", "rank 1"});
        expect_comm_works(rank);
    });
}

TEST(GroupCreate, F70DifferentSettingsAreNamedOnAllRanks)
{
    expect_disagreement("max_dispatch_tokens_per_rank", "16", "17",
                        [](auto &c) { c.max_dispatch_tokens_per_rank = 17; });
    expect_disagreement("num_experts", "8", "9", [](auto &c) { c.num_experts = 9; });
    expect_disagreement("max_token_bytes", "64", "128", [](auto &c) { c.max_token_bytes = 128; });
    expect_disagreement("max_recv_tokens_per_rank", "256", "300",
                        [](auto &c) { c.max_recv_tokens_per_rank = 300; });
    expect_disagreement("rdma_buffer_size", "0", "1048576",
                        [](auto &c) { c.rdma_buffer_size = 1 << 20; });
    expect_disagreement("zero_copy", "0", "1",
                        [](auto &c) { c.zero_copy = NCCL_EP_ZERO_COPY_OFF; });
    expect_disagreement("overflow_policy", "1", "2",
                        [](auto &c) { c.overflow_policy = NCCL_EP_OVERFLOW_DROP; });
    expect_disagreement("num_topk", "2", "3", [](auto &c) { c.num_topk = 3; });
}

TEST(GroupCreate, HintsAndLimitsMayDiffer)
{
    on_ranks({2, 2}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;

        config.max_num_sms = 1 + (unsigned)rank->rank;
        config.num_channels = 1 + (unsigned)rank->rank;
        config.num_qp_per_rank = 5 - (unsigned)rank->rank;
        config.timeout_ns = 1000000000ull * (1 + (unsigned)rank->rank);
        ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
        EXPECT_EQ(query(group, SWIMLANE_QUERY_TIMEOUT_NS), config.timeout_ns);
        EXPECT_LE(query(group, SWIMLANE_QUERY_SMS), config.max_num_sms);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
}

TEST(GroupCreate, TransportsThatAreNotAllowedAreNotUsed)
{
    const struct {
        const char *list;
        ncclResult_t two_nodes, one_node;
    } cases[] = {
        {"peer", ncclInvalidUsage, ncclSuccess},      {"peer,verbs", ncclInvalidUsage, ncclSuccess},
        {"peer,mlx5", ncclInvalidUsage, ncclSuccess}, // no NIC reaches emulated memory
        {"mlx5,soft,peer", ncclSuccess, ncclSuccess}, {"soft", ncclSuccess, ncclSuccess},
        {"mlx5", ncclInvalidUsage, ncclInvalidUsage}, // without peer, also within a node
        {"Soft,PEER", ncclSuccess, ncclSuccess}};

    for (const auto &c : cases) {
        SCOPED_TRACE(c.list);
        setenv("SWIMLANE_TRANSPORT", c.list, 1);
        for (const bool nodes : {true, false})
            on_ranks(nodes ? std::vector<int>{1, 1} : std::vector<int>{2}, [&](swl_rank *rank) {
                const ncclEpGroupConfig_t config = small_config();
                ncclEpGroup_t group = nullptr;

                EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config),
                          nodes ? c.two_nodes : c.one_node);
                EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
            });
    }
    unsetenv("SWIMLANE_TRANSPORT");
}

/* A group, or its refusal with these words. */
void many_ranks(int nranks, int max_gpus, std::initializer_list<const char *> refusal)
{
    SCOPED_TRACE(nranks);
    on_ranks(
        {nranks},
        [&](swl_rank *rank) {
            ncclEpGroupConfig_t config = small_config();
            ncclEpGroup_t group = nullptr;

            config.num_experts = (unsigned)nranks;
            config.max_dispatch_tokens_per_rank = 1;
            config.max_token_bytes = 16;
            ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config),
                      refusal.size() ? ncclInvalidUsage : ncclSuccess);
            expect_sentence(refusal);
            EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        },
        max_gpus);
}

/* A GPU has 32 queues for a process, and every rank needs one. */
TEST(GroupCreate, F57ManyRanks)
{
    for (int nranks : {32, 33, 64, 65, 128, 129})
        if (on_gpus && nranks > 32 * gpus_here())
            many_ranks(nranks, 0, {"ranks of a process share the device of rank 0", "it has 32"});
        else
            many_ranks(nranks, 0, {});
}

TEST(GroupCreate, D_B3_FewerQueuesThanRanksOfAGpuAreRefused)
{
    const char *const before = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const std::string text = before ? before : "";

    for (const char *queues : {"1", ""}) { /* unset: 8 */
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 1);
        if (on_gpus)
            many_ranks(9, 1,
                       {"9 ranks of a process share the device of rank 0",
                        *queues ? "CUDA has 1 " : "CUDA has 8 ",
                        "set CUDA_DEVICE_MAX_CONNECTIONS to 32"});
        else
            many_ranks(9, 1, {});
    }
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", text.c_str(), 1);
    if (!before)
        unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

/* ---- the caller's allocator ---- */

struct Allocator {
    int held = 0, calls = 0, fail_at = -1;

    static cudaError_t alloc(void **ptr, size_t bytes, void *context)
    {
        Allocator *a = static_cast<Allocator *>(context);

        if (++a->calls == a->fail_at)
            return cudaErrorMemoryAllocation;
        a->held++;
        return cudaMalloc(ptr, bytes);
    }
    static cudaError_t release(void *ptr, void *context)
    {
        static_cast<Allocator *>(context)->held--;
        return cudaFree(ptr);
    }
};

TEST(GroupCreate, PlainMemoryComesFromTheCallersAllocator)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;
        ncclEpHandle_t handle = nullptr;
        Allocator allocator;

        config.alloc = {Allocator::alloc, Allocator::release, &allocator};
        ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
        const int before = allocator.held;

        EXPECT_EQ(before, 3); /* staging of the exchange, tables, tables of the network */
        ASSERT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, 2, nullptr),
                  ncclSuccess);
        EXPECT_EQ(allocator.held, before + 1);
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        EXPECT_EQ(allocator.held, 0);
    });
}

TEST(GroupCreate, FailureOfOneRankEndsAllRanks)
{
    for (int fail_at : {1, 2, 3}) /* the first is the staging memory of the exchange itself */
        on_ranks({2, 1}, [fail_at](swl_rank *rank) {
            ncclEpGroupConfig_t config = small_config();
            ncclEpGroup_t group = nullptr;
            Allocator allocator;

            config.alloc = {Allocator::alloc, Allocator::release, &allocator};
            allocator.fail_at = rank->rank == 1 ? fail_at : -1;
            EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclUnhandledCudaError);
            EXPECT_EQ(group, nullptr);
            EXPECT_EQ(allocator.held, 0);
            expect_sentence({rank->rank == 1 ? "alloc_fn" : "rank 1"});
            expect_comm_works(rank);
        });
}

/* It is refused, and the refusal travels through memory that does not come from it. */
TEST(GroupCreate, HalfAnAllocatorIsNeverCalled)
{
    for (bool alloc : {true, false})
        on_ranks({2}, [alloc](swl_rank *rank) {
            ncclEpGroupConfig_t config = small_config();
            ncclEpGroup_t group = nullptr;
            Allocator allocator;

            if (rank->rank == 1)
                config.alloc = {alloc ? Allocator::alloc : nullptr,
                                alloc ? nullptr : Allocator::release, &allocator};
            EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclInvalidUsage);
            EXPECT_EQ(group, nullptr);
            EXPECT_EQ(allocator.calls, 0);
            expect_sentence({rank->rank == 1 ? "give both callbacks or none" : "rank 1"});
            expect_comm_works(rank);
        });
}

} // namespace
