/* front.h: the front end of every proxy NIC: struct swl_nic_ops on top of a wire (wire.h).
 *
 * Layer: transport/proxy, behind nic.h. Send queues, doorbells, records and completions lie in
 * pinned host memory of the NIC. One thread serves it (a fiber of the emulator): it takes new
 * entries, hands them to the wire in batches and publishes completions. After connect a queue pair
 * is the server's; the host asks it for changes of state and waits, bounded. Words that both touch
 * are marked "shared". */
#ifndef SWL_PROXY_FRONT_H
#define SWL_PROXY_FRONT_H

#include "transport/host/host.h"
#include "transport/nic.h"
#include "transport/proxy/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PROXY_QPS_MAX 4096u /* low bits of a queue pair number */

/* Of a queue pair, beside struct soft_qp. */
struct proxy_turn {
    uint64_t acked; /* before this, as the wire counts, all is done */
    uint64_t run;   /* first entry of the newest run of WRITEs */
    uint64_t fail_ns;
    uint32_t syndrome; /* the first entry that is not done has failed at the wire */
};

struct proxy_nic {
    struct swl_nic base;
    const struct swl_wire_ops *wire_ops;
    struct swl_wire *wire;
    struct swl_wire_caps caps;
    uint32_t rank, max_qps, depth_log2;
    int device;
    uint64_t first_index, timeout_ns, serial;
    uint8_t *memory;     /* pinned: doorbells, sinks, then record, completion and queue of each */
    uint64_t *doorbells; /* [max_qps] */
    uint64_t *sink;      /* [max_qps] */
    uint32_t sink_key;
    struct soft_qp *qps; /* [max_qps]; qp.executed = entries that the wire has taken */
    struct soft_op *ops; /* [max_qps][depth] */
    uint64_t *looked;    /* [max_qps] server: doorbell words at its last look */
    struct host_probe probe;
    /* shared */
    struct soft_faults *new_faults; /* taken by the server */
    uint32_t nqps;
    uint32_t kick; /* counts requests of the host */
    uint32_t stop, ended;
    /* server */
    uint32_t kicked;
    struct proxy_turn *turns; /* [max_qps] */
    struct soft_wire_model link;
    struct soft_faults faults;
    uint64_t random;    /* state of an own stream, 0 = the run's */
    uint64_t egress_ns; /* the modelled wire is taken until then */
    uint64_t next_ns;   /* something held back is due then */
    uint64_t back_ns;   /* end of the next restart, UINT64_MAX = none */
    uint64_t holds_ns;  /* between an answer of the wire and its completion */
    uint32_t modelled, reorders, down;
};

/* The create of a NIC over this wire; the driver's table is `ops`. */
ncclResult_t swl_proxy_create(struct swl_nic **nic_p, const struct swl_nic_config *config,
                              const struct swl_nic_ops *ops, const struct swl_wire_ops *wire_ops);

/* front.c, queue.c: the other operations of nic.h. */
ncclResult_t swl_proxy_destroy(struct swl_nic *base);
void swl_proxy_caps(const struct swl_nic *base, struct swl_nic_caps *caps_p);
ncclResult_t swl_proxy_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                              struct swl_nic_region *region_p);
ncclResult_t swl_proxy_dereg_mr(struct swl_nic *base, const struct swl_nic_region *region);
ncclResult_t swl_proxy_create_qp(struct swl_nic *base, uint32_t *qp_p);
ncclResult_t swl_proxy_address(struct swl_nic *base, uint32_t qp,
                               struct swl_nic_address *address_p);
ncclResult_t swl_proxy_connect(struct swl_nic *base, uint32_t qp,
                               const struct swl_nic_address *peer);
ncclResult_t swl_proxy_view(struct swl_nic *base, uint32_t qp, struct swl_qp *view_p);
ncclResult_t swl_proxy_query(struct swl_nic *base, uint32_t qp, struct swl_nic_qp_status *status_p);
ncclResult_t swl_proxy_to_error(struct swl_nic *base, uint32_t qp);
ncclResult_t swl_proxy_reset(struct swl_nic *base, uint32_t qp);

/* A driver's table: its name, its create, and the operations above. */
#define SWL_PROXY_OPS(its_name, its_create)                                                        \
    {                                                                                              \
        .name = (its_name), .create = (its_create), .destroy = swl_proxy_destroy,                  \
        .caps = swl_proxy_caps, .reg_mr = swl_proxy_reg_mr, .dereg_mr = swl_proxy_dereg_mr,        \
        .create_qp = swl_proxy_create_qp, .address = swl_proxy_address,                            \
        .connect = swl_proxy_connect, .view = swl_proxy_view, .query = swl_proxy_query,            \
        .to_error = swl_proxy_to_error, .reset = swl_proxy_reset                                   \
    }

/* serve_sim.cc, serve_cuda.cc: serve until nic->stop, then set nic->ended. */
void swl_proxy_serve(void *nic);

static inline struct proxy_nic *proxy_of(struct swl_nic *nic)
{
    return (struct proxy_nic *)nic;
}

/* Something has changed for the server; pairs with its acquire of kick. */
static inline void proxy_kick(struct proxy_nic *nic)
{
    __atomic_fetch_add(&nic->kick, 1, __ATOMIC_RELEASE);
}

#ifdef __cplusplus
}
#endif
#endif
