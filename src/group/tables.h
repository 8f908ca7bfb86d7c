/* tables.h: the private memory of a rank on its device: struct swl_device_group, the tables that it
 * points to, and the state that the kernels advance.
 *
 * Layer: src/group, below group. One plain device allocation, owned here. */
#ifndef SWL_TABLES_H
#define SWL_TABLES_H

#include "kernels/common/args.h"
#include "src/group/device_memory.h"
#include "src/group/plan.h"
#include "src/group/topology.h"
#include "src/runtime/runtime.h"

#include <nccl.h>

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_MEMORIES 64u /* shared memories of a group; number 0 stands for "none" */

#define SWL_FIRST_GENERATION 1u

/* Pinned words between kernels and host. */
struct swl_pinned {
    struct swl_fault_record record; /* writer: first faulting lane of a call */
    uint64_t dropped;               /* writer: last block of a kernel */
    uint64_t stop;                  /* writer: host, not 0 = kernels give up */
    uint64_t clears, heard;         /* writer: host; copied into swl_state together */
    uint64_t settled;               /* swl_settled_word; writer: last block of a kernel */
    uint32_t bits; /* SWL_ASYNC_…; writers: last block of a kernel, host at clear */
    uint32_t pad;
};

static_assert(offsetof(struct swl_pinned, heard) == offsetof(struct swl_pinned, clears) + 8 &&
                  offsetof(struct swl_state, heard) == offsetof(struct swl_state, clears) + 8,
              "one copy tells the device of a clear");
#define SWL_CLEAR_BYTES 16u

struct swl_tables {
    struct swl_device_memory *memory;
    char *device;
    uint64_t bytes;
    const struct swl_device_group *group; /* device address */
    uint64_t *clears; /* device address of swl_state.clears, followed by heard */
    char **shared;    /* device address of [SWL_MEMORIES][nlocal] */
};

/* The four words of a connection, in one order at both ends: dispatch ring, request ring, partial
 * sums, marks. */
#define SWL_CONNECTION_WORDS 4u

/* Offsets in the own window of the words that the peer adds to through connection `connection`
 * (numbers of swl_rdma_view). */
void swl_tables_connection_words(const struct swl_plan *plan, uint32_t connection,
                                 uint64_t at[SWL_CONNECTION_WORDS]);
/* Device addresses of what this rank counts as added to the peer's words: [0] as of now, [1] for
 * the next kernel. */
void swl_tables_connection_counts(const struct swl_tables *tables, const struct swl_plan *plan,
                                  uint32_t connection, uint64_t *counts[SWL_CONNECTION_WORDS][2]);

struct swl_tables_config {
    const struct swl_plan *plan;
    const struct swl_topology *topology;
    char *window;
    char *const *peer_window; /* [nlocal] */
    struct swl_rdma_view net; /* zero on one node */
    struct swl_pinned *pinned;
    uint64_t *error_word; /* own word of the node's error page */
    uint64_t timeout_ns;  /* of waits on the device */
    uint64_t setup_ns;
    bool trap;
};

/* Local: allocate. memory is set by the caller, the rest is zero. */
ncclResult_t swl_tables_open(struct swl_tables *tables, const struct swl_plan *plan);
/* Local: fill, through `stream`; blocks the host at most config->setup_ns. */
ncclResult_t swl_tables_fill(struct swl_tables *tables, const struct swl_tables_config *config,
                             cudaStream_t stream);
ncclResult_t swl_tables_close(struct swl_tables *tables);

#ifdef __cplusplus
}
#endif
#endif
