// group_dead_test.cc: creation of groups when a call of one rank fails and goes on failing, as
// after an error of its context. What such a rank leaves in the communicator stays there; all ranks
// end by the limit, and no rank keeps half a group without hearing of it.
#include "tests/sim/group/group_broken.h"

#include <atomic>

namespace
{

/* The others cannot be told before the hosts are connected. */
bool before_the_channel(const std::string &sentence)
{
    return sentence.find("(comparing settings)") != std::string::npos ||
           sentence.find("(planning the group)") != std::string::npos ||
           sentence.find("has not connected within") != std::string::npos;
}

/* All calls of the victim with the name of call n fail from there on. */
int create_dead(const Case &c, int n)
{
    const Variable limit("SWIMLANE_SETUP_TIMEOUT_MS", std::to_string(limit_ns / 1000000));
    const std::string name = "rank " + std::to_string(c.victim);
    std::atomic<int> ended{0}, without{0}, halves{0};

    failing.at = n;
    failing.on = true;
    (void)run_ranks(c.nodes, SWL_PLACE_FIBERS, 1, [&](swl_rank *rank) {
        const ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;

        expect_comm_works(rank);
        if (rank->rank == c.victim)
            failing.watch();
        const uint64_t begin = swl_gpu_now_ns();
        const ncclResult_t rc = ncclEpCreateGroup(&group, rank->comm, &config);
        const uint64_t took = swl_gpu_now_ns() - begin;
        const std::string sentence = swimlaneLastError();

        ended++;
        without += rc != ncclSuccess;
        EXPECT_LT(took, 3 * limit_ns) << sentence;
        if (rc != ncclSuccess && rank->rank != c.victim && !before_the_channel(sentence)) {
            EXPECT_NE(sentence.find(name), std::string::npos) << sentence;
            EXPECT_LT(took, limit_ns / 2) << sentence;
        }
        swl_gpu_sleep_ns(8 * limit_ns); /* nobody leaves the communicator before all have ended */
        if (rank->rank == c.victim)
            failing.stop();
        if (group && without > 0) {
            int bits = 0;

            EXPECT_EQ(ncclEpGetAsyncError(group, &bits), ncclSuccess);
            halves++;
            EXPECT_NE(bits, 0) << "half a group: rank " << rank->rank;
            EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
        } else {
            (void)ncclEpGroupDestroy(group);
        }
    });
    EXPECT_EQ(ended, ranks_of(c));
    failing.on = false;
    return halves;
}

TEST(GroupDead, D_C5_ACallThatGoesOnFailingEndsAllRanks)
{
    for (const Case &c : std::vector<Case>{{{2}, 1}, {{2, 1}, 0}}) {
        int n = 0, halves = 0;

        do {
            SCOPED_TRACE(text_of(c, ++n));
            halves += create_dead(c, n);
        } while (!failing.failed.empty() && !HasFailure());
        printf("    %s: %d groups without the victim\n", text_of(c, n - 1).c_str(), halves);
        EXPECT_GT(halves, 0) << "the last exchange ends for the others";
    }
}

} // namespace
