/* host_news.c: news between the hosts of a group. Layer: src/failure; memory: host_news.h. */
#include "src/failure/host_news.h"

#include "kernels/common/faults.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/failure/qp_recovery.h"
#include "src/runtime/runtime.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_NS UINT64_C(100000)

static_assert(sizeof(((struct swl_host_news *)0)->gone_why) <= SWL_CONTROL_BYTES,
              "why travels in a message");

/* Those of the queue pairs are in qp_recovery.h. */
enum news_kind {
    NEWS_NOTICE = SWL_CONTROL_USER, /* struct swl_notice */
    NEWS_LOST,                      /* value[0]: a rank that has gone; bytes: why, as gone_why */
    NEWS_STEP,                      /* value[0]: number of an exchange */
    NEWS_MISSING, /* value[0], [1]: a rank that does not take part, in this exchange */
};

ncclResult_t swl_host_news_open(struct swl_host_news *hosts, uint64_t process,
                                const char *socket_ifname, struct swl_control_address *mine_p)
{
    const struct swl_control_config config = {
        .rank = hosts->rank,
        .nranks = hosts->nranks,
        .process = process,
        .timeout_ns = hosts->timeout_ns,
        .silence_ns = hosts->silence_ns,
        .socket_ifname = socket_ifname,
    };

    hosts->missing = hosts->first_gone = UINT32_MAX;
    return swl_control_open(&hosts->control, &config, mine_p);
}

static void close_connections(struct swl_host_news *hosts)
{
    swl_control_close(hosts->control);
    hosts->control = NULL;
    hosts->connected = false;
}

ncclResult_t swl_host_news_set_addresses(struct swl_host_news *hosts,
                                         const struct swl_control_address *all)
{
    char why[320];

    if (hosts->nranks == 1 || !hosts->control) {
        close_connections(hosts);
        return ncclSuccess;
    }
    if (!swl_control_possible(all, hosts->nranks, why, sizeof(why))) {
        swl_log(hosts->rank == 0 ? SWL_LEVEL_WARN : SWL_LEVEL_DEBUG,
                "group: no control connections: %s; a rank that dies shows by the time limit only, "
                "and queue pairs in error stay so",
                why);
        close_connections(hosts);
        return ncclSuccess;
    }
    hosts->all = calloc(hosts->nranks, sizeof(*hosts->all));
    hosts->gone = calloc(hosts->nranks, sizeof(*hosts->gone));
    hosts->told = calloc(hosts->nranks, sizeof(*hosts->told));
    if (!hosts->all || !hosts->gone || !hosts->told)
        return swl_no_memory("the addresses of %" PRIu32 " ranks", hosts->nranks);
    memcpy(hosts->all, all, hosts->nranks * sizeof(*all));
    return ncclSuccess;
}

ncclResult_t swl_host_news_connect(struct swl_host_news *hosts, const uint32_t *ranks, uint32_t n)
{
    if (!hosts->control)
        return ncclSuccess;
    hosts->steps = swl_calloc(n, sizeof(*hosts->steps), "%" PRIu32 " connections", n);
    if (!hosts->steps)
        return ncclSystemError;
    SWL_TRY(swl_control_connect(hosts->control, hosts->all, ranks, n));
    free(hosts->all);
    hosts->all = NULL;
    hosts->connected = true;
    return ncclSuccess;
}

void swl_host_news_close(struct swl_host_news *hosts)
{
    close_connections(hosts);
    free(hosts->all);
    free(hosts->gone);
    free(hosts->told);
    free(hosts->steps);
    hosts->all = NULL;
    hosts->gone = NULL;
    hosts->told = NULL;
    hosts->steps = NULL;
}

/* ---- news ---- */

/* To all but `except`. A peer that takes nothing for long misses it: others pass it on. */
static void tell_all(struct swl_host_news *hosts, uint32_t except,
                     const struct swl_control_message *message)
{
    for (uint32_t i = 0; i < swl_control_peers(hosts->control); i++)
        if (i != except)
            (void)swl_control_send(hosts->control, i, message);
}

