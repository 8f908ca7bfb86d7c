/* oob.h: the out-of-band channel of a group: connections of sockets between ranks, apart from NCCL and
 * from every NIC, which work when either does not. Used to tell of failures, to notice that a process has
 * ended, and to connect queue pairs anew.
 *
 * Layer: transport, used by src/. Owner: the group, from its creation to its end; one host thread at a
 * time. No thread of its own: it moves when it is asked (swl_oob_receive, swl_oob_send). All sockets are
 * non-blocking, messages have one size, and what a rank holds is bounded: two small buffers for each rank
 * it is connected with. Ranks of a process meet at a socket of the kernel, others over TCP. */
#ifndef SWL_OOB_H
#define SWL_OOB_H

#include <nccl.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_oob;

/* Where a rank listens, and the secret without which nobody is let in. Sent by value to all ranks. */
struct swl_oob_address {
    uint8_t bytes[128];
};

enum swl_oob_kind {
    SWL_OOB_HELLO = 1, /* the channel's own: first message of a connection */
    SWL_OOB_WELCOME,   /* the channel's own: the answer */
    SWL_OOB_BYE,       /* the channel's own: the group ends here in good order */
    SWL_OOB_GONE, /* received when a connection has ended without BYE; value[0]: errno, 0 = closed */
    SWL_OOB_USER, /* first kind of the channel's user */
};

#define SWL_OOB_VALUES 8u
#define SWL_OOB_BYTES  192u /* of an address of a queue pair */

struct swl_oob_message {
    uint32_t magic; /* of the channel */
    uint16_t kind;  /* enum swl_oob_kind, or the user's */
    uint16_t from;  /* rank; of the channel */
    uint64_t value[SWL_OOB_VALUES];
    uint8_t bytes[SWL_OOB_BYTES];
};

struct swl_oob_config {
    uint32_t rank, nranks;
    uint64_t process;          /* equal for ranks of one address space (swl_gpu_info) */
    uint64_t timeout_ns;       /* bound of swl_oob_connect */
    uint64_t silence_ns;       /* bound of silence on a connection over TCP */
    const char *socket_ifname; /* SWIMLANE_SOCKET_IFNAME; NULL or "" = any */
};

/* Local: listen. *mine_p is set in any case; a rank that cannot listen says so there. */
ncclResult_t swl_oob_open(struct swl_oob **oob_p, const struct swl_oob_config *config,
                          struct swl_oob_address *mine_p);
/* Can all ranks be reached by all, by what they say? The same answer everywhere; false: why. */
bool swl_oob_possible(const struct swl_oob_address *all, uint32_t nranks, char *why,
                      size_t why_bytes);
/* Connect with the ranks peers[npeers], each of which lists this one. Bounded; the sentence of a failure
 * names who is missing. Afterwards nobody else can connect. */
ncclResult_t swl_oob_connect(struct swl_oob *oob, const struct swl_oob_address *all,
                             const uint32_t *peers, uint32_t npeers);
/* Says BYE. NULL is a no-op. */
void swl_oob_close(struct swl_oob *oob);

/* Peers are numbered as in swl_oob_connect. */
uint32_t swl_oob_peers(const struct swl_oob *oob);
uint32_t swl_oob_rank(const struct swl_oob *oob, uint32_t peer);
/* Number of the peer of that rank, or UINT32_MAX. */
uint32_t swl_oob_peer(const struct swl_oob *oob, uint32_t rank);
/* Is there still a connection? */
bool swl_oob_connected(const struct swl_oob *oob, uint32_t peer);
/* Only kind, value and bytes are taken. false: not connected, or so much is waiting for the peer that this
 * cannot; it may later. */
bool swl_oob_send(struct swl_oob *oob, uint32_t peer, const struct swl_oob_message *message);
/* The next message of any peer; false: none now. */
bool swl_oob_receive(struct swl_oob *oob, uint32_t *peer_p, struct swl_oob_message *message_p);

#ifdef __cplusplus
}
#endif
#endif
