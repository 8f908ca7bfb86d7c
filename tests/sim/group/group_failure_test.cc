// group_failure_test.cc: what a failed operation says, refuses and leaves behind.
#include "tests/support/group_step.h"
#include <atomic>

#include "src/runtime/runtime.h"

namespace
{

enum { TIMEOUT = 1, OVERFLOWN = 2, BAD_ID = 4, BAD_HANDLE = 8 };

/* Everybody has failed; then everybody clears, and everything is exact again (three calls a
 * step). */
void expect_recovery(GroupStep &s, swl_rank *rank, int steps)
{
    expect_comm_works(rank); /* a barrier: nobody is in a call */
    EXPECT_EQ(ncclEpErrorClear(s.group), ncclSuccess);
    EXPECT_EQ(s.bits(), 0);
    expect_comm_works(rank);
    for (int i = 0; i < steps; i++) {
        s.exact_step();
        ASSERT_EQ(s.bits(), 0);
    }
}

/* What stands behind the colon names no healthy rank. */
void expect_no_blame(const std::string &sentence)
{
    const std::string blame = sentence.substr(sentence.find(" ms):"));

    for (const char *healthy : {"rank 0", "rank 1", "rank 3"})
        EXPECT_EQ(blame.find(healthy), std::string::npos) << sentence;
}

/* Rank 2 comes 5 s late to one call of the eighth step. */
void expect_timeout(const std::vector<int> &nodes, int late, int steps_after)
{
    static const char *const calls[] = {"update call 7", "dispatch call 14", "combine call 15"};

    SCOPED_TRACE(calls[late]);
    on_ranks(nodes, [&](swl_rank *rank) {
        GroupStep s(rank, small_config());
        const std::string own = "rank " + std::to_string(rank->rank) + " (";
        ncclResult_t rc = ncclSuccess;

        for (int i = 0; i < 7; i++) {
            ASSERT_EQ(s.step(), ncclSuccess);
            s.sync();
        }
        for (int call = 0; call < 3 && rc == ncclSuccess; call++) {
            if (rank->rank == 2 && call == late)
                swl_gpu_sleep_ns(5000000000ull);
            rc = call == 0 ? s.update() : call == 1 ? s.dispatch() : s.combine();
        }
        s.sync();
        EXPECT_EQ(s.step(), ncclSystemError);
        EXPECT_TRUE(s.bits() & TIMEOUT);
        if (rank->rank == 2) { /* told before it came */
            expect_sentence({"rank 2 was told", "missing this rank", "ncclEpErrorClear"});
        } else {
            expect_sentence({calls[late], own.c_str(), "gave up after", "limit 2000 ms", "rank 2",
                             "ncclEpErrorClear"});
            expect_no_blame(swimlaneLastError());
            if (nodes.size() == 1)
                expect_sentence({late == 0   ? "last seen entering dispatch or combine call 13;"
                                 : late == 1 ? "last seen entering call 13;"
                                             : "last seen entering call 14;"});
        }
        EXPECT_EQ(s.dispatch(), ncclSystemError);
        EXPECT_EQ(s.combine(), ncclSystemError);
        EXPECT_EQ(ncclEpComplete(s.handle, nullptr, s.stream), ncclSuccess);
        expect_recovery(s, rank, steps_after);
    });
}

/* Under a sanitizer one shape has to do. */
#ifdef SWL_SANITIZED
const std::vector<std::vector<int>> fours = {{2, 2}};
const int many_steps = 3;
#else
const std::vector<std::vector<int>> fours = {{4}, {2, 2}, {1, 1, 1, 1}};
const int many_steps = 34;
#endif

TEST(GroupFailure, F65LateUpdate)
{
    for (const std::vector<int> &nodes : fours)
        expect_timeout(nodes, 0, nodes.size() == 2 ? many_steps : 3);
}

TEST(GroupFailure, F65LateDispatch)
{
    for (const std::vector<int> &nodes : fours)
        expect_timeout(nodes, 1, 3);
}

TEST(GroupFailure, F65LateCombine)
{
    for (const std::vector<int> &nodes : fours)
        expect_timeout(nodes, 2, 3);
}

TEST(GroupFailure, DestroyWorksInARefusedState)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());

        if (rank->rank != 1) {
            ASSERT_EQ(s.step(), ncclSuccess);
            s.sync();
            EXPECT_TRUE(s.bits() & TIMEOUT);
            EXPECT_EQ(s.step(), ncclSystemError);
        } else {
            swl_gpu_sleep_ns(3000000000ull);
        }
    });
}

