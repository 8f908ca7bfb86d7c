/* Streams, events, launches, locks and time of the emulated device runtime. */
#include "tests/support/runtime_run.h"

#include "device.h"
#include "sim/simt.h"
#include "src/runtime/runtime.h"

#include <cuda_runtime.h>

#include <string.h>

#include <thread>

namespace
{

struct add_args {
    uint32_t *words; /* one per thread */
    uint32_t add;
    int n;
};

void add_body(const void *p)
{
    const add_args *a = static_cast<const add_args *>(p);
    int i = (block_id() * warp_count() + warp_id()) * 32 + lane_id();

    if (i < a->n)
        a->words[i] = a->words[i] * 2 + a->add;
}

struct spin_args {
    uint64_t ns;
    uint32_t *started;
};

void spin_body(const void *p)
{
    const spin_args *a = static_cast<const spin_args *>(p);
    uint64_t end = clock_ns() + a->ns;

    if (a->started)
        publish_to_host(a->started, 1u);
    while (clock_ns() < end)
        pause_lane(SWL_PAUSE("test kernel spins", 0, 0), end);
}

const swl_gpu_kernel add_kernel = {"add", nullptr, add_body, sizeof(add_args)};
const swl_gpu_kernel spin_kernel = {"spin", nullptr, spin_body, sizeof(spin_args)};

#define OK(call) ASSERT_EQ((call), cudaSuccess)

} // namespace

TEST(Stream, RunsItemsInOrder)
{
    on_host([](struct swl_rank *) {
        const int n = 4 * 64;
        uint32_t *words, back[n];
        cudaStream_t stream;
        OK(swl_gpu_malloc((void **)&words, sizeof(back)));
        OK(swl_gpu_stream_create(&stream));
        swl_gpu_grid grid = {4, 64, 0};
        OK(swl_gpu_fill(words, 0, sizeof(back), stream));
        for (uint32_t i = 1; i <= 5; i++) {
            add_args args = {words, i, n};
            OK(swl_gpu_launch(&add_kernel, &grid, &args, stream));
        }
        OK(swl_gpu_copy(back, words, sizeof(back), stream));
        OK(swl_gpu_stream_wait(stream, 1000000000));
        for (int i = 0; i < n; i++)
            ASSERT_EQ(back[i], 16u + 2 * 8 + 3 * 4 + 4 * 2 + 5) << i;
        OK(swl_gpu_stream_destroy(stream));
        OK(swl_gpu_free(words));
    });
}

TEST(Stream, WaitGivesUpAtItsTimeLimit)
{
    on_host([](struct swl_rank *) {
        cudaStream_t stream;
        swl_gpu_grid grid = {1, 32, 0};
        spin_args args = {50000000, nullptr};
        OK(swl_gpu_stream_create(&stream));
        OK(swl_gpu_launch(&spin_kernel, &grid, &args, stream));
        uint64_t before = swl_gpu_now_ns();
        EXPECT_EQ(swl_gpu_stream_wait(stream, 1000000), cudaErrorNotReady);
        EXPECT_LT(swl_gpu_now_ns() - before, 20000000u);
        OK(swl_gpu_stream_wait(stream, 1000000000));
        EXPECT_GE(swl_gpu_now_ns() - before, 50000000u);
        OK(swl_gpu_stream_destroy(stream));
    });
}

TEST(Stream, OfAnotherDeviceIsRefused)
{
    on_host([](struct swl_rank *) {
        cudaStream_t stream;
        swl_gpu_grid grid = {1, 32, 0};
        spin_args args = {0, nullptr};
        OK(swl_gpu_stream_create(&stream));
        OK(swl_gpu_use(3));
        EXPECT_EQ(swl_gpu_launch(&spin_kernel, &grid, &args, stream),
                  cudaErrorInvalidResourceHandle);
        OK(swl_gpu_use(0));
        OK(swl_gpu_launch(&spin_kernel, &grid, &args, stream));
        OK(swl_gpu_stream_wait(stream, UINT64_MAX));
        OK(swl_gpu_stream_destroy(stream));
    });
}

