/* ranks_one.c: one rank of a job, wherever it runs. Layer: tools/support. */
#include "tools/support/ranks_run.h"

#include "src/runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>

int swl_ranks_node_of(const struct swl_job *job, int rank)
{
    int first = 0;

    if (job->node_of_rank)
        return job->node_of_rank[rank];
    for (int node = 0; node < job->nnodes; node++) {
        first += job->node_ranks[node];
        if (rank < first)
            return node;
    }
    return -1;
}

/* NCCL reads it once for each process. Without it NCCL refuses two ranks on one GPU. */
void swl_ranks_host_of(const struct swl_job *job, int rank)
{
    char text[32];

    snprintf(text, sizeof(text), "swimlane-node-%d", swl_ranks_node_of(job, rank));
    if (job->nnodes > 1)
        setenv("NCCL_HOSTID", text, 0);
}

int swl_rank_run(struct swl_ranks *all, int rank)
{
    const struct swl_job *job = all->job;
    struct swl_rank r = {.rank = rank, .nranks = all->nranks, .node = swl_ranks_node_of(job, rank)};
    ncclResult_t rc;
    int result;

    r.device = job->place == SWL_PLACE_LAUNCHED ? all->launched_device : rank;
    if (job->device_of_rank)
        r.device = job->device_of_rank[rank];
    swl_ranks_place_node(r.node);
    if (swl_gpu_use(r.device) != cudaSuccess) {
        fprintf(stderr, "ranks: rank %d: there is no device %d\n", rank, r.device);
        return -1;
    }
    rc = ncclCommInitRank(&r.comm, r.nranks, all->id, rank);
    if (rc != ncclSuccess) {
        fprintf(stderr, "ranks: rank %d: no communicator: %s\n", rank, ncclGetErrorString(rc));
        return -1;
    }
    result = all->rank_main(&r, all->arg);
    rc = ncclCommDestroy(r.comm);
    if (rc != ncclSuccess && result == 0) {
        fprintf(stderr, "ranks: rank %d: destroy: %s\n", rank, ncclGetErrorString(rc));
        result = -1;
    }
    return result;
}
