/* ranks.h: run a job of N ranks on M nodes, in every place.
 *
 * Layer: tools/support, used by tools and tests. The launcher makes the communicator, gives each
 * rank its device and its node (swl_gpu_thread_node), runs rank_main for each and destroys the
 * communicator. Places:
 *   fibers     all ranks on fibers of the emulator, one deterministic schedule (emulator only)
 *   threads    one OS thread per rank in this process
 *   processes  one child process per rank; call before any other use of the device runtime
 *   nodes      likewise one per node, with a thread per rank: for emulated GPUs, which reach each
 *              other inside a process only
 *   launched   this process is one rank of a job that mpirun, srun or torchrun started
 *              (launch.h) */
#ifndef SWL_RANKS_H
#define SWL_RANKS_H

#include <nccl.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum swl_place {
    SWL_PLACE_FIBERS,
    SWL_PLACE_THREADS,
    SWL_PLACE_PROCESSES,
    SWL_PLACE_NODES,
    SWL_PLACE_LAUNCHED
};

struct swl_job {
    int nnodes;
    const int *node_ranks; /* [nnodes] ranks of each node, in rank order */
    enum swl_place place;
    /* NULL: device = rank, launched: local rank modulo devices. Several ranks may share one. */
    const int *device_of_rank;
    uint64_t seed;           /* of the schedule; fibers only; 0: SIMT_SEED, or in order */
    bool timed;              /* times are wanted: fibers without a seed have clocks of their own */
    uint64_t timeout_ns;     /* of the whole job; 0: 600 s. Fibers have no need of it */
    const int *node_of_rank; /* nodes that are not consecutive; length: sum of node_ranks */
};

struct swl_rank {
    int rank, nranks, node, device;
    ncclComm_t comm;
};

/* 0 when every rank_main (launched: of this process) returned 0 and the emulator found no fault;
 * else the first rank's non-zero value, or -1 for failures of the launcher itself (with a line on
 * stderr). */
int swl_ranks_run(const struct swl_job *job, int (*rank_main)(struct swl_rank *, void *),
                  void *arg);

/* Set the variables that CUDA reads at its first use, unless the user has; swl_ranks_run does it,
 * and programs that use a device before. */
void swl_ranks_environment(void);

/* Devices of this machine, found by a child process, so that this one can still start processes for
 * its ranks. The emulator has as many as anyone asks for: INT_MAX. */
int swl_ranks_devices(void);

/* Ranks of the job: the sum of node_ranks. */
int swl_ranks_count(const struct swl_job *job);

#ifdef __cplusplus
}
#endif
#endif
