// group_meet_test.cc: ranks that fail, or come late, where the hosts of a group meet. Everybody
// ends with the cause, and no rank takes another one for missing that has only used its time.
#include "tests/support/failing_calls.h"
#include "tests/support/group_fixture.h"

#include "src/runtime/runtime.h"

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <sys/epoll.h>

namespace
{

constexpr uint64_t limit_ns = 2000000000;
std::atomic<void **> failing_rank, late_rank; // their slots
std::atomic<uint64_t> late_ns;

} // namespace

/* The first call of a rank in the meeting. */
extern "C" int epoll_create1(int flags)
{
    static const auto real = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "epoll_create1"));
    void **slot = swl_thread_slot();

    if (slot && slot == failing_rank) {
        errno = EMFILE;
        return -1;
    }
    if (slot && slot == late_rank)
        swl_gpu_sleep_ns(late_ns);
    return real(flags);
}

namespace
{

struct Meeting {
    std::vector<int> nodes;
    int fails, late; // -1: nobody
    uint64_t late_by_ns;
};

/* Sentences of all ranks; the communicator works afterwards, and a group can be made on it. */
std::vector<std::string> meet(const Meeting &m)
{
    const Variable limit("SWIMLANE_SETUP_TIMEOUT_MS", std::to_string(limit_ns / 1000000));
    std::vector<std::string> said(
        static_cast<size_t>(std::accumulate(m.nodes.begin(), m.nodes.end(), 0)));

    failing_rank = nullptr;
    late_rank = nullptr;
    late_ns = m.late_by_ns;
    on_ranks(m.nodes, [&](swl_rank *rank) {
        const ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;

        if (rank->rank == m.fails)
            failing_rank = swl_thread_slot();
        if (rank->rank == m.late)
            late_rank = swl_thread_slot();
        expect_comm_works(rank);
        if (ncclEpCreateGroup(&group, rank->comm, &config) != ncclSuccess)
            said[static_cast<size_t>(rank->rank)] = swimlaneLastError();
        expect_comm_works(rank);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        failing_rank = nullptr;
        late_rank = nullptr;
        expect_comm_works(rank);
        EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess)
            << swimlaneLastError();
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
    });
    return said;
}

/* A rank that fails at once is no reason to hurry: the others wait for it, one of them since
 * later. */
TEST(GroupMeet, WhoFailsAtOnceWaitsForTheOthers)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {3}, {2, 1}})
        for (uint64_t late : {limit_ns / 20, limit_ns / 2, limit_ns * 9 / 10}) {
            SCOPED_TRACE(testing::Message() << nodes.size() << " nodes, late by " << late);
            testing::internal::CaptureStderr();
            const std::vector<std::string> said = meet({nodes, 1, 0, late});
            const std::string log = testing::internal::GetCapturedStderr();

            EXPECT_EQ(log.find("did not take part"), std::string::npos) << log;
            EXPECT_EQ(log.find("given up"), std::string::npos) << log;
            EXPECT_NE(said[1].find("Too many open files"), std::string::npos) << said[1];
            for (const std::string &one : said)
                EXPECT_NE(one.find("rank 1"), std::string::npos) << one;
            EXPECT_EQ(held_objects(), "");
        }
}

/* Later than the others, and in time. */
TEST(GroupMeet, WhoComesLateIsWaitedFor)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {3}, {2, 1}})
        for (const std::string &one : meet({nodes, -1, 0, limit_ns * 9 / 10}))
            EXPECT_EQ(one, "");
}

} // namespace
