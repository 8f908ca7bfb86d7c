/* verbs.h: queue pairs of an mlx5 NIC by the public calls of libibverbs and libmlx5.
 *
 * Layer: transport/mlx5, behind nic.h; private to verbs*.c. Needs no
 * right to firmware commands and no dmabuf for its queues: these lie in pinned host memory.
 *
 * Who owns what. The library takes the memory of rings and records from this NIC, by its allocator
 * calls; mlx5dv_init_obj says where in it they are. The NIC owns these blocks, keeps those that the
 * library has given back (a reset makes a queue pair anew, and freeing pinned memory would wait for
 * the GPU), and frees them behind the context. It maps the pages of doorbell registers that its
 * queue pairs use into the GPU, once each. Kernels read and write rings, records, completions and
 * doorbells through the views; neither libibverbs nor the host posts or polls. One host thread at a
 * time.
 *
 * Completions. A queue pair has a completion queue of its own of two entries, whose overrun is
 * ignored: qp.cuh finds the newest by its index, and nobody takes any. */
#ifndef SWL_MLX5_VERBS_H
#define SWL_MLX5_VERBS_H

#include "transport/mlx5/nic.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pinned memory that the library has, or had: then the next request of the size gets it. */
struct mlx5_verbs_block {
    struct mlx5_verbs_block *next;
    void *memory; /* as allocated */
    void *start;  /* whole pages in it */
    size_t bytes;
    bool used;
};

/* A page of doorbell registers and its address for kernels. */
struct mlx5_verbs_page {
    struct mlx5_verbs_page *next;
    uint8_t *registers, *mapped;
};

/* verbs_memory.c */
/* A block of whole pages, zeroed; NULL: none to be had. */
void *swl_mlx5_verbs_take(struct mlx5_nic *nic, size_t bytes);
/* Is [ptr, ptr + bytes) in such a block, hence within reach of the GPU? */
bool swl_mlx5_verbs_owns(const struct mlx5_nic *nic, const void *ptr, size_t bytes);
/* From now on the library takes its memory from the NIC. */
ncclResult_t swl_mlx5_verbs_lend(struct mlx5_nic *nic);
/* Address for kernels of a doorbell register. */
ncclResult_t swl_mlx5_verbs_doorbell(struct mlx5_nic *nic, void *reg, uint64_t **doorbell_p);
ncclResult_t swl_mlx5_verbs_unmap_all(struct mlx5_nic *nic);
/* Behind the context. */
ncclResult_t swl_mlx5_verbs_free_all(struct mlx5_nic *nic);

/* verbs_qp.c: what struct mlx5_maker says of each. */
ncclResult_t swl_mlx5_verbs_open_qp(struct mlx5_nic *nic, struct mlx5_qp *q, uint32_t i);
ncclResult_t swl_mlx5_verbs_close_qp(struct mlx5_nic *nic, struct mlx5_qp *q);
struct rc_end swl_mlx5_verbs_end(const struct mlx5_nic *nic, const struct mlx5_qp *q);
ncclResult_t swl_mlx5_verbs_connect(struct mlx5_nic *nic, struct mlx5_qp *q, struct rc_path *path);
ncclResult_t swl_mlx5_verbs_look(struct mlx5_nic *nic, struct mlx5_qp *q, bool *sends_p);
ncclResult_t swl_mlx5_verbs_stop(struct mlx5_nic *nic, struct mlx5_qp *q);
ncclResult_t swl_mlx5_verbs_restart(struct mlx5_nic *nic, struct mlx5_qp *q);
void swl_mlx5_verbs_view(const struct mlx5_nic *nic, const struct mlx5_qp *q,
                         struct swl_qp *view_p);

#ifdef __cplusplus
}
#endif
#endif
