/* group.c: life of a group after its creation: order of operations, queries, destruction.
 *
 * Layer: src/group, implements internal.h; memory: group.h. */
#include "src/group/group.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/util.h"
#include "src/failure/mend.h"
#include "src/group/comm.h"
#include "transport/rdma.h"

#include <stdlib.h>
#include <string.h>
#include <swimlane.h>

#define POLL_MOST_NS UINT64_C(1000000)

ncclResult_t swl_nccl_result(ncclResult_t rc, const char *text)
{
    if (rc == ncclSuccess)
        return ncclSuccess;
    return swl_fail(swl_nccl_code(rc), "%.*s: %s", (int)strcspn(text, "("), text,
                    ncclGetErrorString(rc));
}

/* ---- order of operations ---- */

ncclResult_t swl_group_enter(struct ncclEpGroup *group, cudaStream_t stream, bool *capturing_p)
{
    SWL_TRY(SWL_CUDA(swl_gpu_stream_capturing(stream, capturing_p)));
    if (*capturing_p || !group->enqueued)
        return ncclSuccess;
    /* handles of streams do not tell streams apart (per-thread default, re-used addresses) */
    return SWL_CUDA(swl_gpu_stream_wait_event(stream, group->last));
}

ncclResult_t swl_group_leave(struct ncclEpGroup *group, cudaStream_t stream, bool capturing)
{
    if (capturing)
        return ncclSuccess;
    SWL_TRY(SWL_CUDA(swl_gpu_event_record(group->last, stream)));
    group->enqueued = true;
    return ncclSuccess;
}

ncclResult_t swl_group_launch(struct ncclEpGroup *group, const struct swl_gpu_kernel *kernel,
                              const struct swl_plan_kernel *plan, const void *args,
                              cudaStream_t stream)
{
    const struct swl_gpu_grid grid = {
        .blocks = (int)(plan->blocks + group->plan.nic_blocks),
        .threads = (int)plan->threads,
        .shared_bytes = plan->shared_bytes,
    };
    bool capturing = false;

    SWL_TRY(swl_async_gate(group));
    SWL_TRY(swl_group_mend(group, stream));
    SWL_TRY(swl_group_enter(group, stream, &capturing));
    SWL_TRY(SWL_CUDA(swl_gpu_launch(kernel, &grid, args, stream)));
    return swl_group_leave(group, stream, capturing);
}

/* Until `last` is done or limit_ns have passed; cudaErrorNotReady then. A question that fails is asked once
 * more, as what follows would free memory under work that still runs. */
static cudaError_t wait_last(const struct ncclEpGroup *group, uint64_t limit_ns)
{
    const uint64_t end = swl_gpu_now_ns() + limit_ns;
    uint64_t pause = 1000;
    bool done = !group->enqueued, failed = false;
    cudaError_t error = cudaSuccess;

    while (!done) {
        error = swl_gpu_event_done(group->last, &done);
        if (error == cudaSuccess && done)
            break;
        if (error != cudaSuccess && failed)
            break;
        failed = error != cudaSuccess;
        if (swl_gpu_now_ns() >= end)
            return cudaErrorNotReady;
        swl_gpu_sleep_ns(pause);
        pause = swl_min_u64(2 * pause, POLL_MOST_NS);
    }
    return error;
}

ncclResult_t swl_group_drain(struct ncclEpGroup *group)
{
    cudaError_t error = wait_last(group, group->timeout_ns);
    char time[32];

    if (error != cudaErrorNotReady)
        return swl_cuda_result(error, "the wait for the group's work");
    swl_time_text(group->timeout_ns, time, sizeof(time));
    return swl_fail(ncclSystemError, "work of the group has not ended after %s", time);
}

/* ---- queries ---- */

static uint64_t shared_bytes(const struct ncclEpGroup *group)
{
    uint64_t bytes = swl_round_up_u64(group->window.bytes, SWL_SHARED_GRANULE);

    for (uint32_t i = 0; i < SWL_MEMORIES; i++)
        bytes += swl_round_up_u64(group->shared[i].map.bytes, SWL_SHARED_GRANULE);
    return bytes;
}

ncclResult_t swl_group_query(struct ncclEpGroup *group, int key, uint64_t *value_p)
{
    switch (key) {
    case SWIMLANE_QUERY_DEVICE_BYTES:
        *value_p = shared_bytes(group) + group->memory.held_bytes +
                   (group->rdma ? swl_rdma_device_bytes(group->rdma) : 0);
        return ncclSuccess;
    case SWIMLANE_QUERY_WINDOW_BYTES:
        *value_p = shared_bytes(group);
        return ncclSuccess;
    case SWIMLANE_QUERY_TEAMS:
        *value_p = group->topology.nnodes;
        return ncclSuccess;
    case SWIMLANE_QUERY_SMS:
        *value_p = group->plan.nsms;
        return ncclSuccess;
    case SWIMLANE_QUERY_NIC_SMS:
        *value_p = group->plan.nic_blocks;
        return ncclSuccess;
    case SWIMLANE_QUERY_RINGS:
        *value_p = group->topology.nnodes > 1 ? group->plan.shape.nrings : 0;
        return ncclSuccess;
    case SWIMLANE_QUERY_RING_SLOTS:
        *value_p = group->topology.nnodes > 1 ? group->plan.shape.ring_slots : 0;
        return ncclSuccess;
    case SWIMLANE_QUERY_TIMEOUT_NS:
        *value_p = group->timeout_ns;
        return ncclSuccess;
    case SWIMLANE_QUERY_ROWS_DROPPED:
        /* pairs with the release of the last block of a kernel */
        *value_p = __atomic_load_n(&group->pinned->dropped, __ATOMIC_ACQUIRE);
        return ncclSuccess;
    case SWIMLANE_QUERY_PENDING_OPS:
        *value_p = 0;
        return ncclSuccess;
    default:
        return swl_fail(ncclInvalidArgument, "key is %d, not one of SWIMLANE_QUERY_...", key);
    }
}

