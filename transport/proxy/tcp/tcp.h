/* tcp.h: the TCP wire: a proxy NIC for hosts with nothing but Ethernet. Inside: its NIC and its
 * queue pairs.
 *
 * Layer: transport/proxy/tcp, behind proxy/wire.h. Each queue pair has a connection of its own:
 * order, back-pressure and failure of the two are then the same thing, and a reset is a new
 * connection. Of a pair the end with the smaller (nonce, queue pair) connects, the other one
 * listens. Addresses carry 16 secret bytes of the NIC that who connects must say, and 16 that who
 * listens must answer with. Nobody listens once all pairs are connected; an address that is asked
 * for after a reset may name another port. Memory of a queue pair: `depth` requests, TCP_ASKS
 * questions of each end, one buffer a direction. All of a pair is guarded by the wire's lock. */
#ifndef SWL_TCP_H
#define SWL_TCP_H

#include "src/base/door.h"
#include "src/runtime/runtime.h"
#include "transport/proxy/keys.h"
#include "transport/proxy/tcp/frame.h"
#include "transport/proxy/wire.h"
#include "transport/tcp_endpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TCP_QPS_MAX   4096u
#define TCP_ASKS      64u /* READs and adds of a queue pair under way, at most */
#define TCP_IN_BYTES  (2 * tcp_frame_bytes(TCP_PART_BYTES))
#define TCP_OUT_BYTES (4 * tcp_frame_bytes(TCP_PART_BYTES))

const struct swl_nic_ops *swl_tcp_ops(void);
const struct swl_wire_ops *swl_tcp_wire_ops(void);

/* In struct swl_wire_address. */
struct tcp_address {
    uint8_t nonce[16]; /* who connects must say it; the first field */
    uint8_t proof[16]; /* who listens must answer with it */
    uint32_t qp, generation;
    struct tcp_endpoint place;
};

enum tcp_state {
    TCP_IDLE,      /* no peer */
    TCP_WAIT,      /* the peer will connect */
    TCP_CONNECTED, /* its welcome may still be missing */
    TCP_FAILED,
};

/* A READ or an add without an answer (asked), or one to answer (owed). */
struct tcp_ask {
    struct swl_wire_request request;
    uint64_t old;  /* owed, add: the answer; asked, READ: bytes received */
    uint32_t done; /* owed, READ: bytes sent */
};

struct tcp_asks {
    struct tcp_ask ring[TCP_ASKS];
    uint64_t begin, end;
};

struct tcp_pair {
    uint32_t qp, generation;
    enum tcp_state state;
    int fd;     /* -1: none */
    bool bound; /* the host has called connect */
    bool gone;  /* the peer's NIC is being destroyed */
    bool shut;  /* nothing more is sent */
    struct tcp_hello
        peer;          /* who has connected, or is expected to: from, from_qp, from_generation */
    uint8_t proof[16]; /* of the end that listens */
    uint32_t answer;   /* shared: 1 = welcome, 2 = refused, 3 = failed, 4 = hung up */
    uint32_t refusal;
    char name[80];     /* of the peer's end, for sentences */
    uint64_t moved_ns; /* last progress of a request or an answer */
    uint64_t heard_ns; /* last byte from the peer, be it a beat */
    uint64_t said_ns;  /* last byte to it */
    uint64_t beats;    /* received */
    /* requests of this end: reported <= acked <= framed <= posted */
    struct swl_wire_request *ring; /* [depth] */
    uint64_t posted, framed, acked, reported;
    uint32_t framed_bytes; /* of request `framed` */
    uint64_t fail_index;   /* UINT64_MAX: none */
    uint32_t syndrome;
    struct tcp_asks asked;
    /* requests of the peer */
    uint64_t executed, told; /* before these: done, said so */
    uint64_t nak_index;
    uint32_t nak; /* syndrome to tell */
    struct tcp_asks owed;
    /* bytes */
    uint8_t *in, *out; /* pinned */
    size_t in_bytes, out_begin, out_end;
    uint64_t in_number, out_number;
};

struct tcp_wire {
    struct swl_wire base;
    struct swl_wire_config config;
    struct swl_keys *keys;
    struct swl_gpu_mutex *lock;
    struct tcp_endpoint place;
    int listener; /* -1: no queue pair waits for its peer */
    bool deaf;    /* the kernel gives no descriptors for connections; it was said */
    uint8_t nonce[16], proof[16];
    uint32_t nqps;
    uint64_t looked_ns;     /* the server's last turn */
    struct tcp_pair *pairs; /* [max_qps] */
    struct swl_door door;
};

static inline struct tcp_wire *tcp_of(struct swl_wire *wire)
{
    return (struct tcp_wire *)wire;
}

/* pair.c. All under the lock. */
ncclResult_t swl_tcp_pair_open(struct tcp_wire *w, struct tcp_pair *p);
/* The other end hears of it, whoever else has the descriptor. */
void swl_tcp_pair_hang_up(struct tcp_pair *p);
ncclResult_t swl_tcp_pair_close(struct tcp_pair *p);
/* Back to TCP_IDLE, as another generation. */
void swl_tcp_pair_reset(struct tcp_wire *w, struct tcp_pair *p);
/* The connection begins; `answered`: this end has sent the welcome, else it waits for it. */
void swl_tcp_pair_begin(struct tcp_pair *p, int fd, bool answered);
/* Everything unfinished fails; the sentence goes to the log. */
void swl_tcp_pair_fail(struct tcp_wire *w, struct tcp_pair *p, uint32_t syndrome,
                       const char *sentence);
/* Hung up on before the welcome: who connects may try again. */
void swl_tcp_pair_unmet(struct tcp_pair *p);
/* Does the peer have to be heard of now and then? */
bool swl_tcp_pair_alive(const struct tcp_pair *p);
/* Requests of this end before this number are complete. */
uint64_t swl_tcp_pair_limit(const struct tcp_pair *p);
bool swl_tcp_pair_send(struct tcp_wire *w, struct tcp_pair *p);
/* receive.c */
bool swl_tcp_pair_receive(struct tcp_wire *w, struct tcp_pair *p);

/* accept.c: connections from others. The listener is there while a queue pair waits for its peer,
 * and its address is told to nobody before. */
void swl_tcp_door_open(struct tcp_wire *w);
ncclResult_t swl_tcp_listen_again(struct tcp_wire *w);
bool swl_tcp_accept_all(struct tcp_wire *w);
/* A frame with nothing else on its way: hello, welcome, refusal. False: it could not be sent. */
bool swl_tcp_send_first(int fd, enum tcp_kind kind, uint64_t value, const struct tcp_hello *hello);
const char *swl_tcp_refusal_text(uint64_t reason);

#ifdef __cplusplus
}
#endif
#endif
