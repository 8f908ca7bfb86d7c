// group_destroy_test.cc: ends of groups, also with a rank that does not take part.
#include "tests/support/group_fixture.h"

#include "src/runtime/runtime.h"

namespace
{

TEST(GroupDestroy, F50OrdersOfDestruction)
{
    on_ranks({2}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank);
        ncclEpHandle_t handle = nullptr;

        /* (a) handle, then group */
        handle = init_handle(group);
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        /* (b) group with a live handle */
        group = create_group(rank);
        handle = init_handle(group);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        /* (d) nothing */
        EXPECT_EQ(ncclEpGroupDestroy(nullptr), ncclSuccess);
        EXPECT_EQ(ncclEpHandleDestroy(nullptr), ncclSuccess);
    });
}

TEST(GroupDestroy, ManyTimesOnOneCommunicator)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        for (int i = 0; i < 30; i++)
            EXPECT_EQ(ncclEpGroupDestroy(create_group(rank)), ncclSuccess);
    });
}

TEST(GroupDestroy, ALateRankIsWaitedForNoLongerThanTheLimit)
{
    if (on_gpus && swl_comm_is_standin())
        GTEST_SKIP() << "the stand-in's collectives wait on the host, longer than the group; "
                        "group_destroy_nccl_test has this case";
    const Variable limit("SWIMLANE_SETUP_TIMEOUT_MS", "2000");

    on_ranks({2}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank);

        if (rank->rank == 1)
            swl_gpu_sleep_ns(on_gpus ? 4000000000ull : 10000000000ull);
        const uint64_t start = swl_gpu_now_ns();
        const ncclResult_t rc = ncclEpGroupDestroy(group);

        if (rank->rank == 0) {
            EXPECT_EQ(rc, ncclSystemError);
            EXPECT_LT(swl_gpu_now_ns() - start, 5000000000ull);
            expect_sentence({"2000 ms"});
        }
        if (on_gpus) { /* a communicator with an open collective ends by an abort only */
            EXPECT_EQ(ncclCommAbort(rank->comm), ncclSuccess);
            rank->comm = nullptr;
        }
    });
}

TEST(GroupDestroy, TheDeviceOfTheCallerStays)
{
    int ndevices = 0;

    ASSERT_EQ(cudaGetDeviceCount(&ndevices), cudaSuccess);
    if (ndevices < 2)
        GTEST_SKIP() << "one GPU";
    on_ranks({2}, [](swl_rank *rank) {
        int device = -1;
        const int other = 1 - rank->device;

        ASSERT_EQ(cudaSetDevice(other), cudaSuccess);
        ncclEpGroup_t group = create_group(rank);

        EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
        EXPECT_EQ(device, other);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
        EXPECT_EQ(device, other);
        ASSERT_EQ(cudaSetDevice(rank->device), cudaSuccess);
    });
}

} // namespace
