/* host_news.h: what the hosts of a group tell each other over the control connections: which rank
 * has gone, which queue pair has failed, who has come how far in setting the group up.
 *
 * Layer: src/failure, below bootstrap, async and group. Owns the control connections and its
 * tables, for the life of the group. A rank is connected with the ranks of its node and with those
 * at the other ends of its queue pairs, and passes news on to them; so news reach every rank, and
 * everybody holds little. Nothing here waits but swl_host_news_connect, swl_host_news_missing and
 * swl_host_news_barrier, which are bounded. Without connections (ranks that cannot listen) all of
 * it does nothing. */
#ifndef SWL_HOST_NEWS_H
#define SWL_HOST_NEWS_H

#include "transport/control.h"

#include <nccl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_qp_recovery;

/* A call that a rank gave up, and why. */
struct swl_notice {
    uint64_t word; /* swl_poison_word: generation and missing rank */
    uint32_t from; /* who gave it up */
    uint32_t kind; /* SWL_FAULT_… */
    uint32_t peer, pad;
    uint64_t expected, seen; /* of the fault record */
};

struct swl_host_news {
    struct swl_control *control; /* NULL: none */
    bool connected;
    uint32_t rank, nranks;
    uint64_t timeout_ns;             /* of set-up and of swl_host_news_barrier */
    uint64_t silence_ns;             /* of a connection, as in control.h */
    struct swl_control_address *all; /* [nranks], until connected */
    bool *gone;                      /* [nranks] */
    uint32_t ngone, first_gone;
    char gone_why[160]; /* completes "rank 3 ...", of first_gone */
    bool quiet;         /* set-up: whoever waits for the gone makes the sentence */
    uint64_t *told; /* [nranks] newest that each rank has told of: generation << 1 | queue pair */
    struct swl_notice
        newest;      /* of the newest generation; of these one about a queue pair, if there is */
    uint64_t broken; /* newest generation after which a queue pair of any rank was in error */
    uint64_t heard;  /* word of the newest generation that any message has told of */
    struct swl_qp_recovery *recovery; /* the owner's; NULL: none. Gets its messages from here */
    /* set-up */
    uint32_t step;    /* number of the exchange that this rank takes part in */
    uint32_t *steps;  /* [peer] */
    uint32_t missing; /* rank that somebody misses in an exchange; UINT32_MAX: none */
};

/* Local. rank, nranks and the limits are set by the caller, the rest is zero. *mine_p goes to all
 * ranks. */
ncclResult_t swl_host_news_open(struct swl_host_news *peers, uint64_t process,
                                const char *socket_ifname, struct swl_control_address *mine_p);
/* Local; all[nranks] as they were told. Copied. */
ncclResult_t swl_host_news_set_addresses(struct swl_host_news *peers,
                                         const struct swl_control_address *all);
/* Connect with ranks[n], each once. Every rank of the group does; the lists are symmetric. */
ncclResult_t swl_host_news_connect(struct swl_host_news *peers, const uint32_t *ranks, uint32_t n);
void swl_host_news_close(struct swl_host_news *peers);

/* This rank gives the group up and cannot say so in an exchange. `doing` completes "failed while
 * ...". */
void swl_host_news_fail(struct swl_host_news *peers, ncclResult_t code, const char *doing);
/* Take what has come. Never waits. */
void swl_host_news_poll(struct swl_host_news *peers);
/* This rank has given up a call, or a queue pair of it is in error. Told once for each generation,
 * and once more if it is about a queue pair. `from` is set here. */
void swl_host_news_broadcast(struct swl_host_news *peers, const struct swl_notice *notice);
/* The news are about a queue pair in error, and of this generation or a later one. */
bool swl_host_news_queue_pair(const struct swl_host_news *peers, uint64_t gen);
/* That rank has told of a queue pair in error, after a generation later than `gen`. */
bool swl_host_news_reports(const struct swl_host_news *peers, uint32_t rank, uint64_t gen);
/* For swl_qp_recovery_ops. */
bool swl_host_news_send(struct swl_host_news *peers, uint32_t rank,
                        const struct swl_control_message *message);

/* This rank takes part in the next exchange of the set-up. */
void swl_host_news_step(struct swl_host_news *peers);
/* The exchange has not ended in time: a rank that takes no part in it, or UINT32_MAX. May wait for
 * a sixteenth of the limit. */
uint32_t swl_host_news_missing(struct swl_host_news *peers);
/* In place of an exchange when a rank is gone: until all that are left of those this rank is
 * connected with are as far, or the limit has passed; false then. */
bool swl_host_news_barrier(struct swl_host_news *peers);

#ifdef __cplusplus
}
#endif
#endif
