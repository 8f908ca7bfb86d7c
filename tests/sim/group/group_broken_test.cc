// group_broken_test.cc: creation and destruction of groups when one call of one rank fails: of the
// device runtime, of NCCL or of the NIC, each in turn. All ranks end alike, at once, and hold
// nothing.
#include "tests/sim/group/group_broken.h"

namespace
{

/* One call of the victim fails in the creation; then another creation follows on the same
 * communicator. */
std::vector<Seen> create_with(const Case &c, int n)
{
    std::vector<Seen> all((size_t)ranks_of(c));

    const Variable limit("SWIMLANE_SETUP_TIMEOUT_MS", std::to_string(limit_ns / 1000000));
    const Variable transports("SWIMLANE_TRANSPORT", c.transports);

    failing.at = n;
    on_ranks(c.nodes, [&](swl_rank *rank) {
        const ncclEpGroupConfig_t config = small_config();
        Seen &mine = all[(size_t)rank->rank];
        ncclEpGroup_t group = nullptr;

        expect_comm_works(rank);
        if (rank->rank == c.victim)
            failing.watch();
        const uint64_t begin = swl_gpu_now_ns();

        mine.rc = ncclEpCreateGroup(&group, rank->comm, &config);
        mine.took_ns = swl_gpu_now_ns() - begin;
        mine.sentence = swimlaneLastError();
        if (rank->rank == c.victim)
            failing.stop();
        EXPECT_EQ(group == nullptr, mine.rc != ncclSuccess);
        expect_comm_works(rank);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
        ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess)
            << swimlaneLastError();
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
    });
    return all;
}

/* All ranks have a group, or all know whose failure it was, long before the limit. */
void expect_alike(const Case &c, const std::vector<Seen> &all)
{
    const std::string name = "rank " + std::to_string(c.victim);
    const bool made = all[0].rc == ncclSuccess;

    for (size_t r = 0; r < all.size(); r++) {
        EXPECT_EQ(all[r].rc == ncclSuccess, made) << "rank " << r << ": " << all[r].sentence;
        EXPECT_LT(all[r].took_ns, limit_ns / 2) << "rank " << r;
        if (made)
            continue;
        EXPECT_NE(all[r].sentence, "");
        if ((int)r != c.victim) {
            EXPECT_NE(all[r].sentence.find(name), std::string::npos) << all[r].sentence;
        }
    }
}

void expect_each_call(const Case &c)
{
    int n = 0, refused = 0;

    do {
        SCOPED_TRACE(text_of(c, ++n));
        const int descriptors = held_descriptors();
        const std::vector<Seen> all = create_with(c, n);
        SCOPED_TRACE(failing.failed);

        expect_alike(c, all);
        refused += all[0].rc != ncclSuccess;
        EXPECT_EQ(held_objects(), "");
        EXPECT_EQ(held_descriptors(), descriptors);
    } while (!failing.failed.empty() && !testing::Test::HasFailure());
    printf("    %s: %d refused\n", text_of(c, n - 1).c_str(), refused);
}

TEST(GroupBroken, D_C5_OneCallOfACreationFails)
{
    expect_each_call({{1}, 0});
    expect_each_call({{2}, 1});
    expect_each_call({{2, 1}, 0});
    expect_each_call({{2, 1}, 2});
    expect_each_call({{1, 2, 1}, 1});
}

TEST(GroupBroken, D_C5_OneCallOfACreationOverTcpFails)
{
    expect_each_call({{1, 2}, 2, "peer,tcp"});
}

/* ---- the end ---- */

std::vector<Seen> destroy_with(const Case &c, int n)
{
    const Variable limit("SWIMLANE_SETUP_TIMEOUT_MS", std::to_string(limit_ns / 1000000));
    std::vector<Seen> all((size_t)ranks_of(c));

    failing.at = n;
    on_ranks(c.nodes, [&](swl_rank *rank) {
        Seen &mine = all[(size_t)rank->rank];
        ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;
        ncclEpHandle_t handle = nullptr;
        void *memory = nullptr;

        ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
        ASSERT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, 2, nullptr),
                  ncclSuccess);
        ASSERT_EQ(swimlaneMemAlloc(group, 4096, &memory), ncclSuccess);
        ASSERT_EQ(ncclEpErrorClear(group), ncclSuccess); /* work whose end is waited for */
        if (rank->rank == c.victim)
            failing.watch();
        const uint64_t begin = swl_gpu_now_ns();

        mine.rc = ncclEpGroupDestroy(group);
        mine.took_ns = swl_gpu_now_ns() - begin;
        mine.sentence = swimlaneLastError();
        if (rank->rank == c.victim)
            failing.stop();
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess) << "an orphan";
        expect_comm_works(rank);
        ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess)
            << swimlaneLastError();
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
    });
    return all;
}

