/* nccl_place.h: what the stand-in NCCL needs from the place it runs in.
 *
 * Two implementations: nccl_place_sim.cc (emulator: ranks on fibers, threads and processes, stream
 * items, virtual time) and nccl_place_cuda.cc (libswl_nccl.so: threads and processes with GPUs).
 * The rest of the stand-in is the same source for both. */
#ifndef SWL_SIM_NCCL_PLACE_H
#define SWL_SIM_NCCL_PLACE_H

#include "sim/nccl_hub.h"

#include <nccl.h>

#include <memory>

namespace swl_sim
{

struct comm_core;
struct group_calls;

/* State of ncclGroupStart of the calling thread or fiber. */
struct group_state {
    int depth;
    group_calls *group; /* calls held back until ncclGroupEnd */
};
group_state *place_group();

int place_device(); /* the current one */
bool place_device_ok(int device);
void place_use(int device);
/* The node that the launcher gave the calling rank, or -1. */
int place_node();
/* Number of this address space. */
uint64_t place_process();
/* All ranks run in this process: nobody will come over TCP. */
bool place_alone();

/* Wait until the call is settled or the communicator aborted; false when the limit came first.
 * UINT64_MAX: no limit. */
bool place_wait(comm_core *core, const call &c, uint64_t limit_ns);
/* Wait until the collectives in streams have ended. */
void place_drain(comm_core *core);

/* One collective of a rank; parts are numbered in call order per communicator. */
struct collective {
    std::shared_ptr<comm_core> core;
    call_shape shape = {};
    const void *send = nullptr;
    void *recv = nullptr;
    size_t count = 0;

    bool sends() const; /* whether this rank's part has bytes: all but broadcasts of others */
    size_t result_bytes() const;
    /* Write the result to host memory. */
    void result(const call &c, unsigned char *to) const;
};
/* Do it in stream order. The emulator queues it; over CUDA it is done when this returns. */
ncclResult_t place_launch(const collective &work, cudaStream_t stream);

/* Memory of ncclMemAlloc, on NCCL_WIN_REQUIRED_ALIGNMENT; NULL: none left. */
void *place_alloc(size_t n);
bool place_free(void *ptr);
/* Whether [ptr, ptr + n) lies in one device allocation. */
bool place_is_device(const void *ptr, size_t n);

} // namespace swl_sim

#endif
