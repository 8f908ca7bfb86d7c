/* api_group_test.cc: creation, queries and memory of groups as seen through the public
 * functions. */
#include "tests/support/fake_place.h"

#include <climits>
#include <cstring>

class Group : public FakePlace
{
  protected:
    ncclResult_t create()
    {
        return ncclEpCreateGroup(&group, &comm, &config);
    }
    /* Refused, and the refusal was taken to the other ranks. */
    void expect_refused(ncclResult_t code, std::vector<std::string> words, int line)
    {
        fake.refused = ncclSuccess;
        expect_code(create(), code, words, line);
        EXPECT_EQ(group, nullptr) << "line " << line;
        EXPECT_EQ(fake.refused, code) << "line " << line << ": the other ranks were left waiting";
        config = good_config();
    }
};
#define EXPECT_REFUSED(code, ...) expect_refused((code), {__VA_ARGS__}, __LINE__)

TEST_F(Group, TakesAGoodConfiguration)
{
    config.timeout_ns = 123;
    config.num_topk = 4;
    EXPECT_OK(create());
    EXPECT_EQ(fake.config.nexperts, 8u);
    EXPECT_EQ(fake.config.recv_rows, 100u);
    EXPECT_EQ(fake.config.level, 2u);
    EXPECT_EQ(fake.config.timeout_ns, 123u);
    EXPECT_EQ(fake.config.max_topk, 4u);
    EXPECT_EQ(fake.config.overflow, NCCL_EP_OVERFLOW_TRAP);
}

/* F-66 */
TEST_F(Group, F66_BadSettingsAreInvalidArgumentOnEveryRank)
{
    config.num_experts = 0;
    EXPECT_REFUSED(ncclInvalidArgument, "num_experts", "0");
    config.num_experts = 1u << 31;
    EXPECT_REFUSED(ncclInvalidArgument, "num_experts", "2147483648");
    config.max_dispatch_tokens_per_rank = 0;
    EXPECT_REFUSED(ncclInvalidArgument, "max_dispatch_tokens_per_rank");
    config.max_recv_tokens_per_rank = 63;
    EXPECT_REFUSED(ncclInvalidArgument, "max_recv_tokens_per_rank", "63", "64");
    for (unsigned int bytes : {0u, 8u, 17u, 262160u}) {
        config.max_token_bytes = bytes;
        EXPECT_REFUSED(ncclInvalidArgument, "max_token_bytes", std::to_string(bytes));
    }
    config.algorithm = static_cast<ncclEpAlgorithm_t>(99);
    EXPECT_REFUSED(ncclInvalidArgument, "algorithm", "99");
    config.zero_copy = static_cast<ncclEpZeroCopyMode_t>(3);
    EXPECT_REFUSED(ncclInvalidArgument, "zero_copy", "3");
    config.overflow_policy = static_cast<ncclEpOverflowPolicy_t>(-1);
    EXPECT_REFUSED(ncclInvalidArgument, "overflow_policy", "-1");
    config.num_topk = 9;
    EXPECT_REFUSED(ncclInvalidArgument, "num_topk", "9", "8");
    config.max_dispatch_tokens_per_rank = config.max_recv_tokens_per_rank = 1u << 30;
    EXPECT_REFUSED(ncclInvalidArgument, "2^31");

    fake.refused = ncclSuccess;
    EXPECT_IA(ncclEpCreateGroup(nullptr, &comm, &config), "ep_group");
    EXPECT_EQ(fake.refused, ncclInvalidArgument);
    EXPECT_IA(ncclEpCreateGroup(&group, &comm, nullptr), "config is NULL");
    EXPECT_EQ(fake.refused, ncclInvalidArgument);
    EXPECT_IA(ncclEpCreateGroup(&group, nullptr, &config), "comm");
}

TEST_F(Group, F66_UnevenExpertsAndVersionZeroAreAccepted)
{
    config.num_experts = 3;
    config.version = 0;
    EXPECT_OK(create());
    EXPECT_EQ(fake.config.level, 1u);
}