TEST(GroupFailure, OverflowUnderTrapRefusesWithTheNumbers)
{
    on_ranks({2}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();

        config.max_recv_tokens_per_rank = 16;
        GroupStep s(rank, config);
        const std::vector<int64_t> good = s.ids;

        for (int64_t &id : s.ids)
            id = 0; /* 24 rows for rank 0 */
        const ncclResult_t rc =
            s.step(); /* refused where the update is done before the next call */

        s.sync();
        const int bits = s.bits();
        const std::vector<int> refused = said_by_all(rank, rc != ncclSuccess);
        const bool all_called = refused == std::vector<int>{0, 0};

        /* the ranks whose rows were dropped see it, or the one that overflows */
        EXPECT_EQ(bits & ~(OVERFLOWN | (all_called ? 0 : TIMEOUT)), 0);
        if (rank->rank == 0) {
            EXPECT_TRUE(bits & OVERFLOWN);
        }
        if (rc != ncclSuccess) {
            EXPECT_EQ(rc, ncclInvalidUsage);
            EXPECT_TRUE(bits & OVERFLOWN);
        }
        if (bits == OVERFLOWN) {
            EXPECT_EQ(s.dispatch(), ncclInvalidUsage);
            expect_sentence({"dropped", "16", "ncclEpErrorClear"});
        }
        s.ids.assign(good.begin(), good.end());
        for (size_t i = 0; i < s.ids.size(); i++)
            s.ids[i] = (i < 8 ? 0 : -1);
        expect_recovery(s, rank, 3);
    });
}

TEST(GroupFailure, RowsThatCombineLacksAreFlaggedWhereTheyAreMissing)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());
        int64_t count = 0;

        ASSERT_EQ(s.update(), ncclSuccess);
        ASSERT_EQ(s.dispatch(), ncclSuccess);
        s.sync();
        ASSERT_EQ(swimlaneHandleRecvCount(s.handle, &count), ncclSuccess);
        ASSERT_GT(count, 0);
        ASSERT_EQ(s.combine(rank->rank == 1 ? (size_t)count - 1 : (size_t)count), ncclSuccess);
        s.sync();
        EXPECT_EQ(s.bits() & ~OVERFLOWN, 0);
        if (rank->rank == 1) {
            EXPECT_EQ(s.bits(), OVERFLOWN);
        }
    });
}

TEST(GroupFailure, DropCountsAndGoesOn)
{
    on_ranks({2}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();

        config.max_recv_tokens_per_rank = 16;
        config.overflow_policy = NCCL_EP_OVERFLOW_DROP;
        GroupStep s(rank, config);
        uint64_t dropped = 0;

        for (int64_t &id : s.ids)
            id = 0;
        for (int i = 0; i < 2; i++) {
            ASSERT_EQ(s.step(), ncclSuccess);
            s.sync();
            EXPECT_EQ(s.bits(), 0);
        }
        dropped = query(s.group, SWIMLANE_QUERY_ROWS_DROPPED);
        EXPECT_EQ(dropped, rank->rank == 0 ? 16u : 0u);
    });
}

