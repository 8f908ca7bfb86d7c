// soft_apart_test.cc: emulated ranks in several processes of one host, which share memory: whole
// calls over the software NIC between them, what is left afterwards, and what a killed process
// leaves behind.
#include "tests/support/ep_bench.h"
#include "tests/support/folder.h"
#include "tests/support/group_step.h"

#include <dirent.h>
#include <fstream>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{

#define OK(call) EXPECT_EQ(call, cudaSuccess)

const uint64_t second = 1000000000;

/* What the ranks of a job, in whatever process, note for the test. */
struct Notes {
    int failures[8];
    struct swl_gpu_share share;
    uint32_t turn;
};

Notes *notes()
{
    static Notes *all = static_cast<Notes *>(
        mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

    return all;
}

/* Failures of a check belong to the process that made it. */
int noted(struct swl_rank *rank, void *arg)
{
    (*static_cast<rank_body *>(arg))(rank);
    notes()->failures[rank->rank] = testing::Test::HasFailure();
    return testing::Test::HasFailure() ? 1 : 0;
}

int run_apart(const std::vector<int> &nodes, enum swl_place place, const rank_body &body)
{
    struct swl_job job = {};
    rank_body arg = body;

    memset(notes(), 0, sizeof(Notes));
    job.nnodes = (int)nodes.size();
    job.node_ranks = nodes.data();
    job.place = place;
    job.timeout_ns = 280 * second;
    return swl_ranks_run(&job, noted, &arg);
}

/* Shared memory of the emulator that this process has mapped or open. */
int files_held()
{
    std::ifstream maps("/proc/self/maps");
    std::string line;
    char target[256];
    DIR *fds = opendir("/proc/self/fd");
    int n = 0;

    while (std::getline(maps, line))
        n += line.find("memfd:swimlane") != std::string::npos;
    while (const dirent *entry = readdir(fds)) {
        const ssize_t length = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1);

        target[length > 0 ? length : 0] = '\0';
        n += strstr(target, "memfd:swimlane") != nullptr;
    }
    closedir(fds);
    return n;
}

void wait_for_turn(uint32_t turn)
{
    for (int i = 0; i < 20000 && __atomic_load_n(&notes()->turn, __ATOMIC_ACQUIRE) < turn; i++)
        usleep(500);
    EXPECT_GE(__atomic_load_n(&notes()->turn, __ATOMIC_ACQUIRE), turn);
}

void give_turn(uint32_t turn)
{
    __atomic_store_n(&notes()->turn, turn, __ATOMIC_RELEASE);
}

// ---- memory ----

TEST(ShareApart, IsOneMemoryInTwoProcesses)
{
    EXPECT_EQ(
        run_apart({1, 1}, SWL_PLACE_PROCESSES,
                  [](struct swl_rank *rank) {
                      uint64_t *words;

                      if (rank->rank == 0) {
                          OK(swl_gpu_shared_malloc((void **)&words, 3 << 20, &notes()->share));
                          words[7] = 1234;
                          give_turn(1);
                          wait_for_turn(2);
                          EXPECT_EQ(words[(3 << 20) / 8 - 1], 77u);
                          OK(swl_gpu_shared_free(words));
                          give_turn(3);
                      } else {
                          void *none;

                          wait_for_turn(1);
                          OK(swl_gpu_shared_map(&notes()->share, (void **)&words));
                          EXPECT_EQ(words[7], 1234u);
                          words[(3 << 20) / 8 - 1] = 77;
                          give_turn(2);
                          wait_for_turn(3);
                          EXPECT_EQ(words[7], 1234u); // a mapping keeps the memory
                          EXPECT_EQ(swl_gpu_shared_map(&notes()->share, &none),
                                    cudaErrorOperatingSystem);
                          OK(swl_gpu_shared_unmap(words));
                          EXPECT_EQ(swl_gpu_shared_unmap(words), cudaErrorInvalidValue);
                      }
                      EXPECT_EQ(files_held(), 0);
                  }),
        0);
}

// The number of a process and of a descriptor may mean something else by the time they are used.
TEST(ShareApart, AnotherFileIsRefused)
{
    EXPECT_EQ(run_apart({1, 1}, SWL_PLACE_PROCESSES,
                        [](struct swl_rank *rank) {
                            void *first, *second_one;

                            if (rank->rank == 0) {
                                struct swl_gpu_share gone;

                                OK(swl_gpu_shared_malloc(&first, 4096, &notes()->share));
                                OK(swl_gpu_shared_free(first));
                                OK(swl_gpu_shared_malloc(&second_one, 8192, &gone));
                                give_turn(1);
                                wait_for_turn(2);
                                OK(swl_gpu_shared_free(second_one));
                                return;
                            }
                            wait_for_turn(1);
                            EXPECT_EQ(swl_gpu_shared_map(&notes()->share, &first),
                                      cudaErrorOperatingSystem);
                            give_turn(2);
                        }),
              0);
}

// ---- whole calls ----

