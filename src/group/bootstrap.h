/* bootstrap.h: exchange among all ranks of a communicator, through public NCCL calls.
 *
 * Layer: src/group, below group. Owns: a private stream and staging memory on the device and the
 * host. Every call is collective, blocks the host and is bounded by timeout_ns + grace_ns. After an
 * exchange that failed on this rank it cannot know what the others do: it is `apart` and refuses
 * further calls; the others hear of it over the control connections. After a wait that ran out the
 * communicator still holds our work: the bootstrap is `stuck` and must not be closed, since its
 * staging memory is in use. */
#ifndef SWL_BOOTSTRAP_H
#define SWL_BOOTSTRAP_H

#include "src/group/device_memory.h"
#include "src/runtime/runtime.h"

#include <nccl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_host_news; /* src/failure/host_news.h */

struct swl_bootstrap {
    ncclComm_t comm;
    uint32_t nranks, rank;
    uint64_t timeout_ns;
    uint64_t grace_ns;   /* others may come so much later: they are in a step with the same limit */
    cudaStream_t stream; /* private; also the group's stream for its own copies */
    bool borrowed;       /* it is the thread's: this rank got none */
    struct swl_device_memory *memory;
    char *device, *host; /* [1 + nranks][piece_bytes]: own piece, then everybody's; NULL: none */
    bool pinned;         /* host is; without device memory, or copies to it, exchanges run on it */
    size_t piece_bytes;
    bool stuck, diverged;
    uint64_t *processes;         /* [nranks] equal for ranks of one process; NULL: not yet known */
    struct swl_host_news *hosts; /* hears who takes part, says who does not; NULL: nobody knows */
    const char *phase; /* what the exchanges from here on are for, for sentences; NULL: not said */
};

/* Local. comm, nranks, rank, timeout_ns and memory are set by the caller, the rest is zero. After a
 * failure exchanges are still possible if `host` is set. */
ncclResult_t swl_bootstrap_open(struct swl_bootstrap *boot);
/* Local. */
ncclResult_t swl_bootstrap_close(struct swl_bootstrap *boot);
/* Local; the part of it that is possible when the bootstrap is stuck. */
ncclResult_t swl_bootstrap_drop_stream(struct swl_bootstrap *boot);

/* Does this rank log what rank `cause` has caused (UINT32_MAX: what all ranks find alike)? One line
 * for each process is enough, and none beside the cause's own. */
bool swl_bootstrap_speaks(const struct swl_bootstrap *boot, uint32_t cause);

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
