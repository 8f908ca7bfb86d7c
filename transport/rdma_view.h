/* rdma_view.h: the network of a rank as kernels see it. C and CUDA. Owner: swl_rdma (rdma.h). */
#pragma once

#include <stdint.h>

struct swl_qp;    /* transport/qp_view.h: device view of a queue pair */
struct soft_port; /* transport/host/port.h */

/* Memory at both ends of a connection, by the keys of the two NICs that it connects. Index =
 * connection index. */
struct swl_rdma_remote {
    uint64_t base;         /* remote address of the window's first byte */
    uint32_t signal_rkey;  /* for [0, signal_bytes) */
    uint32_t payload_rkey; /* for the rest */
    uint64_t error_word;   /* remote address of the peer's error word, 0 = none */
    uint32_t error_word_rkey;
    uint32_t payload_lkey; /* own window, from signal_bytes on */
};

/* Everything kernels need; the arrays lie in device memory. */
struct swl_rdma_view {
    struct swl_qp *qps;                    /* [nconnections] */
    const struct swl_rdma_remote *remotes; /* [nconnections] */
    uint32_t nconnections;
    uint32_t nic_blocks;   /* last blocks of every grid, which run the software NIC; 0 = none do */
    struct soft_port *nic; /* what they serve */
};
