/* nccl_comm.h: what the files of the stand-in NCCL share: communicators, steps of calls, waiting.
 *
 * Calls that wait on the host (init, split, window registration) are bounded by host_limit_ns; in a
 * group they are held back until ncclGroupEnd, which first starts all and then waits for all. */
#ifndef SWL_SIM_NCCL_COMM_H
#define SWL_SIM_NCCL_COMM_H

#include "sim/nccl_hub.h"
#include "sim/nccl_place.h"

#include <nccl.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace swl_sim
{

const uint64_t host_limit_ns = 120000000000ull;

/* A communicator; items in streams may hold it longer than the handle. */
struct comm_core {
    int rank = 0, nranks = 0, device = 0;
    uint64_t key = 0;
    std::unique_ptr<hub_link> link;
    std::vector<int> nodes;        /* of the launcher, [rank] */
    std::atomic<uint64_t> next{0}; /* number of the next call */
    std::atomic<uint64_t> issued{0}, finished{0};
    std::atomic<uint64_t> aborted{0};
    std::atomic<int> error{ncclSuccess};
    char text[256] = "";
};

/* Steps of calls, done in order; a step may add later ones. */
struct group_calls {
    std::deque<std::function<ncclResult_t(group_calls *)>> steps;
};

/* Run the step now, or at the end of the group. */
ncclResult_t run_or_hold(std::function<ncclResult_t(group_calls *)> step);
ncclResult_t run_steps(group_calls *group);

/* Keep a sentence for ncclGetLastError and pass the code on. */
ncclResult_t comm_fail(comm_core *core, ncclResult_t code, const char *text);

/* Hand in this rank's part of a call that all ranks make on the host. */
std::shared_ptr<call> exchange(comm_core *core, const void *data, size_t n);

/* What came of a call, after the wait for it. */
ncclResult_t call_result(comm_core *core, const call &c);

/* Until the call is settled, the communicator aborted or the time over; UINT64_MAX: no limit. */
ncclResult_t wait_call(comm_core *core, const call &c, uint64_t limit_ns);

} // namespace swl_sim

struct ncclComm {
    std::shared_ptr<swl_sim::comm_core> core;
};

#endif
