/* gpu_cuda_test.cc: src/runtime/cuda on a GPU: shared memory in one and between two processes,
 * bounded waits, where addresses live, capture. */
#include "tests/gpu/gpu_fixture.h"

#include <cstdio>
#include <cstdlib>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

namespace
{

const char *const CHILD_VARIABLE = "SWL_TEST_SHARE";
const size_t SHARED_BYTES = (size_t)5 << 20; /* not a multiple of the granule */

std::string hex(const swl_gpu_share &share)
{
    std::string text;
    char two[3];

    for (uint8_t byte : share.bytes) {
        snprintf(two, sizeof(two), "%02x", byte);
        text += two;
    }
    return text;
}

swl_gpu_share unhex(const char *text)
{
    swl_gpu_share share;

    for (size_t i = 0; i < sizeof(share.bytes); i++)
        share.bytes[i] =
            static_cast<uint8_t>(std::stoul(std::string(text + 2 * i, 2), nullptr, 16));
    return share;
}

/* Start this program again for one test, with the share in its environment. */
int run_child(const char *test, const swl_gpu_share &share)
{
    const std::string filter = std::string("--gtest_filter=") + test;
    char name[] = "/proc/self/exe";
    char *argv[] = {name, const_cast<char *>(filter.c_str()), nullptr};
    pid_t child;
    int status = -1;

    setenv(CHILD_VARIABLE, hex(share).c_str(), 1);
    if (posix_spawn(&child, name, nullptr, nullptr, argv, environ) == 0)
        waitpid(child, &status, 0);
    unsetenv(CHILD_VARIABLE);
    return status;
}

TEST_F(OnGpu, SharedMemoryIsZeroedAndHasOneAddressInAProcess)
{
    swl_gpu_share share;
    void *own = nullptr, *same = nullptr;

    ASSERT_EQ(swl_gpu_shared_malloc(&own, SHARED_BYTES, &share), cudaSuccess);
    const auto bytes = download(static_cast<uint8_t *>(own), SHARED_BYTES);
    for (uint8_t byte : bytes)
        ASSERT_EQ(byte, 0);
    ASSERT_EQ(swl_gpu_shared_map(&share, &same), cudaSuccess);
    EXPECT_EQ(own, same);
    /* the peer may still use it when the owner has let go */
    EXPECT_EQ(swl_gpu_shared_free(own), cudaSuccess);
    EXPECT_EQ(swl_gpu_fill(same, 7, SHARED_BYTES, stream), cudaSuccess);
    wait();
    EXPECT_EQ(swl_gpu_shared_unmap(same), cudaSuccess);
    EXPECT_EQ(swl_gpu_shared_map(&share, &same), cudaErrorInvalidValue);
    EXPECT_EQ(swl_gpu_shared_free(own), cudaErrorInvalidValue);
    EXPECT_EQ(swl_gpu_pending_error(), cudaSuccess);
}

TEST_F(OnGpu, SharedMemoryIsSeenByAnotherProcess)
{
    swl_gpu_share share;
    void *own = nullptr;
    std::vector<uint32_t> pattern(SHARED_BYTES / 4);

    if (getenv(CHILD_VARIABLE))
        GTEST_SKIP() << "this is the child";
    for (size_t i = 0; i < pattern.size(); i++)
        pattern[i] = static_cast<uint32_t>(i * 2654435761u);
    ASSERT_EQ(swl_gpu_shared_malloc(&own, SHARED_BYTES, &share), cudaSuccess);
    ASSERT_EQ(swl_gpu_copy(own, pattern.data(), SHARED_BYTES, stream), cudaSuccess);
    wait();
    EXPECT_EQ(run_child("OnGpu.ChildAddsOneToWhatItMaps", share), 0);
    const auto after = download(static_cast<uint32_t *>(own), pattern.size());
    for (size_t i = 0; i < pattern.size(); i++)
        ASSERT_EQ(after[i], pattern[i] + 1);
    EXPECT_EQ(swl_gpu_shared_free(own), cudaSuccess);
}

TEST_F(OnGpu, ChildAddsOneToWhatItMaps)
{
    const char *text = getenv(CHILD_VARIABLE);
    void *mapped = nullptr;

    if (!text)
        GTEST_SKIP() << "only as a child of the test above";
    const swl_gpu_share share = unhex(text);
    ASSERT_EQ(swl_gpu_shared_map(&share, &mapped), cudaSuccess);
    auto v = download(static_cast<uint32_t *>(mapped), SHARED_BYTES / 4);
    for (uint32_t &x : v)
        x++;
    ASSERT_EQ(swl_gpu_copy(mapped, v.data(), SHARED_BYTES, stream), cudaSuccess);
    wait();
    EXPECT_EQ(swl_gpu_shared_unmap(mapped), cudaSuccess);
}

TEST_F(OnGpu, PageIsOneMemoryForHostDeviceAndJoiners)
{
    swl_gpu_page own = {}, same = {}, none = {};
    swl_gpu_share share, empty = {};
    const uint64_t value = 0x0123456789abcdefull;

    EXPECT_EQ(swl_gpu_page_close(&none), cudaSuccess);
    EXPECT_EQ(swl_gpu_page_join(&none, &empty), cudaErrorNotSupported);
    ASSERT_EQ(swl_gpu_page_create(&own, 64, &share), cudaSuccess);
    ASSERT_EQ(swl_gpu_page_join(&same, &share), cudaSuccess);
    EXPECT_EQ(static_cast<uint64_t *>(same.ptr)[7], 0u);
    /* by the device, through the joiner's mapping */
    uint64_t *const device = zeroed<uint64_t>(1);
    ASSERT_EQ(swl_gpu_copy(device, &value, 8, stream), cudaSuccess);
    ASSERT_EQ(swl_gpu_copy(static_cast<uint64_t *>(same.ptr) + 7, device, 8, stream), cudaSuccess);
    wait();
    EXPECT_EQ(static_cast<uint64_t *>(own.ptr)[7], value);
    EXPECT_EQ(swl_gpu_page_close(&own), cudaSuccess);
    EXPECT_EQ(static_cast<uint64_t *>(same.ptr)[7], value);
    EXPECT_NE(swl_gpu_page_join(&none, &share), cudaSuccess);
    EXPECT_EQ(swl_gpu_page_close(&same), cudaSuccess);
    EXPECT_EQ(swl_gpu_pending_error(), cudaSuccess);
}

TEST_F(OnGpu, PageIsSeenByAnotherProcess)
{
    swl_gpu_page page = {};
    swl_gpu_share share;

    if (getenv(CHILD_VARIABLE))
        GTEST_SKIP() << "this is the child";
    ASSERT_EQ(swl_gpu_page_create(&page, 64, &share), cudaSuccess);
    EXPECT_EQ(run_child("OnGpu.ChildWritesThePage", share), 0);
    EXPECT_EQ(static_cast<uint64_t *>(page.ptr)[1], 77u);
    EXPECT_EQ(swl_gpu_page_close(&page), cudaSuccess);
}

TEST_F(OnGpu, ChildWritesThePage)
{
    const char *text = getenv(CHILD_VARIABLE);
    const uint64_t value = 77;
    swl_gpu_page page = {};

    if (!text)
        GTEST_SKIP() << "only as a child of the test above";
    const swl_gpu_share share = unhex(text);
    ASSERT_EQ(swl_gpu_page_join(&page, &share), cudaSuccess);
    uint64_t *const device = zeroed<uint64_t>(1);
    ASSERT_EQ(swl_gpu_copy(device, &value, 8, stream), cudaSuccess);
    ASSERT_EQ(swl_gpu_copy(static_cast<uint64_t *>(page.ptr) + 1, device, 8, stream), cudaSuccess);
    wait();
    EXPECT_EQ(swl_gpu_page_close(&page), cudaSuccess);
}

TEST_F(OnGpu, AddressesAreFoundWhereTheyLive)
{
    enum swl_gpu_memory_kind place;
    void *base, *pinned = nullptr;
    size_t bytes;
    int local = 0;
    char *device = zeroed<char>(10000);

    ASSERT_EQ(swl_gpu_where(device + 100, &place, &base, &bytes), cudaSuccess);
    EXPECT_EQ(place, SWL_GPU_MEMORY_DEVICE);
    EXPECT_LE(base, device);
    EXPECT_GE(static_cast<char *>(base) + bytes, device + 10000);
    ASSERT_EQ(swl_gpu_host_malloc(&pinned, 64), cudaSuccess);
    ASSERT_EQ(swl_gpu_where(pinned, &place, &base, &bytes), cudaSuccess);
    EXPECT_EQ(place, SWL_GPU_MEMORY_HOST);
    EXPECT_EQ(swl_gpu_host_free(pinned), cudaSuccess);
    ASSERT_EQ(swl_gpu_where(&local, &place, &base, &bytes), cudaSuccess);
    EXPECT_NE(place, SWL_GPU_MEMORY_DEVICE);
    EXPECT_EQ(swl_gpu_pending_error(), cudaSuccess);
}

TEST_F(OnGpu, MemoryIsNamedToANicByADmabuf)
{
    const size_t page = 65536;
    struct swl_gpu_share share;
    void *memory[2] = {zeroed<char>(4 * page), nullptr};

    ASSERT_EQ(swl_gpu_shared_malloc(&memory[1], 4 * page, &share), cudaSuccess);
    wait();
    for (void *ptr : memory) {
        const uintptr_t start = (reinterpret_cast<uintptr_t>(ptr) + page - 1) / page * page;
        int fd = -1;
        const cudaError_t error = swl_gpu_dmabuf(reinterpret_cast<void *>(start), 2 * page, &fd);

        if (error == cudaErrorNotSupported) {
            EXPECT_EQ(swl_gpu_shared_free(memory[1]), cudaSuccess);
            GTEST_SKIP() << "this driver exports no dmabufs";
        }
        ASSERT_EQ(error, cudaSuccess) << swl_gpu_error_text(error);
        EXPECT_EQ(lseek(fd, 0, SEEK_END), static_cast<off_t>(2 * page));
        EXPECT_EQ(close(fd), 0);
        fd = -7;
        EXPECT_NE(swl_gpu_dmabuf(reinterpret_cast<void *>(start + 1), page, &fd), cudaSuccess);
        EXPECT_EQ(fd, -7);
    }
    EXPECT_EQ(swl_gpu_pending_error(), cudaSuccess);
    EXPECT_EQ(swl_gpu_shared_free(memory[1]), cudaSuccess);
}

/* Ordinary memory is no register: whatever the driver answers, it leaves nothing behind. */
TEST_F(OnGpu, RefusedRegistersLeaveNoError)
{
    void *memory = aligned_alloc(4096, 4096), *device = nullptr;
    const cudaError_t error = swl_gpu_registers_map(memory, 8, &device);

    printf("registers in ordinary memory: %s\n", swl_gpu_error_text(error));
    if (error == cudaSuccess) {
        EXPECT_NE(device, nullptr);
        EXPECT_EQ(swl_gpu_registers_unmap(memory), cudaSuccess);
    }
    EXPECT_NE(swl_gpu_registers_unmap(memory), cudaSuccess);
    EXPECT_EQ(swl_gpu_pending_error(), cudaSuccess);
    free(memory);
}

TEST_F(OnGpu, DeviceAndEventsAnswer)
{
    struct swl_gpu_info info;
    cudaEvent_t event;
    cudaStream_t other;
    bool done = false, capturing = true;
    cudaGraph_t graph;

    ASSERT_EQ(swl_gpu_info(0, &info), cudaSuccess);
    EXPECT_GE(info.cc_major, 9);
    EXPECT_GE(info.nsms, 1);
    EXPECT_GE(info.shared_bytes, 99u << 10);
    ASSERT_EQ(swl_gpu_stream_create(&other), cudaSuccess);
    ASSERT_EQ(swl_gpu_event_create(&event), cudaSuccess);
    ASSERT_EQ(swl_gpu_event_record(event, stream), cudaSuccess);
    ASSERT_EQ(swl_gpu_stream_wait_event(other, event), cudaSuccess);
    EXPECT_EQ(swl_gpu_stream_wait(other, SECOND_NS), cudaSuccess);
    ASSERT_EQ(swl_gpu_event_done(event, &done), cudaSuccess);
    EXPECT_TRUE(done);
    ASSERT_EQ(swl_gpu_stream_capturing(stream, &capturing), cudaSuccess);
    EXPECT_FALSE(capturing);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_EQ(swl_gpu_stream_capturing(stream, &capturing), cudaSuccess);
    EXPECT_TRUE(capturing);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(swl_gpu_event_destroy(event), cudaSuccess);
    EXPECT_EQ(swl_gpu_stream_destroy(other), cudaSuccess);
}

/* ---- these need no GPU ---- */

TEST(Threads, EachHasItsOwnSlotAndGivesItBack)
{
    void **mine = swl_thread_slot(), **theirs = nullptr;

    ASSERT_EQ(*mine, nullptr);
    *mine = malloc(8);
    std::thread other([&] {
        theirs = swl_thread_slot();
        EXPECT_EQ(*theirs, nullptr);
        *theirs = malloc(8); /* a leak checker sees whether it is released */
    });
    other.join();
    EXPECT_NE(mine, theirs);
    EXPECT_EQ(swl_thread_slot(), mine);
    free(*mine);
    *mine = nullptr;
}

TEST(Threads, SleepTakesAtLeastItsTime)
{
    const uint64_t start = swl_gpu_now_ns();

    swl_gpu_sleep_ns(3000000);
    EXPECT_GE(swl_gpu_now_ns() - start, 3000000u);
}

TEST(Threads, MutexExcludes)
{
    swl_gpu_mutex *mutex = nullptr;
    int n = 0;

    ASSERT_EQ(swl_gpu_mutex_create(&mutex), cudaSuccess);
    auto work = [&] {
        for (int i = 0; i < 20000; i++) {
            swl_gpu_mutex_lock(mutex);
            n++;
            swl_gpu_mutex_unlock(mutex);
        }
    };
    std::thread other(work);
    work();
    other.join();
    EXPECT_EQ(n, 40000);
    swl_gpu_mutex_destroy(mutex);
}

TEST(Devices, CountIsZeroWithoutADriver)
{
    int n = -1;

    EXPECT_EQ(swl_gpu_count(&n), cudaSuccess);
    EXPECT_GE(n, 0);
}

} // namespace
