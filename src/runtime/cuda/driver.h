/* driver.h: the CUDA driver functions that the runtime does not offer, found at run time.
 *
 * Layer: private to src/runtime/cuda. libcuda.so is not linked, so that the library loads on a
 * machine without a driver. */
#ifndef SWL_RUNTIME_DRIVER_H
#define SWL_RUNTIME_DRIVER_H

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name in the driver, CUDA version whose ABI is asked for */
#define SWL_DRIVER_CALLS(X)                                                                        \
    X(cuDeviceGet, 2000)                                                                           \
    X(cuDeviceGetAttribute, 2000)                                                                  \
    X(cuDeviceGetUuid, 9020)                                                                       \
    X(cuMemGetAddressRange, 3020)                                                                  \
    X(cuMemGetAllocationGranularity, 10020)                                                        \
    X(cuMemCreate, 10020)                                                                          \
    X(cuMemRelease, 10020)                                                                         \
    X(cuMemAddressReserve, 10020)                                                                  \
    X(cuMemAddressFree, 10020)                                                                     \
    X(cuMemMap, 10020)                                                                             \
    X(cuMemUnmap, 10020)                                                                           \
    X(cuMemSetAccess, 10020)                                                                       \
    X(cuMemExportToShareableHandle, 10020)                                                         \
    X(cuMemImportFromShareableHandle, 10020)

struct swl_driver {
#define SWL_DRIVER_FIELD(name, version) __typeof__(&name) name;
    SWL_DRIVER_CALLS(SWL_DRIVER_FIELD)
#undef SWL_DRIVER_FIELD
};

/* The table, filled at the first call; cudaErrorNotSupported when the driver lacks an entry. The
 * caller has made a runtime call before that needs the context, so that it is current. */
cudaError_t swl_driver_get(const struct swl_driver **driver_p);

/* Driver and runtime use the same numbers. */
static inline cudaError_t swl_driver_error(CUresult result)
{
    return (cudaError_t)result;
}

/* Number of this address space, equal for all ranks of a process, different between processes. */
uint64_t swl_gpu_process_id(void);

/* One descriptor handed from the process that owns it to processes of the same user on this host.
 * The service runs from the first offer to the last withdrawal. */
cudaError_t swl_fd_export(uint64_t id, int fd); /* fd stays the caller's */
void swl_fd_withdraw(uint64_t id);              /* after this nobody duplicates fd any more */
/* Fetch what process `process` offers as `id`; bounded. The new descriptor is the caller's. */
cudaError_t swl_fd_fetch(uint64_t process, uint64_t id, int *fd_p);

#ifdef __cplusplus
}
#endif
#endif
