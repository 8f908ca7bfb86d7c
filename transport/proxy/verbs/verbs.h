/* verbs.h: the wire of a proxy NIC over any RDMA device that libibverbs drives.
 *
 * Layer: transport/proxy/verbs, below front.c. verbs.c has the device and its regions, queue.c
 * queue pairs and their connection, post.c the serving thread, adds.c adds that the host of
 * the receiver executes, flush.c what these wait for. Every queue pair has a completion
 * queue of its own, and a lock: the serving thread passes by a queue pair that the host is
 * changing.
 *
 * Adds. Both ends say what they have and may use, and take the worse of the two (enum swl_adds).
 * With atomics a FETCH_ADD is one. Else it is a message: a SEND of {address, value, key}. Messages
 * arrive behind the writes before them. The receiver adds, posts the receive again, and then writes
 * its count of applied messages (and, for one that is not allowed, the reason) into the sender's
 * memory. An add is complete when it is in that count: a reader that comes later sees it, and no
 * more messages can be under way than receives are posted. The old value is not returned; nobody
 * reads it. */
#ifndef SWL_VERBS_WIRE_H
#define SWL_VERBS_WIRE_H

#include "transport/host/dma.h"
#include "transport/proxy/wire.h"
#include "transport/rdma_core/path.h"
#include "transport/rdma_core/port.h"

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VERBS_INLINE_BYTES 32           /* of a request */
#define VERBS_MESSAGE_ADD  0x73776c61u  /* verbs_message.magic */
#define VERBS_ID_ACK       (1ull << 63) /* wr_id; else the index */
#define VERBS_ID_RECEIVE   (1ull << 62) /* and the slot */

/* What a message says; what the receiver writes back is count << 8 | syndrome. */
struct verbs_message {
    uint64_t address, value;
    uint32_t rkey, magic;
};
static_assert(sizeof(struct verbs_message) == 24, "travels between processes");

/* A request between its post and its completion. */
struct verbs_entry {
    uint64_t messages; /* that are applied when it is complete */
    bool nop;          /* it was not posted and completes with what is before it */
};

/* Memory of a queue pair that the device touches. */
struct verbs_mailbox {
    uint64_t applied; /* shared with the peer, who writes it */
    uint64_t pad[7];
    struct verbs_message messages[]; /* [depth], by receive */
};

struct verbs_queue {
    pthread_mutex_t lock;
    struct verbs_cq *cq;
    struct verbs_qp *qp;
    struct verbs_mailbox *mailbox;
    struct verbs_mr *mailbox_mr;
    uint32_t psn;
    uint32_t adds; /* enum swl_adds of this pair */
    bool connected, ack_posted;
    uint32_t syndrome, failed_told;    /* of the first error; it was told to the proxy */
    uint64_t posted, sent, done, told; /* indices: taken, completed by the device, complete, told */
    uint64_t messages;                 /* posted */
    struct verbs_held *held;           /* [depth], by number */
    uint64_t held_first, held_end;     /* numbers of those that wait */
    uint64_t applied, applied_told;    /* the peer's messages: count << 8 | syndrome */
    uint64_t peer_applied;             /* address at the peer */
    uint32_t peer_applied_key;
    struct verbs_entry *entries; /* [depth], by index */
};

struct verbs_region {
    struct verbs_mr *mr;
    uint64_t address, bytes;
    unsigned access;
    bool on_gpu;
};

/* flush.c. READs are counted: a message that arrived when `asked` were posted may be applied when
 * asked + 1 are done. */
struct verbs_flush {
    bool on;       /* there is memory of a GPU and a peer that adds by message; the host, release */
    bool messages; /* host: there is such a peer */
    struct verbs_cq *cq;
    struct verbs_qp *qp; /* its own peer */
    struct verbs_mr *mr;
    uint64_t sink; /* what was read */
    /* server; broken is written with the lock */
    bool wanted, posted, broken;
    uint64_t asked, done;
    pthread_mutex_t lock; /* of cq, qp, broken and what follows */
    bool renewed;         /* the host has made cq and qp anew */
};

/* A message that has arrived and waits. */
struct verbs_held {
    struct verbs_wc wc;
    uint64_t turn; /* READ that must be done */
};