/* Every rank runs the bench, 20 steps compared bit by bit, and holds nothing afterwards. */
void expect_exact(const std::string &line, enum swl_place place)
{
    static bench_options options;
    std::istringstream words("swimlane-bench --quiet --place processes --iterations 20 " + line);
    std::vector<std::string> arguments;
    std::vector<char *> argv;

    for (std::string word; words >> word;)
        arguments.push_back(word);
    for (std::string &argument : arguments)
        argv.push_back(argument.data());
    ASSERT_EQ(bench_options_parse(&options, (int)argv.size(), argv.data()), BENCH_RUN);
    ASSERT_TRUE(bench_job_place(&options, argv.data()));
    EXPECT_EQ(run_apart(std::vector<int>(options.node_size, options.node_size + options.nnodes),
                        place,
                        [&](struct swl_rank *rank) {
                            expect_comm_works(rank); // all are connected
                            const int before = open_files();

                            EXPECT_TRUE(bench_run(&options, rank->rank, rank->comm));
                            expect_comm_works(rank);
                            if (place != SWL_PLACE_PROCESSES)
                                return; // other ranks of this process may not have ended
                            EXPECT_EQ(files_held(), 0);
                            EXPECT_LE(open_files(), before);
                        }),
              0);
    bench_options_free(&options);
}

const char shape[] =
    "--nodes 2 --ranks-per-node 2 --tokens 32 --hidden 256 --topk 2 --experts 8 --sms 4";

TEST(SoftApart, ProcessForEachNodeIsExact)
{
    expect_exact(std::string(shape) + " --outputs mixed", SWL_PLACE_NODES);
}

TEST(SoftApart, ProcessForEachRankIsExactAndLeavesNothing)
{
    expect_exact(std::string(shape) + " --outputs plain", SWL_PLACE_PROCESSES);
}

TEST(SoftApart, ForcedTransportsAreExact)
{
    setenv("SWIMLANE_TRANSPORT", "peer,soft", 1);
    setenv("SWIMLANE_SOFT_BLOCKS", "2", 1);
    expect_exact("--node-sizes 1,3 --ragged --tokens 20 --hidden 128 --topk 3 --experts 8 --sms 4 "
                 "--link 100:2",
                 SWL_PLACE_NODES);
    unsetenv("SWIMLANE_SOFT_BLOCKS");
    unsetenv("SWIMLANE_TRANSPORT");
}

// An executor that cannot leave its process is refused on all ranks, with the reason.
TEST(SoftApart, EngineIsRefused)
{
    setenv("SWIMLANE_SOFT_EXECUTOR", "engine", 1);
    EXPECT_EQ(
        run_apart({1, 1}, SWL_PLACE_PROCESSES,
                  [](struct swl_rank *rank) {
                      ncclEpGroupConfig_t config = small_config();
                      ncclEpGroup_t group = nullptr;

                      EXPECT_NE(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
                      expect_sentence({"soft", "not in one process", "SWIMLANE_SOFT_EXECUTOR"});
                      EXPECT_EQ(files_held(), 0);
                  }),
        0);
    unsetenv("SWIMLANE_SOFT_EXECUTOR");
}

// ---- a killed process ----

double seconds_since(uint64_t begin)
{
    return (double)(swl_gpu_now_ns() - begin) / 1e9;
}

/* Rank 2 is killed between two calls or while its own is under way. Every survivor names it. */
void expect_killed_is_missed(const std::vector<int> &nodes, bool in_call)
{
    const int before = folder_entries("/dev/shm");
    const int rc = run_apart(nodes, SWL_PLACE_PROCESSES, [&](struct swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();
        config.timeout_ns = 12 * second; // a sixteenth of it is more than a busy host may cost
        auto *own = new GroupStep(rank, config); // its end expects all peers

        for (int i = 0; i < 3; i++) {
            own->exact_step();
        }
        expect_comm_works(rank);
        if (rank->rank == 2) {
            for (int i = 0; in_call && i < 100; i++)
                (void)own->step();
            raise(SIGKILL);
        }

        const uint64_t begin = swl_gpu_now_ns();

        for (int i = 0; i < 200 && own->step() == ncclSuccess && !(own->bits() & 1); i++)
            own->sync();
        own->sync();
        EXPECT_LT(seconds_since(begin),
                  80); // not for ever: three calls by their limit, and a busy host
        EXPECT_EQ(own->bits() & 1, 1);
        EXPECT_NE(own->update(), ncclSuccess);
        expect_sentence({"rank 2 is gone: its connection was closed"});
        /* nothing goes on without it */
        EXPECT_EQ(ncclEpErrorClear(own->group), ncclSuccess);
        EXPECT_EQ(own->bits(), 0);
        EXPECT_EQ(own->update(), ncclSystemError);
        expect_sentence({"rank 2 is gone: its connection was closed"});
        EXPECT_EQ(ncclEpHandleDestroy(own->handle), ncclSuccess);
        const uint64_t ending = swl_gpu_now_ns();

        EXPECT_EQ(ncclEpGroupDestroy(own->group), ncclSuccess) << swimlaneLastError();
        EXPECT_LT(seconds_since(ending), 50); // less than the limit of set-up: nobody is waited for
        EXPECT_EQ(ncclCommAbort(rank->comm), ncclSuccess);
        fflush(nullptr);
        notes()->failures[rank->rank] = testing::Test::HasFailure() ? 2 : 1;
        _exit(0); // the launcher would destroy the communicator
    });

    EXPECT_NE(rc, 0);
    EXPECT_EQ(notes()->failures[0], 1);
    EXPECT_EQ(notes()->failures[1], 1);
    EXPECT_EQ(folder_entries("/dev/shm"), before);
}

TEST(SoftApart, ProcessKilledBetweenCallsIsMissed)
{
    expect_killed_is_missed({2, 1}, false);
    expect_killed_is_missed({1, 2}, false);
}

TEST(SoftApart, ProcessKilledInACallIsMissed)
{
    expect_killed_is_missed({2, 1}, true);
    expect_killed_is_missed({1, 2}, true);
}

TEST(SoftApart, ProcessKilledInTheOnlyNodeIsMissed)
{
    expect_killed_is_missed({3}, true);
}

} // namespace
