/* verbs_wire.h: the wire of a proxy NIC over any RDMA device that libibverbs drives.
 *
 * Layer: transport/proxy, below front.c. verbs_wire.c has the device and its regions, verbs_queue.c
 * queue pairs and their connection, verbs_post.c the serving thread. Every queue pair has a completion
 * queue of its own, and a lock: the serving thread passes by a queue pair that the host is changing.
 *
 * Adds. Where both devices have atomics, a FETCH_ADD is one. Else it is a small message {address,
 * value, key} in a SEND; immediates would not help, 32 bits name neither a word nor a value. A
 * reliable connection delivers messages once and behind the writes before them; the receiver adds with
 * its CPU, posts the receive again, and then writes its count of applied messages (and, for one that
 * is not allowed, the reason) into the sender's memory. An add is complete when it is in that count: a
 * reader that comes later sees it, and no more messages can be under way than receives are posted.
 * The old value is not returned; nobody reads it. */
#ifndef SWL_VERBS_WIRE_H
#define SWL_VERBS_WIRE_H

#include "transport/mlx5/path.h"
#include "transport/proxy/wire.h"
#include "transport/verbs/port.h"

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

enum verbs_kind { VERBS_KIND_NOP, VERBS_KIND_PLAIN, VERBS_KIND_MESSAGE };

/* What a message says; what the receiver writes back is count << 8 | syndrome. */
struct verbs_message {
    uint64_t address, value;
    uint32_t rkey, magic;
};
static_assert(sizeof(struct verbs_message) == 24, "travels between processes");

/* Memory of a queue pair that the device touches. */
struct verbs_mailbox {
    uint64_t applied; /* shared with the peer, who writes it */
    uint64_t pad[7];
    struct verbs_message messages[]; /* [depth] receives */
};

struct verbs_queue {
    pthread_mutex_t lock;
    struct verbs_cq *cq;
    struct verbs_qp *qp;
    struct verbs_mailbox *mailbox;
    struct verbs_mr *mailbox_mr;
    uint32_t psn;
    bool connected, by_message, ack_posted;
    uint32_t syndrome, failed_told;    /* of the first error; it was told to the proxy */
    uint64_t posted, sent, done, told; /* indices: taken, completed by the device, complete, told */
    uint64_t messages_done;            /* adds by message that are complete */
    uint64_t applied, applied_told;    /* the peer's messages: count << 8 | syndrome */
    uint64_t peer_applied;             /* address at the peer */
    uint32_t peer_applied_key;
    uint8_t *kinds; /* [depth] enum verbs_kind, by index */
};

struct verbs_region {
    struct verbs_mr *mr;
    uint64_t address, bytes;
    unsigned access;
};

struct verbs_wire {
    struct swl_wire base;
    struct swl_verbs verbs;
    struct swl_port port;
    struct mlx5_tuning tuning;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct verbs_device_attr attr;
    uint32_t rank, max_qps, nqps, depth;
    uint32_t progress_calls, turn; /* server */
    bool busy;                     /* server: something is under way */
    uint64_t first_index;
    bool messages;              /* this device has no atomics, or a test wants none */
    struct verbs_queue *queues; /* [max_qps] */
    pthread_mutex_t lock;       /* of the regions */
    struct verbs_region *regions;
    uint32_t nregions;
};

const struct swl_wire_ops *swl_verbs_wire_ops(void);
/* The same with adds by message on any device. */
const struct swl_wire_ops *swl_verbs_messages_ops(void);
/* The proxy NIC over this wire, and whether it would work here (select.h). */
bool swl_proxy_verbs_usable(const struct swl_nic_config *config, char *why, size_t why_bytes);
const struct swl_nic_ops *swl_proxy_verbs_ops(void);

/* open with these functions in place of those of the machine's rdma-core. */
ncclResult_t swl_verbs_wire_open(struct swl_wire **wire_p, const struct swl_wire_config *config,
                                 const struct swl_verbs *verbs, bool messages);

/* verbs_queue.c */
ncclResult_t swl_verbs_create_qp(struct swl_wire *wire, uint32_t *qp_p);
ncclResult_t swl_verbs_address(struct swl_wire *wire, uint32_t qp,
                               struct swl_wire_address *address_p);
ncclResult_t swl_verbs_connect(struct swl_wire *wire, uint32_t qp,
                               const struct swl_wire_address *peer);
ncclResult_t swl_verbs_to_error(struct swl_wire *wire, uint32_t qp);
ncclResult_t swl_verbs_reset(struct swl_wire *wire, uint32_t qp);
/* Give back what the queue pair holds; the first failure is reported. */
ncclResult_t swl_verbs_queue_close(struct verbs_wire *w, struct verbs_queue *q);

/* verbs_post.c */
uint32_t swl_verbs_post(struct swl_wire *wire, uint32_t qp, const struct swl_wire_request *requests,
                        uint32_t n);
uint32_t swl_verbs_poll(struct swl_wire *wire, struct swl_wire_done *done, uint32_t n);
bool swl_verbs_progress(struct swl_wire *wire);
/* 0 or an errno. */
int swl_verbs_post_receive(struct verbs_wire *w, struct verbs_queue *q, uint32_t slot);

static inline struct verbs_wire *verbs_of(struct swl_wire *wire)
{
    return (struct verbs_wire *)wire;
}

#ifdef __cplusplus
}
#endif
#endif
