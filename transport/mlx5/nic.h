/* nic.h: the mlx5 NIC: what both ways to make queue pairs share, and the table of a way.
 *
 * Layer: transport/mlx5, behind transport/nic.h; private to this folder. The NIC owns the table of
 * rdma-core's functions, the open device, its queue pairs, and what its way has opened. No threads
 * and no locks: one host thread at a time. Kernels read and write rings, records, completions and
 * doorbells through the views; the host touches them only where no kernel may: before a queue pair
 * is connected, after it was reset, and to read the completion of one that has failed. */
#ifndef SWL_MLX5_NIC_H
#define SWL_MLX5_NIC_H

#include "transport/mlx5/commands.h"
#include "transport/mlx5/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mlx5_nic;
struct mlx5_qp;

/* A way to make queue pairs. Those of the host thread; what fails has said why. */
struct mlx5_maker {
    bool devx; /* by firmware commands */
    /* Behind the device; close and free_memory follow also where it has failed. */
    ncclResult_t (*open)(struct mlx5_nic *nic, const struct swl_nic_config *config);
    ncclResult_t (*close)(struct mlx5_nic *nic);
    ncclResult_t (*free_memory)(struct mlx5_nic *nic); /* behind the end of the device */
    /* Queue pair i, in init; close_qp follows where it has failed, and reports the first
     * failure. */
    ncclResult_t (*open_qp)(struct mlx5_nic *nic, struct mlx5_qp *q, uint32_t i);
    ncclResult_t (*close_qp)(struct mlx5_nic *nic, struct mlx5_qp *q);
    struct rc_end (*end)(const struct mlx5_nic *nic, const struct mlx5_qp *q);
    /* Init to ready; a failure leaves init or error, and nothing that takes packets. */
    ncclResult_t (*connect)(struct mlx5_nic *nic, struct mlx5_qp *q, struct rc_path *path);
    /* Of one that was ready: does it still send? If not, why, as far as it is known. */
    ncclResult_t (*look)(struct mlx5_nic *nic, struct mlx5_qp *q, bool *sends_p);
    ncclResult_t (*stop)(struct mlx5_nic *nic, struct mlx5_qp *q);
    /* Any state to init, queue empty; in error after a failure. */
    ncclResult_t (*restart)(struct mlx5_nic *nic, struct mlx5_qp *q);
    void (*view)(const struct mlx5_nic *nic, const struct mlx5_qp *q, struct swl_qp *view_p);
};

/* Where a queue pair's parts lie, from the start of the rings' memory. */
struct devx_layout {
    uint64_t cq, cq_record; /* entries of completions, [depth]; their record */
    uint64_t sq, sq_record;
};

struct mlx5_qp {
    enum swl_nic_qp_state state;
    bool lost; /* its objects, by a failed reset */
    uint32_t qpn, psn;
    uint32_t syndrome; /* in the error state, as far as known */
    uint64_t bad_index;
    /* by firmware commands */
    struct mlx5dv_devx_obj *cq_object, *qp_object;
    uint32_t cqn, ece;
    struct devx_layout at;
    /* by public calls */
    struct verbs_cq *cq;
    struct verbs_qp *qp;
    uint8_t *sq, *completions;
    uint32_t *record;
    uint64_t *doorbell; /* for kernels */
    uint32_t depth_log2, completions_mask;
};

/* All rings, records and sinks of the way by firmware commands. */
struct devx_rings {
    enum mlx5_way way;
    void *memory; /* as allocated */
    uint8_t *base;
    uint64_t allocated_bytes, bytes;
    struct mlx5_umem *umem;
    uint64_t sink; /* [max_qps] words */
};

struct mlx5_verbs_block; /* verbs.h */
struct mlx5_verbs_page;

struct mlx5_nic {
    struct swl_nic base;
    const struct mlx5_maker *maker;
    struct mlx5_device device;
    uint32_t max_qps, nqps, max_depth;
    uint64_t first_index, timeout_ns;
    uint64_t device_bytes;       /* of the GPU */
    struct swl_nic_region sinks; /* [max_qps] words */
    struct mlx5_qp *qps;         /* [max_qps] */
    /* by firmware commands */
    uint32_t depth_log2;
    struct mlx5_caps caps;
    uint32_t event_queue;
    struct mlx5_uar *uar;
    uint64_t *doorbell; /* address for kernels; NULL = not mapped */
    void *stream;       /* copies of the host into rings of the GPU */
    struct devx_rings rings;
    /* by public calls */
    uint32_t depth;
    struct verbs_device_attr attr;
    struct mlx5_verbs_block *blocks;
    struct mlx5_verbs_page *pages;
};

static inline struct mlx5_nic *mlx5_of(struct swl_nic *nic)
{
    return (struct mlx5_nic *)nic;
}

/* The two ways: devx.c, verbs.c. */
extern const struct mlx5_maker swl_devx_maker, swl_mlx5_verbs_maker;
/* With a table that is loaded already; on success the NIC owns what the table holds. */
ncclResult_t swl_mlx5_make(struct swl_nic **nic_p, const struct swl_nic_config *config,
                           const struct swl_verbs *verbs, const struct mlx5_maker *maker);

#ifdef __cplusplus
}
#endif
#endif
