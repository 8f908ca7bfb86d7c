/* group.h: what a group and a handle are made of; shared by the files that implement internal.h.
 *
 * Layer: src, private to group, ops and failure.
 * The group owns everything it points to but the communicator. */
#ifndef SWL_GROUP_H
#define SWL_GROUP_H

#include "src/api/internal.h"
#include "src/base/options.h"
#include "src/failure/connections.h"
#include "src/failure/error_page.h"
#include "src/failure/host_news.h"
#include "src/group/bootstrap.h"
#include "src/group/device_memory.h"
#include "src/group/plan.h"
#include "src/group/tables.h"
#include "src/group/topology.h"
#include "src/group/window.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_driver_report; /* transport/choice.h */
struct swl_rdma;
struct swl_rdma_connection; /* transport/rdma.h */

#define SWL_SHARED_GRANULE (UINT64_C(2) << 20) /* of offsets in the symmetric memory */

/* One allocation of swimlaneMemAlloc; its index in the group is that of swl_open_record.memory. */
struct swl_shared {
    struct swl_window_map map; /* base NULL: free */
    uint64_t offset;           /* of the base in the symmetric memory */
};

/* Library memory of one handle. */
struct swl_pool_block {
    struct swl_pool_block *next; /* of all blocks */
    void *ptr;
    uint64_t bytes;
    bool used;
};

/* A pinned word that route kernels write {seq, rows} to, for one handle at a time. */
struct swl_mailbox {
    struct swl_mailbox *next; /* free ones */
    const uint64_t *word;
    uint32_t seq; /* of the last update outside captures; goes on when the word changes hands */
};

#define SWL_MAILBOXES 512u /* of one chunk of pinned memory */

struct swl_mailbox_chunk {
    struct swl_mailbox_chunk *next;
    uint64_t *words;
    struct swl_mailbox boxes[SWL_MAILBOXES];
};

struct swl_pool {
    struct swl_pool_block *blocks;
    struct swl_mailbox_chunk *chunks;
    struct swl_mailbox *free_boxes;
};

struct ncclEpGroup {
    struct swl_group_info info; /* first, see internal.h */
    struct swl_options options;
    uint64_t timeout_ns; /* of data calls */
    uint64_t setup_ns;   /* of each step of the hosts: creation, memory, destruction */
    struct swl_device_memory memory;
    struct swl_bootstrap boot;
    struct swl_topology topology;
    struct swl_plan plan;
    struct swl_window_map window;
    struct swl_error_page error_page;
    struct swl_host_news hosts;
    struct swl_connections connections;
    struct swl_tables tables;
    /* enum swl_transport_bit of the worst NIC driver in use; 0 = one node */
    uint32_t network;
    uint32_t *rank_drivers; /* [nranks] of the connections with each rank; until they are made */
    struct swl_rdma *rdma;
    void *rdma_tables; /* device memory that `rdma` uses */
    uint64_t rdma_table_bytes;
    struct swl_pinned *pinned;
    struct swl_shared shared[SWL_MEMORIES]; /* [0] stays unused */
    struct swl_region regions[SWL_MEMORIES];
    uint64_t next_offset;
    struct swl_pool pool;
    struct ncclEpHandle *handles;
    cudaEvent_t last;      /* behind the last operation outside captures */
    bool enqueued;         /* `last` has been recorded */
    uint64_t looked_ns;    /* when this host last asked the others for news */
    uint32_t gone_cleared; /* ranks that had gone at the last ErrorClear */
    bool running;          /* kernels did not end within the limit of destruction */
};

struct ncclEpHandle {
    struct swl_handle_info info; /* first, see internal.h */
    struct ncclEpHandle *next, *previous;
    uint32_t alignment;
    uint64_t fingerprint; /* of its group and layout: swl_plan_fingerprint */
    char *memory;
    uint64_t memory_bytes;
    struct swl_pool_block *block; /* NULL: caller's memory */
    struct swl_mailbox *box;
};

/* Exchange settings with all ranks, compare, make topology and plan (src/group/agree.c). *agreed_p:
 * all ranks have the same outcome and go on to the next exchange, whatever it is. */
ncclResult_t swl_group_agree(struct ncclEpGroup *group, const struct swl_group_config *config,
                             ncclResult_t refused, bool *agreed_p);

