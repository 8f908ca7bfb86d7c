/* api_data_test.cc: dispatch and combine as seen through the public functions (HT FLAT). */
#include "tests/support/fake_place.h"

#include <cstring>
#include <memory>

/* A routed handle with T = 5, K = 2 and well-formed calls of H = 32 bf16; tests spoil one thing. */
class Data : public FakePlace
{
  protected:
    void start(int topk = 2)
    {
        make_handle(topk);
        EXPECT_OK(ncclEpUpdateHandle(handle, &idx, nullptr, nullptr));
        in.tokens = &tokens;
        in.topk_weights = &weights;
        out.tokens = &recv;
        out.topk_weights = &recv_weights;
        out.topk_idx = &recv_idx;
        cin.tokens = &recv;
        cout.tokens = &tokens;
    }
    ncclResult_t dispatch()
    {
        return ncclEpDispatch(handle, &in, &out, &info, &dconfig, nullptr);
    }
    ncclResult_t combine()
    {
        return ncclEpCombine(handle, &cin, &cout, &cconfig, nullptr);
    }

    Tensor idx{ncclInt64, {5, 2}, at(0x100000)};
    Tensor tokens{ncclBfloat16, {5, 32}, at(0x110000)};
    Tensor weights{ncclFloat32, {5, 2}, at(0x120004)};
    Tensor recv{ncclBfloat16, {100, 32}, at(0x130000)};
    Tensor recv_weights{ncclFloat32, {100, 2}, at(0x140000)};
    Tensor recv_idx{ncclInt32, {100, 2}, at(0x150000)};
    ncclEpDispatchInputs_t in = NCCL_EP_DISPATCH_INPUTS_INIT;
    ncclEpDispatchOutputs_t out = NCCL_EP_DISPATCH_OUTPUTS_INIT;
    ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
    ncclEpDispatchConfig_t dconfig = NCCL_EP_DISPATCH_CONFIG_INIT;
    ncclEpCombineInputs_t cin = NCCL_EP_COMBINE_INPUTS_INIT;
    ncclEpCombineOutputs_t cout = NCCL_EP_COMBINE_OUTPUTS_INIT;
    ncclEpCombineConfig_t cconfig = NCCL_EP_COMBINE_CONFIG_INIT;
};

TEST_F(Data, GoodCallsArePassedOn)
{
    start();
    EXPECT_OK(dispatch());
    EXPECT_EQ(fake.dispatch.ntokens, 5u);
    EXPECT_EQ(fake.dispatch.hidden, 32u);
    EXPECT_EQ(fake.dispatch.row_bytes, 64u);
    EXPECT_EQ(fake.dispatch.out_tokens.rows, 100u);
    EXPECT_EQ(fake.dispatch.out_ids.elem_bytes, 4u);
    EXPECT_FALSE(fake.dispatch.global_ids);
    EXPECT_FALSE(fake.dispatch.out_tokens.shared);
    info.recv_topk_idx_kind = NCCL_EP_EXPERT_ID_GLOBAL;
    EXPECT_OK(dispatch());
    EXPECT_TRUE(fake.dispatch.global_ids);
    EXPECT_OK(ncclEpDispatch(handle, &in, &out, nullptr, nullptr, nullptr));
    EXPECT_OK(combine());
    EXPECT_EQ(fake.combine.ntokens, 5u);
    EXPECT_EQ(fake.combine.row_bytes, 64u);
    EXPECT_OK(ncclEpCombine(handle, &cin, &cout, nullptr, nullptr));
}

TEST_F(Data, NullPointersComeFirst)
{
    start();
    EXPECT_IA(ncclEpDispatch(nullptr, &in, &out, nullptr, nullptr, nullptr), "handle");
    EXPECT_IA(ncclEpDispatch(handle, nullptr, &out, nullptr, nullptr, nullptr), "inputs");
    EXPECT_IA(ncclEpDispatch(handle, &in, nullptr, nullptr, nullptr, nullptr), "outputs");
    EXPECT_IA(ncclEpCombine(nullptr, &cin, &cout, nullptr, nullptr), "handle");
    EXPECT_IA(ncclEpCombine(handle, nullptr, &cout, nullptr, nullptr), "inputs");
    EXPECT_IA(ncclEpCombine(handle, &cin, nullptr, nullptr, nullptr), "outputs");
}