struct verbs_wire {
    struct swl_wire base;
    struct swl_verbs verbs;
    struct swl_port port;
    struct rc_tuning tuning;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct verbs_device_attr attr;
    uint32_t rank, max_qps, nqps, depth;
    uint32_t progress_calls, turn; /* server */
    bool busy;                     /* server: something is under way */
    char cpus[128];                /* near the device */
    uint64_t first_index;
    uint32_t adds; /* enum swl_adds: the best that this end has and may use */
    struct verbs_flush flush;
    struct swl_dma *dma;        /* adds for the peers */
    struct verbs_queue *queues; /* [max_qps] */
    pthread_mutex_t lock;       /* of the regions */
    struct verbs_region *regions;
    uint32_t nregions;
};

const struct swl_wire_ops *swl_verbs_wire_ops(void);
const struct swl_nic_ops *swl_proxy_verbs_ops(void);
/* Would the proxy NIC over this wire work here (choice.h)? */
bool swl_proxy_verbs_usable(const struct swl_nic_config *config, char *why, size_t why_bytes);
/* The same with these functions. */
bool swl_verbs_wire_usable(const struct swl_verbs *verbs, const struct swl_nic_config *config,
                           char *why, size_t why_bytes);

/* open with these functions in place of those of the machine's rdma-core. */
ncclResult_t swl_verbs_wire_open(struct swl_wire **wire_p, const struct swl_wire_config *config,
                                 const struct swl_verbs *verbs);

/* queue.c */
ncclResult_t swl_verbs_create_qp(struct swl_wire *wire, uint32_t *qp_p);
ncclResult_t swl_verbs_address(struct swl_wire *wire, uint32_t qp,
                               struct swl_wire_address *address_p);
ncclResult_t swl_verbs_connect(struct swl_wire *wire, uint32_t qp,
                               const struct swl_wire_address *peer);
ncclResult_t swl_verbs_to_error(struct swl_wire *wire, uint32_t qp);
ncclResult_t swl_verbs_reset(struct swl_wire *wire, uint32_t qp);
/* Give back what the queue pair holds; the first failure is reported. */
ncclResult_t swl_verbs_queue_close(struct verbs_wire *w, struct verbs_queue *q);

/* pair.c */
/* The first error of a queue pair stays. */
void swl_verbs_fail(const struct verbs_wire *w, struct verbs_queue *q, uint32_t syndrome,
                    const char *what);
/* 0 or an errno. */
int swl_verbs_post_send(const struct verbs_queue *q, struct verbs_send_wr *first);
int swl_verbs_post_receive(const struct verbs_queue *q, uint32_t slot);

/* post.c */
uint32_t swl_verbs_post(struct swl_wire *wire, uint32_t qp, const struct swl_wire_request *requests,
                        uint32_t n);
uint32_t swl_verbs_poll(struct swl_wire *wire, struct swl_wire_done *done, uint32_t n);
bool swl_verbs_progress(struct swl_wire *wire);

/* flush.c. Open it where it is needed: messages: a peer adds by message from now on; gpu: memory of
 * a GPU is going to be registered. Again: a no-op. */
ncclResult_t swl_verbs_flush_open(struct verbs_wire *w, bool messages, bool gpu);
/* If it has failed, make it anew. */
ncclResult_t swl_verbs_flush_renew(struct verbs_wire *w);
ncclResult_t swl_verbs_flush_close(struct verbs_wire *w);
/* Must messages wait? */
bool swl_verbs_flushes(const struct verbs_wire *w);
/* Post a READ if messages wait for one; take the one that is under way. */
void swl_verbs_flush_post(struct verbs_wire *w);
void swl_verbs_flush_take(struct verbs_wire *w);
/* adds.c: apply what needs to wait no longer. */
void swl_verbs_add_release(struct verbs_wire *w, struct verbs_queue *q);

/* A message has arrived. */
void swl_verbs_add_receive(struct verbs_wire *w, struct verbs_queue *q, const struct verbs_wc *wc);
/* Tell the peer how many of its messages are applied. */
void swl_verbs_add_acknowledge(const struct verbs_wire *w, struct verbs_queue *q);

static inline struct verbs_wire *verbs_of(struct swl_wire *wire)
{
    return (struct verbs_wire *)wire;
}

#ifdef __cplusplus
}
#endif
#endif
