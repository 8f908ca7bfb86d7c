/* nic.c: what a NIC and the GPU need of each other (src/runtime/runtime.h).
 *
 * Layer: device runtime. The driver's entry for a dmabuf is looked up apart from the table of
 * driver.h: drivers before 11.7 lack it, and everything else works without. Owns nothing. */
#include "src/runtime/runtime.h"

#include "src/runtime/cuda/driver.h"

#include <ctype.h>
#include <string.h>

typedef CUresult (*range_call)(void *handle, CUdeviceptr at, size_t bytes,
                               CUmemRangeHandleType type, unsigned long long flags);

/* A failed call of ours must not look like an error of the caller's later on. */
static cudaError_t take_error(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error;
}

static cudaError_t find_range_call(range_call *call_p)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const char *name = "cuMemGetHandleForAddressRange";
    void *entry = NULL;
    cudaError_t error;

#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion(name, &entry, 11070, cudaEnableDefault, &found);
#else
    error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    if (take_error(error) != cudaSuccess)
        return error;
    if (found != cudaDriverEntryPointSuccess || entry == NULL)
        return cudaErrorNotSupported;
    /* a pointer to an object holds the address of a function: POSIX demands that this works */
    memcpy(call_p, &entry, sizeof(entry));
    return cudaSuccess;
}

cudaError_t swl_gpu_pci(int device, char *text, size_t bytes)
{
    cudaError_t error = take_error(cudaDeviceGetPCIBusId(text, (int)bytes, device));

    for (char *c = text; error == cudaSuccess && *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return error;
}

bool swl_gpu_reaches(int device, int peer)
{
    int can = 0;

    return take_error(cudaDeviceCanAccessPeer(&can, device, peer)) == cudaSuccess && can;
}

cudaError_t swl_gpu_dmabuf(const void *ptr, size_t bytes, int *fd_p)
{
    range_call call;
    cudaError_t error = take_error(cudaFree(NULL)); /* the driver's call needs the context */
    int fd = -1;

    if (error == cudaSuccess)
        error = find_range_call(&call);
    if (error == cudaSuccess)
        error = swl_driver_error(
            call(&fd, (CUdeviceptr)(uintptr_t)ptr, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
    if (error == cudaSuccess)
        *fd_p = fd;
    return error;
}

cudaError_t swl_gpu_registers_map(void *registers, size_t bytes, void **device_p)
{
    const unsigned flags =
        cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory;
    cudaError_t error = take_error(cudaHostRegister(registers, bytes, flags));

    if (error != cudaSuccess)
        return error;
    error = take_error(cudaHostGetDevicePointer(device_p, registers, 0));
    if (error != cudaSuccess)
        (void)take_error(cudaHostUnregister(registers));
    return error;
}

cudaError_t swl_gpu_registers_unmap(void *registers)
{
    return take_error(cudaHostUnregister(registers));
}
