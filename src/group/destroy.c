/* destroy.c: the end of a group, agreed with all ranks that are left; also of one that was never
 * whole.
 *
 * Layer: src/group, implements internal.h; memory: group.h. */
#include "src/group/group.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/failure/qp_recovery.h"
#include "src/group/comm.h"
#include "src/runtime/result.h"
#include "transport/rdma.h"

#include <stdlib.h>

static ncclResult_t release_device(struct ncclEpGroup *group)
{
    ncclResult_t rc = swl_memory_release(group);

    rc = swl_first_failure(rc, swl_rdma_destroy(group->rdma));
    rc = swl_first_failure(
        rc, swl_device_free(&group->memory, group->rdma_tables, group->rdma_table_bytes));
    rc = swl_first_failure(rc, swl_window_unmap(&group->window));
    rc = swl_first_failure(rc, swl_window_free(&group->window));
    rc = swl_first_failure(rc, swl_pool_release(group));
    rc = swl_first_failure(rc, swl_tables_close(&group->tables));
    if (group->last)
        rc = swl_first_failure(rc, SWL_CUDA(swl_gpu_event_destroy(group->last)));
    rc = swl_first_failure(rc, swl_bootstrap_close(&group->boot));
    rc = swl_first_failure(rc, swl_error_page_close(&group->error_page));
    if (group->pinned)
        rc = swl_first_failure(rc, SWL_CUDA(swl_gpu_host_free(group->pinned)));
    return rc;
}

/* Freeing device memory waits for everything on the device, and for work that hangs without end.
 * What the host holds goes; device memory, pinned memory and the NIC are given up. */
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
        rc = swl_first_failure(rc, SWL_CUDA(swl_gpu_event_destroy(group->last)));
    rc = swl_first_failure(rc, swl_bootstrap_drop_stream(&group->boot));
    free(group->boot.processes);
    return rc;
}

ncclResult_t swl_group_release(struct ncclEpGroup *group)
{
    const bool hangs = group->boot.stuck || group->running;
    ncclResult_t rc = hangs ? abandon_device(group) : release_device(group);

    swl_host_news_close(&group->hosts);
    swl_qp_recovery_close(group->connections.recovery);
    if (group->info.lock)
        swl_gpu_mutex_destroy(group->info.lock);
    swl_topology_free(&group->topology);
    free(group->rank_drivers); /* of a group that came no further */
    swl_object_end(SWL_OBJECT_GROUP, group);
    return rc;
}

/* No kernel of this rank runs any more, or the failure to reach that. */
static ncclResult_t stop_work(struct ncclEpGroup *group)
{
    cudaError_t error = swl_group_await(group, group->timeout_ns);
    char time[32];

    if (error != cudaErrorNotReady)
        return swl_cuda_result(error, "the wait for the group's work");
    swl_time_text(group->timeout_ns, time, sizeof(time));
    swl_log(SWL_LEVEL_WARN, "group: work has not ended after %s; asking it to stop", time);
    __atomic_store_n(&group->pinned->stop, 1, __ATOMIC_RELEASE); /* pairs with wait_again */
    error = swl_group_await(group, group->setup_ns);
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

/* All ranks are as far as this one. Where one is gone, the communicator serves for nothing any
 * more, and those that are left and reach each other's memory meet on their own. */
static ncclResult_t end_together(struct ncclEpGroup *group, ncclResult_t mine, const char *doing)
{
    swl_host_news_poll(&group->hosts);
    if (group->hosts.ngone == 0)
        return swl_bootstrap_agree(&group->boot, mine, doing);
    if (!swl_host_news_barrier(&group->hosts))
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
        swl_host_news_fail(&group->hosts, comm, "ending the group");
    /* First all ranks have stopped, then all NICs: nobody writes into memory that a rank frees. */
    if (comm == ncclSuccess)
        comm = end_together(group, rc, "ending its work");
    if (!group->running && !group->boot.stuck) {
        rc = swl_first_failure(rc, swl_rdma_destroy(group->rdma));
        group->rdma = NULL;
    }
    if (comm == ncclSuccess)
        comm = end_together(group, rc, "closing its network");
    rc = swl_first_failure(rc, comm);
    rc = swl_first_failure(rc, swl_group_release(group));
    return rc == ncclInvalidUsage ? ncclInternalError : rc; /* InvalidUsage: still there */
}
