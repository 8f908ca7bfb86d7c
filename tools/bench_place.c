/* bench_place.c: where the ranks of a run are: processes, nodes, GPUs, communicator. */
#include "tools/bench.h"

#include "tools/support/comm.h"
#include "tools/support/launch.h"
#include "tools/support/ranks.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- nodes ---- */

void bench_default_nodes(int ngpus, int *nnodes_p, int *ranks_per_node_p)
{
    *nnodes_p = ngpus == 1 ? 2 : 1;
    *ranks_per_node_p = ngpus == 1 ? 2 : ngpus;
}

/* What the options leave open. Launched ranks of a machine are a node. */
static void fill_sizes(struct bench_options *o, const struct swl_launch *launch)
{
    int total = SWL_EMULATED ? 0 : swl_ranks_devices(), nodes = SWL_EMULATED ? 2 : 1;

    if (o->place == BENCH_LAUNCHED) {
        total = launch->nranks;
        if (launch->nlocal > 0 && total % launch->nlocal == 0)
            nodes = total / launch->nlocal;
        if (o->ranks_per_node > 0)
            nodes = total / o->ranks_per_node;
    }
    if (o->nsizes > 0) {
        o->nnodes = o->nsizes;
        return;
    }
    if (!SWL_EMULATED && o->place != BENCH_LAUNCHED) {
        if (o->ranks_per_gpu > 0)
            total *= o->ranks_per_gpu;
        else if (o->nnodes == 0 && o->ranks_per_node == 0)
            bench_default_nodes(total, &o->nnodes, &o->ranks_per_node);
    }
    if (o->nnodes == 0)
        o->nnodes = nodes > 0 ? nodes : 1;
    if (o->ranks_per_node == 0)
        o->ranks_per_node = SWL_EMULATED && o->place != BENCH_LAUNCHED ? 4 : total / o->nnodes;
    if (o->ranks_per_node == 0)
        o->ranks_per_node = 1;
    if (o->nnodes <= BENCH_MAX_NODES)
        for (int i = 0; i < o->nnodes; i++)
            o->node_size[i] = o->ranks_per_node;
}

/* Node of each rank, from the sizes and the order. */
static bool fill_nodes(struct bench_options *o)
{
    int left[BENCH_MAX_NODES];
    int n = 0, node = 0;

    for (int i = 0; i < o->nnodes; i++)
        n += left[i] = o->node_size[i];
    o->size.nranks = n;
    if (n > BENCH_MAX_RANKS)
        return false;
    for (int r = 0; r < n; r++) {
        while (left[node] == 0)
            node = (node + 1) % o->nnodes;
        o->node_of[r] = node;
        o->team_of[r] = o->no_peer ? r : node;
        left[node]--;
        if (o->interleaved)
            node = (node + 1) % o->nnodes;
    }
    return true;
}

static bool complain_place(const char *text)
{
    fprintf(stderr, "swimlane-bench: %s (--help lists the options)\n", text);
    return false;
}

bool bench_place_nodes(struct bench_options *o)
{
    struct swl_launch launch = {0};
    struct swl_why why = {""};

    o->launched_rank = -1;
    if (o->nsizes > 0 && (o->ranks_per_node > 0 || (o->nnodes > 0 && o->nnodes != o->nsizes)))
        return complain_place("--node-sizes stands instead of --nodes and --ranks-per-node");
    if (o->place == BENCH_LAUNCHED || (o->place == BENCH_PLACE_AUTO && !SWL_EMULATED)) {
        if (!swl_launch_read(&launch, &why))
            return complain_place(why.text);
        if (o->place == BENCH_LAUNCHED && !launch.by)
            return complain_place("no launcher has started this process");
        o->launched_rank = launch.by ? launch.rank : -1;
        o->launched_local = launch.local >= 0 ? launch.local : launch.rank;
        o->launched_nlocal = launch.nlocal;
    }
    if (o->place == BENCH_PLACE_AUTO)
        o->place = SWL_EMULATED ? BENCH_FIBERS : launch.by ? BENCH_LAUNCHED : BENCH_THREADS;
    fill_sizes(o, &launch);
    if (o->nnodes < 1 || o->nnodes > BENCH_MAX_NODES || o->ranks_per_node > BENCH_MAX_RANKS)
        return complain_place("there must be 1 to 64 nodes and at least one rank");
    if (!fill_nodes(o))
        return complain_place("there are more than 1024 ranks");
    if (o->place != BENCH_LAUNCHED || o->size.nranks == launch.nranks)
        return true;
    fprintf(stderr,
            "swimlane-bench: the nodes have %d ranks, %s started %d (--nodes, --ranks-per-node)\n",
            o->size.nranks, launch.by, launch.nranks);
    return false;
}

/* ---- GPUs and communicator ---- */

/* GPU of each rank: the list in turn, or blocks of ranks on one GPU after the other. */
static bool assign_devices(struct bench_options *o)
{
    const int nranks = o->size.nranks, ndevices = swl_ranks_devices();
    const bool launched = o->place == BENCH_LAUNCHED;
    int each = o->ranks_per_gpu, here = nranks;

    if (ndevices == 0) {
        fprintf(stderr, "swimlane-bench: there is no GPU here\n");
        return false;
    }
    if (launched && o->launched_nlocal > 0)
        here = o->launched_nlocal;
    o->own_gpus = ndevices == 1 && launched && each == 0 && o->ndevices == 0 &&
                  getenv("CUDA_VISIBLE_DEVICES");
    if (each == 0)
        each = o->own_gpus ? here : (int)(((int64_t)here + ndevices - 1) / ndevices);
    for (int r = 0; r < nranks; r++) {
        const int local = r == o->launched_rank ? o->launched_local : r % here;

        o->device_of[r] = o->ndevices ? o->device_list[local % o->ndevices] : local / each;
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

            if (one_node ? !o->own_gpus && o->device_of[r] == o->device_of[s]
                         : o->place == BENCH_THREADS)
                return true;
        }
    return false;
}

bool bench_job_place(struct bench_options *o, char **argv)
{
    swl_ranks_environment();
    if (!assign_devices(o))
        return false;
    if (SWL_EMULATED && o->place == BENCH_LAUNCHED && o->size.nranks > 1) {
        fprintf(stderr, "swimlane-bench: emulated ranks that a launcher starts do not find each "
                        "other: --place fibers, threads or processes\n");
        return false;
    }
    if (SWL_EMULATED && o->place != BENCH_FIBERS && any_shared_device(o)) {
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
