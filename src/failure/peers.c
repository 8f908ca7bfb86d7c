/* peers.c: news between the hosts of a group. Layer: src/failure; memory: peers.h. */
#include "src/failure/peers.h"

#include "kernels/common/faults.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/failure/mend.h"
#include "src/runtime/runtime.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_NS UINT64_C(100000)

static_assert(sizeof(((struct swl_peers *)0)->gone_why) <= SWL_OOB_BYTES,
              "why travels in a message");

/* Those of the queue pairs are in mend.h. */
enum peers_kind {
    PEERS_NOTICE = SWL_OOB_USER, /* struct swl_notice */
    PEERS_LOST,                  /* value[0]: a rank that has gone; bytes: why, as gone_why */
    PEERS_STAGE,                 /* value[0]: number of an exchange */
    PEERS_MISSING, /* value[0], [1]: a rank that does not take part, in this exchange */
};

ncclResult_t swl_peers_open(struct swl_peers *p, uint64_t process, const char *socket_ifname,
                            struct swl_oob_address *mine_p)
{
    const struct swl_oob_config config = {
        .rank = p->rank,
        .nranks = p->nranks,
        .process = process,
        .timeout_ns = p->timeout_ns,
        .silence_ns = p->silence_ns,
        .socket_ifname = socket_ifname,
    };

    p->missing = p->first_gone = UINT32_MAX;
    return swl_oob_open(&p->oob, &config, mine_p);
}

static void close_channel(struct swl_peers *p)
{
    swl_oob_close(p->oob);
    p->oob = NULL;
    p->connected = false;
}

ncclResult_t swl_peers_know(struct swl_peers *p, const struct swl_oob_address *all)
{
    char why[320];

    if (p->nranks == 1 || !p->oob) {
        close_channel(p);
        return ncclSuccess;
    }
    if (!swl_oob_possible(all, p->nranks, why, sizeof(why))) {
        swl_log(p->rank == 0 ? SWL_LEVEL_WARN : SWL_LEVEL_DEBUG,
                "group: no control connections: %s; a rank that dies shows by the time limit only, "
                "and queue pairs in error stay so",
                why);
        close_channel(p);
        return ncclSuccess;
    }
    p->all = calloc(p->nranks, sizeof(*p->all));
    p->gone = calloc(p->nranks, sizeof(*p->gone));
    p->told = calloc(p->nranks, sizeof(*p->told));
    if (!p->all || !p->gone || !p->told)
        return swl_no_memory("the addresses of %" PRIu32 " ranks", p->nranks);
    memcpy(p->all, all, p->nranks * sizeof(*all));
    return ncclSuccess;
}

ncclResult_t swl_peers_connect(struct swl_peers *p, const uint32_t *ranks, uint32_t n)
{
    if (!p->oob)
        return ncclSuccess;
    p->stages = swl_calloc(n, sizeof(*p->stages), "%" PRIu32 " connections", n);
    if (!p->stages)
        return ncclSystemError;
    SWL_TRY(swl_oob_connect(p->oob, p->all, ranks, n));
    free(p->all);
    p->all = NULL;
    p->connected = true;
    return ncclSuccess;
}

void swl_peers_close(struct swl_peers *p)
{
    close_channel(p);
    free(p->all);
    free(p->gone);
    free(p->told);
    free(p->stages);
    p->all = NULL;
    p->gone = NULL;
    p->told = NULL;
    p->stages = NULL;
}

/* ---- news ---- */

/* To all but `except`. A peer that takes nothing for long misses it: others pass it on. */
static void tell_all(struct swl_peers *p, uint32_t except, const struct swl_oob_message *message)
{
    for (uint32_t i = 0; i < swl_oob_peers(p->oob); i++)
        if (i != except)
            (void)swl_oob_send(p->oob, i, message);
}

static void note_word(struct swl_peers *p, uint64_t word)
{
    if (swl_poison_gen(word) > swl_poison_gen(p->heard))
        p->heard = word;
}

/* false: it is known already */
static bool note(struct swl_peers *p, const struct swl_notice *n)
{
    const bool queue_pair = n->kind == SWL_FAULT_COMPLETION;
    const uint64_t gen = swl_poison_gen(n->word), newest = swl_poison_gen(p->news.word);

    if (n->from >= p->nranks || (gen << 1 | queue_pair) <= p->told[n->from])
        return false;
    p->told[n->from] = gen << 1 | queue_pair;
    if (gen > newest || (gen == newest && queue_pair && p->news.kind != SWL_FAULT_COMPLETION))
        p->news = *n;
    note_word(p, n->word);
    if (queue_pair)
        p->broken = swl_max_u64(p->broken, gen);
    return true;
}

static void note_gone(struct swl_peers *p, uint32_t rank, uint32_t except, const char *why)
{
    struct swl_oob_message message = {.kind = PEERS_LOST, .value = {rank}};
    char *text = (char *)message.bytes;

    if (rank >= p->nranks || p->gone[rank] || rank == p->rank)
        return;
    snprintf(text, sizeof(p->gone_why), "%s", why);
    p->gone[rank] = true;
    if (p->ngone++ == 0) {
        p->first_gone = rank;
        memcpy(p->gone_why, text, sizeof(p->gone_why));
    }
    swl_log(p->quiet ? SWL_LEVEL_INFO : SWL_LEVEL_WARN, "group: rank %" PRIu32 " %s", rank, text);
    if (p->mend)
        swl_mend_gone(p->mend, rank);
    tell_all(p, except, &message);
}

