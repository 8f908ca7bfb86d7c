/* abi_test.cc: the binary interface as a client sees it: sizes, offsets, macros, and the library
 * file opened at run time (path in SWL_TEST_LIBRARY). */
#include <swimlane.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

/* clang-format off */
#define AT(type, field, offset, bytes) \
    EXPECT_EQ(offsetof(type, field), size_t(offset)) << #type "." #field; \
    EXPECT_EQ(sizeof(((type *)0)->field), size_t(bytes)) << #type "." #field

TEST(Abi, FieldsLieWhereReleasedClientsExpectThem)
{
    AT(ncclEpTensor_t, size, 0, 4); AT(ncclEpTensor_t, magic, 4, 4);
    AT(ncclEpTensor_t, ndim, 8, 4); AT(ncclEpTensor_t, datatype, 12, 4);
    AT(ncclEpTensor_t, data, 16, 8); AT(ncclEpTensor_t, win_hdl, 24, 8);
    AT(ncclEpTensor_t, win_offset, 32, 8); AT(ncclEpTensor_t, sizes, 40, 8);
    AT(ncclEpAllocConfig_t, alloc_fn, 0, 8); AT(ncclEpAllocConfig_t, free_fn, 8, 8);
    AT(ncclEpAllocConfig_t, context, 16, 8);
    AT(ncclEpGroupConfig_t, version, 8, 4); AT(ncclEpGroupConfig_t, algorithm, 12, 4);
    AT(ncclEpGroupConfig_t, num_experts, 16, 4);
    AT(ncclEpGroupConfig_t, max_dispatch_tokens_per_rank, 20, 4);
    AT(ncclEpGroupConfig_t, max_recv_tokens_per_rank, 24, 4);
    AT(ncclEpGroupConfig_t, max_token_bytes, 28, 4); AT(ncclEpGroupConfig_t, rdma_buffer_size, 32, 8);
    AT(ncclEpGroupConfig_t, num_qp_per_rank, 40, 4); AT(ncclEpGroupConfig_t, num_channels, 44, 4);
    AT(ncclEpGroupConfig_t, max_num_sms, 48, 4); AT(ncclEpGroupConfig_t, alloc, 56, 24);
    AT(ncclEpGroupConfig_t, enable_mask, 80, 4); AT(ncclEpGroupConfig_t, timeout_ns, 88, 8);
    AT(ncclEpGroupConfig_t, zero_copy, 96, 4); AT(ncclEpGroupConfig_t, overflow_policy, 100, 4);
    AT(ncclEpGroupConfig_t, num_topk, 104, 4); AT(ncclEpGroupConfig_t, padding_v2, 108, 4);
    AT(ncclEpLayoutInfo_t, expert_counters, 8, 8); AT(ncclEpLayoutInfo_t, src_rank_counters, 16, 8);
    AT(ncclEpLayoutInfo_t, expert_offsets, 24, 8); AT(ncclEpLayoutInfo_t, recv_total_counter, 32, 8);
    AT(ncclEpLayoutInfo_t, recv_topk_idx_kind, 40, 4); AT(ncclEpLayoutInfo_t, padding_v2, 44, 4);
    AT(ncclEpDispatchInputs_t, tokens, 8, 8); AT(ncclEpDispatchInputs_t, topk_weights, 16, 8);
    AT(ncclEpDispatchInputs_t, scales, 24, 8);
    AT(ncclEpDispatchOutputs_t, tokens, 8, 8); AT(ncclEpDispatchOutputs_t, topk_weights, 16, 8);
    AT(ncclEpDispatchOutputs_t, scales, 24, 8); AT(ncclEpDispatchOutputs_t, topk_idx, 32, 8);
    AT(ncclEpCombineInputs_t, tokens, 8, 8); AT(ncclEpCombineInputs_t, topk_weights, 16, 8);
    AT(ncclEpCombineInputs_t, scales, 24, 8);
    AT(ncclEpCombineOutputs_t, tokens, 8, 8); AT(ncclEpCombineOutputs_t, topk_weights, 16, 8);
    AT(ncclEpHandleConfig_t, dispatch_output_per_expert_alignment, 8, 8);
    AT(ncclEpDispatchConfig_t, send_only, 8, 4); AT(ncclEpDispatchConfig_t, round_scales, 12, 4);
    AT(ncclEpDispatchConfig_t, pass_direction, 16, 4); AT(ncclEpDispatchConfig_t, quant_recipe, 20, 4);
    AT(ncclEpCombineConfig_t, send_only, 8, 4); AT(ncclEpCombineConfig_t, pass_direction, 12, 4);
    AT(ncclEpCombineConfig_t, quant_recipe, 16, 4);
}

