// fake_mlx5_gpu.cc: the device runtime under the fake of fake_mlx5.h. Its memory is the host's, its
// dmabufs are descriptors of /dev/null that are known by their numbers.
#include "tests/support/fake_mlx5.h"
#include "tests/support/thread_slot.h"

#include "src/runtime/runtime.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <unistd.h>

namespace
{

std::map<int, void *> dmabufs;
std::map<void *, size_t> gpu_blocks;
std::map<void *, void *> mapped; // registers -> object of fake.alive

cudaError_t take(const char *call, const char *kind, void **ptr_p, size_t bytes)
{
    if (fake.fails(call))
        return cudaErrorMemoryAllocation;
    *ptr_p = malloc(bytes);
    memset(*ptr_p, strcmp(kind, "gpu") == 0 ? 0xa5 : 0, bytes); // the GPU's is as it was left
    fake.alive[*ptr_p] = kind;
    return cudaSuccess;
}

cudaError_t give(const char *call, const char *kind, void *ptr)
{
    auto at = fake.alive.find(ptr);

    if (at == fake.alive.end() || at->second != kind) {
        ADD_FAILURE() << call << " of something that is no " << kind;
        return cudaErrorInvalidValue;
    }
    fake.alive.erase(at);
    free(ptr);
    return fake.fails(call) ? cudaErrorUnknown : cudaSuccess;
}

} // namespace

void *fake_dmabuf_memory(int fd)
{
    return fcntl(fd, F_GETFD) >= 0 && dmabufs.count(fd) ? dmabufs[fd] : nullptr;
}

extern "C" {

cudaError_t swl_gpu_malloc(void **ptr_p, size_t bytes)
{
    const cudaError_t error = take("swl_gpu_malloc", "gpu", ptr_p, bytes);

    if (error == cudaSuccess)
        gpu_blocks[*ptr_p] = bytes;
    return error;
}

cudaError_t swl_gpu_free(void *ptr)
{
    gpu_blocks.erase(ptr);
    return give("swl_gpu_free", "gpu", ptr);
}

cudaError_t swl_gpu_host_malloc(void **ptr_p, size_t bytes)
{
    return take("swl_gpu_host_malloc", "host", ptr_p, bytes);
}

cudaError_t swl_gpu_host_free(void *ptr)
{
    return give("swl_gpu_host_free", "host", ptr);
}

cudaError_t swl_gpu_stream_create(cudaStream_t *stream_p)
{
    void *stream = nullptr;
    const cudaError_t error = take("swl_gpu_stream_create", "stream", &stream, 8);

    *stream_p = static_cast<cudaStream_t>(stream);
    return error;
}

cudaError_t swl_gpu_stream_destroy(cudaStream_t stream)
{
    return give("swl_gpu_stream_destroy", "stream", stream);
}

cudaError_t swl_gpu_stream_wait(cudaStream_t stream, uint64_t timeout_ns)
{
    EXPECT_EQ(fake.alive.count(stream), 1u);
    EXPECT_GT(timeout_ns, 0u);
    return fake.fails("swl_gpu_stream_wait") ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t swl_gpu_copy(void *dst, const void *src, size_t bytes, cudaStream_t stream)
{
    EXPECT_EQ(fake.alive.count(stream), 1u);
    if (fake.fails("swl_gpu_copy"))
        return cudaErrorUnknown;
    memcpy(dst, src, bytes);
    return cudaSuccess;
}

cudaError_t swl_gpu_fill(void *dst, int byte, size_t bytes, cudaStream_t stream)
{
    EXPECT_EQ(fake.alive.count(stream), 1u);
    if (fake.fails("swl_gpu_fill"))
        return cudaErrorUnknown;
    memset(dst, byte, bytes);
    return cudaSuccess;
}

cudaError_t swl_gpu_where(const void *ptr, enum swl_gpu_memory_kind *place_p, void **base_p,
                          size_t *bytes_p)
{
    *place_p = SWL_GPU_MEMORY_UNKNOWN;
    *base_p = nullptr;
    *bytes_p = 0;
    for (const auto &block : gpu_blocks)
        if (block.first <= ptr && ptr < static_cast<char *>(block.first) + block.second)
            *place_p = SWL_GPU_MEMORY_DEVICE;
    return cudaSuccess;
}

cudaError_t swl_gpu_dmabuf(const void *ptr, size_t bytes, int *fd_p)
{
    EXPECT_EQ(reinterpret_cast<uintptr_t>(ptr) % 4096, 0u);
    EXPECT_EQ(bytes % 4096, 0u);
    if (fake.fails("swl_gpu_dmabuf") || !fake.gpu_dmabuf)
        return cudaErrorNotSupported;
    *fd_p = open("/dev/null", O_RDWR | O_CLOEXEC);
    dmabufs[*fd_p] = const_cast<void *>(ptr);
    return cudaSuccess;
}

cudaError_t swl_gpu_registers_map(void *registers, size_t bytes, void **device_p)
{
    EXPECT_EQ(fake.alive[registers], "uar");
    fake.pinned_bytes = static_cast<int>(bytes);
    if (fake.map_error != cudaSuccess)
        return fake.map_error;
    const cudaError_t error =
        take("swl_gpu_registers_map", "mapping", device_p, bytes < 64 ? 64 : bytes);
    if (error == cudaSuccess)
        mapped[registers] = *device_p;
    return error;
}

cudaError_t swl_gpu_registers_unmap(void *registers)
{
    void *object = mapped[registers];

    mapped.erase(registers);
    EXPECT_EQ(fake.alive[registers], "uar"); // the registers must still be there
    return give("swl_gpu_registers_unmap", "mapping", object);
}

const char *swl_gpu_error_text(cudaError_t)
{
    return "a fake error";
}

uint64_t swl_gpu_now_ns(void)
{
    static uint64_t now = 12345;

    return now += 1000003;
}

} // extern "C"
