/* nccl_place_cuda.cc: the stand-in NCCL over CUDA (libswl_nccl.so). See nccl_place.h.
 *
 * For what NCCL refuses: several ranks on one GPU, and threads of one process as several nodes. It
 * carries the bootstrap and the barriers of tools and tests, so a collective simply waits for its
 * stream, meets the other ranks on the host and copies the result back; meanwhile nothing of it is
 * on the GPU, so that a rank that frees memory on the same GPU never waits for it. A rank that does
 * not come fails the call after SWIMLANE_STANDIN_TIMEOUT_MS (120000). Ranks of one process meet in
 * memory, others over TCP. */
#include "sim/nccl_comm.h"

#include <cuda_runtime.h>

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <mutex>

using namespace swl_sim;

namespace
{

const uint64_t spin_ns = 200000;
const size_t granule = (size_t)2 << 20; /* cudaMalloc aligns such sizes to it */

uint64_t now_ns()
{
    timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t collective_limit_ns()
{
    const char *text = getenv("SWIMLANE_STANDIN_TIMEOUT_MS");
    const unsigned long long ms = text ? strtoull(text, nullptr, 10) : 0;

    return ms ? ms * 1000000ull : host_limit_ns;
}

ncclResult_t cuda_fail(comm_core *core, cudaError_t error)
{
    (void)cudaGetLastError();
    return comm_fail(core, ncclUnhandledCudaError, cudaGetErrorString(error));
}

/* The device of a communicator is current in this scope. */
struct on_device {
    int before = 0;

    explicit on_device(int device)
    {
        (void)cudaGetDevice(&before);
        (void)cudaSetDevice(device);
    }
    ~on_device()
    {
        (void)cudaSetDevice(before);
    }
};

/* Between device memory and pageable memory of the host, after what the stream holds. */
cudaError_t copy_now(void *to, const void *from, size_t n, cudaStream_t stream)
{
    cudaError_t error = cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, stream);

    return error == cudaSuccess ? cudaStreamSynchronize(stream) : error;
}

ncclResult_t finish(const collective &work, const call &c, cudaStream_t stream)
{
    comm_core *core = work.core.get();
    on_device here(core->device);
    (void)place_wait(core, c, collective_limit_ns()); /* too late: the call is still open */
    ncclResult_t rc = call_result(core, c);

    if (rc != ncclSuccess) {
        core->error.store(rc, std::memory_order_release);
        return rc;
    }
    bytes out(work.result_bytes());
    work.result(c, out.data());
    cudaError_t error =
        out.empty() ? cudaSuccess : copy_now(work.recv, out.data(), out.size(), stream);
    return error == cudaSuccess ? ncclSuccess : cuda_fail(core, error);
}

/* Hand in the part now; the result is a later step, so that a group of calls of one thread first
 * starts all of them. */
ncclResult_t start(group_calls *group, const collective &work, cudaStream_t stream)
{
    comm_core *core = work.core.get();
    on_device here(core->device);
    bytes part(work.sends() ? work.shape.bytes : 0);
    cudaError_t error = part.empty() ? cudaStreamSynchronize(stream)
                                     : copy_now(part.data(), work.send, part.size(), stream);

    if (error != cudaSuccess)
        return cuda_fail(core, error);
    uint64_t number = core->next.fetch_add(1, std::memory_order_relaxed);
    std::shared_ptr<call> c = core->link->arrive(number, work.shape, std::move(part));
    group->steps.push_back([work, c, stream](group_calls *) { return finish(work, *c, stream); });
    return ncclSuccess;
}

} // namespace

group_state *swl_sim::place_group()
{
    static thread_local group_state state;

    return &state;
}

int swl_sim::place_device()
{
    int device = 0;

    (void)cudaGetDevice(&device);
    return device;
}

bool swl_sim::place_device_ok(int device)
{
    int n = 0;

    return cudaGetDeviceCount(&n) == cudaSuccess && device >= 0 && device < n;
}

void swl_sim::place_use(int device)
{
    (void)cudaSetDevice(device);
}

/* The launcher (tools/support/ranks_cuda.c) exports the node of the calling thread. */
int swl_sim::place_node()
{
    static int (*const node_of_thread)(void) = [] {
        void *symbol = dlsym(RTLD_DEFAULT, "swl_launcher_node");
        int (*function)(void);
        memcpy(&function, &symbol, sizeof(function));
        return function;
    }();

    return node_of_thread ? node_of_thread() : -1;
}

/* A child made by fork is another process. */
uint64_t swl_sim::place_process()
{
    static std::mutex lock;
    static uint64_t number;
    static pid_t of_process;
    std::lock_guard<std::mutex> hold(lock);

    if (of_process != getpid()) {
        of_process = getpid();
        if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
            number = (uint64_t)of_process << 32 ^ now_ns();
    }
    return number;
}

bool swl_sim::place_alone()
{
    return false;
}

bool swl_sim::place_wait(comm_core *core, const call &c, uint64_t limit_ns)
{
    const uint64_t begin = now_ns();

    while (c.state.load(std::memory_order_acquire) == call_open &&
           core->aborted.load(std::memory_order_relaxed) == 0) {
        const uint64_t waited = now_ns() - begin;
        if (waited >= limit_ns)
            return false;
        if (waited < spin_ns)
            sched_yield();
        else
            usleep(50);
    }
    return true;
}

void swl_sim::place_drain(comm_core *)
{
}

ncclResult_t swl_sim::place_launch(const collective &work, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    comm_core *core = work.core.get();

    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess ||
        status != cudaStreamCaptureStatusNone) {
        (void)cudaGetLastError();
        return comm_fail(core, ncclInvalidUsage, "the stand-in's collectives cannot be captured");
    }
    return run_or_hold([work, stream](group_calls *group) { return start(group, work, stream); });
}

void *swl_sim::place_alloc(size_t n)
{
    void *made = nullptr;

    if (cudaMalloc(&made, (n + granule - 1) / granule * granule) != cudaSuccess) {
        (void)cudaGetLastError();
        return nullptr;
    }
    return made;
}

bool swl_sim::place_free(void *ptr)
{
    return cudaFree(ptr) == cudaSuccess;
}

bool swl_sim::place_is_device(const void *ptr, size_t n)
{
    cudaPointerAttributes first, last;
    const void *end = static_cast<const char *>(ptr) + n - 1;

    if (cudaPointerGetAttributes(&first, ptr) == cudaSuccess &&
        cudaPointerGetAttributes(&last, end) == cudaSuccess)
        return first.type == cudaMemoryTypeDevice && last.type == cudaMemoryTypeDevice &&
               first.device == last.device;
    (void)cudaGetLastError();
    return false;
}