/* F-71: who applies the weights decides where they may stand. */
TEST_F(Data, F71_WeightsWhereForbiddenOrMissingAreRefused)
{
    start();
    in.topk_weights = nullptr;
    EXPECT_IA(dispatch(), "inputs.topk_weights", "required");
    in.topk_weights = &weights;
    out.topk_weights = nullptr;
    EXPECT_IA(dispatch(), "outputs.topk_weights", "required");
    out.topk_weights = &recv_weights;
    out.topk_idx = nullptr;
    EXPECT_IA(dispatch(), "outputs.topk_idx", "required");
    cin.topk_weights = &recv_weights;
    EXPECT_IA(combine(), "inputs.topk_weights", "forward");
    cin.topk_weights = nullptr;
    Tensor anything(static_cast<ncclDataType_t>(99), {1}, nullptr);
    cout.topk_weights = &anything;
    EXPECT_OK(combine()); /* ignored in the forward pass */
    dconfig.pass_direction = NCCL_EP_BWD_PASS;
    out.topk_idx = &recv_idx;
    EXPECT_IA(dispatch(), "topk_weights", "backward");
}

TEST_F(Data, ShapesOfDispatchAreChecked)
{
    start();
    Tensor four(ncclBfloat16, {4, 32}, at(0x110000)), flat(ncclBfloat16, {160}, at(0x110000));
    Tensor odd(ncclBfloat16, {5, 33}, at(0x110000)), wide(ncclBfloat16, {5, 136}, at(0x110000));
    Tensor ints(ncclInt32, {5, 32}, at(0x110000)), unaligned(ncclBfloat16, {5, 32}, at(0x110008));
    Tensor nothing(ncclBfloat16, {5, 0}, at(0x110000));
    std::vector<std::pair<ncclEpTensor_t *, std::vector<std::string>>> bad = {
        {&four, {"4 rows, not 5"}},    {&flat, {"1 dimensions"}}, {&odd, {"multiple of 16"}},
        {&wide, {"272 bytes", "256"}}, {&ints, {"int32"}},        {&unaligned, {"aligned"}},
        {&nothing, {"multiple of 16"}}};
    for (auto &b : bad) {
        in.tokens = b.first;
        b.second.push_back("inputs.tokens");
        expect_code(dispatch(), ncclInvalidArgument, b.second, __LINE__);
    }
    in.tokens = nullptr;
    EXPECT_IA(dispatch(), "inputs.tokens", "required");
    in.tokens = &tokens;

    Tensor type(ncclFloat16, {100, 32}, at(0x130000)), thin(ncclBfloat16, {100, 24}, at(0x130000));
    Tensor few(ncclBfloat16, {99, 32}, at(0x130000));
    out.tokens = &type;
    EXPECT_IA(dispatch(), "outputs.tokens", "float16");
    out.tokens = &thin;
    EXPECT_IA(dispatch(), "outputs.tokens", "24 columns");
    out.tokens = &few;
    EXPECT_IA(dispatch(), "outputs.tokens", "99 rows", "100");
    out.tokens = &recv;

    Tensor w3(ncclFloat32, {100, 3}, at(0x140000)), w99(ncclFloat32, {99, 2}, at(0x140000));
    Tensor half(ncclFloat16, {5, 2}, at(0x120000)), short_w(ncclFloat32, {4, 2}, at(0x120000));
    out.topk_weights = &w3;
    EXPECT_IA(dispatch(), "outputs.topk_weights", "3 columns");
    out.topk_weights = &w99;
    EXPECT_IA(dispatch(), "outputs.topk_weights", "99 rows");
    out.topk_weights = &recv_weights;
    in.topk_weights = &half;
    EXPECT_IA(dispatch(), "inputs.topk_weights", "float16");
    in.topk_weights = &short_w;
    EXPECT_IA(dispatch(), "inputs.topk_weights", "4 rows");
    in.topk_weights = &weights;
    Tensor floats(ncclFloat32, {100, 2}, at(0x150000));
    out.topk_idx = &floats;
    EXPECT_IA(dispatch(), "outputs.topk_idx", "float32");
    EXPECT_EQ(fake.dispatches, 0);
}

