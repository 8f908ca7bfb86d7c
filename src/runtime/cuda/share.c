/* share.c: memory that the ranks of a node map (src/runtime/runtime.h), by CUDA virtual memory.
 *
 * Layer: device runtime. An allocation is one physical handle with a POSIX file descriptor and,
 * where device and driver have them, a fabric handle. Ranks of the same process use the owner's
 * address, access is added for their device; other processes fetch the descriptor (fd.c), which
 * works on one machine, else take the fabric handle, and map the memory at an address of their own.
 * Imported memory stays valid when its owner dies (protocol.md, failures).
 * Owns: the table of allocations and mappings of this process; an entry lives until its last user
 * has left. */
#include "src/runtime/runtime.h"

#include "src/runtime/cuda/driver.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRANULE ((size_t)2 << 20)

/* Toolkits before 12.4 do not name them. */
#define HANDLE_FABRIC    ((CUmemAllocationHandleType)8)
#define FABRIC_SUPPORTED ((CUdevice_attribute)128)
#define FABRIC_BYTES     64

enum fabric {
    FABRIC_YES,
    FABRIC_NO_DEVICE, /* the device has no fabric handles */
    FABRIC_REFUSED    /* it has, this process does not get one */
};

/* What travels in struct swl_gpu_share. */
struct ticket {
    uint64_t process;
    uint64_t id;
    uint64_t bytes;
    uint32_t fabric; /* enum fabric */
    uint32_t pad;
    CUuuid device;
    uint8_t handle[FABRIC_BYTES]; /* FABRIC_YES */
};
static_assert(sizeof(struct ticket) <= sizeof(struct swl_gpu_share), "a ticket fits into a share");

struct mapping {
    struct mapping *next;
    CUdeviceptr at;
    CUmemGenericAllocationHandle physical;
    size_t bytes;
    int fd; /* -1: imported */
    int users;
    struct ticket ticket; /* as its owner made it */
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *table;
static uint64_t last_id;

static CUmemAccessDesc access_of(int device)
{
    return (CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
}

/* The driver table with the context of the current device current. */
static cudaError_t make_current(const struct swl_driver **driver_p, int *device_p)
{
    cudaError_t error = cudaFree(NULL);

    if (error == cudaSuccess)
        error = cudaGetDevice(device_p);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return error;
    }
    return swl_driver_get(driver_p);
}

static cudaError_t properties(const struct swl_driver *driver, CUdevice unit, int device,
                              CUmemAllocationProp *prop_p, bool *fabric_p)
{
    int fds = 0, rdma = 0, fabric = 0;
    CUresult rc = driver->cuDeviceGetAttribute(
        &fds, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, unit);

    if (rc == CUDA_SUCCESS)
        rc = driver->cuDeviceGetAttribute(
            &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, unit);
    if (rc != CUDA_SUCCESS)
        return swl_driver_error(rc);
    if (!fds)
        return cudaErrorNotSupported;
    /* drivers before 12.3 do not know the question */
    *fabric_p = driver->cuDeviceGetAttribute(&fabric, FABRIC_SUPPORTED, unit) == CUDA_SUCCESS &&
                fabric != 0;
    memset(prop_p, 0, sizeof(*prop_p));
    prop_p->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop_p->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop_p->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop_p->location.id = device;
    prop_p->allocFlags.gpuDirectRDMACapable = rdma ? 1 : 0;
    return cudaSuccess;
}

/* Physical memory of m->bytes with the handles it can have. A device with fabric handles refuses
 * them to a process without an IMEX channel. */
static cudaError_t create_physical(const struct swl_driver *driver, int device, struct mapping *m)
{
    const CUmemAllocationHandleType fd_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    struct ticket *t = &m->ticket;
    CUmemAllocationProp prop;
    bool fabric = false;
    CUdevice unit;
    CUresult rc = driver->cuDeviceGet(&unit, device);
    cudaError_t error;

    if (rc == CUDA_SUCCESS)
        rc = driver->cuDeviceGetUuid(&t->device, unit);
    error = rc == CUDA_SUCCESS ? properties(driver, unit, device, &prop, &fabric)
                               : swl_driver_error(rc);
    if (error != cudaSuccess)
        return error;
    t->fabric = fabric ? FABRIC_REFUSED : FABRIC_NO_DEVICE;
    if (fabric) {
        prop.requestedHandleTypes = (CUmemAllocationHandleType)(fd_type | HANDLE_FABRIC);
        rc = driver->cuMemCreate(&m->physical, m->bytes, &prop, 0);
        if (rc == CUDA_SUCCESS && driver->cuMemExportToShareableHandle(
                                      t->handle, m->physical, HANDLE_FABRIC, 0) == CUDA_SUCCESS)
            t->fabric = FABRIC_YES;
        if (rc == CUDA_SUCCESS || rc == CUDA_ERROR_OUT_OF_MEMORY)
            return swl_driver_error(rc);
        prop.requestedHandleTypes = fd_type;
    }
    return swl_driver_error(driver->cuMemCreate(&m->physical, m->bytes, &prop, 0));
}

/* Address range for m->physical, readable and writable by `device`. */
static CUresult map(const struct swl_driver *driver, struct mapping *m, int device)
{
    const CUmemAccessDesc access = access_of(device);
    CUresult rc = driver->cuMemAddressReserve(&m->at, m->bytes, GRANULE, 0, 0);

    if (rc != CUDA_SUCCESS)
        return rc;
    rc = driver->cuMemMap(m->at, m->bytes, 0, m->physical, 0);
    if (rc != CUDA_SUCCESS)
        goto undo_range;
    rc = driver->cuMemSetAccess(m->at, m->bytes, &access, 1);
    if (rc != CUDA_SUCCESS)
        goto undo_map;
    return CUDA_SUCCESS;
undo_map:
    driver->cuMemUnmap(m->at, m->bytes);
undo_range:
    driver->cuMemAddressFree(m->at, m->bytes);
    return rc;
}

static CUresult unmap(const struct swl_driver *driver, struct mapping *m)
{
    CUresult rc = driver->cuMemUnmap(m->at, m->bytes);
    CUresult rc2 = driver->cuMemAddressFree(m->at, m->bytes);

    return rc != CUDA_SUCCESS ? rc : rc2;
}

static cudaError_t zero(CUdeviceptr at, size_t bytes)
{
    cudaStream_t stream;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);

