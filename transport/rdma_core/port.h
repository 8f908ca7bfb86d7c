/* port.h: which port of which RDMA device, and which of its addresses.
 *
 * Layer: transport/rdma_core. The choices are pure functions; opening hands the context to the
 * caller. Nothing here logs or fails by itself. */
#ifndef SWL_VERBS_PORT_H
#define SWL_VERBS_PORT_H

#include "transport/nic.h"
#include "transport/rdma_core/verbs.h"

#ifdef __cplusplus
extern "C" {
#endif

struct swl_port {
    char name[64]; /* of the device */
    uint8_t number;
    uint8_t mtu; /* 1 = 256 … 5 = 4096 bytes */
    bool ethernet, grh_required;
    uint8_t gid_index;
    uint16_t lid;
    uint16_t pkey, pkey_index; /* both 0: the device has no table of partition keys */
    uint8_t gid[16];
};

enum swl_port_kind {
    SWL_PORT_ANY,  /* InfiniBand or RoCE; no device of iWARP serves */
    SWL_PORT_MLX5, /* mlx5 devices only */
    SWL_PORT_DEVX, /* the same, opened for DevX */
};

struct swl_port_want {
    const char *hca;                           /* syntax of NCCL_IB_HCA; NULL or "" = any */
    int32_t gid_index;                         /* -1 = choose */
    uint32_t kind;                             /* enum swl_port_kind */
    const struct swl_nic_proximity *proximity; /* which comes first; NULL = as they are listed */
    int32_t pkey;                              /* place in the port's table, -1 = choose */
};

/* NCCL_IB_HCA: names or beginnings of names, each with an optional :port, separated by commas;
 * "=" before the list: whole names only; "^" before it: all but these. */
bool swl_hca_matches(const char *spec, const char *name, uint32_t port);

/* The entry to use, or -1: of Ethernet a RoCE v2 address that routers forward, IPv4 before IPv6; of
 * InfiniBand the first, or the second where it carries the LID of a router. */
int swl_gid_choose(const struct verbs_gid_entry *entries, uint32_t n, bool ethernet);

/* Open the first active port that is wanted, of the nearest device that has one. The context is the
 * caller's. false: `why` says what keeps the first wanted device from being used, or that there is
 * none. */
bool swl_port_open(const struct swl_verbs *verbs, const struct swl_port_want *want,
                   struct ibv_context **context_p, struct swl_port *port_p, char *why,
                   size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
