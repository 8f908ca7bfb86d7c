/* host.h: what NICs that a CPU serves share: the software NIC and proxies. Layer:
 * transport/host. */
#pragma once

#include "transport/host/port.h"
#include "transport/nic.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SOFT_NICS_MAX 8192u
#define SOFT_QPS_MAX  4096u /* low bits of a queue pair number */

/* Random-looking, so that a number of one object is none of another. */
static inline uint64_t soft_mix(uint64_t v)
{
    v += 0x9e3779b97f4a7c15ull;
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
    return v ^ (v >> 31);
}

/* region.c: the table of a port, also that of a wire. A key is found until drop; unused returns
 * when nobody is inside any more who may have found one before. */
static inline uint32_t soft_region_slot(uint32_t key)
{
    return key >> 8 & (SOFT_REGIONS - 1);
}

ncclResult_t swl_host_region_add(struct soft_port *port, uint64_t serial, void *ptr, uint64_t bytes,
                                 unsigned access, struct swl_nic_region *region_p);
ncclResult_t swl_host_region_drop(struct soft_port *port, const struct swl_nic_region *region);
ncclResult_t swl_host_region_unused(struct soft_port *port, uint64_t timeout_ns);

/* queue_pair.c: what is the same for all NICs that the host serves, proxies too. The view is of a
 * NIC that reads from outside the GPU; ask waits until the executor has done it. */
void swl_host_qp_view(const struct soft_qp *q, const uint64_t *sinks, uint32_t sink_key,
                      struct swl_qp *view_p);
void swl_host_qp_status(const struct soft_qp *q, struct swl_nic_qp_status *status_p);
ncclResult_t swl_host_qp_ask(struct soft_qp *q, enum soft_request what, uint32_t *kick,
                             uint32_t rank, uint64_t timeout_ns);

/* queue_pair.c: SWIMLANE_SOFT_LINK and _FAULTS of a NIC that can do `can` (enum soft_ability);
 * `who` names it. *link_p is left alone where no link is set. Refuses what it cannot do. */
ncclResult_t swl_host_settings(const struct swl_nic_config *config, const char *who, uint32_t can,
                               struct soft_wire_model *link_p, struct soft_faults *faults_p);
/* Say once what a NIC has done, when it is destroyed. */
void swl_host_report(uint32_t rank, const char *who, const struct swl_soft_stats *stats);

/* probe.c: a NIC whose faults can be set and whose counters be read, see probe.h. */
struct host_probe {
    uint32_t rank, can; /* enum soft_ability */
    void *nic;
    /* The NIC's from now on. */
    ncclResult_t (*set_faults)(void *nic, struct soft_faults *faults);
    void (*sum)(const void *nic, struct swl_soft_stats *sum);
};
/* False: too many. The caller owns *probe until drop. */
bool swl_host_probe_add(struct host_probe *probe);
void swl_host_probe_drop(const struct host_probe *probe);
/* For set_faults of a NIC that an executor of the host serves: it takes them when it sees the
 * kick. */
ncclResult_t swl_host_hand_faults(struct soft_faults **place, uint32_t *kick,
                                  struct soft_faults *faults);
void swl_host_stats_add(struct swl_soft_stats *sum, const struct swl_soft_stats *part);

#ifdef __cplusplus
}
#endif
