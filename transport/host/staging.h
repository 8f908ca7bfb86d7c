/* staging.h: how a thread of the host touches memory of the host and of devices: the CPU where it
 * reaches, else copies on a stream, small ones through pinned memory. C++ only.
 *
 * Layer: transport/host, for thread.cc and dma_cuda.cc.
 * Order: every copy is waited for, so that what an add publishes has landed before it. A word of a
 * device is added to by two copies: one thread at a time, and nobody else writes such words. */
#pragma once

#include "src/base/log.h"
#include "src/runtime/runtime.h"
#include "transport/host/words.h"

#include <string.h>

/* A thread of the process is between the two copies of an add. */
inline uint32_t swl_soft_adding;

namespace
{

const uint64_t staging_bytes = 4096;

struct helper {
    cudaStream_t stream;
    uint8_t *staging; /* pinned, [staging_bytes] */
    uint64_t timeout_ns;
    uint32_t rank;
    /* a copy failed: nothing more is placed, and what waits for it runs into its limit */
    bool broken;
};

bool on_device(const void *p)
{
    enum swl_gpu_memory_kind place;
    size_t bytes;
    void *base;

    return swl_gpu_where(p, &place, &base, &bytes) == cudaSuccess && place == SWL_GPU_MEMORY_DEVICE;
}

bool on_host(const void *p)
{
    enum swl_gpu_memory_kind place;
    size_t bytes;
    void *base;

    return swl_gpu_where(p, &place, &base, &bytes) == cudaSuccess && place == SWL_GPU_MEMORY_HOST;
}

/* core.cuh's way to memory. */
struct thread_memory : thread_words {
    struct helper *h;

    bool move(void *to, const void *from, uint64_t bytes) const
    {
        cudaError_t error = swl_gpu_copy(to, from, bytes, h->stream);

        if (error == cudaSuccess)
            error = swl_gpu_stream_wait(h->stream, h->timeout_ns);
        if (error == cudaSuccess)
            return true;
        h->broken = true;
        swl_log(SWL_LEVEL_WARN,
                "rank %u nic: a copy of %llu bytes failed: %s; it carries nothing more", h->rank,
                static_cast<unsigned long long>(bytes), swl_gpu_error_text(error));
        return false;
    }
    void copy(void *to, const void *from, uint64_t bytes) const
    {
        const bool to_device = on_device(to), from_device = on_device(from);
        uint64_t value;

        if (h->broken && (to_device || from_device))
            return;
        if (to_device && !from_device && bytes <= staging_bytes && !on_host(from)) {
            memcpy(h->staging, from, bytes); /* carried in the entry: pageable memory */
            move(to, h->staging, bytes);
        } else if (!to_device && from_device && bytes <= staging_bytes && !on_host(to)) {
            if (move(h->staging, from, bytes))
                memcpy(to, h->staging, bytes);
        } else if (to_device || from_device) {
            move(to, from, bytes);
        } else if (bytes == sizeof(value) && reinterpret_cast<uintptr_t>(to) % sizeof(value) == 0) {
            /* an aligned word lands whole, as in hardware: the poison words of kernels are
             * WRITEs */
            memcpy(&value, from, sizeof(value));
            __atomic_store_n(static_cast<uint64_t *>(to), value, __ATOMIC_RELEASE);
        } else {
            memcpy(to, from, bytes);
        }
    }
    uint64_t add(uint64_t *p, uint64_t v) const
    {
        uint64_t old = 0, sum;
        uint32_t none = 0;

        if (!on_device(p)) /* pairs with read_from_nic */
            return __atomic_fetch_add(p, v, __ATOMIC_RELEASE);
        if (h->broken)
            return 0;
        while (!__atomic_compare_exchange_n(&swl_soft_adding, &none, 1, false, __ATOMIC_ACQUIRE,
                                            __ATOMIC_RELAXED)) {
            none = 0;
            swl_gpu_sleep_ns(1000);
        }
        if (move(h->staging, p, sizeof(old))) {
            memcpy(&old, h->staging, sizeof(old));
            sum = old + v;
            memcpy(h->staging, &sum, sizeof(sum));
            move(p, h->staging, sizeof(sum));
        }
        __atomic_store_n(&swl_soft_adding, 0, __ATOMIC_RELEASE);
        return old;
    }
};

/* False: no stream or memory; close all the same. */
inline bool helper_open(struct helper *h, int device)
{
    void *staging = nullptr;
    bool ok = swl_gpu_use(device) == cudaSuccess &&
              swl_gpu_stream_create(&h->stream) == cudaSuccess &&
              swl_gpu_host_malloc(&staging, staging_bytes) == cudaSuccess;

    h->staging = static_cast<uint8_t *>(staging);
    return ok;
}

inline void helper_close(struct helper *h)
{
    if (h->stream)
        (void)swl_gpu_stream_destroy(h->stream);
    (void)swl_gpu_host_free(h->staging);
}

} // namespace
