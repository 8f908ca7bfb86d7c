/* api_handle_test.cc: handles and the routing input as seen through the public functions. */
#include "tests/support/fake_place.h"

#include <cstring>

class Handle : public FakePlace
{
  protected:
    ncclResult_t init(ncclEpLayout_t layout, int topk, ncclEpTensor_t *memory = nullptr,
                      const ncclEpHandleConfig_t *c = nullptr)
    {
        if (handle)
            EXPECT_OK(ncclEpHandleDestroy(handle));
        return ncclEpInitHandle(&handle, group, layout, c, topk, memory);
    }
    ncclResult_t update(ncclEpTensor_t *idx)
    {
        return ncclEpUpdateHandle(handle, idx, nullptr, nullptr);
    }
};

TEST_F(Handle, MemSizeFollowsTopK)
{
    size_t bytes = 1;
    make_group();
    EXPECT_OK(ncclEpHandleMemSize(group, NCCL_EP_LAYOUT_FLAT, nullptr, &bytes, 3));
    EXPECT_EQ(bytes, 3072u);
    EXPECT_OK(ncclEpHandleMemSize(group, NCCL_EP_LAYOUT_FLAT, nullptr, &bytes, 0));
    EXPECT_EQ(bytes, 8192u) << "K not yet known: min(E, 64)";
    EXPECT_IA(ncclEpHandleMemSize(group, NCCL_EP_LAYOUT_FLAT, nullptr, nullptr, 3), "size_out");
    EXPECT_IA(ncclEpHandleMemSize(nullptr, NCCL_EP_LAYOUT_FLAT, nullptr, &bytes, 3), "ep_group");
}

TEST_F(Handle, LayoutsAreCheckedBeforeAnythingIsMade)
{
    make_group();
    EXPECT_IA(init(NCCL_EP_LAYOUT_UNSET, 2), "UNSET");
    EXPECT_IA(init(static_cast<ncclEpLayout_t>(4), 2), "layout is 4");
    EXPECT_IU(init(NCCL_EP_LAYOUT_RANK_MAJOR, 2), "RANK_MAJOR");
    EXPECT_IU(init(NCCL_EP_LAYOUT_EXPERT_MAJOR, 2), "EXPERT_MAJOR", "missing");
    EXPECT_EQ(fake.handles_created, 0);
    EXPECT_EQ(handle, nullptr);
}

TEST_F(Handle, AlignmentCountsForExpertMajorOnly)
{
    ncclEpHandleConfig_t c = NCCL_EP_HANDLE_CONFIG_INIT;
    make_group();
    for (size_t bad : {3, 131072}) {
        c.dispatch_output_per_expert_alignment = bad;
        EXPECT_IA(init(NCCL_EP_LAYOUT_EXPERT_MAJOR, 2, nullptr, &c), "alignment",
                  std::to_string(bad));
    }
    EXPECT_OK(init(NCCL_EP_LAYOUT_FLAT, 2, nullptr, &c));
    c.dispatch_output_per_expert_alignment = 128;
    EXPECT_IU(init(NCCL_EP_LAYOUT_EXPERT_MAJOR, 2, nullptr, &c), "missing");
}

TEST_F(Handle, TopKStaysWithinExpertsAndGroup)
{
    config.num_topk = 4;
    make_group();
    EXPECT_IA(init(NCCL_EP_LAYOUT_FLAT, 9), "num_topk is 9");
    EXPECT_IU(init(NCCL_EP_LAYOUT_FLAT, 5), "num_topk is 5", "4");
    EXPECT_OK(init(NCCL_EP_LAYOUT_FLAT, 4));
    EXPECT_OK(init(NCCL_EP_LAYOUT_FLAT, -1));
    Tensor five(ncclInt64, {3, 5}, at(0x100000));
    EXPECT_IA(update(&five), "topk_idx", "5 columns, not 4");
}

TEST_F(Handle, CallersMemoryMustFit)
{
    make_group();
    Tensor good(ncclUint8, {2048}, at(0x100000)), small(ncclUint8, {2047}, at(0x100000));
    Tensor flat(ncclUint8, {64, 64}, at(0x100000)), type(ncclInt32, {2048}, at(0x100000));
    Tensor odd(ncclUint8, {2048}, at(0x100008)), none(ncclUint8, {2048}, nullptr);
    Tensor empty(ncclUint8, {0}, nullptr);
    EXPECT_IA(init(NCCL_EP_LAYOUT_FLAT, 2, &small), "handle_mem", "2047", "2048");
    EXPECT_IA(init(NCCL_EP_LAYOUT_FLAT, 2, &flat), "handle_mem", "2D");
    EXPECT_IA(init(NCCL_EP_LAYOUT_FLAT, 2, &type), "handle_mem", "int32");
    EXPECT_IA(init(NCCL_EP_LAYOUT_FLAT, 2, &odd), "handle_mem", "aligned");
    EXPECT_IA(init(NCCL_EP_LAYOUT_FLAT, 2, &none), "handle_mem", "NULL");
    EXPECT_IA(init(NCCL_EP_LAYOUT_FLAT, 2, &empty), "handle_mem", "empty");
    EXPECT_OK(init(NCCL_EP_LAYOUT_FLAT, 2, &good));
    EXPECT_EQ(fake.memory_seen, at(0x100000));
}