/* After any code but InvalidUsage the group is gone, whichever call failed. */
TEST(GroupBroken, D_C6_OneCallOfADestructionFails)
{
    for (const Case &c : std::vector<Case>{{{1}, 0}, {{2, 1}, 0}, {{2, 1}, 2}}) {
        int n = 0;

        do {
            SCOPED_TRACE(text_of(c, ++n));
            const int descriptors = held_descriptors();
            const std::vector<Seen> all = destroy_with(c, n);
            SCOPED_TRACE(failing.failed);

            for (const Seen &one : all) {
                EXPECT_NE(one.rc, ncclInvalidUsage) << one.sentence;
                EXPECT_LT(one.took_ns, limit_ns / 2);
            }
            EXPECT_EQ(held_objects(), "");
            EXPECT_EQ(held_descriptors(), descriptors);
        } while (!failing.failed.empty() && !HasFailure());
        printf("    %s\n", text_of(c, n - 1).c_str());
    }
}

/* ---- library memory ---- */

/* One call of the victim fails while library memory is made, or given back. */
void allocate_with(const Case &c, int n, bool give_back)
{
    const Variable limit("SWIMLANE_SETUP_TIMEOUT_MS", std::to_string(limit_ns / 1000000));
    const std::string name = "rank " + std::to_string(c.victim);
    std::vector<ncclResult_t> codes((size_t)ranks_of(c));

    failing.at = n;
    on_ranks(c.nodes, [&](swl_rank *rank) {
        const ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;
        void *memory = nullptr, *next = nullptr;
        ncclResult_t rc = ncclSuccess;

        ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
        if (give_back) {
            ASSERT_EQ(swimlaneMemAlloc(group, 4096, &memory), ncclSuccess);
        }
        expect_comm_works(rank);
        if (rank->rank == c.victim)
            failing.watch();
        const uint64_t begin = swl_gpu_now_ns();

        rc = give_back ? swimlaneMemFree(group, memory) : swimlaneMemAlloc(group, 4096, &memory);
        codes[(size_t)rank->rank] = rc;
        EXPECT_LT(swl_gpu_now_ns() - begin, limit_ns / 2) << swimlaneLastError();
        if (rc != ncclSuccess && rank->rank != c.victim)
            expect_sentence({name.c_str()});
        if (rank->rank == c.victim)
            failing.stop();
        expect_comm_works(rank);
        EXPECT_EQ(swimlaneMemAlloc(group, 8192, &next), ncclSuccess) << swimlaneLastError();
        EXPECT_EQ(swimlaneMemFree(group, next), ncclSuccess) << swimlaneLastError();
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
    });
    for (ncclResult_t code :
         codes) /* what fails last, as memory goes back, fails on the victim alone */
        EXPECT_TRUE((code == ncclSuccess) == (codes[0] == ncclSuccess) || give_back);
}

TEST(GroupBroken, D_C5_OneCallOfLibraryMemoryFails)
{
    for (const bool give_back : {false, true})
        for (const Case &c : std::vector<Case>{{{1}, 0}, {{2, 1}, 0}, {{2, 1}, 1}}) {
            int n = 0;

            do {
                SCOPED_TRACE(text_of(c, ++n));
                allocate_with(c, n, give_back);
                SCOPED_TRACE(failing.failed);
                EXPECT_EQ(held_objects(), "");
            } while (!failing.failed.empty() && !HasFailure());
            printf("    %s\n", text_of(c, n - 1).c_str());
        }
}

/* ---- what is logged ---- */

/* In a process one line for one cause, however many ranks it has. */
TEST(GroupBroken, D_C7_OneLineForOneCause)
{
    for (const bool plan : {false, true}) {
        testing::internal::CaptureStderr();
        std::vector<int> devices(33, plan ? 0 : -1);

        for (int r = 0; !plan && r < 33; r++)
            devices[(size_t)r] = r;
        EXPECT_EQ(run_ranks(
                      {33}, SWL_PLACE_FIBERS, 1,
                      [&](swl_rank *rank) {
                          ncclEpGroupConfig_t config = small_config();
                          ncclEpGroup_t group = nullptr;

                          if (!plan && rank->rank == 5)
                              config.max_token_bytes = 17;
                          config.num_experts = 33;
                          EXPECT_NE(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
                          expect_sentence({plan              ? "33 ranks share the device"
                                           : rank->rank == 5 ? "max_token_bytes"
                                                             : "rank 5"});
                      },
                      devices.data()),
                  0);
        const std::string log = testing::internal::GetCapturedStderr();

        EXPECT_EQ(occurrences(log, "swimlane:"), 1u) << log;
    }
}

} // namespace