static void note_word(struct swl_host_news *hosts, uint64_t word)
{
    if (swl_poison_gen(word) > swl_poison_gen(hosts->heard))
        hosts->heard = word;
}

/* false: it is known already */
static bool note(struct swl_host_news *hosts, const struct swl_notice *n)
{
    const bool queue_pair = n->kind == SWL_FAULT_COMPLETION;
    const uint64_t gen = swl_poison_gen(n->word), newest = swl_poison_gen(hosts->newest.word);

    if (n->from >= hosts->nranks || (gen << 1 | queue_pair) <= hosts->told[n->from])
        return false;
    hosts->told[n->from] = gen << 1 | queue_pair;
    if (gen > newest || (gen == newest && queue_pair && hosts->newest.kind != SWL_FAULT_COMPLETION))
        hosts->newest = *n;
    note_word(hosts, n->word);
    if (queue_pair)
        hosts->broken = swl_max_u64(hosts->broken, gen);
    return true;
}

static void note_gone(struct swl_host_news *hosts, uint32_t rank, uint32_t except, const char *why)
{
    struct swl_control_message message = {.kind = NEWS_LOST, .value = {rank}};
    char *text = (char *)message.bytes;

    if (rank >= hosts->nranks || hosts->gone[rank] || rank == hosts->rank)
        return;
    snprintf(text, sizeof(hosts->gone_why), "%s", why);
    hosts->gone[rank] = true;
    if (hosts->ngone++ == 0) {
        hosts->first_gone = rank;
        memcpy(hosts->gone_why, text, sizeof(hosts->gone_why));
    }
    swl_log(hosts->quiet ? SWL_LEVEL_INFO : SWL_LEVEL_WARN, "group: rank %" PRIu32 " %s", rank,
            text);
    if (hosts->recovery)
        swl_qp_recovery_gone(hosts->recovery, rank);
    tell_all(hosts, except, &message);
}

/* Its connection has ended without a farewell; `error`: errno, 0 = closed. */
static void note_end(struct swl_host_news *hosts, uint32_t rank, uint32_t except, int error)
{
    char why[120];

    if (error)
        snprintf(why, sizeof(why), "is gone: its connection broke (%s)", strerror(error));
    else
        snprintf(why, sizeof(why), "is gone: its connection was closed, as when a process ends");
    note_gone(hosts, rank, except, why);
}

void swl_host_news_fail(struct swl_host_news *hosts, ncclResult_t code, const char *doing)
{
    struct swl_control_message message = {.kind = NEWS_LOST, .value = {hosts->rank}};

    if (!hosts->connected || hosts->ngone > 0) /* then somebody else has failed */
        return;
    snprintf((char *)message.bytes, sizeof(hosts->gone_why), "failed while %s (%s)", doing,
             swl_result_text(code));
    tell_all(hosts, UINT32_MAX, &message);
}

static void on_message(struct swl_host_news *hosts, uint32_t peer,
                       const struct swl_control_message *m)
{
    struct swl_notice n;
    char why[sizeof(hosts->gone_why)];

    if (m->kind >= SWL_QP_RECOVERY_ASK && m->kind < SWL_QP_RECOVERY_END) {
        if (m->kind == SWL_QP_RECOVERY_ASK)
            note_word(hosts, swl_poison_word(m->value[3], m->from));
        if (hosts->recovery)
            swl_qp_recovery_on_message(hosts->recovery, m);
        return;
    }
    switch (m->kind) {
    case NEWS_NOTICE:
        memcpy(&n, m->bytes, sizeof(n));
        if (note(hosts, &n))
            tell_all(hosts, peer, m);
        break;
    case NEWS_LOST:
        snprintf(why, sizeof(why), "%.*s", (int)sizeof(why) - 1, (const char *)m->bytes);
        note_gone(hosts, (uint32_t)m->value[0], peer, why);
        break;
    case SWL_CONTROL_GONE:
        note_end(hosts, m->from, peer, (int)m->value[0]);
        break;
    case NEWS_STEP:
        hosts->steps[peer] = (uint32_t)m->value[0];
        break;
    case NEWS_MISSING:
        if (m->value[1] == hosts->step && m->value[0] != hosts->rank)
            hosts->missing = (uint32_t)m->value[0];
        break;
    default:
        break;
    }
}

