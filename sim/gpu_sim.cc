/* gpu_sim.cc: src/runtime/runtime.h on the emulator. See machine.h for streams, simt_heap.h for
 * memory, gpu_share.cc for what ranks share. */
#include "src/runtime/runtime.h"

#include "sim/machine.h"
#include "sim/simt_heap.h"

#include <string.h>

using namespace swl_sim;

struct swl_gpu_mutex {
    std::atomic<uint64_t> held;
};

namespace
{

/* Every kernel counts as one with 128 registers, of which an SM has 65536. */
const int max_threads_of_block = 512, max_threads_of_sm = 512, max_blocks_of_sm = 32;

/* Blocks of this shape that fit on one SM together. */
int blocks_of_sm(const swl_gpu_grid &g)
{
    size_t shared = (size_t)simt_config_get().shared_kib * 1024 + 1024; /* 1 KiB of it per block */
    size_t fit = shared / (g.shared_bytes + 1024);
    int by_threads = max_threads_of_sm / g.threads;
    int most = by_threads < max_blocks_of_sm ? by_threads : max_blocks_of_sm;

    return fit < (size_t)most ? (int)fit : most;
}

struct kernel_item : item {
    swl_gpu_kernel kernel = {};
    swl_gpu_grid grid = {};
    int device = 0;
    std::vector<unsigned char> args;
    std::atomic<uint64_t> ended{0};

    kernel_item() = default;
    kernel_item(const kernel_item &other)
        : item(), kernel(other.kernel), grid(other.grid), device(other.device), args(other.args)
    {
    }

    static void end(void *arg)
    {
        /* release: the lanes' work, before the stream's next item */
        static_cast<kernel_item *>(arg)->ended.store(1, std::memory_order_release);
    }
    void run() override
    {
        simt_grid start = {};
        start.name = kernel.name;
        start.gpu = device;
        start.blocks = grid.blocks;
        start.threads = grid.threads;
        start.shared_bytes = grid.shared_bytes;
        start.body = kernel.call;
        start.args = args.data();
        start.args_bytes = args.size();
        start.done = end;
        start.done_arg = this;
        simt_grid_start(&start);
        wait_word(SIMT_WHY("stream waits for its kernel", device, 0), &ended, 1);
    }
    std::unique_ptr<item> copy() const override
    {
        return std::make_unique<kernel_item>(*this);
    }
};

bool mutex_take(swl_gpu_mutex *mutex)
{
    uint64_t expect = 0;

    /* acquire: pairs with the release in swl_gpu_mutex_unlock */
    return mutex->held.compare_exchange_strong(expect, 1, std::memory_order_acquire,
                                               std::memory_order_relaxed);
}

bool mutex_free(void *arg)
{
    return static_cast<swl_gpu_mutex *>(arg)->held.load(std::memory_order_relaxed) == 0;
}

} // namespace

cudaError_t swl_gpu_count(int *n_p)
{
    return cudaGetDeviceCount(n_p);
}

cudaError_t swl_gpu_current(int *device_p)
{
    return cudaGetDevice(device_p);
}

cudaError_t swl_gpu_use(int device)
{
    return cudaSetDevice(device);
}

cudaError_t swl_gpu_info(int device, struct swl_gpu_info *info_p)
{
    if (!info_p || !device_ok(device))
        return note(info_p ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
    struct swl_gpu_info info = {};
    uint64_t process = process_token();
    info.nsms = simt_config_get().nsms;
    info.cc_major = 9;
    info.shared_bytes = (uint64_t)simt_config_get().shared_kib * 1024;
    memcpy(info.uuid, &process, 8);
    memcpy(info.uuid + 8, "simt", 4);
    memcpy(info.uuid + 12, &device, 4);
    info.process = process;
    *info_p = info;
    return cudaSuccess;
}

cudaError_t swl_gpu_pending_error(void)
{
    return cudaSuccess; /* the emulated machine has no sticky errors */
}

const char *swl_gpu_error_text(cudaError_t error)
{
    return cudaGetErrorString(error);
}

cudaError_t swl_gpu_malloc(void **ptr_p, size_t bytes)
{
    return cudaMalloc(ptr_p, bytes);
}

cudaError_t swl_gpu_free(void *ptr)
{
    return cudaFree(ptr);
}

cudaError_t swl_gpu_host_malloc(void **ptr_p, size_t bytes)
{
    return cudaMallocHost(ptr_p, bytes);
}

cudaError_t swl_gpu_host_free(void *ptr)
{
    return cudaFreeHost(ptr);
}

cudaError_t swl_gpu_copy(void *dst, const void *src, size_t bytes, cudaStream_t stream)
{
    return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);
}

