// host_gpu.cc: the device runtime of a machine without a GPU, for tests of real NICs: all memory is
// the host's, registers are reached where this process has them.
#include "src/runtime/runtime.h"
#include "tests/support/thread_slot.h"

#include <cstdlib>
#include <cstring>
#include <ctime>

extern "C" {

cudaError_t swl_gpu_malloc(void **ptr_p, size_t bytes)
{
    *ptr_p = aligned_alloc(65536, (bytes + 65535) / 65536 * 65536);
    if (*ptr_p == nullptr)
        return cudaErrorMemoryAllocation;
    memset(*ptr_p, 0, bytes);
    return cudaSuccess;
}

cudaError_t swl_gpu_free(void *ptr)
{
    free(ptr);
    return cudaSuccess;
}

cudaError_t swl_gpu_host_malloc(void **ptr_p, size_t bytes)
{
    return swl_gpu_malloc(ptr_p, bytes);
}

cudaError_t swl_gpu_host_free(void *ptr)
{
    return swl_gpu_free(ptr);
}

cudaError_t swl_gpu_stream_create(cudaStream_t *stream_p)
{
    *stream_p = nullptr;
    return cudaSuccess;
}

cudaError_t swl_gpu_stream_destroy(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t swl_gpu_stream_wait(cudaStream_t, uint64_t)
{
    return cudaSuccess;
}

cudaError_t swl_gpu_copy(void *dst, const void *src, size_t bytes, cudaStream_t)
{
    memcpy(dst, src, bytes);
    return cudaSuccess;
}

cudaError_t swl_gpu_fill(void *dst, int byte, size_t bytes, cudaStream_t)
{
    memset(dst, byte, bytes);
    return cudaSuccess;
}

cudaError_t swl_gpu_where(const void *, enum swl_gpu_memory_kind *place_p, void **base_p,
                          size_t *bytes_p)
{
    *place_p = SWL_GPU_MEMORY_HOST;
    *base_p = nullptr;
    *bytes_p = 0;
    return cudaSuccess;
}

cudaError_t swl_gpu_dmabuf(const void *, size_t, int *)
{
    return cudaErrorNotSupported;
}

cudaError_t swl_gpu_registers_map(void *registers, size_t, void **device_p)
{
    *device_p = registers;
    return cudaSuccess;
}

cudaError_t swl_gpu_registers_unmap(void *)
{
    return cudaSuccess;
}

const char *swl_gpu_error_text(cudaError_t)
{
    return "there is no GPU here";
}

uint64_t swl_gpu_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

} // extern "C"
