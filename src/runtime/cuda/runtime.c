/* runtime.c: runtime.h on CUDA: devices, plain memory, streams, launches, threads.
 *
 * Layer: device runtime, below src/. The CUDA runtime is linked statically, the driver is found at
 * run time: without GPU or driver the library loads and swl_gpu_count reports 0. Memory that peers
 * map is in share.c. Owns per-process state only: the key of the thread slot, the driver
 * table and the process number. */
#include "src/runtime/runtime.h"

#include "src/runtime/cuda/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define MOST_QUEUES 32u /* of the hardware, for a process */

/* ---- process state ---- */

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static struct swl_driver driver_table;
static cudaError_t driver_error;

static void *driver_find(const char *name, unsigned version)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *entry = NULL;
    cudaError_t error;

#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found);
#else
    (void)version;
    error = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess) {
        driver_error = error;
        (void)cudaGetLastError();
        return NULL;
    }
    if (found != cudaDriverEntryPointSuccess || !entry)
        driver_error = cudaErrorNotSupported;
    return entry;
}

static void driver_load(void)
{
    /* a pointer to an object holds the address of a function: POSIX demands that this works */
#define SWL_DRIVER_FIND(name, version)                                                             \
    if (driver_error == cudaSuccess) {                                                             \
        void *entry = driver_find(#name, version);                                                 \
        memcpy(&driver_table.name, &entry, sizeof(entry));                                         \
    }
    SWL_DRIVER_CALLS(SWL_DRIVER_FIND)
#undef SWL_DRIVER_FIND
}

cudaError_t swl_driver_get(const struct swl_driver **driver_p)
{
    pthread_once(&driver_once, driver_load);
    if (driver_error != cudaSuccess)
        return driver_error;
    *driver_p = &driver_table;
    return cudaSuccess;
}

static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static uint64_t process_number;

static void process_choose(void)
{
    struct timespec t;

    if (getrandom(&process_number, sizeof(process_number), GRND_NONBLOCK) !=
        (ssize_t)sizeof(process_number)) {
        clock_gettime(CLOCK_REALTIME, &t);
        process_number = (uint64_t)getpid() << 40 ^ (uint64_t)t.tv_sec << 20 ^ (uint64_t)t.tv_nsec;
    }
}

uint64_t swl_gpu_process_id(void)
{
    pthread_once(&process_once, process_choose);
    return process_number;
}

/* A failed call of ours must not look like an error of the caller's later on. Sticky errors
 * stay. */
static cudaError_t take_error(cudaError_t error)
{
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error;
}

/* ---- devices ---- */

cudaError_t swl_gpu_count(int *n_p)
{
    int n = 0;
    cudaError_t error = take_error(cudaGetDeviceCount(&n));

    if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver) {
        n = 0;
        error = cudaSuccess;
    }
    if (error == cudaSuccess)
        *n_p = n;
    return error;
}

cudaError_t swl_gpu_current(int *device_p)
{
    return take_error(cudaGetDevice(device_p));
}

cudaError_t swl_gpu_use(int device)
{
    return take_error(cudaSetDevice(device));
}

cudaError_t swl_gpu_info(int device, struct swl_gpu_info *info_p)
{
    struct cudaDeviceProp prop;
    cudaError_t error = take_error(cudaGetDeviceProperties(&prop, device));

    if (error != cudaSuccess)
        return error;
    *info_p = (struct swl_gpu_info){
        .nsms = prop.multiProcessorCount,
        .cc_major = prop.major,
        .cc_minor = prop.minor,
        .shared_bytes = prop.sharedMemPerBlockOptin,
        .most_queues = MOST_QUEUES,
        .process = swl_gpu_process_id(),
    };
    memcpy(info_p->uuid, prop.uuid.bytes, sizeof(info_p->uuid));
    return cudaSuccess;
}

cudaError_t swl_gpu_pending_error(void)
{
    const cudaError_t error = cudaPeekAtLastError();

    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
    case cudaErrorContextIsDestroyed:
        return error;
    default: /* belongs to one call, the context is well */
        return cudaSuccess;
    }
}

const char *swl_gpu_error_text(cudaError_t error)
{
    return cudaGetErrorString(error);
}

/* ---- plain memory ---- */

cudaError_t swl_gpu_malloc(void **ptr_p, size_t bytes)
{
    return take_error(cudaMalloc(ptr_p, bytes));
}

cudaError_t swl_gpu_free(void *ptr)
{
    return take_error(cudaFree(ptr));
}

cudaError_t swl_gpu_host_malloc(void **ptr_p, size_t bytes)
{
    void *ptr;
    cudaError_t error =
        take_error(cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable | cudaHostAllocMapped));

    if (error != cudaSuccess)
        return error;
    memset(ptr, 0, bytes);
    *ptr_p = ptr;
    return cudaSuccess;
}

cudaError_t swl_gpu_host_free(void *ptr)
{
    return take_error(cudaFreeHost(ptr));
}