TEST_F(Data, ShapesOfCombineAreChecked)
{
    start();
    Tensor four(ncclBfloat16, {4, 32}, at(0x110000)), other(ncclFloat32, {5, 32}, at(0x110000));
    Tensor slice(ncclBfloat16, {1, 32}, at(0x130000)), fp8(ncclFloat8e4m3, {9, 32}, at(0x130000));
    cout.tokens = &four;
    EXPECT_IA(combine(), "outputs.tokens", "4 rows, not 5");
    cout.tokens = &other;
    EXPECT_IA(combine(), "outputs.tokens", "float32");
    cout.tokens = nullptr;
    EXPECT_IA(combine(), "outputs.tokens", "required");
    cout.tokens = &tokens;
    cin.tokens = &fp8;
    EXPECT_IA(combine(), "inputs.tokens", "float8e4m3");
    cin.tokens = nullptr;
    EXPECT_IA(combine(), "inputs.tokens", "required");
    cin.tokens = &slice;
    EXPECT_OK(combine());
    cin.tokens = &recv;
    cin.scales = &recv_weights;
    EXPECT_IA(combine(), "inputs.scales");
}

TEST_F(Data, EmptyRanksMayLeaveStorageOut)
{
    make_handle();
    Tensor no_idx(ncclInt64, {0, 2}, nullptr), no_tokens(ncclBfloat16, {0, 32}, nullptr);
    Tensor no_weights(ncclFloat32, {0, 2}, nullptr), no_rows(ncclBfloat16, {0, 32}, nullptr);
    EXPECT_OK(ncclEpUpdateHandle(handle, &no_idx, nullptr, nullptr));
    in.tokens = &no_tokens;
    in.topk_weights = &no_weights;
    out.tokens = &recv;
    out.topk_weights = &recv_weights;
    out.topk_idx = &recv_idx;
    EXPECT_OK(dispatch());
    cin.tokens = &no_rows;
    cout.tokens = &no_tokens;
    EXPECT_OK(combine());
}

TEST_F(Data, InputsAndOutputsMustNotOverlap)
{
    start();
    Tensor over(ncclBfloat16, {100, 32}, at(0x110010));
    out.tokens = &over;
    EXPECT_IA(dispatch(), "inputs.tokens", "outputs.tokens", "overlap");
    out.tokens = &recv;
    cin.tokens = &over;
    EXPECT_IA(combine(), "overlap");
    Tensor behind(ncclBfloat16, {100, 32}, at(0x110000 + 5 * 64)); /* touches, does not overlap */
    out.tokens = &behind;
    EXPECT_OK(dispatch());
}

/* Whoever came last would win, row by row. */
TEST_F(Data, D_D1_OutputsMustNotOverlapEachOther)
{
    start();
    Tensor ids(ncclInt64, {100, 2}, static_cast<char *>(recv_weights.t.data) + 100 * 8 - 8);
    Tensor low(ncclInt64, {100, 2}, static_cast<char *>(recv.t.data) + 64);
    Tensor weights(ncclFloat32, {100, 2}, static_cast<char *>(recv.t.data) + 99 * 64);

    out.topk_idx = &ids;
    EXPECT_IA(dispatch(), "outputs.topk_weights", "outputs.topk_idx", "overlap");
    out.topk_idx = &low;
    EXPECT_IA(dispatch(), "outputs.tokens", "outputs.topk_idx", "overlap");
    out.topk_idx = &recv_idx;
    out.topk_weights = &weights;
    EXPECT_IA(dispatch(), "outputs.tokens", "outputs.topk_weights", "overlap");
    weights.t.data = static_cast<char *>(recv.t.data) + 100 * 64; /* touches */
    EXPECT_OK(dispatch());
}

