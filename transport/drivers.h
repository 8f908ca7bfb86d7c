/* drivers.h: names of the drivers of NICs, from drivers.def, and what the user may set for them.
 *
 * Layer: transport. */
#ifndef SWL_DRIVERS_H
#define SWL_DRIVERS_H

#include "src/base/options.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Places of the drivers, best first, and their number. */
enum swl_driver_place {
#define DRIVER(NAME, ...) SWL_DRIVER_##NAME,
#include "transport/drivers.def"
    SWL_DRIVERS
};

/* Bits of SWIMLANE_TRANSPORT in the order of its words; 0 = auto. A worse driver has a larger
 * bit. */
enum swl_transport_bit {
    SWL_TRANSPORT_PEER = 1,
#define DRIVER(NAME, ...) SWL_TRANSPORT_##NAME = 2 << SWL_DRIVER_##NAME,
#include "transport/drivers.def"
};

/* Names of the bits, separated by commas; "auto" for 0. 64 bytes hold any. */
void swl_transports_text(uint32_t mask, char *text, size_t bytes);

/* Who runs a software NIC, in the order of the words of SWIMLANE_SOFT_EXECUTOR. */
enum swl_soft_executor {
    SWL_SOFT_AUTO,   /* the emulator: engine; GPUs: blocks */
    SWL_SOFT_BLOCKS, /* blocks appended to every calling kernel */
    SWL_SOFT_THREAD, /* a thread of this process, queues in pinned host memory */
    SWL_SOFT_ENGINE, /* a fiber of the emulator */
};

/* Where the queue pairs of an mlx5 NIC are, in the order of the words of SWIMLANE_MLX5_RINGS. */
enum swl_mlx5_rings {
    SWL_MLX5_RINGS_AUTO, /* the GPU's where firmware commands work, else the host's */
    SWL_MLX5_RINGS_GPU,  /* made by firmware commands (DevX) */
    SWL_MLX5_RINGS_HOST, /* made by public calls, in pinned memory */
};

/* How an add travels on the verbs wire, best first, in the order of the words of
 * SWIMLANE_VERBS_ADDS. */
enum swl_adds {
    SWL_ADDS_ATOMICS,  /* a FETCH_ADD of the device */
    SWL_ADDS_MESSAGES, /* a SEND, applied by the peer's host */
};

/* Settings of RDMA hardware as the user gave them: the SWIMLANE_IB_ variables. */
struct swl_nic_ib {
    const char *hca;             /* syntax of NCCL_IB_HCA; NULL or "" = any */
    int32_t gid_index, sl, tc;   /* -1 = not set */
    uint32_t timeout, retry_cnt; /* 0 = not set */
    int32_t pkey;                /* place in the port's table; -1 = not set */
};

/* What the user has set for NICs: filled in one place, read by the driver that it is for. All zero:
 * nothing is set. Text and *ib are the owner's of the options, who outlives the NICs. */
struct swl_nic_settings {
    const struct swl_nic_ib *ib;    /* NULL = nothing set */
    const char *socket_ifname;      /* SWIMLANE_SOCKET_IFNAME; NULL or "" = any */
    struct swl_wire_model link;     /* SWIMLANE_SOFT_LINK, 0 = no wire model */
    const char *faults;             /* SWIMLANE_SOFT_FAULTS, NULL or "" = none */
    uint32_t executor, soft_blocks; /* SWIMLANE_SOFT_EXECUTOR, _BLOCKS; 0 = auto */
    uint32_t adds;                  /* enum swl_adds: no better one is used */
    uint32_t rings;                 /* enum swl_mlx5_rings */
};

/* ib_p: room for what settings.ib points to. */
struct swl_nic_settings swl_nic_settings_of(const struct swl_options *options,
                                            struct swl_nic_ib *ib_p);

#ifdef __cplusplus
}
#endif
#endif
