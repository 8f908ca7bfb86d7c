/* nic.h: what a NIC driver offers to rdma.c: one table of operations for each kind of NIC.
 *
 * Layer: transport. A NIC belongs to one rank and is used by one host thread at a time. Every
 * operation that fails has said why (swl_fail). Handles: memory regions by their keys, queue pairs
 * by a number from create_qp (0 … max_qps - 1, in order of creation = connection index). */
#ifndef SWL_NIC_H
#define SWL_NIC_H

#include "src/base/util.h"
#include "transport/drivers.h"
#include "transport/nic_kinds.h"
#include "transport/qp_view.h"

#include <nccl.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_nic_ops;

/* First member of every driver's NIC. */
struct swl_nic {
    const struct swl_nic_ops *ops;
};

/* Text about the variable that gave one of them, which begins with its name. */
#define SWL_IB_VARIABLE(ending, text)                                                              \
    (swl_env("SWIMLANE_IB_" ending) || !swl_env("NCCL_IB_" ending) ? "SWIMLANE_IB_" ending text    \
                                                                   : "NCCL_IB_" ending text)

/* Which NIC, where there are several: the nearest to the GPU. */
struct swl_nic_proximity {
    const char *root; /* of /sys; NULL = "/" */
    const char *gpu;  /* its PCI address as in /sys; NULL = unknown */
    uint32_t turn;    /* among equally near ones the turn-th, modulo their number */
    uint32_t nth;     /* of the usable ones in that order, from 0: a rank may have several */
};

struct swl_nic_config {
    uint32_t rank;
    int device;
    uint32_t max_qps;
    /* entries of a send queue, power of two, 2 … 32768; fewer where the device has fewer */
    uint32_t depth;
    /* index of the first entry; 0 unless a test looks at wrapping */
    uint64_t first_index;
    uint64_t timeout_ns; /* bound of every operation that waits */
    /* of a peer that owes an answer, where the host watches; 0 = timeout_ns */
    uint64_t silence_ns;
    /* blocks of every calling kernel that will run the NIC */
    uint32_t gpu_blocks;
    const struct swl_nic_proximity *proximity; /* NULL = as the devices are listed */
    struct swl_nic_settings settings;
};

struct swl_nic_caps {
    const char *name;   /* "soft", "mlx5", ... */
    const char *device; /* of hardware, with the NIC's lifetime; NULL = none or unknown */
    uint32_t max_depth;
    uint32_t max_qps;
    uint32_t gpu_blocks; /* blocks the NIC needs in the grid of every calling kernel */
    uint64_t max_region_bytes;
    uint64_t device_bytes; /* device memory this NIC holds */
    void *served;          /* by those blocks, device memory; NULL without them */
};

struct swl_nic_region {
    uint32_t lkey, rkey;
    uint64_t address; /* what peers put into their requests for the first byte */
};

/* Address of a queue pair: opaque to everybody but the same kind of NIC, sent by value. */
struct swl_nic_address {
    uint8_t bytes[192];
};

struct swl_nic_qp_status {
    enum swl_nic_qp_state state;
    uint32_t qpn;
    uint32_t syndrome; /* enum swl_syndrome of the first error, 0 = none or unknown */
    uint64_t index;    /* entry of the first error */
};

struct swl_nic_ops {
    const char *name;
    ncclResult_t (*create)(struct swl_nic **nic_p, const struct swl_nic_config *config);
    /* Finishes whatever runs. All regions and queue pairs go with it. */
    ncclResult_t (*destroy)(struct swl_nic *nic);
    void (*caps)(const struct swl_nic *nic, struct swl_nic_caps *caps_p);
    /* The memory must stay until dereg_mr, which returns when the NIC has stopped using it. */
    ncclResult_t (*reg_mr)(struct swl_nic *nic, void *ptr, uint64_t bytes, unsigned access,
                           struct swl_nic_region *region_p);
    ncclResult_t (*dereg_mr)(struct swl_nic *nic, const struct swl_nic_region *region);
    ncclResult_t (*create_qp)(struct swl_nic *nic, uint32_t *qp_p);
    ncclResult_t (*address)(struct swl_nic *nic, uint32_t qp, struct swl_nic_address *address_p);
    /* INIT to READY. Nothing may be posted before both ends are connected. */
    ncclResult_t (*connect)(struct swl_nic *nic, uint32_t qp, const struct swl_nic_address *peer);
    /* The device view as of now: indices at their start, queue empty. */
    ncclResult_t (*view)(struct swl_nic *nic, uint32_t qp, struct swl_qp *view_p);
    ncclResult_t (*query)(struct swl_nic *nic, uint32_t qp, struct swl_nic_qp_status *status_p);
    /* Everything posted is flushed; nothing more is sent, nothing from the peer is taken. */
    ncclResult_t (*to_error)(struct swl_nic *nic, uint32_t qp);
    /* To INIT: queue emptied, indices back at their start, peer forgotten. connect follows. */
    ncclResult_t (*reset)(struct swl_nic *nic, uint32_t qp);
};

/* "remote access error" and the like: enum swl_syndrome in words. */
const char *swl_syndrome_text(uint32_t syndrome);
/* For drivers: `ib`, or settings that are all unset. */
const struct swl_nic_ib *swl_nic_ib_of(const struct swl_nic_ib *ib);
/* For drivers: numbers that no NIC takes, regions that no NIC registers. */
ncclResult_t swl_nic_check_config(const struct swl_nic_config *config, uint32_t most_qps);
/* The largest depth of a send queue that is not above `depth` and that the device has, whose queues
 * take `most` entries; said when it is lower. 0: the device has none of 2, and why (swl_fail). */
uint32_t swl_nic_depth(uint32_t rank, const char *device, uint32_t depth, uint64_t most);
ncclResult_t swl_nic_check_region(uint32_t rank, const void *ptr, uint64_t bytes, unsigned access);

#ifdef __cplusplus
}
#endif
#endif
