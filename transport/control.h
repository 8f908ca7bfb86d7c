/* control.h: the control connections of a group: sockets between ranks, multi_process from NCCL and
 * from every NIC, which work when either does not. Used to tell of failures, to notice that a
 * process has ended, and to connect queue pairs anew.
 *
 * Layer: transport, used by src/. Owner: the group, from its creation to its end; one host thread
 * at a time. No thread of its own: it moves when it is asked (swl_control_receive,
 * swl_control_send). All sockets are non-blocking, messages have one size, and what a rank holds is
 * bounded: two small buffers for each rank it is connected with. Ranks of a process meet at a
 * socket of the kernel, others over TCP. */
#ifndef SWL_CONTROL_H
#define SWL_CONTROL_H

#include <nccl.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_control;

/* Where a rank listens, and the secret without which nobody is let in. Sent by value to all
 * ranks. */
struct swl_control_address {
    uint8_t bytes[128];
};

enum swl_control_kind {
    SWL_CONTROL_HELLO = 1, /* the layer's own: first message of a connection */
    SWL_CONTROL_WELCOME,   /* the layer's own: the answer */
    SWL_CONTROL_BYE,       /* the layer's own: the group ends here in good order */
    SWL_CONTROL_GONE,      /* a connection has ended without BYE; value[0]: errno, 0 = closed */
    SWL_CONTROL_USER,      /* first kind of the user */
};

#define SWL_CONTROL_VALUES 8u
#define SWL_CONTROL_BYTES  192u /* of an address of a queue pair */

struct swl_control_message {
    uint32_t magic; /* set by the layer */
    uint16_t kind;  /* enum swl_control_kind, or the user's */
    uint16_t from;  /* rank; set by the layer */
    uint64_t value[SWL_CONTROL_VALUES];
    uint8_t bytes[SWL_CONTROL_BYTES];
};

struct swl_control_config {
    uint32_t rank, nranks;
    uint64_t process;          /* equal for ranks of one address space (swl_gpu_info) */
    uint64_t timeout_ns;       /* bound of swl_control_connect */
    uint64_t silence_ns;       /* bound of silence on a connection over TCP */
    const char *socket_ifname; /* SWIMLANE_SOCKET_IFNAME; NULL or "" = any */
};

/* Local: listen. *mine_p is set in any case; a rank that cannot listen says so there. */
ncclResult_t swl_control_open(struct swl_control **control_p,
                              const struct swl_control_config *config,
                              struct swl_control_address *mine_p);
/* Can all ranks be reached by all, by what they say? The same answer everywhere; false: why. */
bool swl_control_possible(const struct swl_control_address *all, uint32_t nranks, char *why,
                          size_t why_bytes);
/* Connect with the ranks peers[npeers], each of which lists this one. Bounded; the sentence of a
 * failure names who is missing. Afterwards nobody else can connect. */
ncclResult_t swl_control_connect(struct swl_control *control, const struct swl_control_address *all,
                                 const uint32_t *peers, uint32_t npeers);
/* Says BYE. NULL is a no-op. */
void swl_control_close(struct swl_control *control);

/* Peers are numbered as in swl_control_connect. */
uint32_t swl_control_peers(const struct swl_control *control);
uint32_t swl_control_rank(const struct swl_control *control, uint32_t peer);
/* Number of the peer of that rank, or UINT32_MAX. */
uint32_t swl_control_peer(const struct swl_control *control, uint32_t rank);
/* Is there still a connection? */
bool swl_control_connected(const struct swl_control *control, uint32_t peer);
/* Only kind, value and bytes are taken. false: not connected, or so much is waiting for the peer
 * that this cannot; it may later. */
bool swl_control_send(struct swl_control *control, uint32_t peer,
                      const struct swl_control_message *message);
/* The next message of any peer; false: none now. */
bool swl_control_receive(struct swl_control *control, uint32_t *peer_p,
                         struct swl_control_message *message_p);

#ifdef __cplusplus
}
#endif
#endif
