/* device_memory.c: plain device memory of a group. Layer: src/group; the callers own what they get.
 * */
#include "src/group/device_memory.h"

#include "src/base/error.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"

#include <inttypes.h>

ncclResult_t swl_device_malloc(struct swl_device_memory *memory, void **ptr_p, uint64_t bytes)
{
    const ncclEpAllocConfig_t *alloc = &memory->alloc;
    void *ptr = NULL;
    cudaError_t error = alloc->alloc_fn ? alloc->alloc_fn(&ptr, bytes, alloc->context)
                                        : swl_gpu_malloc(&ptr, bytes);

    if (error == cudaSuccess && (!ptr || (uintptr_t)ptr % 256 != 0)) {
        if (ptr && alloc->free_fn)
            (void)alloc->free_fn(ptr, alloc->context);
        return swl_fail(ncclUnhandledCudaError,
                        "alloc_fn gave %p for %" PRIu64 " bytes, not an address aligned to 256",
                        ptr, bytes);
    }
    if (error != cudaSuccess)
        return swl_fail(swl_cuda_code(error), "%s cannot allocate %" PRIu64 " bytes: %s",
                        alloc->alloc_fn ? "alloc_fn" : "the device", bytes,
                        swl_gpu_error_text(error));
    memory->held_bytes += bytes;
    *ptr_p = ptr;
    return ncclSuccess;
}

ncclResult_t swl_device_free(struct swl_device_memory *memory, void *ptr, uint64_t bytes)
{
    const ncclEpAllocConfig_t *alloc = &memory->alloc;

    if (!ptr || memory->abandoned)
        return ncclSuccess;
    memory->held_bytes -= bytes;
    if (alloc->free_fn)
        return swl_cuda_result(alloc->free_fn(ptr, alloc->context), "free_fn");
    return SWL_CUDA(swl_gpu_free(ptr));
}