TEST_F(Data, EnumsAndStructsAreChecked)
{
    start();
    dconfig.pass_direction = static_cast<ncclEpPassDir_t>(2);
    EXPECT_IA(dispatch(), "pass_direction");
    dconfig = NCCL_EP_DISPATCH_CONFIG_INIT;
    dconfig.quant_recipe = static_cast<ncclEpDispQuant_t>(3);
    EXPECT_IA(dispatch(), "quant_recipe");
    dconfig = NCCL_EP_DISPATCH_CONFIG_INIT;
    info.recv_topk_idx_kind = static_cast<ncclEpExpertIdKind_t>(3);
    EXPECT_IA(dispatch(), "recv_topk_idx_kind");
    info.size = NCCL_EP_LAYOUT_INFO_V1_SIZE;
    EXPECT_OK(dispatch());
    cconfig.quant_recipe = static_cast<ncclEpCombQuant_t>(2);
    EXPECT_IA(combine(), "quant_recipe");
    cconfig = NCCL_EP_COMBINE_CONFIG_INIT;
    cconfig.size = 15;
    EXPECT_IA(combine(), "config", "size");
    cconfig = NCCL_EP_COMBINE_CONFIG_INIT;
    cin.size = NCCL_EP_COMBINE_INPUTS_V1_SIZE;
    cin.scales = reinterpret_cast<ncclEpTensor_t *>(1); /* beyond the size: never looked at */
    EXPECT_OK(combine());
    memset(&out, 0xff, sizeof(out));
    EXPECT_IA(dispatch(), "outputs", "magic");
    memset(&in, 0, sizeof(in));
    EXPECT_IA(dispatch(), "inputs", "size");
}

/* F-74: no read beyond the given size (AddressSanitizer watches), larger sizes are fine. */
TEST_F(Data, F74_SizesOfConfigsAreHonoured)
{
    start();
    for (size_t bytes : {20u, 23u, 24u, 40u}) {
        auto buffer = std::make_unique<unsigned char[]>(bytes);
        auto *c = reinterpret_cast<ncclEpDispatchConfig_t *>(buffer.get());
        memset(buffer.get(), 0xff, bytes);
        dconfig.size = static_cast<unsigned int>(bytes);
        memcpy(static_cast<void *>(c), &dconfig, bytes < sizeof(dconfig) ? bytes : sizeof(dconfig));
        EXPECT_OK(ncclEpDispatch(handle, &in, &out, nullptr, c, nullptr));
    }
}

TEST_F(Data, WhatIsMissingIsInvalidUsageAndNamed)
{
    start();
    dconfig.pass_direction = NCCL_EP_BWD_PASS;
    in.topk_weights = nullptr;
    out.topk_weights = nullptr;
    out.topk_idx = nullptr;
    EXPECT_IU(dispatch(), "backward", "missing");
    cconfig.pass_direction = NCCL_EP_BWD_PASS;
    EXPECT_IA(combine(), "inputs.topk_weights", "required");
    cin.topk_weights = &recv_weights;
    EXPECT_IA(combine(), "outputs.topk_weights", "required");
    cout.topk_weights = &weights;
    EXPECT_IU(combine(), "backward", "missing");
    cconfig = NCCL_EP_COMBINE_CONFIG_INIT;
    cconfig.quant_recipe = NCCL_EP_COMB_QUANT_NVFP4;
    EXPECT_IU(combine(), "NVFP4");
}

TEST_F(Data, RecipesAreCheckedThenRefused)
{
    start();
    Tensor scales(ncclFloat32, {5, 4}, at(0x160000)),
        recv_scales(ncclFloat32, {100, 4}, at(0x170000));
    in.scales = &scales;
    EXPECT_IA(dispatch(), "inputs.scales", "without recipe");
    in.scales = nullptr;
    out.scales = &recv_scales;
    EXPECT_IA(dispatch(), "outputs.scales", "without recipe");
    dconfig.quant_recipe = NCCL_EP_DISP_QUANT_FWD;
    EXPECT_IA(dispatch(), "inputs.scales", "required");
    in.scales = &scales;
    EXPECT_IU(dispatch(), "recipes", "missing");
    dconfig.round_scales = 1;
    EXPECT_IA(dispatch(), "round_scales");
    dconfig.round_scales = 0;
    Tensor thin(ncclFloat32, {5, 3}, at(0x160000));
    in.scales = &thin;
    EXPECT_IA(dispatch(), "scales");
    dconfig.quant_recipe = NCCL_EP_DISP_QUANT_DS_FP8E3M4;
    EXPECT_IA(dispatch(), "DS_FP8E3M4");
}

