/* Memory of the emulated machine: contents, places, shares. */
#include "tests/support/runtime_run.h"

#include "sim/simt_heap.h"
#include "src/runtime/runtime.h"

#include <cuda_runtime.h>

#include <string.h>
#include <sys/resource.h>

#define OK(call) ASSERT_EQ((call), cudaSuccess)

TEST(Memory, IsPoisonedOrZeroed)
{
    on_host([](struct swl_rank *) {
        unsigned char *device, *host, *shared;
        struct swl_gpu_share share;
        OK(swl_gpu_malloc((void **)&device, 1000));
        OK(swl_gpu_host_malloc((void **)&host, 1000));
        OK(swl_gpu_shared_malloc((void **)&shared, 3 << 20, &share));
        EXPECT_EQ((uintptr_t)device % 256, 0u);
        EXPECT_EQ((uintptr_t)shared % (2 << 20), 0u);
        for (int i = 0; i < 1000; i++) {
            ASSERT_EQ(device[i], 0xA5);
            ASSERT_EQ(host[i], 0);
        }
        for (int i = 0; i < 3 << 20; i += 511)
            ASSERT_EQ(shared[i], 0);
        OK(swl_gpu_free(device));
        OK(swl_gpu_host_free(host));
        OK(swl_gpu_shared_free(shared));
        EXPECT_EQ(simt_heap_bytes(0), 0u);
    });
}

TEST(Memory, TellsWhereAnAddressLives)
{
    on_host([](struct swl_rank *) {
        char *device, *host, local;
        enum swl_gpu_memory_kind place;
        void *base;
        size_t bytes;
        struct cudaPointerAttributes about;
        OK(swl_gpu_malloc((void **)&device, 1000));
        OK(swl_gpu_host_malloc((void **)&host, 64));
        OK(swl_gpu_where(device + 999, &place, &base, &bytes));
        EXPECT_EQ(place, SWL_GPU_MEMORY_DEVICE);
        EXPECT_EQ(base, device);
        EXPECT_EQ(bytes, 1000u);
        OK(swl_gpu_where(host, &place, &base, &bytes));
        EXPECT_EQ(place, SWL_GPU_MEMORY_HOST);
        OK(swl_gpu_where(&local, &place, &base, &bytes));
        EXPECT_EQ(place, SWL_GPU_MEMORY_UNKNOWN);
        OK(cudaPointerGetAttributes(&about, device + 1));
        EXPECT_EQ(about.type, cudaMemoryTypeDevice);
        EXPECT_EQ(about.device, 0);
        EXPECT_EQ(about.devicePointer, device + 1);
        OK(cudaPointerGetAttributes(&about, &local));
        EXPECT_EQ(about.type, cudaMemoryTypeUnregistered);
        EXPECT_EQ(swl_gpu_free(device + 8), cudaErrorInvalidValue);
        EXPECT_EQ(swl_gpu_host_free(device), cudaErrorInvalidValue);
        OK(swl_gpu_free(device));
        EXPECT_EQ(swl_gpu_free(device), cudaErrorInvalidValue);
        OK(swl_gpu_host_free(host));
        OK(swl_gpu_free(nullptr));
    });
}

TEST(Memory, CopiesBeyondAnAllocationAreRefused)
{
    on_host([](struct swl_rank *) {
        char *device, local[64] = {};
        OK(swl_gpu_malloc((void **)&device, 32));
        EXPECT_EQ(swl_gpu_copy(device, local, 33, nullptr), cudaErrorInvalidValue);
        EXPECT_EQ(swl_gpu_copy(local, device + 1, 32, nullptr), cudaErrorInvalidValue);
        EXPECT_EQ(swl_gpu_fill(device, 0, 33, nullptr), cudaErrorInvalidValue);
        OK(swl_gpu_copy(device, local, 32, nullptr));
        EXPECT_EQ(cudaMemcpy(device, local, 1, (enum cudaMemcpyKind)9),
                  cudaErrorInvalidMemcpyDirection);
        OK(swl_gpu_free(device));
    });
}

TEST(Memory, PageableSourcesAreReadAtTheCall)
{
    on_host([](struct swl_rank *) {
        char *device, local[16], back[16];
        cudaStream_t stream;
        OK(swl_gpu_stream_create(&stream));
        OK(swl_gpu_malloc((void **)&device, 16));
        memset(local, 1, sizeof(local));
        OK(swl_gpu_copy(device, local, 16, stream));
        memset(local, 2, sizeof(local));
        OK(swl_gpu_copy(back, device, 16, stream));
        EXPECT_EQ(back[15], 1);
        OK(swl_gpu_free(device));
        OK(swl_gpu_stream_destroy(stream));
    });
}