TEST(GroupFailure, IdsBeyondTheExpertsAreFlaggedAndGoOn)
{
    on_ranks({2}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());

        if (rank->rank == 1)
            s.ids[3] = 1000;
        s.exact_step();
        EXPECT_EQ(s.bits(), rank->rank == 1 ? BAD_ID : 0);
        ASSERT_EQ(s.step(), ncclSuccess);
        s.sync();
        EXPECT_EQ(ncclEpErrorClear(s.group), ncclSuccess); /* on its own: nothing is out of step */
        EXPECT_EQ(s.bits(), 0);
        s.ids[3] = 1;
        s.exact_step();
    });
}

/* What fails at once, without a time limit, may be told to a rank before its call. */
void expect_accepted_or_told(ncclResult_t rc)
{
    if (rc != ncclSuccess) {
        EXPECT_EQ(rc, ncclSystemError);
        expect_sentence({"was told of a failed call", "missing "});
    }
}

/* A peer's rows of another size would be stored beyond the tensor. */
TEST(GroupFailure, RowsUnlikeThoseOfOthersFailTheCallOnAllRanks)
{
    static const char *const what[] = {"rows of another size, expected", "rows of another size",
                                       "rows of another type"};

    for (const std::vector<int> &nodes :
         std::vector<std::vector<int>>{{2}, {2, 1}, {1, 3}, {1, 1}, {1, 1, 1}})
        for (int mode = 0; mode < 3; mode++) {
            std::atomic<int> said{0}; /* ranks that name the cause; others were told by these */

            on_ranks(nodes, [mode, &said](swl_rank *rank) {
                GroupStep s(rank, small_config());
                const bool other = rank->rank == 1;

                ASSERT_EQ(s.step(), ncclSuccess);
                s.sync();
                expect_comm_works(rank); /* nobody is in the step any more */
                if (mode == 0)
                    expect_accepted_or_told(s.dispatch(other ? 8 : 16));
                else if (mode == 1)
                    expect_accepted_or_told(s.combine(GroupStep::budget, other ? 8 : 16));
                else
                    expect_accepted_or_told(s.combine(GroupStep::budget, other ? 32 : 16,
                                                      other ? ncclBfloat16 : ncclFloat32));
                s.sync();
                EXPECT_EQ(s.bits(), TIMEOUT);
                EXPECT_EQ(s.update(), ncclSystemError);
                said += std::string(swimlaneLastError()).find(what[mode]) != std::string::npos;
                expect_recovery(s, rank, 3);
            });
            EXPECT_GE(said, 1) << what[mode];
        }
}

TEST(GroupFailure, AnotherTopkThanThatOfTheNodeFailsTheCallOnAllRanks)
{
    on_ranks({2}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());

        s.use_library_memory(rank->rank == 1 ? 1 : GroupStep::topk);
        ASSERT_EQ(s.update(), ncclSuccess);
        expect_accepted_or_told(s.dispatch());
        s.sync();
        EXPECT_EQ(s.bits(), TIMEOUT);
        EXPECT_EQ(s.combine(), ncclSystemError);
        s.use_library_memory();
        expect_recovery(s, rank, 3);
    });
}

TEST(GroupFailure, ForeignHandleMemoryFailsTheCallOnAllRanks)
{
    on_ranks({2, 1}, [](swl_rank *rank) {
        GroupStep s(rank, small_config());

        s.exact_step();
        expect_comm_works(rank); /* nobody is in the step any more */
        if (rank->rank == 1)
            s.use_memory_of(0xff); /* bytes that no update wrote */
        expect_accepted_or_told(s.dispatch());
        s.sync();
        EXPECT_EQ(s.bits() & BAD_HANDLE, rank->rank == 1 ? BAD_HANDLE : 0);
        EXPECT_TRUE(s.bits() & (BAD_HANDLE | TIMEOUT));
        EXPECT_EQ(s.combine(), ncclSystemError);
        if (rank->rank == 1) {
            expect_sentence({"the handle's memory is not of this group"});
            s.use_library_memory();
        }
        expect_recovery(s, rank, 3);
    });
}

} // namespace
