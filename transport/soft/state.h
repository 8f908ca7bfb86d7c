/* state.h: a software NIC as its process sees it, and what its files share. Host only.
 *
 * Layer: transport/soft. Owned by memory.c. Words that an executor and a host thread both touch are
 * marked "shared" and accessed with atomics. */
#pragma once

#include "src/runtime/runtime.h"
#include "transport/host/host.h"
#include "transport/nic.h"
#include "transport/soft/soft.h"

#ifdef __cplusplus
extern "C" {
#endif

struct soft_remote; /* remote.c: a peer's regions, for blocks */

struct soft_nic {
    struct swl_nic base;
    uint32_t id; /* place in the process-wide table */
    uint32_t rank;
    int device;
    uint32_t executor; /* enum swl_soft_executor, resolved */
    uint32_t blocks;   /* of every calling kernel */
    uint32_t max_qps, depth_log2;
    struct host_probe probe;
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
    struct soft_remote *remotes;
    /* shared */
    uint32_t references;            /* creator, executor and connected peers' queue pairs */
    uint32_t kick;                  /* counts requests of the host */
    uint32_t stop, ended;           /* executor told to end, has ended */
    struct soft_faults *new_faults; /* taken by the executor */
    /* executor of the host */
    uint32_t kicked;
};

static inline struct soft_nic *soft_of(struct swl_nic *nic)
{
    return (struct soft_nic *)nic;
}

/* Something has changed for the executor; pairs with its acquire of kick. */
static inline void soft_kick(struct soft_nic *nic)
{
    __atomic_fetch_add(&nic->kick, 1, __ATOMIC_RELEASE);
}

/* enum soft_ability */
static inline uint32_t swl_soft_can(uint32_t executor)
{
    return executor == SWL_SOFT_BLOCKS ? 0 : SOFT_CAN_ALL;
}

static inline bool soft_by_blocks(const struct soft_nic *nic)
{
    return nic->executor == SWL_SOFT_BLOCKS;
}

/* memory.c: with one reference; NULL: no memory. */
struct soft_nic *swl_soft_alloc(uint32_t nqps, uint32_t depth, uint32_t executor);
/* One reference less; the last one frees. */
void swl_soft_nic_drop(struct soft_nic *nic);
/* Queues where the executor reaches them, zeroed for executors of the host. */
ncclResult_t swl_soft_open_memory(struct soft_nic *nic);
ncclResult_t swl_soft_close_memory(struct soft_nic *nic);
/* Take a place in the process-wide table; false: it is full. */
bool swl_soft_enroll(struct soft_nic *nic);
void swl_soft_withdraw(struct soft_nic *nic);
/* The NIC at a place of the table, or NULL. */
struct soft_nic *swl_soft_nic_at(uint32_t id);

/* Between the host and memory that the executor reaches; blocks the host. */
ncclResult_t swl_soft_copy(struct soft_nic *nic, void *to, const void *from, size_t bytes);
/* The shadow of a queue pair, or a part of the port, to the device; nothing for other executors. A
 * new queue pair whole, later without what its peer writes. */
ncclResult_t swl_soft_push_new_qp(struct soft_nic *nic, uint32_t qp);
ncclResult_t swl_soft_push_qp(struct soft_nic *nic, uint32_t qp);
ncclResult_t swl_soft_push_port(struct soft_nic *nic, const void *part, size_t bytes);
/* The state of a queue pair as its executor sees it. */
ncclResult_t swl_soft_pull_qp(struct soft_nic *nic, uint32_t qp, struct soft_qp *state_p);

/* remote.c: peers of a NIC that blocks or a thread run; of the latter only maps are used. */
struct soft_remote {
    struct soft_remote *next;
    uint64_t process, serial; /* of the peer */
    struct soft_port *table;  /* device: its regions at the addresses of this device */
    struct soft_port *live;   /* its own port */
    void *waste;              /* device: stands for what this process cannot map */
    void **maps;              /* mapped for it */
    uint32_t nmaps;
};
/* What connect needs to know of the peer; travels as struct swl_nic_address. */
struct soft_address {
    uint32_t id;  /* SOFT_ADDRESS_ID */
    uint32_t nic; /* place in the table */
    uint64_t process;
    uint64_t serial; /* of the NIC, so that a place used again is noticed */
    uint32_t qp, qpn;
    uint32_t executor, pad;
    struct swl_gpu_share share; /* of the NIC's memory, which begins with its port; blocks only */
};

/* The entry of a peer, made at the first call. `peer` is NULL if it is in another process. */
ncclResult_t swl_soft_remote_get(struct soft_nic *nic, const struct soft_nic *peer,
                                 const struct soft_address *address, struct soft_remote **remote_p);
/* Say in the own port how other processes reach region `slot`. */
void swl_soft_export(struct soft_nic *nic, uint32_t slot);
ncclResult_t swl_soft_remote_release(struct soft_nic *nic);

/* queue.c: operations of nic.h on queue pairs. */
ncclResult_t swl_soft_create_qp(struct swl_nic *base, uint32_t *qp_p);
ncclResult_t swl_soft_address(struct swl_nic *base, uint32_t qp, struct swl_nic_address *address_p);
ncclResult_t swl_soft_connect(struct swl_nic *base, uint32_t qp,
                              const struct swl_nic_address *peer);
ncclResult_t swl_soft_view(struct swl_nic *base, uint32_t qp, struct swl_qp *view_p);
ncclResult_t swl_soft_query(struct swl_nic *base, uint32_t qp, struct swl_nic_qp_status *status_p);
ncclResult_t swl_soft_to_error(struct swl_nic *base, uint32_t qp);
ncclResult_t swl_soft_reset(struct swl_nic *base, uint32_t qp);

#ifdef __cplusplus
}
#endif
