// group_calls_test.cc: updates, dispatches and combines of a group: streams, graphs, handles.
#include "tests/support/group_step.h"

#include "src/runtime/runtime.h"

namespace
{

TEST(GroupCalls, StepsAreExact)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{1}, {2}, {1, 1}, {2, 2}})
        on_ranks(nodes, [](swl_rank *rank) {
            GroupStep s(rank, small_config());

            for (int i = 0; i < 5; i++) {
                s.exact_step();
            }
            EXPECT_EQ(s.bits(), 0);
        });
}

TEST(GroupCalls, TheLongestTimeLimitIsNotAnOverflow)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();

        config.timeout_ns = UINT64_MAX;
        GroupStep s(rank, config);
        s.exact_step();
        EXPECT_EQ(s.bits(), 0);
    });
}

TEST(GroupCalls, StreamsMayChangeBetweenCalls)
{
    on_ranks({1, 1}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());
        const cudaStream_t first = s.stream;
        cudaStream_t second;

        ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
        for (int i = 0; i < 4; i++) {
            s.stream = first;
            ASSERT_EQ(s.update(), ncclSuccess);
            s.stream = second;
            ASSERT_EQ(s.dispatch(), ncclSuccess);
            s.stream = first;
            ASSERT_EQ(s.combine(), ncclSuccess);
        }
        s.sync();
        s.expect_exact();
        EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
        EXPECT_EQ(cudaStreamDestroy(second), cudaSuccess);
    });
}

/* Rank 1 waits for its row numbers from rank 0, whose messages to it are held up, while rank 2,
 * which has all of its own, sends the counts of its next update to rank 1. Taken together, the row
 * numbers of the first and the counts of the second update cross the budget; neither update
 * does. */
TEST(GroupCalls, ASourceAheadDoesNotCrossTheBudgetOfTheUpdateBefore)
{
    setenv("SWIMLANE_SOFT_FAULTS", "rank0.link2:stall=0+50ms", 1);
    on_ranks({1, 1, 1}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();

        config.max_recv_tokens_per_rank = 16;
        GroupStep s(rank, config); /* experts 3 to 5 are rank 1's */
        const StepBuffer second(s.ids.size() * 8, 0);

        for (int64_t &id : s.ids)
            id = rank->rank == 0 ? 3 : -1;
        ASSERT_EQ(s.update(), ncclSuccess);
        s.ids_at = second.data();
        for (int64_t &id : s.ids)
            id = rank->rank == 2 ? 3 : -1;
        ASSERT_EQ(s.update(), ncclSuccess);
        s.sync();
        EXPECT_EQ(s.bits(), 0);
    });
    unsetenv("SWIMLANE_SOFT_FAULTS");
}

TEST(GroupCalls, ReceivedRowsBecomeVisibleToTheHost)
{
    on_ranks({2}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());
        int64_t rows = 7;

        EXPECT_EQ(swimlaneHandleRecvCount(s.handle, &rows), ncclSuccess);
        EXPECT_EQ(rows, -1);
        ASSERT_EQ(s.update(), ncclSuccess);
        s.sync();
        EXPECT_EQ(swimlaneHandleRecvCount(s.handle, &rows), ncclSuccess);
        EXPECT_GT(rows, 0);
        for (int64_t &id : s.ids)
            id = 0;
        ASSERT_EQ(s.update(), ncclSuccess);
        s.sync();
        EXPECT_EQ(swimlaneHandleRecvCount(s.handle, &rows), ncclSuccess);
        EXPECT_EQ(rows, rank->rank == 0 ? 24 : 0);
    });
}

TEST(GroupCalls, CapturedStepsReplayWithOtherIds)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());
        cudaGraph_t graph;
        cudaGraphExec_t exec;

        ASSERT_EQ(s.step(), ncclSuccess); /* eager before */
        ASSERT_EQ(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        ASSERT_EQ(s.enqueue_update(), ncclSuccess) << swimlaneLastError();
        ASSERT_EQ(s.dispatch(), ncclSuccess) << swimlaneLastError();
        ASSERT_EQ(s.combine(), ncclSuccess) << swimlaneLastError();
        ASSERT_EQ(cudaStreamEndCapture(s.stream, &graph), cudaSuccess);
        ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
        for (int i = 0; i < 6; i++) {
            for (int64_t &id : s.ids)
                id = (id + 3) % 8;
            if (i == 3) {
                ASSERT_EQ(s.step(), ncclSuccess); /* eager between */
            } else {
                s.copy_ids();
                ASSERT_EQ(cudaGraphLaunch(exec, s.stream), cudaSuccess);
            }
            s.sync();
            s.expect_exact();
        }
        EXPECT_EQ(s.bits(), 0);
        EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    });
}