TEST_F(Group, WhatIsMissingIsInvalidUsageAndNamed)
{
    config.algorithm = NCCL_EP_ALGO_LOW_LATENCY;
    EXPECT_REFUSED(ncclInvalidUsage, "low latency", "missing");
    config.max_recv_tokens_per_rank = 0;
    EXPECT_REFUSED(ncclInvalidUsage, "eager", "missing");
    config.max_recv_tokens_per_rank = 0;
    config.overflow_policy = NCCL_EP_OVERFLOW_DROP;
    EXPECT_REFUSED(ncclInvalidUsage, "DROP");
    config.enable_mask = 1;
    EXPECT_REFUSED(ncclInvalidUsage, "enable_mask", "missing");
    config.alloc.alloc_fn = [](void **, size_t, void *) { return cudaSuccess; };
    EXPECT_REFUSED(ncclInvalidUsage, "alloc_fn");
    config.alloc.free_fn = [](void *, void *) { return cudaSuccess; };
    EXPECT_REFUSED(ncclInvalidUsage, "free_fn");
    config.max_num_sms = 25;
    EXPECT_REFUSED(ncclInvalidUsage, "max_num_sms", "25", "24");
    fake.cc_major = 8;
    EXPECT_REFUSED(ncclInvalidUsage, "compute capability");
    fake.ndevices = 0;
    EXPECT_REFUSED(ncclInvalidUsage, "no GPU");
    fake.ndevices = 1;
    fake.cc_major = 9;
    fake.capturing = true;
    EXPECT_REFUSED(ncclInvalidUsage, "captures");
    fake.capturing = false;
    setenv("NCCL_EP_HT_EM_LOCAL_DUP", "1", 1);
    setenv("NCCL_EP_HT_EM_NVLINK_DUP", "1", 1);
    EXPECT_REFUSED(ncclInvalidUsage, "NCCL_EP_HT_EM_LOCAL_DUP");
    unsetenv("NCCL_EP_HT_EM_LOCAL_DUP");
    unsetenv("NCCL_EP_HT_EM_NVLINK_DUP");
}

TEST_F(Group, MalformedWinsOverMissing)
{
    config.algorithm = NCCL_EP_ALGO_LOW_LATENCY;
    config.num_experts = 0;
    EXPECT_REFUSED(ncclInvalidArgument, "num_experts");
}

TEST_F(Group, PendingCudaErrorIsReportedAndKept)
{
    fake.pending_error = static_cast<cudaError_t>(700);
    EXPECT_REFUSED(ncclUnhandledCudaError, "already");
    EXPECT_EQ(fake.pending_error, static_cast<cudaError_t>(700));
}

TEST_F(Group, TheCallersDeviceIsRestored)
{
    comm.device = 3;
    fake.device = 5;
    make_group();
    EXPECT_EQ(fake.device, 5);
    int bits = 0;
    EXPECT_OK(ncclEpGetAsyncError(group, &bits));
    EXPECT_EQ(bits, 5);
    EXPECT_EQ(fake.device, 5);
    EXPECT_OK(ncclEpErrorClear(group));
    EXPECT_EQ(fake.device, 5);
}

TEST_F(Group, NullIsAnArgumentError)
{
    make_group();
    int bits;
    uint64_t value;
    EXPECT_IA(ncclEpGetAsyncError(nullptr, &bits), "ep_group");
    EXPECT_IA(ncclEpGetAsyncError(group, nullptr), "error_out");
    EXPECT_IA(ncclEpErrorClear(nullptr), "ep_group");
    EXPECT_IA(swimlaneGroupQuery(group, 1, nullptr), "value");
    EXPECT_IA(swimlaneGroupQuery(group, 0, &value), "key is 0");
    EXPECT_IA(swimlaneGroupQuery(group, 11, &value), "key is 11");
    EXPECT_OK(swimlaneGroupQuery(group, SWIMLANE_QUERY_SMS, &value));
    EXPECT_EQ(value, 104u);
    EXPECT_OK(ncclEpGroupDestroy(nullptr));
}

TEST_F(Group, MaskCallsAreRefused)
{
    make_group();
    int mask[2] = {1, 1};
    EXPECT_IA(ncclEpMaskQuery(nullptr, mask, nullptr), "ep_group");
    EXPECT_IA(ncclEpMaskQuery(group, nullptr, nullptr), "mask_status");
    EXPECT_IA(ncclEpMaskUpdate(group, nullptr, nullptr), "mask");
    EXPECT_IA(ncclEpMaskClean(nullptr, nullptr), "ep_group");
    EXPECT_IU(ncclEpMaskQuery(group, mask, nullptr), "enable_mask");
    EXPECT_IU(ncclEpMaskUpdate(group, mask, nullptr), "enable_mask");
    EXPECT_IU(ncclEpMaskClean(group, nullptr), "enable_mask");
}

