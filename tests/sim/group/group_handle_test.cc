// group_handle_test.cc: handles: sizes, memory, pools, orphans.
#include "tests/support/group_fixture.h"

#include <string.h>

namespace
{

size_t mem_size(ncclEpGroup_t group, int topk)
{
    size_t bytes = 0;

    EXPECT_EQ(ncclEpHandleMemSize(group, NCCL_EP_LAYOUT_FLAT, nullptr, &bytes, topk), ncclSuccess);
    return bytes;
}

TEST(Handle, MemSizeIsEqualOnAllRanksAndGrowsWithTopk)
{
    static size_t seen[9][8];

    on_ranks({3, 1, 2}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank, 0);

        for (int topk = 1; topk <= 8; topk++) {
            seen[topk][rank->rank] = mem_size(group, topk);
            EXPECT_GT(seen[topk][rank->rank], 0u);
            EXPECT_EQ(seen[topk][rank->rank] % 256, 0u);
            EXPECT_GE(seen[topk][rank->rank], seen[topk - 1][rank->rank]);
        }
        EXPECT_EQ(mem_size(group, 0), seen[8][rank->rank]); /* not yet known: min(E, 64) */
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
    for (int topk = 1; topk <= 8; topk++)
        for (int r = 1; r < 6; r++)
            EXPECT_EQ(seen[topk][r], seen[topk][0]);
}

TEST(Handle, MemSizeDependsOnTheGroupsShapeAlone)
{
    size_t seen[2][2] = {}; /* by repetition and rank */

    for (size_t repeat = 0; repeat < 2; repeat++)
        on_ranks({2}, [&](swl_rank *rank) {
            ncclEpGroup_t group = create_group(rank, 0);
            ncclEpHandle_t handle = init_handle(group);

            seen[repeat][rank->rank] = mem_size(group, 2);
            EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
            EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        });
    for (const size_t *at : {&seen[0][1], &seen[1][0], &seen[1][1]})
        EXPECT_EQ(*at, seen[0][0]);
}

TEST(Handle, InitLeavesTheCallersMemoryUntouched)
{
    on_ranks({1}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank, 0);
        size_t bytes = mem_size(group, 2);
        std::vector<unsigned char> before(bytes), after(bytes);
        ncclEpTensor_t tensor = NCCL_EP_TENSOR_INIT;
        void *memory = nullptr;

        ASSERT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
        for (size_t i = 0; i < bytes; i++)
            before[i] = (unsigned char)(i * 7);
        ASSERT_EQ(cudaMemcpy(memory, before.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
        tensor.ndim = 1;
        tensor.datatype = ncclUint8;
        tensor.data = memory;
        tensor.sizes = &bytes;
        ncclEpHandle_t handle = init_handle(group, 2, &tensor);

        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        ASSERT_EQ(cudaMemcpy(after.data(), memory, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
        EXPECT_EQ(before, after);
        bytes -= 1;
        EXPECT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, 2, &tensor),
                  ncclInvalidArgument);
        EXPECT_EQ(handle, nullptr);
        EXPECT_EQ(cudaFree(memory), cudaSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
}

TEST(Handle, LibraryMemoryIsPooled)
{
    on_ranks({1}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank, 0);
        std::vector<ncclEpHandle_t> handles;

        for (int i = 0; i < 3; i++)
            handles.push_back(init_handle(group));
        const uint64_t held = query(group, SWIMLANE_QUERY_DEVICE_BYTES);

        for (int step = 0; step < 1000; step++) {
            const size_t i = (size_t)step % handles.size();

            EXPECT_EQ(ncclEpHandleDestroy(handles[i]), ncclSuccess);
            handles[i] = init_handle(group);
        }
        EXPECT_EQ(query(group, SWIMLANE_QUERY_DEVICE_BYTES), held);
        for (ncclEpHandle_t handle : handles)
            EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
}

TEST(Handle, ThousandsPerGroup)
{
    on_ranks({1}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank, 0);
        std::vector<ncclEpHandle_t> handles;

        for (int i = 0; i < 3000; i++)
            handles.push_back(init_handle(group));
        for (size_t i = 0; i < handles.size(); i += 2)
            EXPECT_EQ(ncclEpHandleDestroy(handles[i]), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess); /* the others become orphans */
        for (size_t i = 1; i < handles.size(); i += 2)
            EXPECT_EQ(ncclEpHandleDestroy(handles[i]), ncclSuccess);
    });
}

TEST(Handle, TopkOfTheGroupIsTheBound)
{
    on_ranks({1}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank);
        ncclEpHandle_t handle = nullptr;

        EXPECT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, 3, nullptr),
                  ncclInvalidUsage);
        EXPECT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, 0, nullptr),
                  ncclSuccess);
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
}