/* ---- destruction ---- */

static void keep(ncclResult_t *rc_p, ncclResult_t next)
{
    if (*rc_p == ncclSuccess)
        *rc_p = next;
}

static ncclResult_t release_device(struct ncclEpGroup *group)
{
    ncclResult_t rc = swl_memory_release(group);

    keep(&rc, swl_rdma_destroy(group->rdma));
    keep(&rc, swl_device_free(&group->memory, group->link_tables, group->link_table_bytes));
    keep(&rc, swl_window_unmap(&group->window));
    keep(&rc, swl_window_free(&group->window));
    keep(&rc, swl_pool_release(group));
    keep(&rc, swl_tables_close(&group->tables));
    if (group->last)
        keep(&rc, SWL_CUDA(swl_gpu_event_destroy(group->last)));
    keep(&rc, swl_bootstrap_close(&group->boot));
    keep(&rc, swl_alarm_close(&group->alarm));
    if (group->pinned)
        keep(&rc, SWL_CUDA(swl_gpu_host_free(group->pinned)));
    return rc;
}

/* Freeing device memory waits for everything on the device, and for work that hangs without end. What
 * the host holds goes; device memory, pinned memory and the NIC are given up. */
static ncclResult_t abandon_device(struct ncclEpGroup *group)
{
    ncclResult_t rc;

    swl_log(SWL_LEVEL_WARN, "group: its device memory is given up, as %s",
            group->running ? "kernels still run" : "an exchange among the ranks still runs");
    group->memory.abandoned = true;
    for (uint32_t i = 0; i < SWL_MEMORIES; i++)
        free(group->shared[i].map.peer);
    free(group->window.peer);
    rc = swl_pool_release(group);
    if (group->last)
        keep(&rc, SWL_CUDA(swl_gpu_event_destroy(group->last)));
    keep(&rc, swl_bootstrap_drop_stream(&group->boot));
    free(group->boot.processes);
    return rc;
}

ncclResult_t swl_group_release(struct ncclEpGroup *group)
{
    const bool hangs = group->boot.stuck || group->running;
    ncclResult_t rc = hangs ? abandon_device(group) : release_device(group);

    swl_peers_close(&group->peers);
    swl_mend_close(group->links.mend);
    if (group->info.lock)
        swl_gpu_mutex_destroy(group->info.lock);
    swl_topology_free(&group->topology);
    free(group->link_drivers); /* of a group that came no further */
    free(group);
    return rc;
}

/* No kernel of this rank runs any more, or the failure to reach that. */
static ncclResult_t stop_work(struct ncclEpGroup *group)
{
    cudaError_t error = wait_last(group, group->timeout_ns);
    char time[32];

    if (error != cudaErrorNotReady)
        return swl_cuda_result(error, "the wait for the group's work");
    swl_time_text(group->timeout_ns, time, sizeof(time));
    swl_log(SWL_LEVEL_WARN, "group: work has not ended after %s; asking it to stop", time);
    __atomic_store_n(&group->pinned->stop, 1, __ATOMIC_RELEASE); /* pairs with wait_again */
    error = wait_last(group, group->setup_ns);
    group->running = error == cudaErrorNotReady;
    if (group->running)
        return swl_fail(ncclSystemError, "work of the group does not end");
    return swl_cuda_result(error, "the wait for the group's work");
}

static void orphan_handles(struct ncclEpGroup *group)
{
    for (struct ncclEpHandle *h = group->handles, *next; h; h = next) {
        next = h->next;
        h->info.group = NULL;
        h->info.updated = false;
        h->memory = NULL;
        h->block = NULL;
        h->box = NULL;
        h->next = h->previous = NULL;
    }
    group->handles = NULL;
}

/* All ranks are as far as this one. Where one is gone, the communicator serves for nothing any more, and
 * those that are left and reach each other's memory meet on their own. */
static ncclResult_t end_together(struct ncclEpGroup *group, ncclResult_t mine, const char *doing)
{
    swl_peers_look(&group->peers);
    if (group->peers.ngone == 0)
        return swl_bootstrap_agree(&group->boot, mine, doing);
    if (!swl_peers_meet(&group->peers))
        swl_log(SWL_LEVEL_WARN, "group: not all ranks that are left came to %s", doing);
    return mine;
}

ncclResult_t swl_group_destroy(struct ncclEpGroup *group)
{
    int nranks = 0;
    ncclResult_t comm = swl_comm_ask(ncclCommCount, group->info.comm, &nranks, "rank count");
    ncclResult_t rc = stop_work(group);

    orphan_handles(group);
    if (comm != ncclSuccess) /* the others would wait for this rank */
        swl_peers_fail(&group->peers, comm, "ending the group");
    /* First all ranks have stopped, then all NICs: nobody writes into memory that a rank frees. */
    if (comm == ncclSuccess)
        comm = end_together(group, rc, "ending its work");
    if (!group->running && !group->boot.stuck) {
        keep(&rc, swl_rdma_destroy(group->rdma));
        group->rdma = NULL;
    }
    if (comm == ncclSuccess)
        comm = end_together(group, rc, "closing its network");
    keep(&rc, comm);
    keep(&rc, swl_group_release(group));
    return rc == ncclInvalidUsage ? ncclInternalError : rc; /* InvalidUsage: still there */
}