/* Its connection has ended without a farewell; `error`: errno, 0 = closed. */
static void note_end(struct swl_peers *p, uint32_t rank, uint32_t except, int error)
{
    char why[120];

    if (error)
        snprintf(why, sizeof(why), "is gone: its connection broke (%s)", strerror(error));
    else
        snprintf(why, sizeof(why), "is gone: its connection was closed, as when a process ends");
    note_gone(p, rank, except, why);
}

void swl_peers_fail(struct swl_peers *p, ncclResult_t code, const char *doing)
{
    struct swl_oob_message message = {.kind = PEERS_LOST, .value = {p->rank}};

    if (!p->connected || p->ngone > 0) /* then somebody else has failed */
        return;
    snprintf((char *)message.bytes, sizeof(p->gone_why), "failed while %s (%s)", doing,
             swl_result_text(code));
    tell_all(p, UINT32_MAX, &message);
}

static void take(struct swl_peers *p, uint32_t peer, const struct swl_oob_message *m)
{
    struct swl_notice n;
    char why[sizeof(p->gone_why)];

    if (m->kind >= SWL_MEND_ASK && m->kind < SWL_MEND_END) {
        if (m->kind == SWL_MEND_ASK)
            note_word(p, swl_poison_word(m->value[3], m->from));
        if (p->mend)
            swl_mend_hear(p->mend, m);
        return;
    }
    switch (m->kind) {
    case PEERS_NOTICE:
        memcpy(&n, m->bytes, sizeof(n));
        if (note(p, &n))
            tell_all(p, peer, m);
        break;
    case PEERS_LOST:
        snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, (const char *)m->bytes);
        note_gone(p, (uint32_t)m->value[0], peer, why);
        break;
    case SWL_OOB_GONE:
        note_end(p, m->from, peer, (int)m->value[0]);
        break;
    case PEERS_STAGE:
        p->stages[peer] = (uint32_t)m->value[0];
        break;
    case PEERS_MISSING:
        if (m->value[1] == p->stage && m->value[0] != p->rank)
            p->missing = (uint32_t)m->value[0];
        break;
    default:
        break;
    }
}

void swl_peers_look(struct swl_peers *p)
{
    struct swl_oob_message message;
    uint32_t peer;

    if (!p->connected)
        return;
    while (swl_oob_receive(p->oob, &peer, &message))
        take(p, peer, &message);
}

void swl_peers_tell(struct swl_peers *p, const struct swl_notice *notice)
{
    struct swl_notice n = *notice;
    struct swl_oob_message message = {.kind = PEERS_NOTICE};

    n.from = p->rank;
    if (!p->connected || !note(p, &n))
        return;
    memcpy(message.bytes, &n, sizeof(n));
    tell_all(p, UINT32_MAX, &message);
}

bool swl_peers_queue_pair(const struct swl_peers *p, uint64_t gen)
{
    return p->news.kind == SWL_FAULT_COMPLETION && swl_poison_gen(p->news.word) >= gen;
}

bool swl_peers_reports(const struct swl_peers *p, uint32_t rank, uint64_t gen)
{
    return p->connected && (p->told[rank] & 1) && p->told[rank] >> 1 > gen;
}

bool swl_peers_send(struct swl_peers *p, uint32_t rank, const struct swl_oob_message *message)
{
    const uint32_t peer = p->connected ? swl_oob_peer(p->oob, rank) : UINT32_MAX;

    return peer != UINT32_MAX && swl_oob_send(p->oob, peer, message);
}

/* ---- set-up ---- */

void swl_peers_stage(struct swl_peers *p)
{
    struct swl_oob_message message = {.kind = PEERS_STAGE, .value = {++p->stage}};

    p->missing = UINT32_MAX;
    if (p->connected)
        tell_all(p, UINT32_MAX, &message);
}

/* `left`: also of those that are not connected any more. */
static uint32_t missing_peer(const struct swl_peers *p, bool left)
{
    for (uint32_t i = 0; i < swl_oob_peers(p->oob); i++)
        if (p->stages[i] < p->stage && (left || swl_oob_connected(p->oob, i)))
            return swl_oob_rank(p->oob, i);
    return UINT32_MAX;
}

bool swl_peers_meet(struct swl_peers *p)
{
    const uint64_t end = swl_gpu_now_ns() + p->timeout_ns;

    swl_peers_stage(p);
    for (;;) {
        swl_peers_look(p);
        if (!p->connected || missing_peer(p, false) == UINT32_MAX)
            return true;
        if (swl_gpu_now_ns() >= end)
            return false;
        swl_gpu_sleep_ns(POLL_NS);
    }
}

uint32_t swl_peers_missing(struct swl_peers *p)
{
    const uint64_t end = swl_gpu_now_ns() + p->timeout_ns / 16;
    struct swl_oob_message message = {.kind = PEERS_MISSING, .value = {0, p->stage}};

    if (!p->connected)
        return UINT32_MAX;
    swl_peers_look(p);
    if (missing_peer(p, true) != UINT32_MAX) {
        p->missing = missing_peer(p, true);
        message.value[0] = p->missing;
        tell_all(p, UINT32_MAX, &message);
    }
    while (p->missing == UINT32_MAX && swl_gpu_now_ns() < end) {
        swl_gpu_sleep_ns(POLL_NS);
        swl_peers_look(p);
    }
    return p->missing;
}