TEST(Share, MapsToTheSameMemory)
{
    struct swl_gpu_share share;
    void *owner = nullptr;

    EXPECT_EQ(run_ranks({2}, SWL_PLACE_FIBERS, 3,
                        [&](struct swl_rank *rank) {
                            if (rank->rank == 0) {
                                void *made;
                                OK(swl_gpu_shared_malloc(&made, 4096, &share));
                                memset(made, 3, 4096);
                                __atomic_store_n(&owner, made, __ATOMIC_RELEASE);
                                return;
                            }
                            char *mapped;
                            while (!__atomic_load_n(&owner, __ATOMIC_ACQUIRE))
                                swl_gpu_sleep_ns(1000);
                            OK(swl_gpu_shared_map(&share, (void **)&mapped));
                            OK(swl_gpu_shared_free(owner)); /* a mapping keeps the memory */
                            EXPECT_EQ(mapped[4095], 3);
                            void *other;
                            EXPECT_EQ(swl_gpu_shared_map(&share, &other), cudaErrorInvalidValue);
                            OK(swl_gpu_shared_unmap(mapped));
                            EXPECT_EQ(swl_gpu_shared_unmap(mapped), cudaErrorInvalidValue);
                        }),
              0);
    EXPECT_EQ(simt_heap_bytes(0), 0u);
}

TEST(Share, OfAnotherProcessIsRefused)
{
    on_host([](struct swl_rank *) {
        void *made, *mapped;
        struct swl_gpu_share share;
        OK(swl_gpu_shared_malloc(&made, 64, &share));
        share.bytes[8] ^= 1;
        EXPECT_EQ(swl_gpu_shared_map(&share, &mapped), cudaErrorNotSupported);
        share.bytes[0] ^= 1;
        EXPECT_EQ(swl_gpu_shared_map(&share, &mapped), cudaErrorInvalidValue);
        OK(swl_gpu_shared_free(made));
    });
}

/* A piece that other processes map is a file: without a descriptor for it there is memory enough
 * all the same. */
TEST(Share, F95_WantOfDescriptorsIsNoWantOfMemory)
{
    struct rlimit before, none;
    struct swl_gpu_share share;
    void *made;

    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const cudaError_t error = swl_gpu_shared_malloc(&made, 4096, &share);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(error, cudaErrorOperatingSystem);
    OK(swl_gpu_shared_malloc(&made, 4096, &share));
    OK(swl_gpu_shared_free(made));
}

TEST(Page, IsTheSameHostMemoryUntilTheLastOneHasClosedIt)
{
    struct swl_gpu_share share;
    bool made = false;

    EXPECT_EQ(run_ranks({2}, SWL_PLACE_FIBERS, 3,
                        [&](struct swl_rank *rank) {
                            struct swl_gpu_page page = {};
                            OK(swl_gpu_page_close(&page)); /* not open */
                            if (rank->rank == 0) {
                                OK(swl_gpu_page_create(&page, 64, &share));
                                EXPECT_EQ(((char *)page.ptr)[63], 0);
                                ((char *)page.ptr)[63] = 3;
                                __atomic_store_n(&made, true, __ATOMIC_RELEASE);
                                while (__atomic_load_n(&made, __ATOMIC_ACQUIRE))
                                    swl_gpu_sleep_ns(1000);
                                OK(swl_gpu_page_close(&page));
                                EXPECT_EQ(page.ptr, nullptr);
                                __atomic_store_n(&made, true, __ATOMIC_RELEASE);
                                return;
                            }
                            while (!__atomic_load_n(&made, __ATOMIC_ACQUIRE))
                                swl_gpu_sleep_ns(1000);
                            OK(swl_gpu_page_join(&page, &share));
                            __atomic_store_n(&made, false, __ATOMIC_RELEASE);
                            while (!__atomic_load_n(&made, __ATOMIC_ACQUIRE))
                                swl_gpu_sleep_ns(1000);
                            EXPECT_EQ(((char *)page.ptr)[63], 3);
                            struct swl_gpu_page late = {};
                            EXPECT_EQ(swl_gpu_page_join(&late, &share), cudaErrorInvalidValue);
                            OK(swl_gpu_page_close(&page));
                        }),
              0);
}

TEST(Page, OfAnotherProcessIsRefused)
{
    on_host([](struct swl_rank *) {
        struct swl_gpu_page page = {}, other = {};
        struct swl_gpu_share share, none = {};
        OK(swl_gpu_page_create(&page, 8, &share));
        share.bytes[8] ^= 1;
        EXPECT_EQ(swl_gpu_page_join(&other, &share), cudaErrorNotSupported);
        EXPECT_EQ(swl_gpu_page_join(&other, &none), cudaErrorInvalidValue);
        OK(swl_gpu_page_close(&page));
    });
}

TEST(Device, IsPerFiber)
{
    EXPECT_EQ(run_ranks({3}, SWL_PLACE_FIBERS, 2,
                        [](struct swl_rank *rank) {
                            int device = -1;
                            OK(swl_gpu_current(&device));
                            EXPECT_EQ(device, rank->rank);
                            OK(swl_gpu_use(10 + rank->rank));
                            swl_gpu_sleep_ns(10000);
                            OK(swl_gpu_current(&device));
                            EXPECT_EQ(device, 10 + rank->rank);
                            EXPECT_EQ(swl_gpu_use(100000), cudaErrorInvalidDevice);
                            EXPECT_EQ(swl_gpu_thread_node(), 0);
                        }),
              0);
}
