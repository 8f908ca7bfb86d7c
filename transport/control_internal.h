/* control_internal.h: what the two halves of the control connections share: control.c (who connects
 * with whom) and control_messages.c (what is said). Layer: transport, private to them; memory:
 * control.h. */
#ifndef SWL_CONTROL_INTERNAL_H
#define SWL_CONTROL_INTERNAL_H

#include "transport/control.h"
#include "transport/tcp_endpoint.h"

#include <assert.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONTROL_MAGIC 0x6f6f6232u
#define CONTROL_QUEUE 16u /* messages that wait for a peer */

/* Content of struct swl_control_address. */
struct control_endpoint {
    uint8_t nonce[16]; /* the secret; the first field */
    uint8_t name[16];  /* of the local socket, which everybody on the host can read */
    uint64_t process;
    uint32_t has_local, has_tcp;
    struct tcp_endpoint at;
};
static_assert(sizeof(struct control_endpoint) <= sizeof(struct swl_control_address),
              "the endpoint travels inside the opaque address");
static_assert(sizeof(struct swl_control_message) == 8 + 8 * SWL_CONTROL_VALUES + SWL_CONTROL_BYTES,
              "no padding travels");

enum control_state {
    CONTROL_NONE,
    CONTROL_CALLED, /* this end has said hello; the welcome is missing */
    CONTROL_CONNECTED,
    CONTROL_LEFT,
    CONTROL_BROKEN
};

struct control_peer {
    uint32_t rank;
    enum control_state state;
    int fd;
    uint32_t in_bytes; /* of a message that has come in part */
    struct swl_control_message in;
    uint32_t queued, out_bytes; /* out_bytes of out[0] have been sent */
    struct swl_control_message out[CONTROL_QUEUE];
    bool tell; /* GONE is to be received */
    int error; /* of the last call of this peer; 0: it was taken */
    int why;   /* errno of the end; 0: it was closed */
};

struct swl_control {
    struct swl_control_config config;
    struct control_endpoint place;
    int local, tcp, epoll; /* -1: none */
    struct control_peer *peers;
    uint32_t npeers, next;
    uint32_t nwaiting; /* peers with queued messages */
    uint32_t ntell;
};

/* End of a connection. A child that was forked meanwhile has the descriptor, too: what closing does
 * where nobody else has it is said here. */
static inline void control_hang_up(const struct swl_control *control, struct control_peer *p)
{
    if (p->fd < 0)
        return;
    (void)epoll_ctl(control->epoll, EPOLL_CTL_DEL, p->fd, NULL); /* it may not be there */
    (void)shutdown(p->fd, SHUT_RDWR);
    close(p->fd);
    p->fd = -1;
}

static inline void control_shut(int *fd_p)
{
    if (*fd_p >= 0)
        close(*fd_p);
    *fd_p = -1;
}

#endif
