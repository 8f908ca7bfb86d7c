/* machine.h: devices, streams and events of the emulated machine, shared by gpu_sim,
 * cuda_* (CUDA runtime subset) and nccl_comm (stand-in NCCL).
 *
 * A stream is a FIFO of items. An engine of the emulator runs them one after the other; it exists
 * while there are items, so that no fiber outlives its work. With a seed every item starts a little
 * later in virtual time, so that ranks run in any order.
 * Locks here are never held while something parks. Memory: streams and captures are counted
 * references, held by handles, by the engine and by events. */
#ifndef SWL_SIM_MACHINE_H
#define SWL_SIM_MACHINE_H

#include "sim/nccl_place.h"
#include "sim/simt.h"

#include <cuda_runtime.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace swl_sim
{

const int max_devices = 256; /* as many as the core has */

struct stream;
struct device;

/* What a thread or host fiber has of its own beside simt_thread. Released with free(). */
struct thread_state {
    uint64_t serial; /* > 0, never used again */
    int captures;    /* captures in progress that forbid unsafe calls */
    cudaError_t last_error;
    group_state nccl;
};
thread_state *self();
int current_device();
/* Number of this address space; another process, also one made by fork, has another. */
uint64_t process_token();

/* A host fiber stands for a process: it has legacy streams of its own and waits for its own streams
 * when it synchronises a device. OS threads share theirs (context 0). */
uint64_t current_context();
bool device_ok(int device);

/* Note an error for cudaGetLastError and pass it on. */
cudaError_t note(cudaError_t error);

/* Wait until *word >= value; false when deadline_ns came first. */
bool wait_word(const simt_why *why, const std::atomic<uint64_t> *word, uint64_t value,
               uint64_t deadline_ns = UINT64_MAX);

/* One piece of work of a stream. A graph keeps items and launches copies of them. */
struct item {
    item() = default;
    item(const item &) = default;
    item &operator=(const item &) = delete;
    virtual ~item() = default;
    /* The item has got its place in the stream (host side, in call order). */
    virtual void submitted(uint64_t place, const std::shared_ptr<stream> &on)
    {
        (void)place;
        (void)on;
    }
    /* Do it; runs on an engine, may park. */
    virtual void run() = 0;
    virtual std::unique_ptr<item> copy() const = 0;
};
using items = std::vector<std::unique_ptr<item>>;

/* A capture in progress; streams that joined it point to it. */
struct capture {
    std::mutex lock;
    bool active = true, invalid = false;
    int mode = 0;
    const stream *origin = nullptr;
    std::vector<std::shared_ptr<stream>> members;
    items captured;
};

struct stream {
    int device = 0;
    uint64_t context = 0;  /* who made it */
    bool blocking = false; /* ordered against the legacy stream of its device */
    bool legacy = false;
    std::mutex lock;
    std::deque<std::unique_ptr<item>> queue;
    std::shared_ptr<capture> into;
    bool served = false; /* an engine runs */
    std::atomic<uint64_t> pushed{0}, completed{0};
};

/* A place in a stream; done when the stream has completed that many items. */
struct mark {
    std::shared_ptr<stream> on;
    uint64_t place = 0;
    uint64_t time_ns = 0; /* written before `completed` reaches place */
    bool done() const
    {
        /* acquire: pairs with the release of stream::completed by the engine */
        return on->completed.load(std::memory_order_acquire) >= place;
    }
};

std::shared_ptr<stream> stream_make(int device, bool blocking);
/* The stream behind a handle: NULL and the two special values belong to the current device. */
std::shared_ptr<stream> stream_of(cudaStream_t handle);
/* The capture that the stream is in; NULL: none. */
std::shared_ptr<capture> capture_of(const std::shared_ptr<stream> &on);
/* Queue work, or add it to the stream's capture. */
cudaError_t push(const std::shared_ptr<stream> &on, std::unique_ptr<item> work);
cudaError_t push_all(const std::shared_ptr<stream> &on, items work);
/* Everything pushed so far; cudaErrorNotReady when the deadline comes first. */
cudaError_t stream_wait(const std::shared_ptr<stream> &on, uint64_t deadline_ns);
/* All streams of a device that belong to the current context. */
void device_wait(int device);

} // namespace swl_sim

/* The objects behind the handles. */
struct CUstream_st {
    std::shared_ptr<swl_sim::stream> on;
};
struct CUevent_st {
    bool timing = true;
    std::mutex lock;
    std::shared_ptr<swl_sim::mark> last;
    std::shared_ptr<swl_sim::capture> captured; /* the last record was in this capture */
};
struct CUgraph_st {
    swl_sim::items work;
};
struct CUgraphExec_st {
    swl_sim::items work;
};

#endif