TEST(Stream, WaitsForEventsOfOthers)
{
    on_host([](struct swl_rank *) {
        uint32_t *word, back = 0;
        cudaStream_t first, second;
        cudaEvent_t event;
        swl_gpu_grid grid = {1, 32, 0};
        spin_args spin = {3000000, nullptr};
        OK(swl_gpu_malloc((void **)&word, 4));
        OK(swl_gpu_stream_create(&first));
        OK(swl_gpu_stream_create(&second));
        OK(swl_gpu_event_create(&event));
        OK(swl_gpu_stream_wait_event(second, event)); /* never recorded: no wait */
        OK(swl_gpu_launch(&spin_kernel, &grid, &spin, first));
        OK(swl_gpu_fill(word, 7, 4, first));
        OK(swl_gpu_event_record(event, first));
        bool done = true;
        OK(swl_gpu_event_done(event, &done));
        EXPECT_FALSE(done);
        OK(swl_gpu_stream_wait_event(second, event));
        OK(swl_gpu_copy(&back, word, 4, second)); /* pageable: returns when it is there */
        EXPECT_EQ(back, 0x07070707u);
        OK(swl_gpu_event_done(event, &done));
        EXPECT_TRUE(done);
        OK(swl_gpu_event_destroy(event));
        OK(swl_gpu_stream_destroy(second));
        OK(swl_gpu_stream_destroy(first));
        OK(swl_gpu_free(word));
    });
}

TEST(Stream, LegacyAndBlockingStreamsWaitForEachOther)
{
    on_host([](struct swl_rank *) {
        uint32_t *word, back = 0;
        cudaStream_t blocking;
        swl_gpu_grid grid = {1, 32, 0};
        spin_args spin = {3000000, nullptr};
        OK(cudaMalloc((void **)&word, 4));
        OK(cudaStreamCreate(&blocking));
        OK(swl_gpu_launch(&spin_kernel, &grid, &spin, blocking));
        OK(cudaMemsetAsync(word, 1, 4, blocking));
        OK(cudaMemcpy(&back, word, 4, cudaMemcpyDeviceToHost));
        EXPECT_EQ(back, 0x01010101u);
        OK(swl_gpu_launch(&spin_kernel, &grid, &spin, cudaStreamLegacy));
        OK(cudaMemsetAsync(word, 2, 4, nullptr));
        OK(cudaMemcpyAsync(&back, word, 4, cudaMemcpyDeviceToHost, blocking));
        OK(cudaStreamSynchronize(blocking));
        EXPECT_EQ(back, 0x02020202u);
        OK(cudaMemsetAsync(word, 3, 4, cudaStreamPerThread));
        OK(cudaMemcpy(&back, word, 4, cudaMemcpyDefault));
        EXPECT_EQ(back, 0x03030303u);
        OK(cudaStreamDestroy(blocking));
        OK(cudaFree(word));
    });
}

TEST(Stream, DestroyedWithWorkStillRunsIt)
{
    on_host([](struct swl_rank *) {
        uint32_t *word;
        cudaStream_t stream;
        swl_gpu_grid grid = {1, 32, 0};
        spin_args spin = {2000000, nullptr};
        OK(swl_gpu_host_malloc((void **)&word, 4));
        OK(swl_gpu_stream_create(&stream));
        OK(swl_gpu_launch(&spin_kernel, &grid, &spin, stream));
        OK(swl_gpu_fill(word, 9, 4, stream));
        OK(swl_gpu_stream_destroy(stream));
        OK(cudaDeviceSynchronize());
        EXPECT_EQ(*word, 0x09090909u);
        OK(swl_gpu_host_free(word));
    });
}

TEST(Stream, LegacyStreamsOfRanksOnOneDeviceAreApart)
{
    const int nodes[] = {2}, devices[] = {0, 0};
    struct swl_job job = {};

    job.nnodes = 1;
    job.node_ranks = nodes;
    job.device_of_rank = devices;
    EXPECT_EQ(swl_ranks_run(
                  &job,
                  [](struct swl_rank *r, void *) {
                      int *words;
                      if (swl_gpu_host_malloc((void **)&words, 64) != cudaSuccess)
                          return 1;
                      words[8] = r->rank;
                      if (r->rank == 1)
                          swl_gpu_sleep_ns(1000000);
                      if (ncclAllGather(words + 8, words, 1, ncclInt32, r->comm, nullptr))
                          return 2;
                      bool bad = cudaDeviceSynchronize() || words[0] != 0 || words[1] != 1 ||
                                 swl_gpu_host_free(words);
                      return bad ? 3 : 0;
                  },
                  nullptr),
              0);
}