    if (error != cudaSuccess)
        return error;
    error = cudaMemsetAsync((void *)(uintptr_t)at, 0, bytes, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
    return error;
}

static void table_add(struct mapping *m)
{
    m->users = 1;
    m->next = table;
    table = m;
}

/* Physical memory of m->bytes, its descriptor and its zeroed mapping. */
static cudaError_t create_mapping(const struct swl_driver *driver, int device, struct mapping *m)
{
    cudaError_t error = create_physical(driver, device, m);

    if (error != cudaSuccess)
        return error;
    error = swl_driver_error(driver->cuMemExportToShareableHandle(
        &m->fd, m->physical, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (error != cudaSuccess)
        goto undo_physical;
    error = swl_driver_error(map(driver, m, device));
    if (error != cudaSuccess)
        goto undo_fd;
    error = zero(m->at, m->bytes);
    if (error != cudaSuccess)
        goto undo_map;
    return cudaSuccess;
undo_map:
    (void)unmap(driver, m);
undo_fd:
    close(m->fd);
undo_physical:
    (void)driver->cuMemRelease(m->physical);
    return error;
}

static cudaError_t discard_mapping(const struct swl_driver *driver, struct mapping *m)
{
    cudaError_t error, error2;

    if (m->fd >= 0) {
        swl_fd_withdraw(m->ticket.id);
        close(m->fd);
    }
    error = swl_driver_error(unmap(driver, m));
    error2 = swl_driver_error(driver->cuMemRelease(m->physical));
    free(m);
    return error != cudaSuccess ? error : error2;
}

cudaError_t swl_gpu_shared_malloc(void **ptr_p, size_t bytes, struct swl_gpu_share *share_p)
{
    const struct swl_driver *driver;
    struct mapping *m;
    int device;
    cudaError_t error = make_current(&driver, &device);

    if (error != cudaSuccess)
        return error;
    if (bytes == 0 || bytes > SIZE_MAX - GRANULE)
        return cudaErrorInvalidValue;
    m = calloc(1, sizeof(*m));
    if (!m)
        return cudaErrorMemoryAllocation;
    m->bytes = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    error = create_mapping(driver, device, m);
    if (error != cudaSuccess)
        goto undo_entry;

    pthread_mutex_lock(&table_lock);
    m->ticket.process = swl_gpu_process_id();
    m->ticket.id = ++last_id;
    m->ticket.bytes = m->bytes;
    error = swl_fd_export(m->ticket.id, m->fd);
    if (error == cudaSuccess)
        table_add(m);
    pthread_mutex_unlock(&table_lock);
    if (error != cudaSuccess) {
        (void)discard_mapping(driver, m);
        return error;
    }
    memset(share_p, 0, sizeof(*share_p));
    memcpy(share_p->bytes, &m->ticket, sizeof(m->ticket));
    *ptr_p = (void *)(uintptr_t)m->at;
    return cudaSuccess;
undo_entry:
    free(m);
    return error;
}

const char *swl_gpu_shared_how(const struct swl_gpu_share *share)
{
    struct ticket t;

    memcpy(&t, share->bytes, sizeof(t));
    switch ((enum fabric)t.fabric) {
    case FABRIC_YES:
        return "file descriptor and fabric handle";
    case FABRIC_REFUSED:
        return "file descriptor; the device has fabric handles, but this process got none (no IMEX "
               "channel)";
    case FABRIC_NO_DEVICE:
        break;
    }
    return "file descriptor; the device has no fabric handles";
}

/* Why memory of the owner's device cannot be mapped for `device`, where `error` is what CUDA
 * says. */
static cudaError_t reason(const struct swl_driver *driver, const CUuuid *owner, int device,
                          cudaError_t error)
{
    int n = 0, can = 1;
    CUdevice unit;
    CUuuid uuid;

    if (error == cudaSuccess || cudaGetDeviceCount(&n) != cudaSuccess)
        return error;
    for (int other = 0; other < n; other++)
        if (other != device && driver->cuDeviceGet(&unit, other) == CUDA_SUCCESS &&
            driver->cuDeviceGetUuid(&uuid, unit) == CUDA_SUCCESS &&
            memcmp(&uuid, owner, sizeof(uuid)) == 0 &&
            cudaDeviceCanAccessPeer(&can, device, other) == cudaSuccess && !can)
            return cudaErrorPeerAccessUnsupported;
    return error;
}

/* A rank of this process owns it: its address serves every device. */
static cudaError_t share_here(const struct swl_driver *driver, const struct ticket *t, int device,
                              void **ptr_p)
{
    const CUmemAccessDesc access = access_of(device);
    cudaError_t error = cudaErrorInvalidValue;

    pthread_mutex_lock(&table_lock);
    for (struct mapping *m = table; m; m = m->next)
        if (m->fd >= 0 && m->ticket.id == t->id) {
            error = swl_driver_error(driver->cuMemSetAccess(m->at, m->bytes, &access, 1));
            if (error == cudaSuccess) {
                m->users++;
                *ptr_p = (void *)(uintptr_t)m->at;
            }
            break;
        }
    pthread_mutex_unlock(&table_lock);
    return reason(driver, &t->device, device, error);
}

/* By descriptor from the owner's process, else by fabric handle. */
static cudaError_t import_physical(const struct swl_driver *driver, const struct ticket *t,
                                   struct mapping *m)
{
    int fd;
    cudaError_t error = swl_fd_fetch(t->process, t->id, &fd);

    if (error == cudaSuccess) {
        error = swl_driver_error(driver->cuMemImportFromShareableHandle(
            &m->physical, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
        close(fd);
    }
    if (error == cudaSuccess || t->fabric != FABRIC_YES)
        return error;
    return swl_driver_error(
        driver->cuMemImportFromShareableHandle(&m->physical, m->ticket.handle, HANDLE_FABRIC));
}

static cudaError_t import(const struct swl_driver *driver, const struct ticket *t, int device,
                          void **ptr_p)
{
    struct mapping *m = calloc(1, sizeof(*m));
    cudaError_t error;

    if (!m)
        return cudaErrorMemoryAllocation;
    m->bytes = t->bytes;
    m->fd = -1;
    m->ticket = *t;
    error = import_physical(driver, t, m);
    if (error != cudaSuccess)
        goto undo_entry;
    error = swl_driver_error(map(driver, m, device));
    if (error != cudaSuccess)
        goto undo_physical;
    pthread_mutex_lock(&table_lock);
    table_add(m);
    pthread_mutex_unlock(&table_lock);
    *ptr_p = (void *)(uintptr_t)m->at;
    return cudaSuccess;
undo_physical:
    (void)driver->cuMemRelease(m->physical);
undo_entry:
    free(m);
    return reason(driver, &t->device, device, error);
}

cudaError_t swl_gpu_shared_map(const struct swl_gpu_share *share, void **ptr_p)
{
    const struct swl_driver *driver;
    struct ticket t;
    int device;
    cudaError_t error = make_current(&driver, &device);

    if (error != cudaSuccess)
        return error;
    memcpy(&t, share->bytes, sizeof(t));
    if (t.process == swl_gpu_process_id())
        return share_here(driver, &t, device, ptr_p);
    return import(driver, &t, device, ptr_p);
}

/* One user fewer; the last one takes the memory with it. */
static cudaError_t leave(void *ptr)
{
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
    const struct swl_driver *driver;
    struct mapping *gone = NULL;
    bool known = false;
    int device;
    cudaError_t error;

    if (!ptr)
        return cudaSuccess;
    error = make_current(&driver, &device);
    if (error != cudaSuccess)
        return error;
    pthread_mutex_lock(&table_lock);
    for (struct mapping **link = &table; *link && !known; link = known ? link : &(*link)->next)
        if ((*link)->at == at) {
            known = true;
            if (--(*link)->users == 0) {
                gone = *link;
                *link = gone->next;
            }
        }
    pthread_mutex_unlock(&table_lock);
    if (!known)
        return cudaErrorInvalidValue;
    return gone ? discard_mapping(driver, gone) : cudaSuccess;
}

cudaError_t swl_gpu_shared_free(void *ptr)
{
    return leave(ptr);
}

cudaError_t swl_gpu_shared_unmap(void *ptr)
{
    return leave(ptr);
}

cudaError_t swl_gpu_shared_find(const void *ptr, struct swl_gpu_share *share_p, uint64_t *offset_p)
{
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
    cudaError_t error = cudaErrorInvalidValue;

    pthread_mutex_lock(&table_lock);
    for (struct mapping *m = table; m; m = m->next)
        if (m->ticket.process == swl_gpu_process_id() && at >= m->at && at - m->at < m->bytes) {
            memset(share_p, 0, sizeof(*share_p));
            memcpy(share_p->bytes, &m->ticket, sizeof(m->ticket));
            *offset_p = at - m->at;
            error = cudaSuccess;
            break;
        }
    pthread_mutex_unlock(&table_lock);
    return error;
}
