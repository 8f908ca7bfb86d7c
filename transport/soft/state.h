/* state.h: a software NIC as its process sees it. Host only.
 *
 * Layer: transport/soft. Owned by nic.c. Words that an executor and a host thread both touch are
 * marked "shared" and accessed with atomics. */
#pragma once

#include "src/runtime/runtime.h"
#include "transport/nic.h"
#include "transport/soft/port.h"
#include "transport/soft/soft.h"

struct soft_far; /* far.c: a peer's regions, for blocks */

struct soft_nic {
    struct swl_nic base;
    uint32_t id; /* place in the process-wide table */
    uint32_t rank;
    int device;
    uint32_t executor; /* enum swl_soft_executor, resolved */
    uint32_t blocks;   /* of every calling kernel */
    uint32_t max_qps, depth_log2;
    uint64_t serial; /* never used again in this process */
    uint64_t first_index, timeout_ns;
    uint8_t *memory; /* queues, records, completions, sinks; blocks: the port before them */
    uint64_t memory_bytes;
    uint64_t *doorbells; /* [max_qps] */
    uint64_t *looked;    /* [max_qps] host: doorbell words as of the executor's last look */
    uint32_t sink_key;
    uint64_t *sink;         /* [max_qps] */
    struct soft_port *port; /* host memory, with its queue pairs; for blocks: the shadow */
    struct soft_qp *qps;    /* [max_qps], behind port */
    /* blocks */
    struct soft_port *device_port;
    struct swl_gpu_share share; /* of memory */
    cudaStream_t stream;        /* for the host's accesses; NULL: the host writes directly */
    struct soft_far *fars;
    /* shared */
    uint32_t references;            /* creator, executor and connected peers' queue pairs */
    uint32_t kick;                  /* counts requests of the host */
    uint32_t stop, ended;           /* executor told to end, has ended */
    struct soft_faults *new_faults; /* taken by the executor */
    /* executor of the host */
    uint32_t kicked;
};
