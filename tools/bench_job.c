/* bench_job.c: start the ranks of a run. */
#include "tools/bench.h"

#include "tools/support/comm.h"
#include "tools/support/ranks.h"

#include <stdio.h>
#include <stdlib.h>

static int rank_main(struct swl_rank *rank, void *arg)
{
    return bench_run(arg, rank->rank, rank->comm) ? 0 : 1;
}

/* The link model reaches the library by its variable; without the option the variable is shown. */
static void set_link(struct bench_options *o)
{
    if (o->link) {
        setenv("SWIMLANE_SOFT_LINK", o->link, 1);
        return;
    }
    o->link = getenv("SWIMLANE_SOFT_LINK");
    if (o->link && sscanf(o->link, "%lf", &o->link_gbps) != 1)
        o->link_gbps = 0;
}

/* GPU of each rank: the list in turn, or blocks of ranks on one GPU after the other. */
static bool deal_devices(struct bench_options *o)
{
    const int nranks = o->size.nranks, ndevices = swl_ranks_devices();
    int each = o->ranks_per_gpu;

    if (ndevices == 0) {
        fprintf(stderr, "swimlane-bench: there is no GPU here\n");
        return false;
    }
    if (each == 0)
        each = (int)(((int64_t)nranks + ndevices - 1) / ndevices);
    for (int r = 0; r < nranks; r++) {
        o->device_of[r] = o->ndevices ? o->device_list[r % o->ndevices] : r / each;
        if (o->device_of[r] < ndevices)
            continue;
        fprintf(stderr,
                "swimlane-bench: rank %d would be on GPU %d, there are %d (--ranks-per-gpu, "
                "--devices)\n",
                r, o->device_of[r], ndevices);
        return false;
    }
    return true;
}

static bool any_shared_device(const struct bench_options *o)
{
    for (int r = 0; r < o->size.nranks; r++)
        for (int s = 0; s < r; s++)
            if (o->device_of[r] == o->device_of[s])
                return true;
    return false;
}

/* NCCL takes the threads of a process for one node, and has one rank of a node on a GPU. */
static bool needs_standin(const struct bench_options *o)
{
    const int nranks = o->size.nranks;

    for (int r = 0; r < nranks; r++)
        for (int s = 0; s < r; s++) {
            const bool one_node = o->node_of[r] == o->node_of[s];

            if (o->place == BENCH_PROCESSES ? one_node && o->device_of[r] == o->device_of[s]
                                            : !one_node || o->device_of[r] == o->device_of[s])
                return true;
        }
    return false;
}

bool bench_job_place(struct bench_options *o, char **argv)
{
    swl_ranks_environment();
    if (!deal_devices(o))
        return false;
    if (SWL_EMULATED && o->place == BENCH_PROCESSES && o->size.nranks > 1) {
        fprintf(stderr, "swimlane-bench: emulated ranks reach each other in one process only: "
                        "--place fibers or threads\n");
        return false;
    }
    if (SWL_EMULATED && o->place == BENCH_THREADS && any_shared_device(o)) {
        /* a rank that frees memory waits for the device, on which another one waits for it */
        fprintf(stderr, "swimlane-bench: emulated ranks that share a GPU need --place fibers\n");
        return false;
    }
    if (o->comm == BENCH_COMM_AUTO)
        o->comm = needs_standin(o) || swl_comm_is_standin() ? BENCH_COMM_STANDIN : BENCH_COMM_NCCL;
    if (o->comm == BENCH_COMM_STANDIN)
        return swl_comm_use_standin(argv);
    if (swl_comm_is_standin()) {
        fprintf(stderr, "swimlane-bench: --comm nccl, but the stand-in is what is loaded here\n");
        return false;
    }
    return true;
}

bool bench_job_run(struct bench_options *o)
{
    static const enum swl_place places[] = {SWL_PLACE_FIBERS, SWL_PLACE_THREADS,
                                            SWL_PLACE_PROCESSES};
    const struct swl_job job = {
        .nnodes = o->nnodes,
        .node_ranks = o->node_size,
        .place = places[o->place],
        .seed = (uint64_t)o->schedule_seed,
        .node_of_rank = o->node_of,
        .device_of_rank = o->device_of,
    };

    set_link(o);
    return swl_ranks_run(&job, rank_main, o) == 0;
}
