/* The stand-in NCCL between processes. The test process itself never uses the device runtime, so
 * that its children can. */
#include "tools/support/ranks.h"

#include "src/runtime/runtime.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <string>

namespace
{

int collectives(ncclComm_t comm, int rank, int nranks)
{
    cudaStream_t stream;
    int64_t *words;

    if (swl_gpu_stream_create(&stream) || swl_gpu_host_malloc((void **)&words, 1 << 20))
        return 1;
    for (int call = 0; call < 5; call++) {
        words[0] = call * 100 + rank;
        if (ncclAllGather(words, words + 1, 1, ncclInt64, comm, stream) ||
            ncclAllReduce(words, words + 100, 1, ncclInt64, ncclSum, comm, stream) ||
            ncclBroadcast(words, words + 200, 60000, ncclInt64, call % nranks, comm, stream) ||
            swl_gpu_stream_wait(stream, UINT64_MAX))
            return 2;
        int64_t sum = 0;
        for (int r = 0; r < nranks; r++) {
            sum += call * 100 + r;
            if (words[1 + r] != call * 100 + r)
                return 3;
        }
        if (words[100] != sum || words[200] != call * 100 + call % nranks)
            return 4;
    }
    return swl_gpu_host_free(words) || swl_gpu_stream_destroy(stream) ? 5 : 0;
}

int process_main(struct swl_rank *r, void *)
{
    ncclComm_t part;
    int rank = -1, rc = collectives(r->comm, r->rank, r->nranks);

    if (rc != 0 || swl_gpu_thread_node() != r->node)
        return rc ? rc : 9;
    if (ncclCommSplit(r->comm, r->rank % 2, -r->rank, &part, nullptr) != ncclSuccess)
        return 6;
    if (ncclCommUserRank(part, &rank) != ncclSuccess)
        return 7;
    rc = collectives(part, rank, r->nranks / 2);
    return rc ? rc + 10 : (int)ncclCommDestroy(part);
}

int run_processes(int (*rank_main)(struct swl_rank *, void *), uint64_t timeout_ns)
{
    const int nodes[] = {2, 2};
    struct swl_job job = {};

    job.nnodes = 2;
    job.node_ranks = nodes;
    job.place = SWL_PLACE_PROCESSES;
    job.timeout_ns = timeout_ns;
    return swl_ranks_run(&job, rank_main, nullptr);
}

double seconds_now()
{
    timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The port inside the unique id: magic 8, process 8, key 8, host 4, port 2. */
int connect_stranger(const ncclUniqueId *id)
{
    sockaddr_in at = {};
    uint16_t port;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    memcpy(&port, id->internal + 28, sizeof(port));
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    return connect(fd, (sockaddr *)&at, sizeof(at)) == 0 ? fd : -1;
}

/* Whether the other side hangs up within 10 s. */
bool is_dropped(int fd)
{
    timeval t = {10, 0};
    char byte;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    ssize_t n = recv(fd, &byte, 1, 0);
    close(fd);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

struct shared_id {
    ncclUniqueId id;
    int ready;
};

int rank_of_two(shared_id *shared, int rank)
{
    ncclComm_t comm;

    if (ncclCommInitRank(&comm, 2, shared->id, rank) != ncclSuccess)
        return 20;
    int rc = collectives(comm, rank, 2);
    return ncclCommDestroy(comm) != ncclSuccess ? 21 : rc;
}

/* Strangers come first; the ranks must neither notice nor wait for them. */
int host_with_strangers(shared_id *shared)
{
    if (ncclGetUniqueId(&shared->id) != ncclSuccess)
        return 30;
    int silent = connect_stranger(&shared->id), loud = connect_stranger(&shared->id);
    int half = connect_stranger(&shared->id), wrong = connect_stranger(&shared->id);
    if (silent < 0 || loud < 0 || half < 0 || wrong < 0)
        return 31;
    char garbage[4096];
    memset(garbage, 'x', sizeof(garbage));
    if (send(loud, garbage, sizeof(garbage), MSG_NOSIGNAL) <= 0 ||
        send(half, "swlwire1", 8, MSG_NOSIGNAL) != 8 ||
        send(wrong, "swlwire1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32, MSG_NOSIGNAL) !=
            32)
        return 32;
    double before = seconds_now();
    __atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
    int rc = rank_of_two(shared, 0);
    if (rc != 0)
        return rc;
    if (seconds_now() - before > 2.5) /* sooner than a silent stranger is dropped */
        return 33;
    char answer[8];
    if (recv(wrong, answer, 8, MSG_WAITALL) != 8) /* it is told "no", then dropped */
        return 34;
    return is_dropped(silent) && is_dropped(loud) && is_dropped(half) && is_dropped(wrong) ? 0 : 35;
}

int status_of(pid_t pid)
{
    int status = -1;

    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace

TEST(Wire, RanksInProcessesMeet)
{
    EXPECT_EQ(run_processes(process_main, 60000000000ull), 0);
}

/* What mpirun does: three processes that know their rank, and where they meet. */
void run_launched(const char *variable, const char *value)
{
    pid_t pids[3];

    for (int r = 0; r < 3; r++) {
        pids[r] = fork();
        if (pids[r] != 0)
            continue;
        const int nodes[] = {3};
        struct swl_job job = {};
        job.nnodes = 1;
        job.node_ranks = nodes;
        job.place = SWL_PLACE_LAUNCHED;
        job.timeout_ns = 200000000000ull;
        setenv("OMPI_COMM_WORLD_RANK", std::to_string(r).c_str(), 1);
        setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
        setenv("OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(r).c_str(), 1);
        setenv(variable, value, 1);
        auto body = [](struct swl_rank *rank, void *) {
            int rc = collectives(rank->comm, rank->rank, rank->nranks);
            return rc ? rc : (int)(rank->device != rank->rank);
        };
        _exit(swl_ranks_run(&job, body, nullptr) == 0 ? 0 : 1);
    }
    for (pid_t pid : pids)
        EXPECT_EQ(status_of(pid), 0);
}

TEST(Wire, LaunchedRanksMeetAtThePort)
{
    sockaddr_in at = {};
    socklen_t n = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_family = AF_INET;
    ASSERT_EQ(bind(fd, (sockaddr *)&at, n), 0); /* a port that nobody has */
    ASSERT_EQ(getsockname(fd, (sockaddr *)&at, &n), 0);
    close(fd);
    run_launched("SWIMLANE_ROOT", ("localhost:" + std::to_string(ntohs(at.sin_port))).c_str());
}

TEST(Wire, LaunchedRanksMeetInTheFile)
{
    char folder[] = "/tmp/swl-wire-XXXXXX";

    ASSERT_NE(mkdtemp(folder), nullptr);
    run_launched("TMPDIR", folder);
    EXPECT_EQ(rmdir(folder), 0) << "files were left in " << folder;
}

TEST(Wire, F56StrangersAreDropped)
{
    void *memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_id *shared = static_cast<shared_id *>(memory);
    pid_t host = fork();

    ASSERT_NE(memory, MAP_FAILED);
    if (host == 0)
        _exit(host_with_strangers(shared));
    pid_t other = fork();
    if (other == 0) {
        for (int i = 0; i < 100000 && !__atomic_load_n(&shared->ready, __ATOMIC_ACQUIRE); i++)
            usleep(100);
        _exit(rank_of_two(shared, 1));
    }
    EXPECT_EQ(status_of(other), 0);
    EXPECT_EQ(status_of(host), 0);
    munmap(memory, 4096);
}

TEST(Wire, DeadProcessIsAnErrorForTheOthers)
{
    auto body = [](struct swl_rank *r, void *) {
        cudaStream_t stream;
        int *words;
        ncclResult_t error = ncclSuccess;

        if (r->rank == 2) {
            usleep(100000);
            _exit(7);
        }
        if (swl_gpu_stream_create(&stream) || swl_gpu_host_malloc((void **)&words, 64) ||
            ncclAllGather(words, words + 1, 1, ncclInt32, r->comm, stream) ||
            swl_gpu_stream_wait(stream, UINT64_MAX) || ncclCommGetAsyncError(r->comm, &error))
            return 1;
        return error == ncclRemoteError ? 0 : 2;
    };
    testing::internal::CaptureStderr();
    double before = seconds_now();
    EXPECT_EQ(run_processes(body, 600000000000ull), -1); /* only because rank 2 died */
    EXPECT_LT(seconds_now() - before, 500.0);
    std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find("rank 2 ended early"), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 1"), std::string::npos) << text;
}

TEST(Wire, JobEndsAtItsTimeLimit)
{
    testing::internal::CaptureStderr();
    double before = seconds_now();
    EXPECT_EQ(run_processes(
                  [](struct swl_rank *r, void *) {
                      if (r->rank == 3)
                          sleep(1000);
                      return 0;
                  },
                  2000000000ull),
              -1);
    EXPECT_LT(seconds_now() - before, 500.0);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("rank 3 has not ended in time"),
              std::string::npos);
}
