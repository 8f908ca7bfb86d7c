/* nccl_window.cc: memory, windows and load/store teams of the stand-in NCCL. Windows are handles
 * only: the calls that turn one into addresses came with a later NCCL release. */
#include "sim/nccl_comm.h"

using namespace swl_sim;

struct ncclWindow_vidmem {
    std::shared_ptr<comm_core> core;
    void *ptr;
    size_t bytes;
};

/* Memory on a granule, as windows need it. */
ncclResult_t ncclMemAlloc(void **ptr, size_t n)
{
    if (!ptr || n == 0)
        return ncclInvalidArgument;
    void *made = place_alloc(n);
    if (!made)
        return ncclUnhandledCudaError;
    *ptr = made;
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void *ptr)
{
    return ptr && !place_free(ptr) ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t n, ncclWindow_t *window,
                                    int flags)
{
    if (!comm || !buff || n == 0 || !window)
        return ncclInvalidArgument;
    comm_core *core = comm->core.get();
    if (flags != NCCL_WIN_DEFAULT && flags != NCCL_WIN_COLL_SYMMETRIC)
        return comm_fail(core, ncclInvalidArgument, "unknown window flags");
    if ((uintptr_t)buff % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
        return comm_fail(core, ncclInvalidArgument, "a window starts on 4096 bytes");
    if (!place_is_device(buff, n))
        return comm_fail(core, ncclInvalidArgument, "a window lies in one device allocation");
    *window = nullptr;
    ncclWindow_vidmem made = {comm->core, buff, n};
    return run_or_hold([made, window](group_calls *group) {
        comm_core *c = made.core.get();
        std::shared_ptr<call> met = exchange(c, "w", 1);
        group->steps.push_back([made, met, window](group_calls *) {
            ncclResult_t rc = wait_call(made.core.get(), *met, host_limit_ns);
            if (rc == ncclSuccess)
                *window = new ncclWindow_vidmem(made);
            return rc;
        });
        return ncclSuccess;
    });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    if (!window)
        return ncclSuccess;
    if (!comm || window->core != comm->core)
        return ncclInvalidArgument;
    delete window;
    return ncclSuccess;
}

/* Host function of nccl_device.h, which is not C: declared here and by who looks it up. Ranks of
 * one launcher node that follow each other reach each other's memory. The stride model needs
 * teams of one size, so uneven nodes fall apart into teams of the greatest common divisor, as
 * with NCCL. */
struct swl_sim_team {
    int nRanks, rank, stride;
};
extern "C" swl_sim_team ncclTeamLsa(ncclComm_t comm);

swl_sim_team ncclTeamLsa(ncclComm_t comm)
{
    const std::vector<int> &nodes = comm->core->nodes;
    int size = 0;

    for (size_t first = 0, r = 1; r <= nodes.size(); r++)
        if (r == nodes.size() || nodes[r] != nodes[first]) {
            int run = (int)(r - first);
            for (first = r; run != 0;) {
                int rest = size % run;
                size = run;
                run = rest;
            }
        }
    return {size, comm->core->rank % size, 1};
}