TEST_F(Handle, NullOutputsAndGroups)
{
    make_group();
    EXPECT_IA(ncclEpInitHandle(nullptr, group, NCCL_EP_LAYOUT_FLAT, nullptr, 2, nullptr), "handle");
    handle = reinterpret_cast<ncclEpHandle_t>(1);
    EXPECT_IA(ncclEpInitHandle(&handle, nullptr, NCCL_EP_LAYOUT_FLAT, nullptr, 2, nullptr),
              "ep_group");
    EXPECT_EQ(handle, nullptr) << "outputs are NULL first";
    EXPECT_OK(ncclEpHandleDestroy(nullptr));
    fake.capturing = true;
    EXPECT_IU(init(NCCL_EP_LAYOUT_FLAT, 2), "captures");
}

/* F-69 */
TEST_F(Handle, F69_IndexTypesAndShapes)
{
    make_handle(2);
    void *data = at(0x100000);
    for (ncclDataType_t good : {ncclInt32, ncclInt64}) {
        Tensor idx(good, {5, 2}, data);
        EXPECT_OK(update(&idx));
        EXPECT_EQ(fake.update.ntokens, 5u);
        EXPECT_EQ(fake.update.topk, 2u);
        EXPECT_EQ(fake.update.topk_idx.elem_bytes, good == ncclInt32 ? 4u : 8u);
    }
    Tensor u32(ncclUint32, {5, 2}, data), f32(ncclFloat32, {5, 2}, data);
    Tensor odd(static_cast<ncclDataType_t>(77), {5, 2}, data);
    Tensor one(ncclInt64, {10}, data), three(ncclInt64, {5, 2, 1}, data);
    Tensor wide(ncclInt64, {5, 3}, data), many(ncclInt64, {65, 2}, data);
    EXPECT_IA(update(&u32), "topk_idx", "uint32");
    EXPECT_IA(update(&f32), "topk_idx", "float32");
    EXPECT_IA(update(&odd), "topk_idx", "77");
    EXPECT_IA(update(&one), "topk_idx", "1 dimensions");
    EXPECT_IA(update(&three), "topk_idx", "3 dimensions");
    EXPECT_IA(update(&wide), "topk_idx", "3 columns, not 2");
    EXPECT_IA(update(&many), "topk_idx", "65 rows", "64");
    EXPECT_IA(update(nullptr), "topk_idx is NULL");
    EXPECT_EQ(fake.updates, 2);
}

TEST_F(Handle, IndicesNeedElementAlignmentOnly)
{
    make_handle(2);
    Tensor ok(ncclInt32, {5, 2}, at(0x100004)), odd(ncclInt64, {5, 2}, at(0x100004));
    EXPECT_OK(update(&ok));
    EXPECT_IA(update(&odd), "topk_idx", "aligned");
}

TEST_F(Handle, NoTokensIsARouting)
{
    make_handle(2);
    Tensor none(ncclInt64, {0, 2}, nullptr);
    EXPECT_OK(update(&none));
    EXPECT_EQ(fake.update.ntokens, 0u);
}

TEST_F(Handle, CountersAreCheckedAndPassedOn)
{
    make_handle(2);
    Tensor idx(ncclInt64, {5, 2}, at(0x100000));
    Tensor experts(ncclInt32, {4}, at(0x101000)), total(ncclInt32, {1}, at(0x102000));
    Tensor few(ncclInt32, {3}, at(0x101000)), wide(ncclInt64, {1}, at(0x102000));
    Tensor square(ncclInt32, {2, 2}, at(0x101000)), real(ncclFloat32, {4}, at(0x101000));
    Tensor sources(ncclInt32, {2}, at(0x103000)), one(ncclInt32, {1}, at(0x103000));
    Tensor over(ncclInt32, {4}, at(0x100040)), within(ncclInt32, {1}, at(0x101000 + 12));
    ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;

    auto call = [&] { return ncclEpUpdateHandle(handle, &idx, &info, nullptr); };
    info.expert_counters = &experts;
    info.recv_total_counter = &total;
    info.src_rank_counters = &sources;
    info.expert_offsets = &real; /* ignored */
    EXPECT_OK(call());
    EXPECT_EQ(fake.update.counter_bytes, 4u);
    EXPECT_EQ(fake.update.expert_counters.data, at(0x101000));
    EXPECT_TRUE(fake.update.src_rank_counters.given);
    EXPECT_FALSE(fake.update.expert_offsets.given);
    info.src_rank_counters = &one; /* too short: ignored */
    EXPECT_OK(call());
    EXPECT_FALSE(fake.update.src_rank_counters.given);
    info.recv_total_counter = &wide;
    EXPECT_IA(call(), "recv_total_counter", "unlike");
    info.recv_total_counter = nullptr;
    info.expert_counters = &few;
    EXPECT_IA(call(), "expert_counters", "3 entries", "4");
    info.expert_counters = &square;
    EXPECT_IA(call(), "expert_counters", "2 dimensions");
    info.expert_counters = &real;
    EXPECT_IA(call(), "expert_counters", "float32");
    info.expert_counters = &over;
    EXPECT_IA(call(), "topk_idx", "expert_counters", "overlap");
    info.expert_counters = &experts;
    info.recv_total_counter = &within; /* D_D1 */
    EXPECT_IA(call(), "expert_counters", "recv_total_counter", "overlap");
}

