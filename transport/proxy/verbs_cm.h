/* verbs_cm.h: connections of iWARP queue pairs, which librdmacm makes; part of verbs_wire.h.
 *
 * Layer: transport/proxy. Queue pairs are made by libibverbs like all others; librdmacm is given their
 * numbers only. Of two ends the one with the smaller secret number connects, the other listens on one
 * port for all its queue pairs and knows them by the numbers in the request. The end that has listened
 * sends nothing before it has heard the other (RFC 5044): the other greets.
 * The host only begins; events are taken by the serving thread. The lock of the connections is taken
 * before that of a queue pair, by the host wherever an id can go. */
#ifndef SWL_VERBS_CM_H_
#define SWL_VERBS_CM_H_

#include "transport/verbs/cm.h"
#include "transport/verbs/verbs.h"

#include <nccl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct verbs_wire;
struct verbs_queue;
struct verbs_cm;

#define VERBS_NUMBER_BYTES 16

/* Where a queue pair is reached; travels. */
struct verbs_place {
    uint8_t number[VERBS_NUMBER_BYTES]; /* secret */
    uint8_t ip[16];
    uint16_t family, port; /* AF_INET: four bytes of ip; port as on the wire */
};

/* A queue pair's side of its connection. */
struct verbs_link {
    struct cm_id *id; /* NULL: none yet, or none at all */
    uint8_t number[VERBS_NUMBER_BYTES];
    struct verbs_place peer;
    uint64_t deadline_ns;
    bool waits;       /* connect was called and the link is not open */
    bool active;      /* this end connects */
    bool established; /* librdmacm says so */
    bool heard;       /* the greeting has come */
};

/* calls: NULL = load the library. */
ncclResult_t swl_verbs_cm_open(struct verbs_wire *w, const struct swl_cm *calls);
void swl_verbs_cm_close(struct verbs_wire *w);
/* Would it work? Opens and closes everything. */
bool swl_verbs_cm_usable(const struct swl_verbs *verbs, const char *device, char *why,
                         size_t why_bytes);

/* For the host; nothing where the wire has no librdmacm. */
void swl_verbs_cm_lock(const struct verbs_wire *w);
void swl_verbs_cm_unlock(const struct verbs_wire *w);
/* With the lock: a number for a new queue pair; what the peer is told; begin; give up what there is. */
ncclResult_t swl_verbs_cm_number(const struct verbs_wire *w, struct verbs_queue *q);
void swl_verbs_cm_place(const struct verbs_wire *w, const struct verbs_queue *q,
                        struct verbs_place *place_p);
ncclResult_t swl_verbs_cm_connect(struct verbs_wire *w, struct verbs_queue *q,
                                  const struct verbs_place *peer);
void swl_verbs_cm_leave(struct verbs_wire *w, struct verbs_queue *q);

/* Serving thread: take events; true = a connection is being made. */
bool swl_verbs_cm_progress(struct verbs_wire *w);
/* Serving thread, with the queue pair's lock: the greeting has come. */
void swl_verbs_cm_heard(struct verbs_queue *q);

/* ---- for verbs_cm.c and verbs_cm_events.c ---- */

#define VERBS_GREETING_ID 0x73776c31u
#define VERBS_READS_MAX   16

/* What travels with a request to connect. */
struct verbs_greeting {
    uint32_t id;
    uint8_t to[VERBS_NUMBER_BYTES], from[VERBS_NUMBER_BYTES];
};

/* A request, held until the host connects the queue pair that it is for. */
struct verbs_request {
    struct cm_id *id;
    struct verbs_greeting greeting;
    uint8_t reads_in, reads_out;
};

union verbs_ip {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct verbs_cm {
    pthread_mutex_t lock;
    struct swl_cm calls;
    struct cm_channel *channel;
    struct cm_id *listener;
    union verbs_ip at;
    struct verbs_request *requests; /* [max_qps] */
    uint32_t nrequests, looks;
};

/* With the lock of the connections, and that of the queue pair where one is named. */
void swl_verbs_cm_refuse(const struct verbs_cm *cm, struct cm_id *id);
/* error: of errno, 0 = none is known. */
void swl_verbs_cm_lose(const struct verbs_wire *w, struct verbs_queue *q, const char *what,
                       int error);
struct cm_param swl_verbs_cm_param(const struct verbs_wire *w, const struct verbs_queue *q,
                                   uint32_t reads_in, uint32_t reads_out);
bool swl_verbs_cm_is_for(const struct verbs_request *r, const struct verbs_queue *q);
/* Requests for this queue pair that are held: the peer's is accepted if it is wanted, others go. */
void swl_verbs_cm_take_held(struct verbs_wire *w, struct verbs_queue *q);

#ifdef __cplusplus
}
#endif
#endif
