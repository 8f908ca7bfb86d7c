// group_memory_test.cc: swimlaneMemAlloc and swimlaneMemFree.
#include "tests/support/group_fixture.h"

#include <string.h>

namespace
{

TEST(GroupMemory, AllocationsAreCountedAndGoBack)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank);
        const uint64_t window = query(group, SWIMLANE_QUERY_WINDOW_BYTES);
        void *small = nullptr, *large = nullptr;

        ASSERT_EQ(swimlaneMemAlloc(group, 1000, &small), ncclSuccess);
        ASSERT_EQ(swimlaneMemAlloc(group, 5 << 20, &large), ncclSuccess);
        EXPECT_EQ((uintptr_t)small % 256, 0u);
        EXPECT_EQ((uintptr_t)large % 256, 0u);
        EXPECT_EQ(cudaMemset(large, 1, 5 << 20), cudaSuccess);
        EXPECT_EQ(query(group, SWIMLANE_QUERY_WINDOW_BYTES), window + (8 << 20));
        EXPECT_EQ(swimlaneMemFree(group, small), ncclSuccess);
        EXPECT_EQ(swimlaneMemFree(group, small), ncclInvalidArgument);
        EXPECT_EQ(swimlaneMemFree(group, (char *)large + 256), ncclInvalidArgument);
        EXPECT_EQ(swimlaneMemFree(group, large), ncclSuccess);
        EXPECT_EQ(swimlaneMemFree(group, nullptr), ncclSuccess);
        EXPECT_EQ(query(group, SWIMLANE_QUERY_WINDOW_BYTES), window);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
}

TEST(GroupMemory, WhatIsLeftGoesWithTheGroup)
{
    on_ranks({2}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank);
        void *ptr = nullptr;

        for (int i = 0; i < 3; i++)
            ASSERT_EQ(swimlaneMemAlloc(group, 4096, &ptr), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
}

TEST(GroupMemory, NoBytesAreRefusedInOneLine)
{
    testing::internal::CaptureStderr();
    on_ranks({1}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank);
        void *ptr = group;

        EXPECT_EQ(swimlaneMemAlloc(group, 0, &ptr), ncclInvalidArgument);
        EXPECT_EQ(ptr, nullptr);
        expect_sentence({"swimlaneMemAlloc: bytes is 0"});
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
    const std::string log = testing::internal::GetCapturedStderr();

    EXPECT_EQ(occurrences(log, "swimlaneMemAlloc"), 1u) << log;
    EXPECT_NE(log.find("bytes is 0"), std::string::npos) << log;
}

TEST(GroupMemory, DifferentBytesAreRefusedOnAllRanks)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank);
        void *ptr = group;

        EXPECT_EQ(swimlaneMemAlloc(group, rank->rank == 1 ? 4096 : 8192, &ptr),
                  ncclInvalidArgument);
        EXPECT_EQ(ptr, nullptr);
        expect_sentence({"8192", "4096", "rank 1"});
        EXPECT_EQ(swimlaneMemAlloc(group, rank->rank == 2 ? 0 : 8192, &ptr), ncclInvalidArgument);
        expect_sentence({rank->rank == 2 ? "bytes is 0" : "rank 2"});
        EXPECT_EQ(swimlaneMemAlloc(group, 8192, &ptr), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
}

TEST(GroupMemory, TheNumberOfAllocationsIsBounded)
{
    on_ranks({1}, [](swl_rank *rank) {
        ncclEpGroup_t group = create_group(rank);
        void *ptr = nullptr, *last = nullptr;
        int n = 0;

        while (swimlaneMemAlloc(group, 256, &ptr) == ncclSuccess && n < 100) {
            last = ptr;
            n++;
        }
        EXPECT_EQ(n, 63);
        expect_sentence({"63"});
        EXPECT_EQ(swimlaneMemFree(group, last), ncclSuccess);
        EXPECT_EQ(swimlaneMemAlloc(group, 256, &ptr), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
}

} // namespace
