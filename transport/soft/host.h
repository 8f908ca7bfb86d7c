/* host.h: what the host files of the software NIC share. Layer: transport/soft. */
#pragma once

#include "transport/soft/state.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SOFT_NICS_MAX 8192u
#define SOFT_BLOCKS   4u    /* built-in, on GPUs */
#define SOFT_QPS_MAX  4096u /* low bits of a queue pair number */

static inline struct soft_nic *soft_of(struct swl_nic *nic)
{
    return (struct soft_nic *)nic;
}

/* Random-looking, so that a number of one object is none of another. */
static inline uint64_t soft_mix(uint64_t v)
{
    v += 0x9e3779b97f4a7c15ull;
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
    return v ^ (v >> 31);
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

/* The NIC at a place of the process-wide table, or NULL. */
struct soft_nic *swl_soft_nic_at(uint32_t id);

/* nic.c: between the host and memory that the executor reaches; blocks the host. */
ncclResult_t swl_soft_copy(struct soft_nic *nic, void *to, const void *from, size_t bytes);
/* The shadow of a queue pair, or a part of the port, to the device; nothing for other executors. A new queue
 * pair whole, later without what its peer writes. */
ncclResult_t swl_soft_push_new_qp(struct soft_nic *nic, uint32_t qp);
ncclResult_t swl_soft_push_qp(struct soft_nic *nic, uint32_t qp);
ncclResult_t swl_soft_push_port(struct soft_nic *nic, const void *part, size_t bytes);
/* The state of a queue pair as its executor sees it. */
ncclResult_t swl_soft_pull_qp(struct soft_nic *nic, uint32_t qp, struct soft_qp *state_p);

/* region.c: the table of a port, also that of a wire. A key is found until drop; unused returns when
 * nobody is inside any more who may have found one before. */
static inline uint32_t soft_region_slot(uint32_t key)
{
    return key >> 8 & (SOFT_REGIONS - 1);
}

ncclResult_t swl_soft_region_add(struct soft_port *port, uint64_t serial, void *ptr, uint64_t bytes,
                                 unsigned access, struct swl_nic_region *region_p);
ncclResult_t swl_soft_region_drop(struct soft_port *port, const struct swl_nic_region *region);
ncclResult_t swl_soft_region_unused(struct soft_port *port, uint64_t timeout_ns);

/* far.c: peers of a NIC that blocks or a thread run; of the latter only maps are used. */
struct soft_far {
    struct soft_far *next;
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
ncclResult_t swl_soft_far_get(struct soft_nic *nic, const struct soft_nic *peer,
                              const struct soft_address *address, struct soft_far **far_p);
/* Say in the own port how other processes reach region `slot`. */
void swl_soft_far_offer(struct soft_nic *nic, uint32_t slot);
ncclResult_t swl_soft_far_release(struct soft_nic *nic);

/* hosted.c: what is the same for all NICs that the host serves, proxies too. The view is of a NIC that reads
 * from outside the GPU; ask waits until the executor has done it. */
void swl_host_qp_view(const struct soft_qp *q, const uint64_t *sinks, uint32_t sink_key,
                      struct swl_qp *view_p);
void swl_host_qp_status(const struct soft_qp *q, struct swl_nic_qp_status *status_p);
ncclResult_t swl_host_qp_ask(struct soft_qp *q, enum soft_request what, uint32_t *kick,
                             uint32_t rank, uint64_t timeout_ns);

/* hosted.c: SWIMLANE_SOFT_LINK and _FAULTS of a NIC that can do `can` (enum soft_ability); `who` names it.
 * *link_p is left alone where no link is set. Refuses what it cannot do. */
ncclResult_t swl_host_settings(const struct swl_nic_config *config, const char *who, uint32_t can,
                               struct soft_wire_model *link_p, struct soft_faults *faults_p);
/* Say once what a NIC has done, when it is destroyed. */
void swl_host_report(uint32_t rank, const char *who, const struct swl_soft_stats *stats);

/* probe.c: a NIC outside the table of software NICs whose faults can be set and whose counters be read. */
struct soft_probe {
    uint32_t rank;
    uint32_t *kick;
    struct soft_faults **new_faults; /* taken by the executor */
    void *nic;
    void (*sum)(const void *nic, struct swl_soft_stats *sum);
};
/* False: too many. The caller owns *probe until drop. */
bool swl_soft_probe_add(struct soft_probe *probe);
void swl_soft_probe_drop(const struct soft_probe *probe);
/* Counters of a software NIC. */
void swl_soft_stats_sum(struct soft_nic *nic, struct swl_soft_stats *sum);
void swl_soft_stats_add(struct swl_soft_stats *sum, const struct swl_soft_stats *part);

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
