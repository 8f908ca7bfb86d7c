/* nccl_place_sim.cc: the stand-in NCCL in the emulator. See nccl_place.h.
 *
 * Collectives are stream items (machine.h) that hand in their part at the hub, park until every
 * rank has, and write the result. */
#include "sim/machine.h"
#include "sim/nccl_comm.h"
#include "sim/simt_heap.h"

#include "src/runtime/runtime.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

using namespace swl_sim;

namespace
{

const uint64_t drain_limit_ns = 10000000000ull;

struct awaited_call {
    const call *c;
    const comm_core *core;
};

bool call_ready(void *arg)
{
    const awaited_call *w = static_cast<const awaited_call *>(arg);

    return w->c->state.load(std::memory_order_acquire) != call_open ||
           w->core->aborted.load(std::memory_order_relaxed) != 0;
}

/* A call over TCP is answered by a thread that the scheduler does not know: ask again and again, so
 * that virtual time does not jump meanwhile. */
bool wait_remote(awaited_call *w, uint64_t limit_ns)
{
    timespec start, now;

    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!call_ready(w)) {
        usleep(100);
        simt_park(
            SIMT_WHY("collective waits for another process", w->core->rank, 0),
            [](void *) { return false; }, nullptr, simt_now_ns() + 1000);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((uint64_t)(now.tv_sec - start.tv_sec) * 1000000000ull > limit_ns)
            return false;
    }
    return true;
}

struct collective_item : item {
    collective work;
    uint64_t number = 0;

    void submitted(uint64_t, const std::shared_ptr<stream> &) override
    {
        number = work.core->next.fetch_add(1, std::memory_order_relaxed);
        work.core->issued.fetch_add(1, std::memory_order_relaxed);
    }
    void run() override
    {
        comm_core *core = work.core.get();

        if (!core->aborted.load(std::memory_order_relaxed)) {
            const unsigned char *from = static_cast<const unsigned char *>(work.send);
            bytes part = work.sends() ? bytes(from, from + work.shape.bytes) : bytes();
            std::shared_ptr<call> c = core->link->arrive(number, work.shape, std::move(part));
            (void)place_wait(core, *c, UINT64_MAX);
            ncclResult_t rc = call_result(core, *c);
            if (rc == ncclSuccess)
                work.result(*c, static_cast<unsigned char *>(work.recv));
            else if (!simt_stopping())
                core->error.store(rc, std::memory_order_release);
        }
        core->finished.fetch_add(1, std::memory_order_release);
    }
    std::unique_ptr<item> copy() const override
    {
        return std::make_unique<collective_item>(*this);
    }
};

} // namespace

group_state *swl_sim::place_group()
{
    return &self()->nccl;
}

int swl_sim::place_device()
{
    return current_device();
}

bool swl_sim::place_device_ok(int device)
{
    return device_ok(device);
}

void swl_sim::place_use(int device)
{
    cudaSetDevice(device);
}

int swl_sim::place_node()
{
    return swl_gpu_thread_node();
}

uint64_t swl_sim::place_process()
{
    struct swl_gpu_info info;

    return swl_gpu_info(0, &info) == cudaSuccess ? info.process : 0;
}

/* A host fiber means that all ranks are fibers of this process. */
bool swl_sim::place_alone()
{
    return simt_thread_self()->fiber;
}

bool swl_sim::place_wait(comm_core *core, const call &c, uint64_t limit_ns)
{
    awaited_call w = {&c, core};
    uint64_t deadline = limit_ns == UINT64_MAX ? UINT64_MAX : simt_now_ns() + limit_ns;

    if (core->link->remote())
        return wait_remote(&w, limit_ns);
    return call_ready(&w) ||
           simt_park(SIMT_WHY("collective waits for its peers", core->rank, core->nranks),
                     call_ready, &w, deadline);
}

void swl_sim::place_drain(comm_core *core)
{
    wait_word(SIMT_WHY("host waits for the collectives of a communicator", core->rank, 0),
              &core->finished, core->issued.load(std::memory_order_relaxed),
              simt_now_ns() + drain_limit_ns);
}

ncclResult_t swl_sim::place_launch(const collective &work, cudaStream_t stream)
{
    auto made = std::make_unique<collective_item>();

    made->work = work;
    if (push(stream_of(stream), std::move(made)) != cudaSuccess)
        return comm_fail(work.core.get(), ncclUnhandledCudaError,
                         "the stream refused the collective");
    return ncclSuccess;
}

void *swl_sim::place_alloc(size_t n)
{
    void *made = simt_heap_alloc(SIMT_HEAP_SHARED, current_device(), n);

    if (made)
        memset(made, 0xA5, n);
    return made;
}

bool swl_sim::place_free(void *ptr)
{
    return simt_heap_free(SIMT_HEAP_SHARED, ptr);
}

bool swl_sim::place_is_device(const void *ptr, size_t n)
{
    simt_heap_block block;

    return simt_heap_find(ptr, &block) && block.kind != SIMT_HEAP_HOST &&
           (uintptr_t)ptr - block.base + n <= block.bytes;
}
