// Field report 95, limits of open files, and a host without a loopback interface: in processes of
// their own.
#include "tests/support/failing_calls.h"
#include "tests/support/group_fixture.h"

#include <atomic>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

bool can_leave_the_network()
{
    const pid_t child = fork();
    int status = -1;

    if (child == 0)
        _exit(unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* How a process ends: no status of a sanitizer's report is among them. */
enum { group_made = 0, failed = 2, group_refused = 3 };

bool alike(int status)
{
    return WIFEXITED(status) &&
           (WEXITSTATUS(status) == group_made || WEXITSTATUS(status) == group_refused);
}

/* A process with so many descriptors to spare creates a group. */
void create_with(rlim_t soft, rlim_t hard, const std::vector<int> &nodes = {1, 1, 2},
                 const char *words = "peer,tcp")
{
    const rlim_t used = (rlim_t)held_descriptors() - 3; // without ".", ".." and the folder's own
    const struct rlimit limit = {used + soft, used + hard};
    const Variable transports("SWIMLANE_TRANSPORT", words);
    const Variable setup("SWIMLANE_SETUP_TIMEOUT_MS", "20000"); // a hang ends
    std::atomic<int> made{0}, refused{0};

    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    on_ranks(nodes, [&](swl_rank *rank) {
        const ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;

        if (ncclEpCreateGroup(&group, rank->comm, &config) == ncclSuccess) {
            made++;
        } else {
            refused++;
            if (!strstr(swimlaneLastError(), "Too many open files")) // of the first socket of all
                expect_sentence(
                    {"the process of rank 0 needs ", " descriptors", "may open ", "ulimit"});
        }
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
    EXPECT_TRUE(made == 0 || refused == 0) << made << " ranks have a group";
    _exit(testing::Test::HasFailure() ? failed : made ? group_made : group_refused);
}

TEST(FieldDeathTest, F95_TheSoftLimitIsRaisedToTheHardOne)
{
    for (rlim_t soft : {8, 24, 60})
        EXPECT_EXIT(create_with(soft, 1000), testing::ExitedWithCode(group_made), "");
}

/* With too few, or just enough: all ranks have a group, or all know why not. */
TEST(FieldDeathTest, F95_TheNeedIsToldOnEveryRank)
{
    for (rlim_t hard = slow_build ? 20 : 0; hard < 60; hard++)
        EXPECT_EXIT(create_with(0, hard), alike, "") << hard;
    EXPECT_EXIT(create_with(10, 20), testing::ExitedWithCode(group_refused),
                "the process of rank 0 needs");
}

/* While the hosts meet, each rank has two listeners beside its connections; over TCP there are more
 * later. */
TEST(FieldDeathTest, F95_TheListenersOfTheMeetingAreCounted)
{
    for (rlim_t hard = 0; hard < 25;
         hard += slow_build ? 6 : 1) // with few it cannot even look around
        for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {3}, {2, 1}})
            EXPECT_EXIT(create_with(0, hard, nodes, "peer,soft"), alike, "") << hard;
    EXPECT_EXIT(create_with(0, 7, {2}, "peer,soft"), testing::ExitedWithCode(group_refused),
                "needs 8 descriptors for the sockets of the group, and may open 7 more");
    EXPECT_EXIT(create_with(0, 8, {2}, "peer,soft"), testing::ExitedWithCode(group_made), "");
}

/* The ranks of several processes meet on the loopback interface. */
TEST(FieldDeathTest, D_C8_LoopbackThatIsDownIsOneSentence)
{
    if (!can_leave_the_network())
        GTEST_SKIP() << "no network namespace can be made here";
    EXPECT_EXIT(
        {
            if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
                _exit(2);
            _exit(run_ranks({1, 1}, SWL_PLACE_PROCESSES, 0, [](swl_rank *) {}) == -1 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "^comm: [^\n]*127.0.0.1, which cannot be reached: [^\n]*\n$");
}

} // namespace