cudaError_t swl_gpu_copy(void *dst, const void *src, size_t bytes, cudaStream_t stream)
{
    return take_error(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
}

cudaError_t swl_gpu_fill(void *dst, int byte, size_t bytes, cudaStream_t stream)
{
    return take_error(cudaMemsetAsync(dst, byte, bytes, stream));
}

cudaError_t swl_gpu_where(const void *ptr, enum swl_gpu_memory_kind *place_p, void **base_p,
                          size_t *bytes_p)
{
    const struct swl_driver *driver;
    struct cudaPointerAttributes at;
    CUdeviceptr base;
    size_t bytes;

    *place_p = SWL_GPU_MEMORY_UNKNOWN;
    *base_p = NULL;
    *bytes_p = 0;
    cudaError_t error = take_error(cudaPointerGetAttributes(&at, ptr));
    if (error == cudaErrorInvalidValue)
        return cudaSuccess; /* an address the runtime has never seen */
    if (error != cudaSuccess || at.type == cudaMemoryTypeUnregistered)
        return error;
    *place_p = at.type == cudaMemoryTypeHost ? SWL_GPU_MEMORY_HOST : SWL_GPU_MEMORY_DEVICE;
    if (swl_driver_get(&driver) == cudaSuccess &&
        driver->cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)ptr) == CUDA_SUCCESS) {
        *base_p = (void *)(uintptr_t)base;
        *bytes_p = bytes;
    }
    return cudaSuccess;
}

cudaError_t swl_gpu_peer_access(int device, const void *ptr)
{
    struct cudaPointerAttributes at;
    int before, can = 0;
    cudaError_t error = take_error(cudaPointerGetAttributes(&at, ptr));

    if (error != cudaSuccess || at.type == cudaMemoryTypeUnregistered)
        return error != cudaSuccess ? error : cudaErrorInvalidValue;
    if (at.type == cudaMemoryTypeHost || at.device == device)
        return cudaSuccess;
    error = take_error(cudaDeviceCanAccessPeer(&can, device, at.device));
    if (error != cudaSuccess || !can)
        return error != cudaSuccess ? error : cudaErrorPeerAccessUnsupported;
    error = take_error(cudaGetDevice(&before));
    if (error == cudaSuccess)
        error = take_error(cudaSetDevice(device));
    if (error != cudaSuccess)
        return error;
    error = take_error(cudaDeviceEnablePeerAccess(at.device, 0));
    (void)cudaSetDevice(before);
    return error == cudaErrorPeerAccessAlreadyEnabled ? cudaSuccess : error;
}

/* ---- streams and events ---- */

cudaError_t swl_gpu_stream_create(cudaStream_t *stream_p)
{
    return take_error(cudaStreamCreateWithFlags(stream_p, cudaStreamNonBlocking));
}

cudaError_t swl_gpu_stream_destroy(cudaStream_t stream)
{
    return take_error(cudaStreamDestroy(stream));
}

cudaError_t swl_gpu_stream_wait(cudaStream_t stream, uint64_t timeout_ns)
{
    const uint64_t start_ns = swl_gpu_now_ns();
    uint64_t sleep_ns = 0;

    for (;;) {
        cudaError_t error = cudaStreamQuery(stream);
        const uint64_t waited_ns = swl_gpu_now_ns() - start_ns;

        if (error != cudaErrorNotReady)
            return take_error(error);
        if (waited_ns >= timeout_ns)
            return cudaErrorNotReady;
        /* spin for the length of a kernel, then sleep ever longer, at most 1 ms */
        if (waited_ns > 50000)
            sleep_ns = sleep_ns ? sleep_ns * 2 : 10000;
        if (sleep_ns > 1000000)
            sleep_ns = 1000000;
        if (sleep_ns > timeout_ns - waited_ns)
            sleep_ns = timeout_ns - waited_ns;
        if (sleep_ns)
            swl_gpu_sleep_ns(sleep_ns);
    }
}

cudaError_t swl_gpu_stream_capturing(cudaStream_t stream, bool *capturing_p)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t error = take_error(cudaStreamIsCapturing(stream, &status));

    if (error == cudaErrorStreamCaptureImplicit) { /* legacy stream while another one captures */
        status = cudaStreamCaptureStatusActive;
        error = cudaSuccess;
    }
    if (error == cudaSuccess)
        *capturing_p = status != cudaStreamCaptureStatusNone;
    return error;
}

cudaError_t swl_gpu_event_create(cudaEvent_t *event_p)
{
    return take_error(cudaEventCreateWithFlags(event_p, cudaEventDisableTiming));
}

cudaError_t swl_gpu_event_destroy(cudaEvent_t event)
{
    return take_error(cudaEventDestroy(event));
}

cudaError_t swl_gpu_event_record(cudaEvent_t event, cudaStream_t stream)
{
    return take_error(cudaEventRecord(event, stream));
}

cudaError_t swl_gpu_event_done(cudaEvent_t event, bool *done_p)
{
    cudaError_t error = cudaEventQuery(event);

    if (error != cudaSuccess && error != cudaErrorNotReady)
        return take_error(error);
    *done_p = error == cudaSuccess;
    return cudaSuccess;
}

