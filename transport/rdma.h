/* rdma.h: the network of one rank of a group: its NICs, its registered window, its queue pairs.
 *
 * Layer: transport, below src/. Owner: the group, which creates it once and destroys it last.
 * A *connection* is one connected RC queue pair between two ranks; both ends list it with the same
 * key. */
#ifndef SWL_RDMA_H
#define SWL_RDMA_H

#include "transport/drivers.h"
#include "transport/rdma_view.h"
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_nic_address; /* transport/nic.h */
struct swl_nic_qp_status;

#define SWL_RDMA_NICS_MAX 8u /* of a rank, of each driver */

struct swl_rdma_connection {
    uint32_t peer;   /* rank at the other end */
    uint64_t key;    /* the same number at both ends, unique between the two ranks; of several NICs
                      its low half says which: modulo their number */
    uint32_t driver; /* enum swl_transport_bit, the same at both ends; 0 = as configured */
};

struct swl_rdma_config {
    uint32_t rank, nranks;
    int device;
    const struct swl_rdma_connection *connections; /* [nconnections] */
    uint32_t nconnections;
    uint32_t nics; /* of this rank and driver; 0 = 1, as always where blocks of kernels run it */
    uint32_t queue_depth;  /* entries of a send queue, power of two, 0 = built-in */
    void *window;          /* symmetric window of this rank, device memory */
    uint64_t signal_bytes; /* [0, signal_bytes): signal words, registered strict */
    uint64_t window_bytes; /* of the whole window; the rest is payload, relaxed */
    uint64_t *error_word;  /* in host memory, peers may write it, registered strict; NULL = none */
    void *tables;          /* device memory of swl_rdma_table_bytes(nconnections), the caller's */
    uint64_t timeout_ns;   /* of every operation of the host that waits */
    uint64_t silence_ns;   /* as in nic.h */
    uint32_t driver;       /* enum swl_transport_bit of connections that name none */
    struct swl_nic_settings settings;
    uint32_t gpu_blocks;  /* of every kernel, by swl_rdma_blocks on this rank */
    uint64_t first_index; /* test: first index of every queue, 0 otherwise */
    /* collective exchange among all ranks, provided by the group's bootstrap */
    ncclResult_t (*allgather)(void *context, const void *mine, void *all, size_t bytes_each);
    void *context;
};

struct swl_rdma;

/* Bytes of device memory for the tables that kernels read. */
uint64_t swl_rdma_table_bytes(uint32_t nconnections);
/* Blocks that every kernel of a group of several nodes needs for a NIC of the driver that runs on
 * blocks, if the group uses it; 0: none. multi_process: the ranks are in several processes. */
uint32_t swl_rdma_blocks(const struct swl_nic_settings *settings, bool multi_process);
/* Collective over all nranks, also for ranks with nconnections == 0. Blocks the host, bounded. Also
 * after a failure *rdma_p, unless it is NULL then, is to be destroyed: not here, as that may wait
 * for an exchange that hangs. */
ncclResult_t swl_rdma_create(struct swl_rdma **rdma_p, const struct swl_rdma_config *config);
/* Local. NULL is a no-op. No work of the group may be running. */
ncclResult_t swl_rdma_destroy(struct swl_rdma *rdma);
const struct swl_rdma_view *swl_rdma_view(const struct swl_rdma *rdma);

/* Repair of connections, while no kernel of this rank runs; local, the other end does the same
 * (qp_recovery.h).
 * */
ncclResult_t swl_rdma_query(struct swl_rdma *rdma, uint32_t connection,
                            struct swl_nic_qp_status *status_p);
/* Nothing of before leaves or arrives any more; *mine_p: where the other end finds it from now
 * on. */
ncclResult_t swl_rdma_reset(struct swl_rdma *rdma, uint32_t connection,
                            struct swl_nic_address *mine_p);
/* Behind a reset at both ends. Kernels see an empty queue. */
ncclResult_t swl_rdma_reconnect(struct swl_rdma *rdma, uint32_t connection,
                                const struct swl_nic_address *theirs);
/* Bytes of device memory that the NICs hold. */
uint64_t swl_rdma_device_bytes(const struct swl_rdma *rdma);
/* "soft", "mlx5 on mlx5_0, mlx5_1; verbs on mlx5_0", ... or "none" */
const char *swl_rdma_name(const struct swl_rdma *rdma);

#ifdef __cplusplus
}
#endif
#endif