TEST_F(Group, MemoryArgumentsAreChecked)
{
    make_group();
    void *ptr = at(1);
    EXPECT_IA(swimlaneMemAlloc(group, 0, &ptr), "bytes is 0");
    EXPECT_EQ(ptr, nullptr);
    EXPECT_EQ(fake.mem_alloc_bytes, 0u) << "the other ranks were left waiting";
    fake.mem_alloc_bytes = 1;
    EXPECT_IA(swimlaneMemAlloc(group, 16, nullptr), "ptr");
    EXPECT_EQ(fake.mem_alloc_bytes, 0u);
    EXPECT_IA(swimlaneMemAlloc(nullptr, 16, &ptr), "ep_group");
    EXPECT_OK(swimlaneMemAlloc(group, 4096, &ptr));
    EXPECT_IA(swimlaneMemFree(group, at(0x200010)), "not the start");
    EXPECT_OK(swimlaneMemFree(group, nullptr));
    EXPECT_OK(swimlaneMemFree(group, ptr));
    EXPECT_IA(swimlaneMemFree(group, ptr), "not the start");
}

TEST_F(Group, DestroyIsRefusedWhileCapturing)
{
    make_group();
    fake.capturing = true;
    EXPECT_IU(ncclEpGroupDestroy(group), "captures");
    fake.capturing = false;
}

/* F-74: every public struct that a group call takes; the data path's are in api_data_test.cc. */
TEST_F(Group, F74_StructsNotMadeByTheirMacroAreRefused)
{
    memset(&config, 0, sizeof(config));
    EXPECT_REFUSED(ncclInvalidArgument, "config", "size is 0");
    memset(&config, 0xff, sizeof(config));
    EXPECT_REFUSED(ncclInvalidArgument, "config", "magic");
    config.size = NCCL_EP_GROUP_CONFIG_V1_SIZE - 1;
    EXPECT_REFUSED(ncclInvalidArgument, "config", "size is 95");
    config.magic = NCCL_EP_TENSOR_MAGIC;
    EXPECT_REFUSED(ncclInvalidArgument, "config", "magic");
}

TEST_F(Group, F74_LargerStructsAreAccepted)
{
    struct {
        ncclEpGroupConfig_t c;
        unsigned char more[64];
    } big;

    big.c = good_config();
    big.c.size = sizeof(big);
    memset(big.more, 0xff, sizeof(big.more));
    EXPECT_OK(ncclEpCreateGroup(&group, &comm, &big.c));
}

/* Reads nothing beyond `size` (AddressSanitizer watches the heap block), and takes whole fields. */
TEST_F(Group, F74_FieldsBeyondTheSizeCountAsAbsent)
{
    for (unsigned int size : {96u, 98u, 100u, 104u, 107u, 108u}) {
        auto *c = static_cast<ncclEpGroupConfig_t *>(malloc(size));
        config.zero_copy = NCCL_EP_ZERO_COPY_ON;
        config.overflow_policy = NCCL_EP_OVERFLOW_DROP;
        config.num_topk = 4;
        config.size = size;
        memcpy(static_cast<void *>(c), &config, size);
        EXPECT_OK(ncclEpCreateGroup(&group, &comm, c));
        EXPECT_EQ(fake.config.zero_copy,
                  size >= 100 ? NCCL_EP_ZERO_COPY_ON : NCCL_EP_ZERO_COPY_AUTO);
        EXPECT_EQ(fake.config.overflow,
                  size >= 104 ? NCCL_EP_OVERFLOW_DROP : NCCL_EP_OVERFLOW_TRAP);
        EXPECT_EQ(fake.config.max_topk, size >= 108 ? 4u : 0u);
        EXPECT_OK(ncclEpGroupDestroy(group));
        group = nullptr;
        free(c);
    }
}

TEST_F(Group, TheSentenceNamesFunctionAndField)
{
    config.num_experts = 0;
    EXPECT_IA(create(), "ncclEpCreateGroup: ", "config.num_experts is 0");
    config = good_config();
    EXPECT_OK(create());
    EXPECT_NE(strstr(swimlaneLastError(), "num_experts"), nullptr) << "kept until the next failure";
}
