/* verbs.h: the mlx5 NIC whose queue pairs are made by the public calls of libibverbs and libmlx5.
 *
 * Layer: transport/mlx5, behind nic.h; private to verbs*.c but for the function at the end. Needs no
 * right to firmware commands and no dmabuf for its queues: these lie in pinned host memory.
 *
 * Who owns what. The library takes the memory of rings and records from this NIC, by its allocator
 * calls; mlx5dv_init_obj says where in it they are. The NIC owns these blocks, keeps those that the
 * library has given back (a reset makes a queue pair anew, and freeing pinned memory would wait for the
 * GPU), and frees them behind the context. It maps the pages of doorbell registers that its queue pairs
 * use into the GPU, once each. Kernels read and write rings, records, completions and doorbells through
 * the views; neither libibverbs nor the host posts or polls. One host thread at a time.
 *
 * Completions. A queue pair has a completion queue of its own of two entries, whose overrun is ignored:
 * qp.cuh finds the newest by its index, and nobody takes any. */
#ifndef SWL_MLX5_VERBS_H
#define SWL_MLX5_VERBS_H

#include "transport/mlx5/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pinned memory that the library has, or had: then the next request of the size gets it. */
struct mlv_block {
    struct mlv_block *next;
    void *memory; /* as allocated */
    void *start;  /* whole pages in it */
    size_t bytes;
    bool used;
};

/* A page of doorbell registers and its address for kernels. */
struct mlv_page {
    struct mlv_page *next;
    uint8_t *registers, *mapped;
};

struct mlv_qp {
    struct verbs_cq *cq;
    struct verbs_qp *qp; /* NULL: lost by a failed reset */
    enum swl_nic_qp_state state;
    uint32_t qpn, psn;
    uint8_t *sq, *completions;
    uint32_t *record;
    uint64_t *doorbell; /* for kernels */
    uint32_t depth_log2, completions_mask;
    uint32_t syndrome; /* in the error state, as far as known */
    uint64_t bad_index;
};

struct mlv_nic {
    struct swl_nic base;
    struct mlx5_device device;
    struct verbs_device_attr attr;
    uint32_t max_qps, depth, nqps;
    uint64_t first_index;
    struct mlv_block *blocks;
    struct mlv_page *pages;
    struct swl_nic_region sinks; /* [max_qps] words */
    struct mlv_qp *qps;          /* [max_qps] */
};

static inline struct mlv_nic *mlv_of(struct swl_nic *nic)
{
    return (struct mlv_nic *)nic;
}

/* verbs_memory.c */
/* A block of whole pages, zeroed; NULL: none to be had. */
void *swl_mlv_take(struct mlv_nic *nic, size_t bytes);
/* Is [ptr, ptr + bytes) in such a block, hence within reach of the GPU? */
bool swl_mlv_owns(const struct mlv_nic *nic, const void *ptr, size_t bytes);
/* From now on the library takes its memory from the NIC. */
ncclResult_t swl_mlv_lend(struct mlv_nic *nic);
/* Address for kernels of a doorbell register. */
ncclResult_t swl_mlv_doorbell(struct mlv_nic *nic, void *reg, uint64_t **doorbell_p);
ncclResult_t swl_mlv_unmap_all(struct mlv_nic *nic);
/* Behind the context. */
ncclResult_t swl_mlv_free_all(struct mlv_nic *nic);

/* verbs_qp.c */
ncclResult_t swl_mlv_create_qp(struct swl_nic *base, uint32_t *qp_p);
ncclResult_t swl_mlv_address(struct swl_nic *base, uint32_t qp, struct swl_nic_address *address_p);
ncclResult_t swl_mlv_connect(struct swl_nic *base, uint32_t qp, const struct swl_nic_address *peer);
ncclResult_t swl_mlv_view(struct swl_nic *base, uint32_t qp, struct swl_qp *view_p);
ncclResult_t swl_mlv_query(struct swl_nic *base, uint32_t qp, struct swl_nic_qp_status *status_p);
ncclResult_t swl_mlv_to_error(struct swl_nic *base, uint32_t qp);
ncclResult_t swl_mlv_reset(struct swl_nic *base, uint32_t qp);
/* Both objects of a queue pair; the first failure. */
ncclResult_t swl_mlv_close_qp(struct mlv_nic *nic, struct mlv_qp *q);

/* For mlx5.c, with a table that is loaded already; on success the NIC owns what the table holds. */
ncclResult_t swl_mlv_create_on(struct swl_nic **nic_p, const struct swl_nic_config *config,
                               const struct swl_verbs *verbs);

#ifdef __cplusplus
}
#endif
#endif