cudaError_t swl_gpu_fill(void *dst, int byte, size_t bytes, cudaStream_t stream)
{
    return cudaMemsetAsync(dst, byte, bytes, stream);
}

cudaError_t swl_gpu_where(const void *ptr, enum swl_gpu_memory_kind *place_p, void **base_p,
                          size_t *bytes_p)
{
    simt_heap_block block = {};

    if (!place_p || !base_p || !bytes_p)
        return note(cudaErrorInvalidValue);
    *place_p = SWL_GPU_MEMORY_UNKNOWN;
    if (simt_heap_find(ptr, &block))
        *place_p = block.kind == SIMT_HEAP_HOST ? SWL_GPU_MEMORY_HOST : SWL_GPU_MEMORY_DEVICE;
    *base_p = reinterpret_cast<void *>(block.base);
    *bytes_p = block.bytes;
    return cudaSuccess;
}

cudaError_t swl_gpu_peer_access(int device, const void *ptr)
{
    (void)device;
    (void)ptr;
    return cudaSuccess; /* one address space */
}

cudaError_t swl_gpu_pci(int device, char *text, size_t bytes)
{
    (void)device;
    (void)text;
    (void)bytes;
    return cudaErrorNotSupported;
}

bool swl_gpu_reaches(int device, int peer)
{
    (void)device;
    (void)peer;
    return true;
}

/* No NIC of hardware reaches emulated memory. */
cudaError_t swl_gpu_dmabuf(const void *ptr, size_t bytes, int *fd_p)
{
    (void)ptr;
    (void)bytes;
    (void)fd_p;
    return cudaErrorNotSupported;
}

cudaError_t swl_gpu_registers_map(void *registers, size_t bytes, void **device_p)
{
    (void)registers;
    (void)bytes;
    (void)device_p;
    return cudaErrorNotSupported;
}

cudaError_t swl_gpu_registers_unmap(void *registers)
{
    (void)registers;
    return cudaErrorInvalidValue;
}

cudaError_t swl_gpu_stream_create(cudaStream_t *stream_p)
{
    return cudaStreamCreateWithFlags(stream_p, cudaStreamNonBlocking);
}

cudaError_t swl_gpu_stream_destroy(cudaStream_t stream)
{
    return cudaStreamDestroy(stream);
}

cudaError_t swl_gpu_stream_wait(cudaStream_t stream, uint64_t timeout_ns)
{
    uint64_t now = simt_now_ns();

    return note(stream_wait(stream_of(stream),
                            timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX));
}

cudaError_t swl_gpu_stream_capturing(cudaStream_t stream, bool *capturing_p)
{
    cudaStreamCaptureStatus status;
    cudaError_t rc = cudaStreamIsCapturing(stream, &status);

    if (!capturing_p)
        return note(cudaErrorInvalidValue);
    if (rc == cudaSuccess)
        *capturing_p = status != cudaStreamCaptureStatusNone;
    return rc;
}

cudaError_t swl_gpu_event_create(cudaEvent_t *event_p)
{
    return cudaEventCreateWithFlags(event_p, cudaEventDisableTiming);
}

cudaError_t swl_gpu_event_destroy(cudaEvent_t event)
{
    return cudaEventDestroy(event);
}

