/* port.h: a software NIC as executors see it, their own and their peers': regions, link, faults,
 * queue pairs. C and CUDA.
 *
 * Layer: transport/host. Owned by nic.c. A port and its queue pairs lie behind each other, in
 * memory that the executor reaches: of the host, or of the device for blocks of the calling kernel
 * (then the host keeps a shadow and copies). Words that two parties touch are marked "shared". */
#pragma once

#include "transport/host/faults.h"
#include "transport/host/stats.h"
#include "transport/nic_kinds.h"
#include "transport/wqe.h"

#define SOFT_REGIONS 256u /* slots of the region table, power of two */
#define SOFT_EXPORTS 16u

struct soft_nic; /* state.h; host only */

/* A registered region; its slot is key >> 8 modulo SOFT_REGIONS, its generation key & 0xff. */
struct soft_region {
    uint32_t key;    /* shared; 0 = not registered, written last */
    uint32_t access; /* enum swl_nic_access */
    uint32_t pd;
    uint32_t uses;    /* registrations of this slot so remote */
    uint64_t address; /* of the first byte, in requests */
    uint64_t bytes;
    uint8_t *memory; /* where the reader of this table reaches it */
};

/* How other processes map a region: a struct swl_gpu_share and an offset. Zero: they cannot. */
struct soft_export {
    uint8_t share[128];
    uint64_t offset;
    uint64_t exported;
};

/* Wire model of a NIC. */
struct soft_wire_model {
    uint64_t ns_per_mib; /* 0 = infinitely fast */
    uint64_t latency_ns;
    uint64_t jitter_ns;
};

struct soft_port {
    uint32_t pd;
    uint32_t nqps;        /* shared */
    uint32_t dead;        /* shared: destroyed, answers nobody */
    uint32_t users;       /* shared: executors inside this NIC's memory at this moment */
    uint64_t ingress_ns;  /* shared: the wire toward this NIC is taken until then */
    uint64_t egress_ns;   /* the wire from this NIC is taken until then */
    uint64_t dead_ns;     /* shared: from this time on it answers nobody; UINT64_MAX = never */
    uint32_t fault_epoch; /* counts changes of the faults, from 1 */
    uint32_t rank;
    struct soft_wire_model link;
    struct soft_faults faults;
    struct swl_soft_stats stats; /* shared, relaxed; of executors of the host */
    struct soft_region regions[SOFT_REGIONS];
    struct soft_export exports[SOFT_EXPORTS]; /* of the first regions */
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
    /* proxies; what the wire counts as this index is the request of `entry` */
    uint64_t entry;
    uint64_t due_ns;   /* as the wire counts: posted not before */
    uint64_t ready_ns; /* completed not before */
    uint32_t done;     /* by the wire */
};

/* What blocks keep of an entry that was placed and is not complete. */
struct soft_due {
    uint64_t time_ns; /* executed not before */
    uint8_t *remote, *local;
    uint64_t value;
    uint32_t opcode, syndrome, bytes, control;
    uint32_t signalled, pad;
    uint64_t seen; /* not what it should be, if syndrome says so */
};

struct soft_qp {
    /* fixed */
    uint32_t qpn, link, depth_log2, pad;
    uint64_t first_index;
    uint8_t *sq;
    uint32_t *dbr;
    uint64_t *doorbell;
    uint32_t *cq;
    struct soft_op *ops;  /* [depth], executors of the host */
    struct soft_due *due; /* [depth], blocks */
    /* shared */
    uint32_t state;                /* enum swl_nic_qp_state */
    uint32_t request;              /* enum soft_request, cleared by the executor */
    struct soft_nic *peer;         /* host only; set by connect; holds a reference */
    struct soft_port *remote;      /* the peer's regions as the executor reaches them */
    struct soft_port *remote_live; /* the peer's own port */
    uint32_t peer_qp, syndrome;
    uint64_t bad_index;
    uint64_t bad_word;    /* blocks: what was read there that made no sense, in two halves */
    uint32_t peer_failed; /* blocks: set by the peer's executor, cleared when the peer connects */
    uint32_t pad3;        /* nobody of this end writes these 8 bytes */
    uint32_t fault_epoch; /* of the port when the counts below were 0 */
    uint32_t told;        /* blocks: the peer knows that this end answers nobody */
    /* executor: completed <= executed <= fetched <= end <= completed + depth */
    uint64_t seen;                         /* last doorbell value taken or dropped */
    uint64_t end;                          /* accepted producer index */
    uint64_t fetched, executed, completed; /* executed: blocks only */
    uint64_t order_ns;                     /* nothing later may execute in order before this time */
    uint64_t ack_ns;                       /* time of the last completion */
    /* blocks: look again at this time, UINT64_MAX = when a doorbell comes */
    uint64_t next_ns;
    /* blocks: end all entries with "flushed" then, UINT64_MAX = never */
    uint64_t flush_ns;
    uint64_t newest_piece; /* entry of the newest part placed + 1 */
    /* first failing entry, UINT64_MAX = none: fetch no more */
    uint64_t fail_index;
    uint32_t epoch; /* counts resets and errors; older events are void */
    uint32_t pad2;
    uint64_t fault_begin_ns;     /* blocks: their time when they saw this epoch */
    uint64_t entry_count;        /* entries fetched since the faults were set */
    uint64_t doorbell_count;     /* doorbells seen since the faults were set */
    struct swl_soft_stats stats; /* blocks: one writer */
};

/* The queue pairs lie behind their port. */
SWL_HD struct soft_qp *soft_qp_at(struct soft_port *port, uint32_t i)
{
    return (struct soft_qp *)(port + 1) + i;
}

/* Everything a queue pair starts with; the fixed part is set. */
SWL_HD void soft_qp_start(struct soft_qp *qp)
{
    qp->end = qp->fetched = qp->executed = qp->completed = qp->first_index;
    qp->fail_index = qp->next_ns = qp->flush_ns = UINT64_MAX;
    qp->order_ns = qp->ack_ns = qp->newest_piece = 0;
    qp->syndrome = qp->told = 0;
    qp->seen = swl_doorbell_value(qp->first_index, qp->qpn);
}

enum soft_request { SOFT_REQUEST_NONE, SOFT_REQUEST_ERROR, SOFT_REQUEST_RESET };
