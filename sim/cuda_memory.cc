/* cuda_memory.cc: devices, memory, copies and fills of the CUDA runtime subset.
 *
 * Copies and fills are stream items. As with CUDA, pageable host memory is read when the call is
 * made and written before it returns. */
#include "sim/machine.h"
#include "sim/simt_heap.h"

#include <string.h>

using namespace swl_sim;

namespace
{

struct copy_item : item {
    void *dst = nullptr;
    const void *src = nullptr;
    size_t bytes = 0;
    std::shared_ptr<std::vector<unsigned char>> staged; /* pageable source, as of the call */

    void run() override
    {
        const void *from = staged ? staged->data() : src;
        const uintptr_t mix = reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(from);

        /* an aligned word is read and written whole, behind the copies before it: kernels poll such
         * words while a NIC on a thread of the host adds to them */
        if (bytes == sizeof(uint64_t) && mix % sizeof(uint64_t) == 0)
            __atomic_store_n(static_cast<uint64_t *>(dst),
                             __atomic_load_n(static_cast<const uint64_t *>(from), __ATOMIC_ACQUIRE),
                             __ATOMIC_RELEASE);
        else if (bytes)
            memmove(dst, from, bytes);
    }
    std::unique_ptr<item> copy() const override
    {
        return std::make_unique<copy_item>(*this);
    }
};

struct fill_item : item {
    void *dst = nullptr;
    int byte = 0;
    size_t bytes = 0;