TEST(GroupCalls, ReplayedUpdatesShowTheirRowsToTheHost)
{
    on_ranks({2}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());
        cudaGraph_t graph;
        cudaGraphExec_t exec[2];
        const auto all_to = [&s](int64_t expert) {
            for (int64_t &id : s.ids)
                id = expert;
            s.copy_ids();
        };
        const auto count = [&s] {
            int64_t rows = 7;

            EXPECT_EQ(swimlaneHandleRecvCount(s.handle, &rows), ncclSuccess);
            return rows;
        };
        const auto replay = [&](int which) {
            EXPECT_EQ(cudaGraphLaunch(exec[which], s.stream), cudaSuccess);
            s.sync();
            return count();
        };
        const int64_t first = rank->rank == 0 ? 24 : 0, second = 24 - first;

        for (cudaGraphExec_t &e : exec) {
            ASSERT_EQ(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal),
                      cudaSuccess);
            ASSERT_EQ(s.enqueue_update(), ncclSuccess) << swimlaneLastError();
            ASSERT_EQ(cudaStreamEndCapture(s.stream, &graph), cudaSuccess);
            ASSERT_EQ(cudaGraphInstantiate(&e, graph, 0), cudaSuccess);
            EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
        }
        EXPECT_EQ(count(), -1); /* nothing has run */
        all_to(0);
        EXPECT_EQ(replay(0), first);
        all_to(7);
        EXPECT_EQ(replay(1), second);
        EXPECT_EQ(replay(0), second);
        all_to(0);
        ASSERT_EQ(s.enqueue_update(), ncclSuccess); /* eager */
        s.sync();
        EXPECT_EQ(count(), first);
        all_to(7);
        for (int which : {0, 1, 0})
            EXPECT_EQ(replay(which), second);
        expect_comm_works(rank);
        if (rank->rank != 0) /* late: rank 0 alone does not get to the end */
            swl_gpu_sleep_ns(500000000);
        ASSERT_EQ(cudaGraphLaunch(exec[0], s.stream), cudaSuccess);
        swl_gpu_sleep_ns(250000000);
        EXPECT_EQ(count(), rank->rank == 0 ? -1 : second);
        s.sync();
        EXPECT_EQ(count(), second);
        EXPECT_EQ(s.bits(), 0);
        for (cudaGraphExec_t e : exec)
            EXPECT_EQ(cudaGraphExecDestroy(e), cudaSuccess);
    });
}

TEST(GroupCalls, CallsThatACaptureForbidsAreInvalidUsage)
{
    if (on_gpus)
        GTEST_SKIP() << "on a GPU the first such call ends the capture";
    on_ranks({2}, [](swl_rank *rank) {
        const ncclEpGroupConfig_t config = small_config();
        GroupStep s(rank, config);
        ncclEpGroup_t group = nullptr;
        ncclEpHandle_t handle = nullptr;
        cudaGraph_t graph;
        void *ptr = nullptr;

        ASSERT_EQ(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclInvalidUsage);
        EXPECT_EQ(ncclEpInitHandle(&handle, s.group, NCCL_EP_LAYOUT_FLAT, nullptr, 2, nullptr),
                  ncclInvalidUsage);
        EXPECT_EQ(swimlaneMemAlloc(s.group, 4096, &ptr), ncclInvalidUsage);
        expect_sentence({"captur"});
        EXPECT_EQ(group, nullptr);
        EXPECT_EQ(handle, nullptr);
        EXPECT_EQ(ptr, nullptr);
        EXPECT_EQ(cudaStreamEndCapture(s.stream, &graph), cudaSuccess);
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
        s.exact_step();
    });
}

TEST(GroupCalls, CopiedHandleMemoryServesAnotherHandle)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());

        s.use_memory_of(0); /* the caller's own */
        s.exact_step();
        s.move_memory();
        for (int i = 0; i < 2; i++) { /* no update through the new handle */
            ASSERT_EQ(s.dispatch(), ncclSuccess) << swimlaneLastError();
            ASSERT_EQ(s.combine(), ncclSuccess) << swimlaneLastError();
            s.sync();
            s.expect_exact();
        }
        EXPECT_EQ(s.bits(), 0);
    });
}

TEST(GroupCalls, ManyHandlesInterleave)
{
    on_ranks({1, 2}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());
        std::vector<ncclEpHandle_t> handles(5);
        const ncclEpHandle_t own = s.handle;
        std::vector<std::vector<int64_t>> ids(handles.size());

        for (size_t i = 0; i < handles.size(); i++) {
            ASSERT_EQ(
                ncclEpInitHandle(&handles[i], s.group, NCCL_EP_LAYOUT_FLAT, nullptr, 2, nullptr),
                ncclSuccess);
            s.handle = handles[i];
            for (int64_t &id : s.ids)
                id = (id + 1) % 8;
            ids[i] = s.ids;
            ASSERT_EQ(s.update(), ncclSuccess);
        }
        for (size_t i : {4, 0, 2, 2, 1, 3, 0}) {
            s.handle = handles[i];
            s.ids = ids[i];
            ASSERT_EQ(s.dispatch(), ncclSuccess);
            ASSERT_EQ(s.combine(), ncclSuccess);
            s.sync();
            s.expect_exact();
        }
        for (ncclEpHandle_t handle : handles)
            EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        s.handle = own;
    });
}

TEST(GroupCalls, LibraryMemoryIsReachedDirectly)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{3}, {2, 2}})
        on_ranks(nodes, [](swl_rank *rank) {
            GroupStep s(rank, small_config());
            void *shared = nullptr;

            /* the last rank keeps its plain tensor */
            ASSERT_EQ(swimlaneMemAlloc(s.group, s.rows.bytes, &shared), ncclSuccess);
            if (rank->rank != rank->nranks - 1)
                s.rows_at = shared;
            for (int i = 0; i < 5; i++) {
                s.exact_step();
            }
            s.rows_at = s.rows.data();
            EXPECT_EQ(swimlaneMemFree(s.group, shared), ncclSuccess);
            s.exact_step();
        });
}

} // namespace
