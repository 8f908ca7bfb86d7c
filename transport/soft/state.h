/* state.h: the software NIC's memory: regions, queue pairs, operations in flight. C and CUDA.
 *
 * Layer: transport/soft. Owned by nic.c. Host words that an executor and a host thread both touch
 * are marked "shared" and accessed with atomics; everything else of a queue pair belongs to the
 * executor of its NIC from connect on. */
#pragma once

#include "transport/nic.h"
#include "transport/soft/faults.h"
#include "transport/soft/soft.h"
#include "transport/wqe.h"

#define SOFT_REGIONS 256u /* slots of the region table, power of two */

struct soft_nic;

/* A registered region; its slot is key >> 8 modulo SOFT_REGIONS, its generation key & 0xff. */
struct soft_region {
    uint32_t key;    /* shared; 0 = not registered, written last */
    uint32_t access; /* enum swl_nic_access */
    uint32_t pd;
    uint32_t uses;    /* registrations of this slot so far */
    uint64_t address; /* of the first byte, in requests */
    uint64_t bytes;
    uint8_t *memory;
};

/* A work request in flight. */
struct soft_op {
    uint32_t opcode;
    uint32_t syndrome; /* not 0: complete with this error, execute nothing */
    uint32_t control;  /* first word of the entry as it was fetched */
    uint32_t bytes;
    uint32_t pieces; /* parts not placed yet */
    uint32_t is_inline;
    uint32_t lkey, rkey;
    uint64_t local, remote; /* addresses as in the entry */
    uint64_t value;
    uint32_t data[SWL_WQE_INLINE_MAX / 4];
    uint32_t signalled;
};

struct soft_qp {
    /* fixed */
    uint32_t qpn, link, depth_log2, pad;
    uint64_t first_index;
    uint8_t *sq;
    uint32_t *dbr;
    uint64_t *doorbell;
    uint32_t *cq;
    struct soft_op *ops; /* [depth] */
    /* shared */
    uint32_t state;        /* enum swl_nic_qp_state */
    uint32_t request;      /* enum soft_request, cleared by the executor */
    struct soft_nic *peer; /* set by connect; holds a reference */
    uint32_t peer_qp, syndrome;
    uint64_t bad_index;
    /* executor */
    uint64_t seen;               /* last doorbell value taken or dropped */
    uint64_t end;                /* accepted producer index */
    uint64_t fetched, completed; /* completed <= fetched <= end <= completed + depth */
    uint64_t order_ns;           /* nothing later may execute in order before this time */
    uint64_t ack_ns;             /* time of the last completion */
    uint64_t newest_piece;       /* entry of the newest part placed + 1 */
    uint64_t fail_index;         /* first failing entry, UINT64_MAX = none: fetch no more */
    uint32_t epoch;              /* counts resets and errors; older events are void */
    uint32_t pad2;
    uint64_t entry_count;    /* entries fetched since the faults were set */
    uint64_t doorbell_count; /* doorbells seen since the faults were set */
};

enum soft_request { SOFT_REQUEST_NONE, SOFT_REQUEST_ERROR, SOFT_REQUEST_RESET };

/* Link model of a NIC. */
struct soft_link {
    uint64_t ns_per_mib; /* 0 = infinitely fast */
    uint64_t latency_ns;
    uint64_t jitter_ns;
};

struct soft_nic {
    struct swl_nic base;
    uint32_t id; /* place in the process-wide table */
    uint32_t rank;
    int device;
    uint32_t pd;
    uint32_t max_qps, depth_log2;
    uint64_t serial; /* never used again in this process */
    uint64_t first_index, timeout_ns;
    struct soft_link link;
    uint8_t *memory; /* device memory: doorbells, queues, records, completions, sink */
    uint64_t memory_bytes;
    uint64_t *doorbells; /* [max_qps] */
    uint64_t *looked;    /* [max_qps] host: doorbell words as of the executor's last look */
    uint32_t sink_key;
    uint64_t *sink;
    /* shared */
    uint32_t references;  /* creator, executor and connected peers' queue pairs */
    uint32_t dead;        /* destroyed: answers nobody */
    uint32_t users;       /* executors inside this NIC's memory at this moment */
    uint32_t kick;        /* counts requests of the host */
    uint32_t stop, ended; /* executor told to end, has ended */
    uint32_t nqps;
    struct soft_faults *new_faults; /* taken by the executor */
    uint64_t ingress_ns;            /* the wire toward this NIC is taken until then */
    uint64_t dead_ns;               /* from this time on it answers nobody; UINT64_MAX = never */
    struct soft_region regions[SOFT_REGIONS];
    struct soft_qp *qps; /* [max_qps] */
    /* executor */
    uint32_t kicked;
    uint64_t egress_ns; /* the wire from this NIC is taken until then */
    struct soft_faults faults;
    struct swl_soft_stats stats; /* shared, relaxed */
};