    void run() override
    {
        if (bytes)
            memset(dst, byte, bytes);
    }
    std::unique_ptr<item> copy() const override
    {
        return std::make_unique<fill_item>(*this);
    }
};

/* A range that starts in a block must end in it. */
bool range_ok(const void *ptr, size_t bytes, bool *pageable_p)
{
    simt_heap_block block;

    *pageable_p = !simt_heap_find(ptr, &block);
    return *pageable_p || (uintptr_t)ptr - block.base + bytes <= block.bytes;
}

cudaError_t unsafe_call()
{
    return self()->captures > 0 ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t copy_async(void *dst, const void *src, size_t bytes, const std::shared_ptr<stream> &on)
{
    bool dst_pageable, src_pageable;

    if (bytes == 0)
        return cudaSuccess;
    if (!dst || !src || !range_ok(dst, bytes, &dst_pageable) ||
        !range_ok(src, bytes, &src_pageable))
        return cudaErrorInvalidValue;
    auto work = std::make_unique<copy_item>();
    work->dst = dst;
    work->src = src;
    work->bytes = bytes;
    bool capturing = capture_of(on) != nullptr;
    if (src_pageable && !capturing) {
        const unsigned char *from = static_cast<const unsigned char *>(src);
        work->staged = std::make_shared<std::vector<unsigned char>>(from, from + bytes);
    }
    cudaError_t rc = push(on, std::move(work));
    if (rc == cudaSuccess && dst_pageable && !capturing)
        rc = stream_wait(on, UINT64_MAX);
    return rc;
}

cudaError_t fill_async(void *dst, int byte, size_t bytes, const std::shared_ptr<stream> &on)
{
    bool pageable;

    if (bytes == 0)
        return cudaSuccess;
    if (!dst || !range_ok(dst, bytes, &pageable) || pageable)
        return cudaErrorInvalidValue;
    auto work = std::make_unique<fill_item>();
    work->dst = dst;
    work->byte = byte;
    work->bytes = bytes;
    return push(on, std::move(work));
}

cudaError_t allocate(simt_heap_kind kind, void **ptr, size_t bytes)
{
    if (!ptr)
        return cudaErrorInvalidValue;
    if (unsafe_call() != cudaSuccess)
        return unsafe_call();
    void *made = nullptr;

    if (bytes)
        made = simt_heap_alloc(kind, current_device(), bytes);
    if (bytes && !made)
        return cudaErrorMemoryAllocation;
    *ptr = made;
    return cudaSuccess;
}

/* Like CUDA, waits for the device: queued work may still use the memory. */
cudaError_t release(simt_heap_kind kind, void *ptr)
{
    simt_heap_block block;

    if (!ptr)
        return cudaSuccess;
    if (unsafe_call() != cudaSuccess)
        return unsafe_call();
    if (!simt_heap_find(ptr, &block))
        return cudaErrorInvalidValue;
    device_wait(block.device);
    return simt_heap_free(kind, ptr) ? cudaSuccess : cudaErrorInvalidValue;
}

} // namespace

cudaError_t cudaDriverGetVersion(int *version)
{
    return cudaRuntimeGetVersion(version);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return note(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    if (!count)
        return note(cudaErrorInvalidValue);
    *count = max_devices;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    if (!device)
        return note(cudaErrorInvalidValue);
    *device = current_device();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (!device_ok(device))
        return note(cudaErrorInvalidDevice);
    simt_thread_self()->device = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    if (unsafe_call() != cudaSuccess)
        return note(unsafe_call());
    device_wait(current_device());
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    if (!value)
        return note(cudaErrorInvalidValue);
    if (!device_ok(device))
        return note(cudaErrorInvalidDevice);
    switch (attr) {
    case cudaDevAttrMultiProcessorCount:
        *value = simt_config_get().nsms;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = simt_config_get().shared_kib * 1024;
        return cudaSuccess;
    }
    return note(cudaErrorInvalidValue);
}

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    return note(allocate(SIMT_HEAP_DEVICE, ptr, bytes));
}

cudaError_t cudaFree(void *ptr)
{
    return note(release(SIMT_HEAP_DEVICE, ptr));
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
    return note(allocate(SIMT_HEAP_HOST, ptr, bytes));
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
    if (flags & ~(cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return note(cudaErrorInvalidValue);
    return cudaMallocHost(ptr, bytes);
}

cudaError_t cudaFreeHost(void *ptr)
{
    return note(release(SIMT_HEAP_HOST, ptr));
}

cudaError_t cudaHostGetDevicePointer(void **device_ptr, void *host_ptr, unsigned int flags)
{
    simt_heap_block block;

    if (!device_ptr || flags != 0 || !simt_heap_find(host_ptr, &block) ||
        block.kind != SIMT_HEAP_HOST)
        return note(cudaErrorInvalidValue);
    *device_ptr = host_ptr;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    simt_heap_block block;

    if (!attributes)
        return note(cudaErrorInvalidValue);
    if (!simt_heap_find(ptr, &block)) {
        *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, const_cast<void *>(ptr)};
        return cudaSuccess;
    }
    void *at = const_cast<void *>(ptr);
    if (block.kind == SIMT_HEAP_HOST)
        *attributes = {cudaMemoryTypeHost, block.device, at, at};
    else
        *attributes = {cudaMemoryTypeDevice, block.device, at, nullptr};
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    std::shared_ptr<stream> on = stream_of(nullptr);

    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return note(cudaErrorInvalidMemcpyDirection);
    cudaError_t rc = unsafe_call();
    if (rc == cudaSuccess)
        rc = copy_async(dst, src, bytes, on);
    if (rc == cudaSuccess)
        rc = stream_wait(on, UINT64_MAX);
    return note(rc);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t handle)
{
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return note(cudaErrorInvalidMemcpyDirection);
    return note(copy_async(dst, src, bytes, stream_of(handle)));
}

cudaError_t cudaMemset(void *ptr, int value, size_t bytes)
{
    std::shared_ptr<stream> on = stream_of(nullptr);
    cudaError_t rc = unsafe_call();

    if (rc == cudaSuccess)
        rc = fill_async(ptr, value, bytes, on);
    if (rc == cudaSuccess)
        rc = stream_wait(on, UINT64_MAX);
    return note(rc);
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t handle)
{
    return note(fill_async(ptr, value, bytes, stream_of(handle)));
}
