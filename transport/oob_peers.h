/* oob_peers.h: what the two halves of the out-of-band channel share: oob.c (who connects with whom) and
 * oob_talk.c (what is said). Layer: transport, private to them; memory: oob.h. */
#ifndef SWL_OOB_PEERS_H
#define SWL_OOB_PEERS_H

#include "transport/oob.h"
#include "transport/tcp/socket.h"

#include <assert.h>
#include <unistd.h>

#define OOB_MAGIC 0x6f6f6232u
#define OOB_QUEUE 16u /* messages that wait for a peer */

/* Content of struct swl_oob_address. */
struct oob_place {
    uint8_t nonce[16]; /* the secret; the first field */
    uint8_t name[16];  /* of the local socket, which everybody on the host can read */
    uint64_t process;
    uint32_t has_local, has_tcp;
    struct tcp_place at;
};
static_assert(sizeof(struct oob_place) <= sizeof(struct swl_oob_address),
              "the place travels inside the opaque address");
static_assert(sizeof(struct swl_oob_message) == 8 + 8 * SWL_OOB_VALUES + SWL_OOB_BYTES,
              "no padding travels");

enum oob_state {
    OOB_NONE,
    OOB_CALLED, /* this end has said hello; the welcome is missing */
    OOB_CONNECTED,
    OOB_LEFT,
    OOB_BROKEN
};

struct oob_peer {
    uint32_t rank;
    enum oob_state state;
    int fd;
    uint32_t in_bytes; /* of a message that has come in part */
    struct swl_oob_message in;
    uint32_t queued, out_bytes; /* out_bytes of out[0] have been sent */
    struct swl_oob_message out[OOB_QUEUE];
    bool tell; /* GONE is to be received */
    int error; /* of the last call of this peer; 0: it was taken */
    int why;   /* errno of the end; 0: it was closed */
};

struct swl_oob {
    struct swl_oob_config config;
    struct oob_place place;
    int local, tcp, epoll; /* -1: none */
    struct oob_peer *peers;
    uint32_t npeers, next;
    uint32_t nwaiting; /* peers with queued messages */
    uint32_t ntell;
};

static inline void oob_shut(int *fd_p)
{
    if (*fd_p >= 0)
        close(*fd_p);
    *fd_p = -1;
}

#endif