cudaError_t swl_gpu_event_record(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecord(event, stream);
}

cudaError_t swl_gpu_event_done(cudaEvent_t event, bool *done_p)
{
    cudaError_t rc = cudaEventQuery(event);

    if (!done_p)
        return note(cudaErrorInvalidValue);
    if (rc != cudaSuccess && rc != cudaErrorNotReady)
        return rc;
    *done_p = rc == cudaSuccess;
    return cudaSuccess;
}

cudaError_t swl_gpu_stream_wait_event(cudaStream_t stream, cudaEvent_t event)
{
    return cudaStreamWaitEvent(stream, event, 0);
}

cudaError_t swl_gpu_block_threads(const struct swl_gpu_kernel *kernel, uint32_t *threads_p)
{
    if (!kernel || !threads_p)
        return note(cudaErrorInvalidValue);
    *threads_p = (uint32_t)max_threads_of_block;
    return cudaSuccess;
}

cudaError_t swl_gpu_preload(const struct swl_gpu_kernel *kernel, size_t shared_bytes)
{
    if (!kernel || !kernel->call)
        return note(cudaErrorInvalidDeviceFunction);
    if (shared_bytes > (size_t)simt_config_get().shared_kib * 1024)
        return note(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t swl_gpu_launch(const struct swl_gpu_kernel *kernel, const struct swl_gpu_grid *grid,
                           const void *args, cudaStream_t stream)
{
    if (!kernel || !grid || (kernel->args_bytes && !args))
        return note(cudaErrorInvalidValue);
    if (!kernel->call)
        return note(cudaErrorInvalidDeviceFunction);
    if (grid->blocks < 1 || grid->threads < 32 || grid->threads % 32 != 0 ||
        grid->threads > max_threads_of_block)
        return note(cudaErrorInvalidConfiguration);
    if (grid->shared_bytes > (size_t)simt_config_get().shared_kib * 1024)
        return note(cudaErrorInvalidValue);
    if (grid->blocks > blocks_of_sm(*grid) * simt_config_get().nsms)
        return note(cudaErrorCooperativeLaunchTooLarge);
    std::shared_ptr<swl_sim::stream> on = stream_of(stream);
    if (on->device != current_device())
        return note(cudaErrorInvalidResourceHandle);
    auto work = std::make_unique<kernel_item>();
    work->kernel = *kernel;
    work->grid = *grid;
    work->device = on->device;
    const unsigned char *from = static_cast<const unsigned char *>(args);
    work->args.assign(from, from + kernel->args_bytes);
    return note(push(on, std::move(work)));
}

uint64_t swl_gpu_now_ns(void)
{
    return simt_now_ns();
}

void swl_gpu_sleep_ns(uint64_t ns)
{
    simt_park(SIMT_WHY("host sleeps", 0, 0), nullptr, nullptr, simt_now_ns() + ns);
}

cudaError_t swl_gpu_mutex_create(struct swl_gpu_mutex **mutex_p)
{
    if (!mutex_p)
        return cudaErrorInvalidValue;
    *mutex_p = new swl_gpu_mutex();
    return cudaSuccess;
}

void swl_gpu_mutex_destroy(struct swl_gpu_mutex *mutex)
{
    delete mutex;
}

void swl_gpu_mutex_lock(struct swl_gpu_mutex *mutex)
{
    while (!mutex_take(mutex))
        simt_park(SIMT_WHY("host waits for a lock", 0, 0), mutex_free, mutex, UINT64_MAX);
}

void swl_gpu_mutex_unlock(struct swl_gpu_mutex *mutex)
{
    /* release: pairs with the acquire in mutex_take */
    mutex->held.store(0, std::memory_order_release);
}

void **swl_thread_slot(void)
{
    return &simt_thread_self()->slot;
}

int swl_gpu_thread_node(void)
{
    return simt_thread_self()->node;
}

void swl_gpu_thread_node_set(int node)
{
    simt_thread_self()->node = node;
}
