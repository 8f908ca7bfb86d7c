/* devx.h: the mlx5 NIC whose queue pairs are made by raw firmware commands (DevX).
 *
 * Layer: transport/mlx5, behind nic.h; private to devx*.c but for the function at the end.
 *
 * Who owns what. The NIC owns, and gives back in reverse order: the table of rdma-core's functions,
 * the context of the device, a protection domain, a page of doorbell registers (UAR) with its mapping
 * into the GPU, one piece of memory for all rings with its registration (umem), the registered regions
 * and the queue pairs with their completion queues. Kernels read and write rings, records, completions
 * and doorbells through the views; the host touches them only where no kernel may: before a queue pair
 * is connected, after it was reset, and to read the completion of one that has failed. There are no
 * threads and no locks: a NIC is used by one host thread at a time, and each command returns when the
 * firmware has answered. */
#ifndef SWL_MLX5_DEVX_H
#define SWL_MLX5_DEVX_H

#include "transport/mlx5/commands.h"
#include "transport/mlx5/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a queue pair's parts lie, from the start of the rings' memory. */
struct devx_layout {
    uint64_t cq, cq_record; /* entries of completions, [depth]; their record */
    uint64_t sq, sq_record;
};

struct devx_qp {
    struct mlx5dv_devx_obj *cq, *qp;
    uint32_t cqn, qpn;
    enum swl_nic_qp_state state;
    uint32_t psn, ece;
    struct devx_layout at;
    uint32_t syndrome; /* in the error state, as far as known */
    uint64_t bad_index;
};

/* All rings, records and sinks. */
struct devx_rings {
    enum mlx5_way way;
    void *memory; /* as allocated */
    uint8_t *base;
    uint64_t allocated_bytes, bytes;
    struct mlx5_umem *umem;
    uint64_t sink; /* [max_qps] words */
    struct swl_nic_region sink_region;
};

struct devx_nic {
    struct swl_nic base;
    struct mlx5_device device;
    uint32_t max_qps, depth_log2, nqps;
    uint64_t first_index, timeout_ns;
    struct mlx5_caps caps;
    uint32_t event_queue;
    struct mlx5_uar *uar;
    uint64_t *doorbell; /* address for kernels; NULL = not mapped */
    void *stream;       /* copies of the host into rings of the GPU */
    struct devx_rings rings;
    struct devx_qp *qps; /* [max_qps] */
};

static inline struct devx_nic *devx_of(struct swl_nic *nic)
{
    return (struct devx_nic *)nic;
}

/* devx_memory.c */
ncclResult_t swl_devx_open_rings(struct devx_nic *nic);
ncclResult_t swl_devx_close_rings(struct devx_nic *nic);
/* Offsets of queue pair i; pure in max_qps and depth. */
struct devx_layout swl_devx_layout(const struct devx_nic *nic, uint32_t i);
/* Copy `bytes` to (from) offset `at` of the rings and wait. */
ncclResult_t swl_devx_put(struct devx_nic *nic, uint64_t at, const void *from, size_t bytes);
ncclResult_t swl_devx_get(struct devx_nic *nic, uint64_t at, void *to, size_t bytes);

/* devx_qp.c */
ncclResult_t swl_devx_create_qp(struct swl_nic *base, uint32_t *qp_p);
ncclResult_t swl_devx_address(struct swl_nic *base, uint32_t qp, struct swl_nic_address *address_p);
ncclResult_t swl_devx_connect(struct swl_nic *base, uint32_t qp,
                              const struct swl_nic_address *peer);
ncclResult_t swl_devx_view(struct swl_nic *base, uint32_t qp, struct swl_qp *view_p);
ncclResult_t swl_devx_query(struct swl_nic *base, uint32_t qp, struct swl_nic_qp_status *status_p);
ncclResult_t swl_devx_to_error(struct swl_nic *base, uint32_t qp);
ncclResult_t swl_devx_reset(struct swl_nic *base, uint32_t qp);
/* Both objects of a queue pair; the first failure. */
ncclResult_t swl_devx_destroy_qp(struct devx_nic *nic, struct devx_qp *q);

/* For mlx5.c, with a table that is loaded already; on success the NIC owns what the table holds. */
ncclResult_t swl_devx_create_on(struct swl_nic **nic_p, const struct swl_nic_config *config,
                                const struct swl_verbs *verbs);

#ifdef __cplusplus
}
#endif
#endif
