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

ncclEpGroup_t create(const swl_rank *rank, unsigned topk = 0)
{
    ncclEpGroupConfig_t config = small_config();
    ncclEpGroup_t group = nullptr;

    config.num_topk = topk;
    EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
    return group;
}

ncclEpHandle_t init(ncclEpGroup_t group, int topk, const ncclEpTensor_t *memory = nullptr)
{
    ncclEpHandle_t handle = nullptr;

    EXPECT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, topk, memory),
              ncclSuccess);
    return handle;
}

TEST(Handle, MemSizeIsEqualOnAllRanksAndGrowsWithTopk)
{
    static size_t seen[9][8];

    on_ranks({3, 1, 2}, [](swl_rank *rank) {
        ncclEpGroup_t group = create(rank);

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
            ncclEpGroup_t group = create(rank);
            ncclEpHandle_t handle = init(group, 2);

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
        ncclEpGroup_t group = create(rank);
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
        ncclEpHandle_t handle = init(group, 2, &tensor);

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
        ncclEpGroup_t group = create(rank);
        std::vector<ncclEpHandle_t> handles;

        for (int i = 0; i < 3; i++)
            handles.push_back(init(group, 2));
        const uint64_t held = query(group, SWIMLANE_QUERY_DEVICE_BYTES);

        for (int step = 0; step < 1000; step++) {
            const size_t i = (size_t)step % handles.size();

            EXPECT_EQ(ncclEpHandleDestroy(handles[i]), ncclSuccess);
            handles[i] = init(group, 2);
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
        ncclEpGroup_t group = create(rank);
        std::vector<ncclEpHandle_t> handles;

        for (int i = 0; i < 3000; i++)
            handles.push_back(init(group, 2));
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
        ncclEpGroup_t group = create(rank, 2);
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
        ncclEpGroup_t group = create(rank);
        ncclEpHandle_t handle = init(group, 2);
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

} // namespace
