/* ranks_run.h: between the files of the rank launcher. ranks.c starts them all, ranks_launch.c and
 * ranks_fibers.c have their own ways; ranks_one.c runs one rank for each of them, on what
 * ranks_sim.c or ranks_cuda.c knows of the machine. */
#ifndef SWL_RANKS_RUN_H
#define SWL_RANKS_RUN_H

#include "tools/support/ranks.h"

struct swl_ranks {
    const struct swl_job *job;
    int (*rank_main)(struct swl_rank *, void *);
    void *arg;
    int nranks;
    int launched_device; /* if the job does not say */
    int launched_ended;  /* release/acquire */
    int id_ready;        /* release/acquire: id is valid (1), or cannot be made (-1) */
    ncclUniqueId id;
    struct swl_rank_state *ranks; /* [nranks] */
};
struct swl_rank_state {
    struct swl_ranks *all;
    int rank;
    int result; /* written by the rank before `ended` */
    int ended;  /* release/acquire */
};

/* Node of a rank. */
int swl_ranks_node_of(const struct swl_job *job, int rank);

/* One rank from communicator to its end: `id` must be ready. */
int swl_rank_run(struct swl_ranks *all, int rank);

/* The calling thread (fiber) is a rank of this node. */
void swl_ranks_place_node(int node);

/* A rank of a job with several nodes, before its process has used NCCL. */
void swl_ranks_host_of(const struct swl_job *job, int rank);

/* The rank that a launcher made of this process; sets its result only. */
int swl_ranks_run_launched(struct swl_ranks *all);

/* All ranks on fibers; sets every result. -1: not possible here, or the emulator found a fault. */
int swl_ranks_run_fibers(struct swl_ranks *all);

#endif