void swl_host_news_poll(struct swl_host_news *hosts)
{
    struct swl_control_message message;
    uint32_t peer;

    if (!hosts->connected)
        return;
    while (swl_control_receive(hosts->control, &peer, &message))
        on_message(hosts, peer, &message);
}

void swl_host_news_broadcast(struct swl_host_news *hosts, const struct swl_notice *notice)
{
    struct swl_notice n = *notice;
    struct swl_control_message message = {.kind = NEWS_NOTICE};

    n.from = hosts->rank;
    if (!hosts->connected || !note(hosts, &n))
        return;
    memcpy(message.bytes, &n, sizeof(n));
    tell_all(hosts, UINT32_MAX, &message);
}

bool swl_host_news_queue_pair(const struct swl_host_news *hosts, uint64_t gen)
{
    return hosts->newest.kind == SWL_FAULT_COMPLETION && swl_poison_gen(hosts->newest.word) >= gen;
}

bool swl_host_news_reports(const struct swl_host_news *hosts, uint32_t rank, uint64_t gen)
{
    return hosts->connected && (hosts->told[rank] & 1) && hosts->told[rank] >> 1 > gen;
}

bool swl_host_news_send(struct swl_host_news *hosts, uint32_t rank,
                        const struct swl_control_message *message)
{
    const uint32_t peer = hosts->connected ? swl_control_peer(hosts->control, rank) : UINT32_MAX;

    return peer != UINT32_MAX && swl_control_send(hosts->control, peer, message);
}

/* ---- set-up ---- */

void swl_host_news_step(struct swl_host_news *hosts)
{
    struct swl_control_message message = {.kind = NEWS_STEP, .value = {++hosts->step}};

    hosts->missing = UINT32_MAX;
    if (hosts->connected)
        tell_all(hosts, UINT32_MAX, &message);
}

/* `left`: also of those that are not connected any more. */
static uint32_t missing_peer(const struct swl_host_news *hosts, bool left)
{
    for (uint32_t i = 0; i < swl_control_peers(hosts->control); i++)
        if (hosts->steps[i] < hosts->step && (left || swl_control_connected(hosts->control, i)))
            return swl_control_rank(hosts->control, i);
    return UINT32_MAX;
}

bool swl_host_news_barrier(struct swl_host_news *hosts)
{
    const uint64_t end = swl_gpu_now_ns() + hosts->timeout_ns;

    swl_host_news_step(hosts);
    for (;;) {
        swl_host_news_poll(hosts);
        if (!hosts->connected || missing_peer(hosts, false) == UINT32_MAX)
            return true;
        if (swl_gpu_now_ns() >= end)
            return false;
        swl_gpu_sleep_ns(POLL_NS);
    }
}

uint32_t swl_host_news_missing(struct swl_host_news *hosts)
{
    const uint64_t end = swl_gpu_now_ns() + hosts->timeout_ns / 16;
    struct swl_control_message message = {.kind = NEWS_MISSING, .value = {0, hosts->step}};

    if (!hosts->connected)
        return UINT32_MAX;
    swl_host_news_poll(hosts);
    if (missing_peer(hosts, true) != UINT32_MAX) {
        hosts->missing = missing_peer(hosts, true);
        message.value[0] = hosts->missing;
        tell_all(hosts, UINT32_MAX, &message);
    }
    while (hosts->missing == UINT32_MAX && swl_gpu_now_ns() < end) {
        swl_gpu_sleep_ns(POLL_NS);
        swl_host_news_poll(hosts);
    }
    return hosts->missing;
}