/* Descriptors that this process may still open, with its soft limit raised to the hard one;
 * UINT32_MAX: no end (src/group/files.c). */
uint32_t swl_group_files_left(void);
/* A process that cannot open what any rank needs is refused on all ranks: with fewer, a rank cannot
 * even find out where it is, and what it says of itself means nothing. */
ncclResult_t swl_group_check_few_files(const struct swl_rank_capabilities *ranks, uint32_t nranks);
/* The same of one that cannot open as many as the sockets of its ranks need. */
ncclResult_t swl_group_check_files(const struct ncclEpGroup *group,
                                   const struct swl_rank_capabilities *ranks,
                                   const struct swl_driver_report *networks);

/* Which NIC drivers work on this rank; local. */
void swl_group_ask_networks(const struct ncclEpGroup *group, struct swl_driver_report *report_p);
/* group->network from the reports of all ranks; the same outcome everywhere. */
ncclResult_t swl_group_choose_network(struct ncclEpGroup *group,
                                      const struct swl_driver_report *reports);

/* Connect with the ranks that the hosts of a rank talk to: those of its node and those at the other
 * ends of its connections. Ends agreed (src/failure/connections.c). */
ncclResult_t swl_group_meet(struct ncclEpGroup *group);
/* All connections of this rank; swl_group_nconnections of them. */
uint32_t swl_group_nconnections(const struct ncclEpGroup *group);
void swl_group_fill_connections(const struct ncclEpGroup *group,
                                struct swl_rdma_connection *connections);
/* Before each data call; does something behind an ErrorClear only. Queue pairs in error are
 * connected anew, together with the ranks at their other ends: blocks until these are there, at
 * most the time limit. */
ncclResult_t swl_group_repair(struct ncclEpGroup *group, cudaStream_t stream);
/* A call of generation `gen` has failed, here or elsewhere: queue pairs in error are looked for,
 * and the other ranks hear of them. Once for each generation, unless `again`: what was still under
 * way then may have failed since. Does nothing while work of this rank runs. */
ncclResult_t swl_group_check_connections(struct ncclEpGroup *group, uint64_t gen, bool again);
/* ErrorClear in a failed state of this generation: the next call looks at the connections again. */
void swl_group_suspect(struct ncclEpGroup *group, uint64_t gen);

/* Free whatever the group holds; local (src/group/destroy.c). The first failure is returned. */
ncclResult_t swl_group_release(struct ncclEpGroup *group);

/* Around one operation on `stream`: order it behind the last one on any stream (not within
 * captures, where the caller orders); then note it as the last one (src/group/order.c). */
ncclResult_t swl_group_enter(struct ncclEpGroup *group, cudaStream_t stream, bool *capturing_p);
ncclResult_t swl_group_leave(struct ncclEpGroup *group, cudaStream_t stream, bool capturing);
/* Until all operations outside captures have ended, or limit_ns have passed; cudaErrorNotReady
 * then. A question that fails is asked once more: what follows would free memory under work that
 * still runs. */
cudaError_t swl_group_await(const struct ncclEpGroup *group, uint64_t limit_ns);
/* The same with the group's limit, and a sentence. */
ncclResult_t swl_group_drain(struct ncclEpGroup *group);

/* One kernel of the group, in its order; never blocks (src/ops/launch.c). */
ncclResult_t swl_group_launch(struct ncclEpGroup *group, const struct swl_gpu_kernel *kernel,
                              const struct swl_plan_kernel *plan, const void *args,
                              cudaStream_t stream);

/* Refusal of data calls, ncclSuccess if there is none (src/failure/async.c). */
ncclResult_t swl_async_gate(struct ncclEpGroup *group);
/* How peers reach `view` of this rank, and what they must agree with it on (src/group/memory.c). */
struct swl_open_record swl_memory_entry(const struct ncclEpHandle *handle,
                                        const struct swl_view *view, uint32_t op);
/* Unmap and free all of swimlaneMemAlloc; local (src/group/memory.c). */
ncclResult_t swl_memory_release(struct ncclEpGroup *group);

/* Pools of handles (src/ops/handle.c). */
ncclResult_t swl_pool_open(struct ncclEpGroup *group);
ncclResult_t swl_pool_release(struct ncclEpGroup *group);

#ifdef __cplusplus
}
#endif
#endif
