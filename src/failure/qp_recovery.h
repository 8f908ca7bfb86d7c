/* qp_recovery.h: queue pairs in error are reset and connected anew at both ends, over the control
 * connections.
 *
 * Layer: src/failure, below async; a state machine without a wait or a device of its own, so that
 * it can be tested alone: what it does to queue pairs, positions and connections are the operations
 * of its owner, the group. Owns its tables. One host thread at a time.
 *
 * All queue pairs between two ranks are repaired together if one of them is in error at one end.
 * Each rank numbers its attempts (rounds). Between two ranks:
 *
 *   ASK {round, newest round heard of the peer, broken?}   both; repeated when the peer's round is
 *       news.
 *       A rank that reads its own round in the peer's ASK knows that both are in this pair of
 *       rounds. Nothing broken at either end: this pair is done.
 *   ADDRESS {rounds, connection, address}   after a reset of all queue pairs of the pair: nothing
 *       of before arrives any more. Who has the peer's ADDRESS connects; then the words that the
 *       peer adds to rest.
 *   WORDS {rounds, connection, 4 words}   what the peer's adds have brought there. Who has them
 *       counts on from them. The peer is connected, too: a pair that has all words may post.
 *   STOP {rounds, code}             this rank cannot go on; the peer need not wait for the limit.
 *
 * Messages of other rounds are ignored. A rank that gave up and comes again has a new round, which
 * starts its peers anew from ASK. Every step waits for one message of one peer; the owner bounds
 * them all by one limit, and the end of a connection ends them at once. */
#ifndef SWL_QP_RECOVERY_H
#define SWL_QP_RECOVERY_H

#include "transport/control.h"

#include <nccl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_nic_address; /* transport/nic.h */

#define SWL_QP_RECOVERY_WORDS 4u

enum swl_qp_recovery_kind {
    SWL_QP_RECOVERY_ASK = SWL_CONTROL_USER + 16,
    SWL_QP_RECOVERY_ADDRESS,
    SWL_QP_RECOVERY_WORDS_MESSAGE,
    SWL_QP_RECOVERY_STOP,
    SWL_QP_RECOVERY_END
};

/* All fail with a sentence. `connection`: index in the owner's list. */
struct swl_qp_recovery_ops {
    /* Nothing of before arrives or leaves any more; *mine_p: where the peer finds it from now
     * on. */
    ncclResult_t (*reset)(void *context, uint32_t connection, struct swl_nic_address *mine_p);
    ncclResult_t (*connect)(void *context, uint32_t connection,
                            const struct swl_nic_address *theirs);
    /* The words here that the peer adds to through this connection. */
    ncclResult_t (*read)(void *context, uint32_t connection, uint64_t words[SWL_QP_RECOVERY_WORDS]);
    /* What this rank's adds through this connection have come to at the peer. */
    ncclResult_t (*adopt)(void *context, uint32_t connection,
                          const uint64_t words[SWL_QP_RECOVERY_WORDS]);
    /* false: later */
    bool (*send)(void *context, uint32_t rank, const struct swl_control_message *message);
};

struct swl_qp_recovery_connection {
    uint32_t rank; /* at the other end */
    uint64_t key;  /* the same at both ends */
};

struct swl_qp_recovery;

ncclResult_t swl_qp_recovery_open(struct swl_qp_recovery **recovery_p,
                                  const struct swl_qp_recovery_ops *ops, void *context,
                                  const struct swl_qp_recovery_connection *connections,
                                  uint32_t nconnections);
/* NULL is a no-op. */
void swl_qp_recovery_close(struct swl_qp_recovery *recovery);
uint32_t swl_qp_recovery_rank(const struct swl_qp_recovery *recovery, uint32_t connection);

/* A new round; broken[connection]. `generation` goes with every ASK: what was given up. */
void swl_qp_recovery_begin(struct swl_qp_recovery *recovery, const bool *broken,
                           uint64_t generation);
/* Behind begin: as far as this rank knows nothing is in error between it and that rank, which knows
 * no more; the round does not wait for it unless it asks. */
void swl_qp_recovery_skip(struct swl_qp_recovery *recovery, uint32_t rank);
/* All messages of the four kinds, at any time. The sentence of a failure is said by the next
 * step. */
void swl_qp_recovery_on_message(struct swl_qp_recovery *recovery,
                                const struct swl_control_message *message);
/* The connection with that rank has ended. */
void swl_qp_recovery_gone(struct swl_qp_recovery *recovery, uint32_t rank);
/* As far as it goes now; *done_p: everything is repaired. After a failure the round is over. */
ncclResult_t swl_qp_recovery_step(struct swl_qp_recovery *recovery, bool *done_p);
/* The limit has passed: the round is over, with a sentence that names the first rank that is
 * missing. */
ncclResult_t swl_qp_recovery_expire(struct swl_qp_recovery *recovery, uint64_t limit_ns);
/* A peer has asked in a round that this rank has not joined yet. */
bool swl_qp_recovery_asked(const struct swl_qp_recovery *recovery);

#ifdef __cplusplus
}
#endif
#endif
