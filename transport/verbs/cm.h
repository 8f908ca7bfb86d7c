/* cm.h: librdmacm, loaded at run time: how iWARP devices connect.
 *
 * Layer: transport/verbs. What we use of its binary interface, declared by us as in abi.h;
 * rdmacm_abi_test compares every struct, number and call with the real header where it is installed.
 * The table belongs to whoever loaded it. */
#ifndef SWL_VERBS_CM_H
#define SWL_VERBS_CM_H

#include "transport/verbs/abi.h"

#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CM_PORT_SPACE_TCP = 0x0106,
    CM_ADDR_RESOLVED = 0, /* cm_event.event */
    CM_ADDR_ERROR = 1,
    CM_ROUTE_RESOLVED = 2,
    CM_ROUTE_ERROR = 3,
    CM_CONNECT_REQUEST = 4,
    CM_CONNECT_ERROR = 6,
    CM_UNREACHABLE = 7,
    CM_REJECTED = 8,
    CM_ESTABLISHED = 9,
    CM_DISCONNECTED = 10,
    CM_DEVICE_REMOVAL = 11,
};

struct cm_channel {
    int fd;
};

/* Head; the library makes these objects. */
struct cm_id {
    struct verbs_head *verbs; /* the library's own context of the device; NULL: none yet */
    struct cm_channel *channel;
    void *context, *qp;
};

struct cm_param {
    const void *private_data;
    uint8_t private_data_len, responder_resources, initiator_depth, flow_control;
    uint8_t retry_count, rnr_retry_count, srq;
    uint32_t qp_num;
};

struct cm_event {
    struct cm_id *id, *listen_id;
    uint32_t event;
    int status;
    struct cm_param conn;
};

/* clang-format off */
#define CM_CALLS(X) \
    X(struct cm_channel *, rdma_create_event_channel, (void)) \
    X(void, rdma_destroy_event_channel, (struct cm_channel *)) \
    X(int, rdma_create_id, (struct cm_channel *, struct cm_id **, void *, int)) \
    X(int, rdma_destroy_id, (struct cm_id *)) \
    X(int, rdma_bind_addr, (struct cm_id *, struct sockaddr *)) \
    X(int, rdma_listen, (struct cm_id *, int)) \
    X(uint16_t, rdma_get_src_port, (struct cm_id *)) \
    X(int, rdma_resolve_addr, (struct cm_id *, struct sockaddr *, struct sockaddr *, int)) \
    X(int, rdma_resolve_route, (struct cm_id *, int)) \
    X(int, rdma_connect, (struct cm_id *, struct cm_param *)) \
    X(int, rdma_accept, (struct cm_id *, struct cm_param *)) \
    X(int, rdma_reject, (struct cm_id *, const void *, uint8_t)) \
    X(int, rdma_get_cm_event, (struct cm_channel *, struct cm_event **)) \
    X(int, rdma_ack_cm_event, (struct cm_event *))
/* clang-format on */

struct swl_cm {
#define CM_FIELD(result, symbol, arguments) result(*symbol) arguments;
    CM_CALLS(CM_FIELD)
#undef CM_FIELD
    void *library; /* from dlopen; NULL = not loaded by us */
};

/* file: NULL = by soname. On failure nothing stays loaded and `why` (of why_bytes) names the library or
 * symbol that is missing. */
bool swl_cm_load(struct swl_cm *cm, const char *file, char *why, size_t why_bytes);
/* Also of a table that was never loaded. */
void swl_cm_unload(struct swl_cm *cm);

#ifdef __cplusplus
}
#endif
#endif