#define STRUCT(type, NAME, v1, v2, level) do { \
    type value = NCCL_EP_##NAME##_INIT; \
    EXPECT_EQ(sizeof(type), size_t(v2)) << #type; \
    EXPECT_EQ(NCCL_EP_##NAME##_V1_SIZE, unsigned(v1)) << #type; \
    EXPECT_EQ(NCCL_EP_##NAME##_V2_SIZE, unsigned(v2)) << #type; \
    EXPECT_EQ(NCCL_EP_##NAME##_SIZE, unsigned(v2)) << #type; \
    EXPECT_EQ(NCCL_EP_##NAME##_CURRENT_VERSION, level) << #type; \
    EXPECT_EQ(NCCL_EP_FIELD_END(type, NCCL_EP_##NAME##_V1_LAST_FIELD), size_t(v1)) << #type; \
    EXPECT_EQ(NCCL_EP_FIELD_END(type, NCCL_EP_##NAME##_V2_LAST_FIELD), size_t(v2)) << #type; \
    EXPECT_EQ(value.size, unsigned(v2)) << #type; \
    EXPECT_EQ(value.magic, sizeof(type) == 48 && strcmp(#NAME, "TENSOR") == 0 ? 0xCAFECAFEu : 0xC00FFFEEu) << #type; \
} while (0)

TEST(Abi, SizesOfBothLevelsAreFrozen)
{
    STRUCT(ncclEpTensor_t, TENSOR, 48, 48, 1);
    STRUCT(ncclEpTensorAllocConfig_t, TENSOR_ALLOC_CONFIG, 8, 8, 1);
    STRUCT(ncclEpGroupConfig_t, GROUP_CONFIG, 96, 112, 2);
    STRUCT(ncclEpLayoutInfo_t, LAYOUT_INFO, 40, 48, 2);
    STRUCT(ncclEpDispatchInputs_t, DISPATCH_INPUTS, 32, 32, 1);
    STRUCT(ncclEpDispatchOutputs_t, DISPATCH_OUTPUTS, 40, 40, 1);
    STRUCT(ncclEpCombineInputs_t, COMBINE_INPUTS, 24, 32, 2);
    STRUCT(ncclEpCombineOutputs_t, COMBINE_OUTPUTS, 24, 24, 1);
    STRUCT(ncclEpHandleConfig_t, HANDLE_CONFIG, 16, 16, 1);
    STRUCT(ncclEpDispatchConfig_t, DISPATCH_CONFIG, 20, 24, 2);
    STRUCT(ncclEpCombineConfig_t, COMBINE_CONFIG, 16, 20, 2);
    STRUCT(ncclEpCompleteConfig_t, COMPLETE_CONFIG, 8, 8, 1);
    EXPECT_EQ(sizeof(ncclEpAllocConfig_t), 24u);
}
/* clang-format on */

TEST(Abi, MacrosMeanWhatClientsRelyOn)
{
    ncclEpGroupConfig_t c = NCCL_EP_GROUP_CONFIG_INIT;
    const ncclEpGroupConfig_t *none = nullptr;

    EXPECT_EQ(c.version, 2u);
    EXPECT_EQ(c.timeout_ns, 0u);
    EXPECT_TRUE(NCCL_EP_HAS_FIELD(&c, ncclEpGroupConfig_t, num_topk));
    c.size = NCCL_EP_GROUP_CONFIG_V1_SIZE;
    EXPECT_FALSE(NCCL_EP_HAS_FIELD(&c, ncclEpGroupConfig_t, zero_copy));
    EXPECT_TRUE(NCCL_EP_HAS_FIELD(&c, ncclEpGroupConfig_t, timeout_ns));
    EXPECT_FALSE(NCCL_EP_HAS_FIELD(none, ncclEpGroupConfig_t, size));
    EXPECT_EQ(NCCL_EP_VERSION_CODE, 200);
    EXPECT_EQ(NCCL_EP_API_VERSION, 2);
    EXPECT_EQ(static_cast<int>(ncclFloat4x2), 12);
}

class Library : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        const char *path = getenv("SWL_TEST_LIBRARY");
        ASSERT_NE(path, nullptr);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        ASSERT_NE(library, nullptr) << dlerror();
    }
    template <typename F> F *symbol(const char *name)
    {
        void *at = dlsym(library, name);
        EXPECT_NE(at, nullptr) << name;
        return reinterpret_cast<F *>(at);
    }
    void *library = nullptr;
};

TEST_F(Library, ReportsItsVersion)
{
    int version = 0;
    unsetenv("SWIMLANE_REPORT_VERSION");
    ASSERT_EQ(symbol<decltype(ncclEpGetVersion)>("ncclEpGetVersion")(&version), ncclSuccess);
    EXPECT_EQ(version, 200);
    EXPECT_EQ(symbol<decltype(ncclEpGetVersion)>("ncclEpGetVersion")(nullptr), ncclInvalidArgument);
    const char *sentence = symbol<decltype(swimlaneLastError)>("swimlaneLastError")();
    EXPECT_STREQ(sentence, "ncclEpGetVersion: version is NULL");
    EXPECT_EQ(strncmp(symbol<decltype(swimlaneVersionString)>("swimlaneVersionString")(),
                      "Swimlane 0.2.0+cuda", 19),
              0);
}

/* F-74 and calls that need no group. */
TEST_F(Library, RefusesNullWithoutAGroup)
{
    ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;
    ncclEpGroup_t group = reinterpret_cast<ncclEpGroup_t>(1);
    auto *create = symbol<decltype(ncclEpCreateGroup)>("ncclEpCreateGroup");
    EXPECT_EQ(create(&group, nullptr, &config), ncclInvalidArgument);
    EXPECT_EQ(group, nullptr);
    EXPECT_EQ(symbol<decltype(ncclEpGroupDestroy)>("ncclEpGroupDestroy")(nullptr), ncclSuccess);
    EXPECT_EQ(symbol<decltype(ncclEpHandleDestroy)>("ncclEpHandleDestroy")(nullptr), ncclSuccess);
    EXPECT_EQ(symbol<decltype(ncclEpTensorDestroy)>("ncclEpTensorDestroy")(nullptr), ncclSuccess);
}

TEST_F(Library, MakesTensors)
{
    const size_t sizes[] = {2, 3};
    ncclEpTensor_t *made = nullptr;
    ASSERT_EQ(symbol<decltype(ncclEpTensorAlloc)>("ncclEpTensorAlloc")(&made, 2, ncclBfloat16,
                                                                       sizes, nullptr),
              ncclSuccess);
    EXPECT_EQ(made->sizes[1], 3u);
    EXPECT_EQ(symbol<decltype(ncclEpTensorDestroy)>("ncclEpTensorDestroy")(made), ncclSuccess);
}