TEST_F(Data, StateComesAfterArguments)
{
    make_handle();
    in.topk_weights = &weights;
    out.tokens = &recv;
    out.topk_weights = &recv_weights;
    out.topk_idx = &recv_idx;
    EXPECT_IA(dispatch(), "inputs.tokens", "required");
    in.tokens = &tokens;
    EXPECT_IU(dispatch(), "no routing");
    cin.tokens = &recv;
    EXPECT_IA(combine(), "outputs.tokens");
    cout.tokens = &tokens;
    EXPECT_IU(combine(), "no routing");
    EXPECT_EQ(fake.dispatches + fake.combines, 0);
    fake.pending_error = static_cast<cudaError_t>(700);
    EXPECT_OK(ncclEpUpdateHandle(handle, &idx, nullptr, nullptr) == ncclUnhandledCudaError
                  ? ncclSuccess
                  : ncclInternalError);
}

/* A handle opened over earlier memory goes on without an update; T is then that of the call. */
TEST_F(Data, ReopenedMemoryNeedsNoUpdate)
{
    make_group();
    Tensor memory(ncclUint8, {4096}, at(0x1f0000));
    EXPECT_OK(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, 2, &memory));
    cin.tokens = &recv;
    Tensor seven(ncclBfloat16, {7, 32}, at(0x110000)), many(ncclBfloat16, {65, 32}, at(0x110000));
    cout.tokens = &seven;
    EXPECT_OK(combine());
    EXPECT_EQ(fake.combine.ntokens, 7u);
    cout.tokens = &many;
    EXPECT_IA(combine(), "outputs.tokens", "65 rows", "64");
}

TEST_F(Data, ReopenedMemoryWithoutTopKIsRefused)
{
    make_group();
    Tensor memory(ncclUint8, {8192}, at(0x1f0000));
    EXPECT_OK(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, 0, &memory));
    cin.tokens = &recv;
    cout.tokens = &tokens;
    EXPECT_IU(combine(), "top-k");
}

TEST_F(Data, LevelOneMayBringFewerRowsOnceTheCountIsVisible)
{
    config.version = 1;
    start();
    Tensor r(ncclBfloat16, {20, 32}, at(0x130000)), w(ncclFloat32, {20, 2}, at(0x140000));
    Tensor i(ncclInt64, {20, 2}, at(0x150000));
    out.tokens = &r;
    out.topk_weights = &w;
    out.topk_idx = &i;
    EXPECT_IA(dispatch(), "20 rows");
    fake.recv_rows = 21;
    EXPECT_IA(dispatch(), "20 rows");
    fake.recv_rows = 20;
    EXPECT_OK(dispatch());
    fake.capturing = true;
    EXPECT_IA(dispatch(), "20 rows");
    fake.capturing = false;
}

TEST_F(Data, LevelTwoNeedsTheWholeBudget)
{
    start();
    fake.recv_rows = 3;
    Tensor r(ncclBfloat16, {20, 32}, at(0x130000));
    out.tokens = &r;
    EXPECT_IA(dispatch(), "20 rows", "100");
}

TEST_F(Data, OrdinaryHostMemoryIsRefused)
{
    start();
    fake.memory_unknown = true;
    EXPECT_IA(dispatch(), "inputs.tokens", "ordinary host memory");
    EXPECT_IA(combine(), "inputs.tokens", "ordinary host memory");
    fake.memory_unknown = false;
    EXPECT_OK(dispatch());
}

TEST_F(Data, ZeroCopyOnNeedsWindowTensors)
{
    config.zero_copy = NCCL_EP_ZERO_COPY_ON;
    start();
    EXPECT_IA(dispatch(), "outputs.tokens", "zero_copy");
    EXPECT_IA(combine(), "inputs.tokens", "zero_copy");
    recv.t.win_hdl = reinterpret_cast<ncclWindow_t>(0x99);
    EXPECT_IU(dispatch(), "2.29.2", "22809");
    EXPECT_IU(combine(), "2.29.2");
    recv.t.win_hdl = nullptr;
    void *ptr = nullptr;
    EXPECT_OK(swimlaneMemAlloc(group, 100 * 64, &ptr));
    recv.t.data = ptr;
    EXPECT_OK(dispatch());
    EXPECT_TRUE(fake.dispatch.out_tokens.shared);
    EXPECT_EQ(fake.dispatch.out_tokens.offset, 0x4000u);
    EXPECT_OK(combine());
    EXPECT_TRUE(fake.combine.tokens.shared);
}