TEST(Launch, WorksFromThreads)
{
    EXPECT_EQ(run_ranks({4}, SWL_PLACE_THREADS, 0,
                        [](struct swl_rank *r) {
                            uint32_t *words;
                            cudaStream_t stream;
                            swl_gpu_grid grid = {4, 64, 0};
                            OK(swl_gpu_stream_create(&stream));
                            OK(swl_gpu_host_malloc((void **)&words, 1024));
                            for (uint32_t i = 1; i <= 20; i++) {
                                add_args args = {words, (uint32_t)r->rank + i, 256};
                                OK(swl_gpu_fill(words, 0, 1024, stream));
                                OK(swl_gpu_launch(&add_kernel, &grid, &args, stream));
                                OK(swl_gpu_stream_wait(stream, UINT64_MAX));
                                for (int w = 0; w < 256; w++)
                                    ASSERT_EQ(words[w], (uint32_t)r->rank + i);
                            }
                            OK(swl_gpu_host_free(words));
                            OK(swl_gpu_stream_destroy(stream));
                        }),
              0);
}

TEST(Launch, RefusesImpossibleGrids)
{
    on_host([](struct swl_rank *) {
        spin_args args = {0, nullptr};
        struct swl_gpu_info info;
        swl_gpu_kernel empty = {"empty", nullptr, nullptr, 0};
        OK(swl_gpu_info(0, &info));
        auto with = [&args](int blocks, int threads, size_t shared) {
            swl_gpu_grid grid = {blocks, threads, shared};
            return swl_gpu_launch(&spin_kernel, &grid, &args, nullptr);
        };
        EXPECT_EQ(with(0, 32, 0), cudaErrorInvalidConfiguration);
        EXPECT_EQ(with(1, 33, 0), cudaErrorInvalidConfiguration);
        EXPECT_EQ(with(1, 2048, 0), cudaErrorInvalidConfiguration);
        EXPECT_EQ(with(1, 32, info.shared_bytes + 1), cudaErrorInvalidValue);
        EXPECT_EQ(with(info.nsms + 1, 32, info.shared_bytes), cudaErrorCooperativeLaunchTooLarge);
        EXPECT_EQ(swl_gpu_preload(&empty, 0), cudaErrorInvalidDeviceFunction);
        EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDeviceFunction);
        EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
        EXPECT_EQ(cudaGetLastError(), cudaSuccess);
        EXPECT_EQ(with(info.nsms, 32, info.shared_bytes), cudaSuccess);
        OK(cudaDeviceSynchronize());
    });
}

TEST(Launch, CopiesItsArguments)
{
    on_host([](struct swl_rank *) {
        uint32_t *words;
        swl_gpu_grid grid = {1, 32, 0};
        OK(swl_gpu_host_malloc((void **)&words, 128));
        add_args args = {words, 5, 32};
        OK(swl_gpu_launch(&add_kernel, &grid, &args, nullptr));
        args.add = 77;
        OK(cudaStreamSynchronize(nullptr));
        for (int i = 0; i < 32; i++)
            EXPECT_EQ(words[i], 5u);
        OK(swl_gpu_host_free(words));
    });
}

TEST(Event, MeasuresVirtualTime)
{
    on_host([](struct swl_rank *) {
        cudaEvent_t start, end;
        float ms = 0;
        swl_gpu_grid grid = {1, 32, 0};
        spin_args args = {5000000, nullptr};
        OK(cudaEventCreate(&start));
        OK(cudaEventCreate(&end));
        EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
        OK(cudaEventRecord(start, nullptr));
        OK(swl_gpu_launch(&spin_kernel, &grid, &args, nullptr));
        OK(cudaEventRecord(end, nullptr));
        EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
        OK(cudaEventSynchronize(end));
        OK(cudaEventElapsedTime(&ms, start, end));
        EXPECT_GE(ms, 5.0f);
        EXPECT_LT(ms, 8.0f);
        OK(cudaEventDestroy(start));
        OK(cudaEventDestroy(end));
    });
}

