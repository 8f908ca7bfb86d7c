/* bootstrap.h: exchange among all ranks of a communicator, through public NCCL calls.
 *
 * Layer: src/, below group. Owns: a private stream and staging memory on the device and the host.
 * Every call is collective, blocks the host and is bounded by timeout_ns. After a wait that
 * ran out the communicator still holds our work: the bootstrap is `stuck`, refuses further calls and
 * must not be closed, since its staging memory is in use. */
#ifndef SWL_BOOTSTRAP_H
#define SWL_BOOTSTRAP_H

#include "src/device_memory.h"
#include "src/gpu.h"

#include <nccl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_peers; /* src/peers.h */

struct swl_bootstrap {
    ncclComm_t comm;
    uint32_t nranks, rank;
    uint64_t timeout_ns;
    cudaStream_t stream; /* private; also the group's stream for its own copies */
    struct swl_device_memory *memory;
    char *device, *host; /* [1 + nranks][piece_bytes]: own piece, then everybody's; host: pinned.
                            Without device memory exchanges run on the pinned one, so that a rank
                            that got none can say so */
    size_t piece_bytes;
    bool stuck;
    struct swl_peers *peers; /* hears who takes part, says who does not; NULL: nobody knows */
    const char *phase; /* what the exchanges from here on are for, for sentences; NULL: not said */
};

/* Local. comm, nranks, rank, timeout_ns and memory are set by the caller, the rest is zero. After a
 * failure exchanges are still possible if `host` is set. */
ncclResult_t swl_bootstrap_open(struct swl_bootstrap *boot);
/* Local. */
ncclResult_t swl_bootstrap_close(struct swl_bootstrap *boot);

/* all[r] = mine of rank r; with `all` NULL this rank only takes part. `context` is a struct
 * swl_bootstrap, so that it fits rdma.h. */
ncclResult_t swl_bootstrap_allgather(void *context, const void *mine, void *all, size_t bytes_each);

/* Success if `mine` is on every rank; else this rank's code, or that of the lowest rank that
 * failed. `doing` completes "rank 3 failed while ...". */
ncclResult_t swl_bootstrap_agree(struct swl_bootstrap *boot, ncclResult_t mine, const char *doing);

#ifdef __cplusplus
}
#endif
#endif
