/* The rank launcher, fibers and threads. */
#include "tests/support/runtime_run.h"

#include "sim/simt.h"
#include "src/runtime/runtime.h"

#include <nccl.h>

#include <mutex>
#include <set>
#include <thread>

namespace
{

int all_gather(struct swl_rank *r)
{
    cudaStream_t stream;
    int *words, bad = 0;

    if (swl_gpu_stream_create(&stream) || swl_gpu_host_malloc((void **)&words, 4096))
        return 1;
    words[r->rank] = r->rank + 5;
    if (ncclAllGather(&words[r->rank], words, 1, ncclInt32, r->comm, stream) ||
        swl_gpu_stream_wait(stream, 20000000000ull))
        return 2;
    for (int i = 0; i < r->nranks; i++)
        bad |= words[i] != i + 5;
    return swl_gpu_host_free(words) || swl_gpu_stream_destroy(stream) || bad ? 3 : 0;
}

struct seen {
    int calls[8];
    int node[8], device[8];
};

int note_rank(struct swl_rank *r, void *arg)
{
    seen *s = static_cast<seen *>(arg);

    s->calls[r->rank]++;
    s->node[r->rank] = swl_gpu_thread_node() == r->node ? r->node : -2;
    if (swl_gpu_current(&s->device[r->rank]) != cudaSuccess)
        return 9;
    return all_gather(r);
}

} // namespace

TEST(Ranks, GetNodeAndDeviceInEveryPlace)
{
    for (enum swl_place place : {SWL_PLACE_FIBERS, SWL_PLACE_THREADS}) {
        const int nodes[] = {1, 3}, devices[] = {2, 2, 0, 1};
        struct swl_job job = {};
        seen s = {};
        job.nnodes = 2;
        job.node_ranks = nodes;
        job.device_of_rank = devices;
        job.place = place;
        EXPECT_EQ(swl_ranks_count(&job), 4);
        EXPECT_EQ(swl_ranks_run(&job, note_rank, &s), 0) << "place " << place;
        for (int r = 0; r < 4; r++) {
            EXPECT_EQ(s.calls[r], 1);
            EXPECT_EQ(s.node[r], r == 0 ? 0 : 1);
            EXPECT_EQ(s.device[r], devices[r]);
        }
        const int scattered[] = {0, 1, 0, 1};
        job.node_of_rank = scattered;
        EXPECT_EQ(swl_ranks_run(&job, note_rank, &s), 0);
        EXPECT_EQ(s.node[2], 0);
        EXPECT_EQ(s.node[3], 1);
    }
}

TEST(Ranks, FailWhenOneFails)
{
    const int nodes[] = {3};
    struct swl_job job = {};

    job.nnodes = 1;
    job.node_ranks = nodes;
    for (enum swl_place place : {SWL_PLACE_FIBERS, SWL_PLACE_THREADS}) {
        job.place = place;
        EXPECT_EQ(
            swl_ranks_run(
                &job, [](struct swl_rank *r, void *) { return r->rank == 1 ? 42 : 0; }, nullptr),
            42);
    }
    job.node_ranks = nodes;
    job.nnodes = 0;
    EXPECT_EQ(swl_ranks_run(&job, note_rank, nullptr), -1);
}

TEST(Ranks, AreReplayedUnderTheSameSeed)
{
    auto hash_of = [](uint64_t seed) {
        EXPECT_EQ(run_ranks({2, 2}, SWL_PLACE_FIBERS, seed,
                            [](struct swl_rank *r) { EXPECT_EQ(all_gather(r), 0); }),
                  0);
        return simt_stats().schedule_hash;
    };
    std::set<uint64_t> order;
    for (uint64_t seed = 1; seed < 6; seed++) {
        uint64_t once = hash_of(seed);
        EXPECT_EQ(once, hash_of(seed));
        order.insert(once);
    }
    EXPECT_GT(order.size(), 1u);
}

TEST(Ranks, StartInAnyOrderUnderSeeds)
{
    static std::mutex lock;
    static std::vector<int> order;
    std::set<std::vector<int>> orders;

    for (uint64_t seed = 1; seed < 30; seed++) {
        order.clear();
        EXPECT_EQ(run_ranks({3}, SWL_PLACE_FIBERS, seed,
                            [](struct swl_rank *r) {
                                static int ids[] = {0, 1, 2};
                                auto note = [](void *p) {
                                    std::lock_guard<std::mutex> hold(lock);
                                    order.push_back(*static_cast<int *>(p));
                                };
                                cudaLaunchHostFunc(nullptr, note, &ids[r->rank]);
                                cudaStreamSynchronize(nullptr);
                            }),
                  0);
        EXPECT_EQ(order.size(), 3u);
        orders.insert(order);
    }
    EXPECT_GE(orders.size(), 4u);
}

TEST(Ranks, HangOfOneIsAFault)
{
    EXPECT_NE(run_ranks({2}, SWL_PLACE_FIBERS, 0,
                        [](struct swl_rank *r) {
                            if (r->rank == 0)
                                simt_park(
                                    SIMT_WHY("a test waits for ever", 0, 0),
                                    [](void *) { return false; }, nullptr, UINT64_MAX);
                        }),
              0);
    /* and the next job works */
    EXPECT_EQ(run_ranks({2}, SWL_PLACE_FIBERS, 0,
                        [](struct swl_rank *r) { EXPECT_EQ(all_gather(r), 0); }),
              0);
}