cudaError_t swl_gpu_stream_wait_event(cudaStream_t stream, cudaEvent_t event)
{
    return take_error(cudaStreamWaitEvent(stream, event, 0));
}

/* ---- kernels ---- */

cudaError_t swl_gpu_block_threads(const struct swl_gpu_kernel *kernel, uint32_t *threads_p)
{
    struct cudaFuncAttributes attributes;
    cudaError_t error =
        take_error(cudaFuncGetAttributes(&attributes, (const void *)(uintptr_t)kernel->entry));

    if (error == cudaSuccess)
        *threads_p = (uint32_t)attributes.maxThreadsPerBlock;
    return error;
}

cudaError_t swl_gpu_preload(const struct swl_gpu_kernel *kernel, size_t shared_bytes)
{
    const void *entry = (const void *)(uintptr_t)kernel->entry;
    struct cudaFuncAttributes attributes;
    int device, most = 0;

    /* loads the code of the current device now, which would synchronise at the first launch */
    cudaError_t error = take_error(cudaFuncGetAttributes(&attributes, entry));
    if (error == cudaSuccess)
        error = take_error(cudaGetDevice(&device));
    if (error == cudaSuccess)
        error = take_error(
            cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    if (error != cudaSuccess)
        return error;
    most -= (int)attributes.sharedSizeBytes;
    if (most < 0 || (size_t)most < shared_bytes)
        return cudaErrorInvalidValue;
    /* all that the device has: the limit is the function's, which groups of any size share */
    return take_error(
        cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
}

cudaError_t swl_gpu_launch(const struct swl_gpu_kernel *kernel, const struct swl_gpu_grid *grid,
                           const void *args, cudaStream_t stream)
{
    cudaLaunchAttribute resident = {.id = cudaLaunchAttributeCooperative};
    void *params[] = {(void *)(uintptr_t)args};

    resident.val.cooperative = 1;
    const cudaLaunchConfig_t config = {
        .gridDim = {(unsigned)grid->blocks, 1, 1},
        .blockDim = {(unsigned)grid->threads, 1, 1},
        .dynamicSmemBytes = grid->shared_bytes,
        .stream = stream,
        .attrs = &resident,
        .numAttrs = 1,
    };
    return take_error(cudaLaunchKernelExC(&config, (const void *)(uintptr_t)kernel->entry, params));
}

/* ---- threads ---- */

uint64_t swl_gpu_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void swl_gpu_sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u),
                            .tv_nsec = (long)(ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        continue;
}

struct swl_gpu_mutex {
    pthread_mutex_t lock;
};

cudaError_t swl_gpu_mutex_create(struct swl_gpu_mutex **mutex_p)
{
    struct swl_gpu_mutex *mutex = malloc(sizeof(*mutex));

    if (!mutex)
        return cudaErrorMemoryAllocation;
    if (pthread_mutex_init(&mutex->lock, NULL)) {
        free(mutex);
        return cudaErrorMemoryAllocation;
    }
    *mutex_p = mutex;
    return cudaSuccess;
}

void swl_gpu_mutex_destroy(struct swl_gpu_mutex *mutex)
{
    if (!mutex)
        return;
    pthread_mutex_destroy(&mutex->lock);
    free(mutex);
}

void swl_gpu_mutex_lock(struct swl_gpu_mutex *mutex)
{
    pthread_mutex_lock(&mutex->lock);
}

void swl_gpu_mutex_unlock(struct swl_gpu_mutex *mutex)
{
    pthread_mutex_unlock(&mutex->lock);
}

static pthread_once_t slot_once = PTHREAD_ONCE_INIT;
static pthread_key_t slot_key;
static bool slot_key_made;
static _Thread_local void *slot;

static void slot_release(void *where)
{
    void **mine = where;

    free(*mine);
    *mine = NULL;
}

static void slot_make_key(void)
{
    slot_key_made = pthread_key_create(&slot_key, slot_release) == 0;
}

/* Threads may outlive the library: nothing of it runs at their end any more. */
__attribute__((destructor)) static void slot_drop_key(void)
{
    if (slot_key_made)
        pthread_key_delete(slot_key);
}

void **swl_thread_slot(void)
{
    pthread_once(&slot_once, slot_make_key);
    if (slot_key_made && !pthread_getspecific(slot_key))
        pthread_setspecific(slot_key, &slot); /* without memory for it the slot leaks, no more */
    return &slot;
}

static __thread int thread_node = -1; /* ranks that no launcher placed */

/* A program that starts ranks as threads has its own copy of this file; the library asks it for the
 * node of the calling thread by this name. */
static pthread_once_t launcher_once = PTHREAD_ONCE_INIT;
static int (*launcher_node)(void);

static void launcher_find(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "swl_launcher_node");

    memcpy(&launcher_node, &symbol, sizeof(launcher_node));
}

int swl_gpu_thread_node(void)
{
    if (thread_node >= 0)
        return thread_node;
    pthread_once(&launcher_once, launcher_find);
    return launcher_node ? launcher_node() : -1;
}

void swl_gpu_thread_node_set(int node)
{
    thread_node = node;
}