TEST(HostFunction, RunsInStreamOrder)
{
    on_host([](struct swl_rank *) {
        uint32_t *word;
        static uint32_t seen;
        swl_gpu_grid grid = {1, 32, 0};
        spin_args args = {1000000, nullptr};
        OK(swl_gpu_host_malloc((void **)&word, 4));
        OK(swl_gpu_launch(&spin_kernel, &grid, &args, nullptr));
        OK(swl_gpu_fill(word, 4, 4, nullptr));
        OK(cudaLaunchHostFunc(
            nullptr, [](void *p) { seen = *static_cast<uint32_t *>(p); }, word));
        OK(cudaStreamSynchronize(nullptr));
        EXPECT_EQ(seen, 0x04040404u);
        OK(swl_gpu_host_free(word));
    });
}

TEST(Mutex, ExcludesFibers)
{
    struct state {
        swl_gpu_mutex *mutex;
        int inside, entered;
    } s = {};

    ASSERT_EQ(swl_gpu_mutex_create(&s.mutex), cudaSuccess);
    EXPECT_EQ(run_ranks({4}, SWL_PLACE_FIBERS, 5,
                        [&s](struct swl_rank *) {
                            for (int i = 0; i < 20; i++) {
                                swl_gpu_mutex_lock(s.mutex);
                                EXPECT_EQ(s.inside++, 0);
                                swl_gpu_sleep_ns(1000);
                                s.inside--;
                                s.entered++;
                                swl_gpu_mutex_unlock(s.mutex);
                            }
                        }),
              0);
    EXPECT_EQ(s.entered, 80);
    swl_gpu_mutex_destroy(s.mutex);
}

TEST(Mutex, ExcludesThreads)
{
    struct state {
        swl_gpu_mutex *mutex;
        int inside, entered;
    } s = {};
    std::vector<std::thread> threads;

    ASSERT_EQ(swl_gpu_mutex_create(&s.mutex), cudaSuccess);
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&s] {
            for (int i = 0; i < 200; i++) {
                swl_gpu_mutex_lock(s.mutex);
                EXPECT_EQ(s.inside++, 0);
                s.inside--;
                s.entered++;
                swl_gpu_mutex_unlock(s.mutex);
            }
        });
    for (std::thread &t : threads)
        t.join();
    EXPECT_EQ(s.entered, 800);
    swl_gpu_mutex_destroy(s.mutex);
}

TEST(ThreadSlot, BelongsToTheFiber)
{
    EXPECT_EQ(run_ranks({3}, SWL_PLACE_FIBERS, 1,
                        [](struct swl_rank *rank) {
                            void **slot = swl_thread_slot();
                            EXPECT_EQ(*slot, nullptr);
                            *slot = calloc(1, 16); /* freed with the fiber */
                            *static_cast<int *>(*slot) = rank->rank;
                            swl_gpu_sleep_ns(5000);
                            EXPECT_EQ(slot, swl_thread_slot());
                            EXPECT_EQ(*static_cast<int *>(*swl_thread_slot()), rank->rank);
                        }),
              0);
}

TEST(ThreadSlot, BelongsToTheThread)
{
    void **mine = swl_thread_slot();
    std::thread([mine] {
        void **slot = swl_thread_slot();
        EXPECT_NE(slot, mine);
        EXPECT_EQ(*slot, nullptr);
        *slot = calloc(1, 16);
    }).join();
}

TEST(Sleep, TakesVirtualTimeOnly)
{
    on_host([](struct swl_rank *) {
        uint64_t before = swl_gpu_now_ns();
        swl_gpu_sleep_ns(3600ull * 1000000000);
        EXPECT_GE(swl_gpu_now_ns() - before, 3600ull * 1000000000);
    });
}
