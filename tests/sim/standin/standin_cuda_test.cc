/* The stand-in NCCL as it is built over CUDA (sim/nccl_place_cuda.cc), here over the emulator's
 * CUDA runtime: threads as nodes, several ranks on one device, one thread with several ranks. The
 * program's own nccl functions come before those of libswl_sim. */
#include "tools/support/ranks.h"

#include "src/runtime/runtime.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <stdlib.h>

#include <string>
#include <vector>

struct team {
    int nRanks, rank, stride;
};
extern "C" team ncclTeamLsa(ncclComm_t comm);

extern "C" __attribute__((visibility("default"))) int swl_launcher_node(void);
int swl_launcher_node(void)
{
    return swl_gpu_thread_node();
}

namespace
{

/* Device words of one rank and their stream. */
struct words {
    cudaStream_t stream = nullptr;
    int32_t *device = nullptr;

    words()
    {
        EXPECT_EQ(swl_gpu_stream_create(&stream), cudaSuccess);
        EXPECT_EQ(swl_gpu_malloc((void **)&device, 4096), cudaSuccess);
    }
    ~words()
    {
        EXPECT_EQ(swl_gpu_free(device), cudaSuccess);
        EXPECT_EQ(swl_gpu_stream_destroy(stream), cudaSuccess);
    }
    void set(int at, int32_t value)
    {
        EXPECT_EQ(swl_gpu_copy(device + at, &value, 4, stream), cudaSuccess);
        EXPECT_EQ(swl_gpu_stream_wait(stream, UINT64_MAX), cudaSuccess);
    }
    int32_t get(int at)
    {
        int32_t value = -1;

        EXPECT_EQ(swl_gpu_copy(&value, device + at, 4, stream), cudaSuccess);
        EXPECT_EQ(swl_gpu_stream_wait(stream, UINT64_MAX), cudaSuccess);
        return value;
    }
};

int collectives(struct swl_rank *r, void *)
{
    words w;

    for (int call = 0; call < 5; call++) {
        w.set(0, 100 * call + r->rank);
        EXPECT_EQ(ncclAllGather(w.device, w.device + 1, 1, ncclInt32, r->comm, w.stream),
                  ncclSuccess);
        EXPECT_EQ(ncclAllReduce(w.device, w.device + 100, 1, ncclInt32, ncclSum, r->comm, w.stream),
                  ncclSuccess);
        EXPECT_EQ(ncclBroadcast(w.device, w.device + 101, 1, ncclInt32, call % r->nranks, r->comm,
                                w.stream),
                  ncclSuccess);
        int32_t sum = 0;
        for (int i = 0; i < r->nranks; i++) {
            EXPECT_EQ(w.get(1 + i), 100 * call + i);
            sum += 100 * call + i;
        }
        EXPECT_EQ(w.get(100), sum);
        EXPECT_EQ(w.get(101), 100 * call + call % r->nranks);
    }
    return ::testing::Test::HasFailure();
}

/* Nodes of the threads reach the team of NCCL's device API. */
int team_of_node(struct swl_rank *r, void *)
{
    team t = ncclTeamLsa(r->comm);

    EXPECT_EQ(t.nRanks, 2);
    EXPECT_EQ(t.rank, r->rank % 2);
    EXPECT_EQ(t.stride, 1);
    return collectives(r, nullptr);
}

int run(const std::vector<int> &nodes, const std::vector<int> &devices, enum swl_place place,
        int (*body)(struct swl_rank *, void *))
{
    struct swl_job job = {};

    job.nnodes = (int)nodes.size();
    job.node_ranks = nodes.data();
    job.place = place;
    job.device_of_rank = devices.data();
    job.timeout_ns = 60000000000ull;
    return swl_ranks_run(&job, body, nullptr);
}

} // namespace

/* First: this process must not have used a device before it forks. */
TEST(StandinOverCuda, MeetsBetweenProcesses)
{
    EXPECT_EQ(run({2, 1}, {0, 0, 1}, SWL_PLACE_PROCESSES, collectives), 0);
}

TEST(StandinOverCuda, HasThreadsAsNodesAndSeveralRanksOnADevice)
{
    EXPECT_EQ(run({2, 2}, {0, 0, 0, 0}, SWL_PLACE_THREADS, team_of_node), 0);
    EXPECT_EQ(run({2, 2, 2}, {0, 1, 0, 1, 2, 2}, SWL_PLACE_THREADS, team_of_node), 0);
    EXPECT_EQ(run({1}, {0}, SWL_PLACE_THREADS, collectives), 0);
}

TEST(StandinOverCuda, StartsAllCallsOfAGroupBeforeItWaits)
{
    ncclComm_t comms[3];
    const int devices[3] = {0, 1, 0};
    words w[3];

    ASSERT_EQ(ncclCommInitAll(comms, 3, devices), ncclSuccess);
    for (int i = 0; i < 3; i++)
        w[i].set(0, i + 7);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(ncclAllReduce(w[i].device, w[i].device + 1, 1, ncclInt32, ncclMax, comms[i],
                                w[i].stream),
                  ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(w[i].get(1), 9);
        EXPECT_EQ(ncclCommDestroy(comms[i]), ncclSuccess);
    }
}

TEST(StandinOverCuda, EndsWithASentenceWhenARankStaysAway)
{
    ASSERT_EQ(setenv("SWIMLANE_STANDIN_TIMEOUT_MS", "1000", 1), 0);
    EXPECT_EQ(run({2}, {0, 0}, SWL_PLACE_THREADS,
                  [](struct swl_rank *r, void *) {
                      words w;
                      if (r->rank == 1) {
                          swl_gpu_sleep_ns(2000000000);
                          return 0;
                      }
                      EXPECT_EQ(
                          ncclAllGather(w.device, w.device + 1, 1, ncclInt32, r->comm, w.stream),
                          ncclSystemError);
                      EXPECT_EQ(std::string(ncclGetLastError(r->comm)),
                                "rank 0: a peer did not come in time");
                      return 0;
                  }),
              0);
    unsetenv("SWIMLANE_STANDIN_TIMEOUT_MS");
}

TEST(StandinOverCuda, SaysThatItCannotBeCaptured)
{
    EXPECT_EQ(run({1}, {0}, SWL_PLACE_THREADS,
                  [](struct swl_rank *r, void *) {
                      words w;
                      cudaGraph_t graph = nullptr;
                      EXPECT_EQ(cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed),
                                cudaSuccess);
                      EXPECT_EQ(
                          ncclAllGather(w.device, w.device + 1, 1, ncclInt32, r->comm, w.stream),
                          ncclInvalidUsage);
                      EXPECT_EQ(std::string(ncclGetLastError(r->comm)),
                                "rank 0: the stand-in's collectives cannot be captured");
                      EXPECT_EQ(cudaStreamEndCapture(w.stream, &graph), cudaSuccess);
                      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
                      return 0;
                  }),
              0);
}

TEST(StandinOverCuda, KnowsItsMemory)
{
    void *ptr = nullptr;
    ncclWindow_t window;
    ncclComm_t comm;

    ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
    ASSERT_EQ(ncclMemAlloc(&ptr, 16384), ncclSuccess);
    /* the emulator's cudaMalloc aligns less than CUDA's */
    char *start = (char *)(((uintptr_t)ptr + 4095) / 4096 * 4096);
    EXPECT_EQ(ncclCommWindowRegister(comm, start, 8192, &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
    EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclSuccess);
    EXPECT_EQ(ncclCommWindowRegister(comm, &comm, 8, &window, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclMemFree(ptr), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}
