/* wire.h: what carries the work requests of a proxy NIC: one table of operations for each kind of
 * wire. The proxy (front.h) reads mlx5 entries from the queues that kernels write, checks their
 * shape, and hands them to the wire; the wire checks keys, moves bytes and says what is complete.
 *
 * Layer: transport/proxy, below front.c. Two threads call a wire: the host thread of the rank
 * (open … reset, close) and the thread that serves the NIC (post, poll, progress). They may do so
 * at the same time, but the proxy keeps the serving thread away from a queue pair while the host
 * thread is inside connect, to_error or reset of it. The serving thread posts to connected queue
 * pairs only; it polls and makes progress always. No operation of the serving thread blocks; those
 * of the host thread are bounded by timeout_ns. What fails has said why (swl_fail).
 *
 * Order, per queue pair: a FETCH_ADD is executed after all earlier WRITEs have been placed, a READ
 * likewise; WRITEs may be placed in any order. Queue pairs are not ordered among each other.
 * Queue pairs are numbers from create_qp, 0 … max_qps - 1 in order of creation. */
#ifndef SWL_WIRE_H
#define SWL_WIRE_H

#include "transport/nic.h"
#include "transport/wqe.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_wire_ops;

/* First member of every wire. */
struct swl_wire {
    const struct swl_wire_ops *ops;
};

struct swl_wire_config {
    uint32_t rank;
    int device;           /* whose memory is registered */
    uint32_t max_qps;     /* at least 1 */
    uint32_t depth;       /* most requests of a queue pair that are posted and not complete */
    uint64_t first_index; /* of the first request of every queue pair after connect */
    uint64_t timeout_ns;  /* bound of every operation that waits */
    uint64_t silence_ns;  /* of a peer that owes an answer */
    const struct swl_nic_proximity *proximity;
    struct swl_nic_settings settings;
};

struct swl_wire_caps {
    uint32_t max_depth, max_qps;
    uint64_t max_region_bytes;
    /* Peers are answered without progress, by hardware: only an error makes this end fall
     * silent. */
    bool answers_alone;
    /* CPUs near the device, as in /sys ("0-7,16-23"); "" = no matter. */
    char cpus[128];
};

/* One work request, decoded. Its shape has been checked; keys and bounds have not. */
struct swl_wire_request {
    uint64_t index;      /* of the entry, 64 bits, consecutive within the queue pair */
    uint32_t opcode;     /* SWL_WQE_NOP, _WRITE, _READ or _FETCH_ADD */
    uint32_t bytes;      /* 0 for NOP, 8 for FETCH_ADD, else 1 … SWL_WQE_BYTES_MAX */
    uint64_t local;      /* source of WRITE, target of READ, sink of the old value of FETCH_ADD */
    uint64_t remote;     /* address as the peer's reg_mr gave it, plus an offset */
    uint64_t value;      /* FETCH_ADD */
    uint32_t lkey, rkey; /* of reg_mr here and at the peer */
    uint8_t is_inline;   /* a WRITE of data[0 … bytes - 1]; local and lkey mean nothing */
    uint8_t signalled;   /* the poster asked for a completion; else only for errors */
    uint8_t pad[2];
    uint8_t data[SWL_WQE_INLINE_MAX];
};
static_assert(sizeof(struct swl_wire_request) == 80, "arrays of requests are written and read");

/* Requests [.., index] of the queue pair are complete; with a syndrome, [.., index - 1] are, and
 * index failed. */
struct swl_wire_done {
    uint64_t index;
    uint32_t qp;
    uint32_t syndrome; /* enum swl_syndrome; 0 = success */
};

/* Address of a queue pair, sent by value to the peer's wire of the same name. */
struct swl_wire_address {
    uint8_t bytes[168];
};

struct swl_wire_ops {
    const char *name; /* "tcp", "verbs", …; at most 15 letters; the NIC is called so */

    /* ---- host thread ---- */
    ncclResult_t (*open)(struct swl_wire **wire_p, const struct swl_wire_config *config);
    /* Everything goes with it; nothing is being served any more. */
    ncclResult_t (*close)(struct swl_wire *wire);
    void (*caps)(const struct swl_wire *wire, struct swl_wire_caps *caps_p);
    /* As in nic.h; dereg_mr returns when the wire has stopped using the memory. Called while queue
     * pairs are being served. */
    ncclResult_t (*reg_mr)(struct swl_wire *wire, void *ptr, uint64_t bytes, unsigned access,
                           struct swl_nic_region *region_p);
    ncclResult_t (*dereg_mr)(struct swl_wire *wire, const struct swl_nic_region *region);
    ncclResult_t (*create_qp)(struct swl_wire *wire, uint32_t *qp_p);
    ncclResult_t (*address)(struct swl_wire *wire, uint32_t qp, struct swl_wire_address *address_p);
    /* Afterwards this end may post, whether the peer has called connect already or not: what is
     * posted before that waits. */
    ncclResult_t (*connect)(struct swl_wire *wire, uint32_t qp,
                            const struct swl_wire_address *peer);
    /* Nothing more is sent, nothing from the peer is taken; no completion follows. Called by the
     * serving thread, too: does not block. */
    ncclResult_t (*to_error)(struct swl_wire *wire, uint32_t qp);
    /* Peer and everything posted are forgotten, no completion of it follows; an address asked for
     * afterwards may differ from the earlier one. connect follows. */
    ncclResult_t (*reset)(struct swl_wire *wire, uint32_t qp);

    /* ---- serving thread ---- */
    /* Takes the first requests of the n, as many as there is room for, 0 … n, and returns how many.
     * They are copied; payload (not inline) is read at any time until completion. What cannot work
     * is taken and completes with an error. */
    uint32_t (*post)(struct swl_wire *wire, uint32_t qp, const struct swl_wire_request *requests,
                     uint32_t n);
    /* Completions of all queue pairs, in order for each; returns how many, 0 … n. The first error
     * of a queue pair is its last completion: the proxy flushes what follows. A queue pair may fail
     * with nothing posted: then index is that of the next request that would have been posted. */
    uint32_t (*poll)(struct swl_wire *wire, struct swl_wire_done *done, uint32_t n);
    /* Work of the wire itself (sockets, adds in software); true = something moved. NULL: none. */
    bool (*progress)(struct swl_wire *wire);
};

#ifdef __cplusplus
}
#endif
#endif