TEST(Handle, OrphansOnlyLetThemselvesBeDestroyed)
{
    on_ranks({2}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank, 0);
        ncclEpHandle_t handle = init_handle(group);
        int64_t rows = 5;
        int64_t ids[2] = {0, 1};
        size_t sizes[2] = {1, 2};
        ncclEpTensor_t topk = NCCL_EP_TENSOR_INIT;

        ASSERT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        topk.ndim = 2;
        topk.datatype = ncclInt64;
        topk.data = ids;
        topk.sizes = sizes;
        EXPECT_EQ(ncclEpUpdateHandle(handle, &topk, nullptr, nullptr), ncclInvalidUsage);
        EXPECT_EQ(swimlaneHandleRecvCount(handle, &rows), ncclInvalidUsage);
        EXPECT_EQ(ncclEpComplete(handle, nullptr, nullptr), ncclInvalidUsage);
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
    });
}

// What a program does by mistake: it destroys twice, goes on with what it has destroyed, mixes the
// two up. Their memory may serve the next of the kind already, so the dead ones here are the last
// ones.
void expect_dead_handle(ncclEpHandle_t handle)
{
    const ncclEpDispatchInputs_t in = NCCL_EP_DISPATCH_INPUTS_INIT;
    const ncclEpDispatchOutputs_t out = NCCL_EP_DISPATCH_OUTPUTS_INIT;
    const ncclEpCombineInputs_t rows = NCCL_EP_COMBINE_INPUTS_INIT;
    const ncclEpCombineOutputs_t sums = NCCL_EP_COMBINE_OUTPUTS_INIT;
    const ncclEpTensor_t topk = NCCL_EP_TENSOR_INIT;
    int64_t count = 5;

    EXPECT_EQ(ncclEpUpdateHandle(handle, &topk, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_STREQ(swimlaneLastError(), "ncclEpUpdateHandle: handle is no handle, or was destroyed");
    EXPECT_EQ(ncclEpDispatch(handle, &in, &out, nullptr, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclEpCombine(handle, &rows, &sums, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclEpComplete(handle, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(swimlaneHandleRecvCount(handle, &count), ncclInvalidArgument);
    EXPECT_EQ(ncclEpHandleDestroy(handle), ncclInvalidArgument);
}

void expect_dead_group(ncclEpGroup_t group)
{
    ncclEpHandle_t handle = nullptr;
    void *memory = nullptr;
    uint64_t value;
    size_t bytes;
    int bits, mask = 1;

    EXPECT_EQ(ncclEpGroupDestroy(group), ncclInvalidArgument);
    EXPECT_STREQ(swimlaneLastError(), "ncclEpGroupDestroy: ep_group is no group, or was destroyed");
    EXPECT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, 2, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclEpHandleMemSize(group, NCCL_EP_LAYOUT_FLAT, nullptr, &bytes, 2),
              ncclInvalidArgument);
    EXPECT_EQ(ncclEpGetAsyncError(group, &bits), ncclInvalidArgument);
    EXPECT_EQ(ncclEpErrorClear(group), ncclInvalidArgument);
    EXPECT_EQ(ncclEpMaskQuery(group, &mask, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclEpMaskUpdate(group, &mask, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclEpMaskClean(group, nullptr), ncclInvalidArgument);
    EXPECT_EQ(swimlaneGroupQuery(group, SWIMLANE_QUERY_SMS, &value), ncclInvalidArgument);
    EXPECT_EQ(swimlaneMemAlloc(group, 256, &memory), ncclInvalidArgument);
    EXPECT_EQ(swimlaneMemFree(group, &value), ncclInvalidArgument);
}

TEST(Handle, D_D5_WhatWasDestroyedIsRefused)
{
    on_ranks({1}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank, 0);
        ncclEpHandle_t handle = init_handle(group);

        expect_dead_handle(reinterpret_cast<ncclEpHandle_t>(group));
        expect_dead_group(reinterpret_cast<ncclEpGroup_t>(handle));
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        expect_dead_handle(handle);
        handle = init_handle(group);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        expect_dead_group(group);
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        expect_dead_handle(handle);
    });
}

} // namespace
