// tcp_silence_test.cc: hosts that fall silent while nothing is under way, over TCP between
// processes that are a node each: a process that is stopped, for long and for short, and a link
// that is taken down.
#include "tests/support/group_step.h"
#include "tests/support/tcp_namespace.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

namespace
{

const uint64_t ms = 1000000;

struct silence {
    const char *hosts;  // namespaces, as for enter_host
    uint64_t limit_ms;  // of the group
    uint64_t stop_ms;   // rank 1 is stopped for this long, or until rank 0 has noticed
    const char *unplug; // or this command is run by rank 0
    bool missed;        // rank 0 shall notice
};

/* What the ranks note for the test: failures of a check belong to the process that made it. */
int *noted()
{
    static int *words = static_cast<int *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

    return words;
}

int word_of(int rank)
{
    return __atomic_load_n(&noted()[rank], __ATOMIC_ACQUIRE);
}

/* This process stands still, as if its host hung; no longer than until rank 0 has noted
 * something. */
void stop_for(uint64_t stop_ms)
{
    const pid_t self = getpid(), helper = fork();

    ASSERT_GE(helper, 0);
    if (helper == 0) {
        for (uint64_t i = 0; i < stop_ms / 10 && word_of(0) == 0; i++)
            usleep(10000);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    waitpid(helper, nullptr, 0);
}

/* The log says that nothing comes, be it late. */
bool is_missed(uint64_t limit_ms)
{
    const std::string text = "nothing has come from it for " + std::to_string(limit_ms) + " ms";
    std::string log;

    for (int i = 0; i < 600 && log.find(text) == std::string::npos; i++) {
        testing::internal::CaptureStderr();
        swl_gpu_sleep_ns(100 * ms);
        log += testing::internal::GetCapturedStderr();
    }
    fputs(log.c_str(), stderr);
    return log.find(text) != std::string::npos;
}

/* Nothing has been under way, and yet the next call knows. */
void expect_missed(GroupStep *own)
{
    (void)own->step();
    own->sync();
    EXPECT_EQ(own->bits() & 1, 1);
    EXPECT_NE(own->update(), ncclSuccess);
    expect_sentence({"rank 1 "}); // of the queue pair, or of the hosts' own connections
}

int rank_main(struct swl_rank *rank, void *arg)
{
    const silence *how = static_cast<const silence *>(arg);
    ncclEpGroupConfig_t config = small_config();
    GroupStep *own;

    config.timeout_ns = how->limit_ms * ms;
    EXPECT_EQ(enter_host(how->hosts, rank->node), 0);
    own = new GroupStep(rank, config);
    own->exact_step();
    expect_comm_works(rank);
    if (rank->rank == 1 && how->stop_ms)
        stop_for(how->stop_ms);
    if (rank->rank == 0 && how->unplug) {
        EXPECT_EQ(system(how->unplug), 0);
    }
    if (rank->rank == 0 && how->missed) {
        EXPECT_TRUE(is_missed(how->limit_ms));
        expect_missed(own);
    }
    if (!how->missed)
        expect_comm_works(rank); // until then nothing is under way
    for (int i = 0; i < 3 && !how->missed; i++) {
        own->exact_step();
    }
    /* whoever ends is missed for that reason */
    for (int i = 0; rank->rank == 1 && how->missed && i < 6000 && word_of(0) == 0; i++)
        swl_gpu_sleep_ns(10 * ms);
    __atomic_store_n(&noted()[rank->rank], testing::Test::HasFailure() ? 2 : 1, __ATOMIC_RELEASE);
    if (!how->missed) {
        delete own;
        return 0;
    }
    fflush(nullptr);
    _exit(0); // destroy is collective, and takes its time without the peer
}

void run(silence how)
{
    const int nodes[] = {1, 1};
    struct swl_job job = {};

    noted()[0] = noted()[1] = 0;
    setenv("SWIMLANE_TRANSPORT", "peer,tcp", 1);
    setenv("SWIMLANE_SOCKET_IFNAME", strcmp(how.hosts, "-") == 0 ? "lo" : "swl0", 1);
    job.nnodes = 2;
    job.node_ranks = nodes;
    job.place = SWL_PLACE_PROCESSES;
    job.timeout_ns = 200000 * ms;
    EXPECT_EQ(swl_ranks_run(&job, rank_main, &how) == 0, !how.missed);
    EXPECT_EQ(noted()[0], 1);
    if (!how.missed) {
        EXPECT_EQ(noted()[1], 1);
    }
}

// ---- two hosts ----

struct namespaces {
    char left[32], right[32];

    namespaces()
    {
        snprintf(left, sizeof(left), "swl-c-%d", static_cast<int>(getpid()));
        snprintf(right, sizeof(right), "swl-d-%d", static_cast<int>(getpid()));
    }
    ~namespaces()
    {
        (void)shell("ip netns del %s 2>/dev/null; ip netns del %s 2>/dev/null");
    }
    namespaces(const namespaces &) = delete;
    namespaces &operator=(const namespaces &) = delete;
    // `format` takes both names, in this order, as often as it likes by position.
    int shell(const char *format) const
    {
        char line[1024];

        snprintf(line, sizeof(line), format, left, right);
        return system(line);
    }
    bool make() const
    {
        return shell(
                   "{ ip netns add %1$s && ip netns add %2$s && "
                   "ip -n %1$s link add swl0 type veth peer name swl0 netns %2$s && "
                   "ip -n %1$s addr add 10.213.78.1/30 dev swl0 && ip -n %1$s link set swl0 up && "
                   "ip -n %2$s addr add 10.213.78.2/30 dev swl0 && ip -n %2$s link set swl0 up; "
                   "} >/dev/null 2>&1") == 0;
    }
};

} // namespace

TEST(TcpSilence, ProcessStoppedForLongIsMissedByTheLimit)
{
    run({"-", 5000, 60000, nullptr, true});
}

TEST(TcpSilence, ProcessStoppedForLessThanTheLimitIsNot)
{
    run({"-", 60000, 3000, nullptr, false});
}

TEST(TcpSilence, LinkTakenDownIsMissedByTheLimit)
{
    const namespaces made;
    char hosts[80], unplug[80];

    if (!made.make()) {
        const char *ci = getenv("CI");

        EXPECT_FALSE(ci && strcmp(ci, "true") == 0) << "network namespaces cannot be made here";
        GTEST_SKIP() << "network namespaces cannot be made here";
    }
    snprintf(hosts, sizeof(hosts), "%s,%s", made.left, made.right);
    snprintf(unplug, sizeof(unplug), "ip -n %s link set swl0 down", made.right);
    run({hosts, 5000, 0, unplug, true});
}
