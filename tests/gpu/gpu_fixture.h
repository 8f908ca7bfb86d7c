/* gpu_fixture.h: what tests on a GPU share: skip without one, run a kernel to its end, read
 * back. */
#ifndef SWL_TESTS_GPU_FIXTURE_H
#define SWL_TESTS_GPU_FIXTURE_H

#include "src/runtime/runtime.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#define SECOND_NS 1000000000ull

class OnGpu : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        int n = 0;

        ASSERT_EQ(swl_gpu_count(&n), cudaSuccess);
        if (n == 0)
            GTEST_SKIP() << "no GPU on this machine";
        ASSERT_EQ(swl_gpu_use(0), cudaSuccess);
        ASSERT_EQ(swl_gpu_stream_create(&stream), cudaSuccess);
    }

    void TearDown() override
    {
        for (void *p : device_memory)
            EXPECT_EQ(swl_gpu_free(p), cudaSuccess);
        if (stream) {
            EXPECT_EQ(swl_gpu_stream_destroy(stream), cudaSuccess);
        }
    }

    /* n zeroed elements of device memory, freed at the end of the test */
    template <typename T> T *zeroed(size_t n)
    {
        void *p = nullptr;

        EXPECT_EQ(swl_gpu_malloc(&p, n * sizeof(T)), cudaSuccess);
        device_memory.push_back(p);
        EXPECT_EQ(swl_gpu_fill(p, 0, n * sizeof(T), stream), cudaSuccess);
        return static_cast<T *>(p);
    }

    template <typename T> T *upload(const std::vector<T> &v)
    {
        T *p = zeroed<T>(v.size());

        EXPECT_EQ(swl_gpu_copy(p, v.data(), v.size() * sizeof(T), stream), cudaSuccess);
        wait();
        return p;
    }

    template <typename T> std::vector<T> download(const T *p, size_t n)
    {
        std::vector<T> v(n);

        EXPECT_EQ(swl_gpu_copy(v.data(), p, n * sizeof(T), stream), cudaSuccess);
        wait();
        return v;
    }

    void wait()
    {
        ASSERT_EQ(swl_gpu_stream_wait(stream, 20 * SECOND_NS), cudaSuccess);
    }

    template <typename Args>
    void start(void (*entry)(Args), const Args &args, int blocks, int threads, size_t shared)
    {
        const struct swl_gpu_kernel kernel = {"test", reinterpret_cast<void (*)()>(entry), nullptr,
                                              sizeof(Args)};
        const struct swl_gpu_grid grid = {blocks, threads, shared};

        ASSERT_EQ(swl_gpu_preload(&kernel, shared), cudaSuccess);
        ASSERT_EQ(swl_gpu_launch(&kernel, &grid, &args, stream), cudaSuccess);
    }

    template <typename Args>
    void run(void (*entry)(Args), const Args &args, int blocks, int threads, size_t shared = 0)
    {
        start(entry, args, blocks, threads, shared);
        wait();
    }

    cudaStream_t stream = nullptr;
    std::vector<void *> device_memory;
};

#endif