TEST_F(Handle, CreateIsInitAndUpdate)
{
    make_group();
    Tensor idx(ncclInt32, {5, 3}, at(0x100000));
    auto create = [&](ncclEpTensor_t *t, ncclEpLayout_t layout) {
        return ncclEpCreateHandle(&handle, group, layout, t, nullptr, nullptr, nullptr);
    };
    EXPECT_IA(create(nullptr, NCCL_EP_LAYOUT_FLAT), "topk_idx");
    EXPECT_IA(create(&idx, NCCL_EP_LAYOUT_UNSET), "UNSET");
    EXPECT_IU(create(&idx, NCCL_EP_LAYOUT_EXPERT_MAJOR), "missing");
    Tensor wide(ncclInt32, {5, 9}, at(0x100000));
    EXPECT_IA(create(&wide, NCCL_EP_LAYOUT_FLAT), "9 columns");
    fake.capturing = true;
    EXPECT_IU(create(&idx, NCCL_EP_LAYOUT_FLAT), "captures");
    fake.capturing = false;
    EXPECT_EQ(fake.handles_created, 0);
    fake.result = ncclSystemError;
    EXPECT_EQ(create(&idx, NCCL_EP_LAYOUT_FLAT), ncclSystemError);
    EXPECT_EQ(handle, nullptr);
    EXPECT_EQ(fake.handles_destroyed, 1) << "the first half is undone";
    fake.result = ncclSuccess;
    EXPECT_OK(create(&idx, NCCL_EP_LAYOUT_FLAT));
    EXPECT_EQ(fake.update.topk, 3u);
}

TEST_F(Handle, OrphansCanOnlyBeDestroyed)
{
    make_handle(2);
    EXPECT_OK(ncclEpGroupDestroy(group));
    group = nullptr;
    Tensor idx(ncclInt64, {5, 2}, at(0x100000));
    int64_t rows;
    EXPECT_IU(update(&idx), "destroyed");
    EXPECT_IU(ncclEpComplete(handle, nullptr, nullptr), "destroyed");
    EXPECT_IU(swimlaneHandleRecvCount(handle, &rows), "destroyed");
    EXPECT_OK(ncclEpHandleDestroy(handle));
    handle = nullptr;
}

TEST_F(Handle, CompleteIsAFreeSuccess)
{
    make_handle(2);
    ncclEpCompleteConfig_t c = NCCL_EP_COMPLETE_CONFIG_INIT;
    EXPECT_OK(ncclEpComplete(handle, nullptr, nullptr));
    EXPECT_OK(ncclEpComplete(handle, &c, nullptr));
    c.magic = 1;
    EXPECT_IA(ncclEpComplete(handle, &c, nullptr), "config", "magic");
    EXPECT_IA(ncclEpComplete(nullptr, nullptr, nullptr), "handle");
}

TEST_F(Handle, RecvCountPassesTheMailboxOn)
{
    make_handle(2);
    int64_t rows = 0;
    EXPECT_OK(swimlaneHandleRecvCount(handle, &rows));
    EXPECT_EQ(rows, -1);
    fake.recv_rows = 17;
    EXPECT_OK(swimlaneHandleRecvCount(handle, &rows));
    EXPECT_EQ(rows, 17);
    EXPECT_IA(swimlaneHandleRecvCount(handle, nullptr), "rows");
    EXPECT_IA(swimlaneHandleRecvCount(nullptr, &rows), "handle");
}

TEST_F(Handle, F74_StructsNotMadeByTheirMacroAreRefused)
{
    make_handle(2);
    ncclEpHandleConfig_t c = NCCL_EP_HANDLE_CONFIG_INIT;
    ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
    Tensor idx(ncclInt64, {5, 2}, at(0x100000));
    c.size = 15;
    EXPECT_IA(init(NCCL_EP_LAYOUT_FLAT, 2, nullptr, &c), "config", "size is 15");
    EXPECT_OK(init(NCCL_EP_LAYOUT_FLAT, 2));
    info.size = NCCL_EP_LAYOUT_INFO_V1_SIZE;
    EXPECT_OK(ncclEpUpdateHandle(handle, &idx, &info, nullptr));
    memset(&info, 0, sizeof(info));
    EXPECT_IA(ncclEpUpdateHandle(handle, &idx, &info, nullptr), "layout_info", "size is 0");
    idx.t.magic = 0;
    EXPECT_IA(update(&idx), "topk_idx", "magic");
    idx.t.magic = NCCL_EP_TENSOR_MAGIC;
    idx.t.size = 47;
    EXPECT_IA(update(&idx), "topk_idx", "size is 47");
}
