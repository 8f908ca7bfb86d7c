/* qp_recovery.c: the state machine of qp_recovery.h. Layer: src/failure; owns its tables. Model:
 * tests/model/repair.pml. */
#include "src/failure/qp_recovery.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "transport/nic.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct swl_nic_address) == SWL_CONTROL_BYTES, "an address fits a message");

/* One queue pair, within the rounds of its pair. */
struct connection {
    struct swl_qp_recovery_connection is;
    bool address_sent, connected, told, adopted;
    bool has_theirs;
    bool dirty; /* reset in a round that has not come to its end */
    struct swl_nic_address mine, theirs;
};

/* Two ranks. */
struct pair {
    uint32_t rank;
    uint64_t heard;    /* the peer's newest round; 0: none */
    uint64_t answered; /* of these, the newest that a round of this rank has been for */
    bool broken, theirs_broken;
    bool ask;    /* an ASK is due */
    bool agreed; /* the peer knows this round, this rank knows the peer's */
    bool reset, done, gone;
    bool asked; /* before this round began */
};

struct swl_qp_recovery {
    const struct swl_qp_recovery_ops *ops;
    void *context;
    struct connection *connections;
    struct pair *pairs;
    uint32_t nconnections, npairs;
    uint64_t round, generation;
    bool active;
    ncclResult_t failed; /* in swl_qp_recovery_on_message: said by the next step */
    uint32_t stopped;    /* the rank that said STOP; UINT32_MAX: none */
};

ncclResult_t swl_qp_recovery_open(struct swl_qp_recovery **recovery_p,
                                  const struct swl_qp_recovery_ops *ops, void *context,
                                  const struct swl_qp_recovery_connection *connections,
                                  uint32_t nconnections)
{
    struct swl_qp_recovery *m = calloc(1, sizeof(*m));

    if (m) {
        m->connections = calloc(nconnections + 1u, sizeof(*m->connections));
        m->pairs = calloc(nconnections + 1u, sizeof(*m->pairs));
    }
    if (!m || !m->connections || !m->pairs) {
        swl_qp_recovery_close(m);
        return swl_no_memory("the repair of %" PRIu32 " connections", nconnections);
    }
    m->ops = ops;
    m->context = context;
    m->nconnections = nconnections;
    m->stopped = UINT32_MAX;
    for (uint32_t i = 0; i < nconnections; i++) {
        uint32_t p = 0;

        m->connections[i].is = connections[i];
        while (p < m->npairs && m->pairs[p].rank != connections[i].rank)
            p++;
        m->pairs[p].rank = connections[i].rank;
        m->npairs += p == m->npairs;
    }
    *recovery_p = m;
    return ncclSuccess;
}

void swl_qp_recovery_close(struct swl_qp_recovery *m)
{
    if (!m)
        return;
    free(m->connections);
    free(m->pairs);
    free(m);
}

uint32_t swl_qp_recovery_rank(const struct swl_qp_recovery *m, uint32_t connection)
{
    return m->connections[connection].is.rank;
}

static struct pair *pair_of(struct swl_qp_recovery *m, uint32_t rank)
{
    for (uint32_t p = 0; p < m->npairs; p++)
        if (m->pairs[p].rank == rank)
            return &m->pairs[p];
    return NULL;
}

/* Two ranks begin again, with whatever rounds they are in now. */
static void start_pair(struct swl_qp_recovery *m, struct pair *p)
{
    p->ask = true;
    p->agreed = p->reset = p->done = false;
    for (uint32_t i = 0; i < m->nconnections; i++) {
        struct connection *l = &m->connections[i];

        if (l->is.rank != p->rank)
            continue;
        l->address_sent = l->connected = l->told = l->adopted = l->has_theirs = false;
        p->broken = p->broken || l->dirty;
    }
}

void swl_qp_recovery_begin(struct swl_qp_recovery *m, const bool *broken, uint64_t generation)
{
    m->round++;
    m->generation = generation;
    m->active = true;
    m->failed = ncclSuccess;
    m->stopped = UINT32_MAX;
    for (uint32_t p = 0; p < m->npairs; p++) {
        struct pair *pair = &m->pairs[p];

        pair->broken = false;
        for (uint32_t i = 0; i < m->nconnections; i++)
            pair->broken = pair->broken || (broken[i] && m->connections[i].is.rank == pair->rank);
        pair->asked = pair->heard > pair->answered;
        start_pair(m, pair);
        pair->answered = pair->heard;
    }
}

void swl_qp_recovery_skip(struct swl_qp_recovery *m, uint32_t rank)
{
    struct pair *p = pair_of(m, rank);

    if (!p || p->broken || p->asked)
        return;
    p->done = true;
    p->ask = false;
}

/* ---- what peers say ---- */

static void on_ask(struct swl_qp_recovery *m, struct pair *p,
                   const struct swl_control_message *message)
{
    if (message->value[0] > p->heard) {
        p->heard = message->value[0];
        p->theirs_broken = false;
        if (m->stopped == p->rank) /* it has stopped a round before */
            m->stopped = UINT32_MAX;
        if (m->active) {
            start_pair(m, p);
            p->answered = p->heard;
        }
    }
    /* said again in the same round: ends may have been reset meanwhile, which count as broken */
    if (message->value[0] == p->heard && message->value[2] != 0)
        p->theirs_broken = true;
    if (m->active && message->value[1] == m->round)
        p->agreed = true;
}

static struct connection *connection_of(struct swl_qp_recovery *m, const struct pair *p,
                                        uint64_t key)
{
    for (uint32_t i = 0; i < m->nconnections; i++)
        if (m->connections[i].is.rank == p->rank && m->connections[i].is.key == key)
            return &m->connections[i];
    return NULL;
}

static void on_link(struct swl_qp_recovery *m, const struct pair *p,
                    const struct swl_control_message *message)
{
    struct connection *l = connection_of(m, p, message->value[2]);

    if (!l)
        return;
    if (message->kind == SWL_QP_RECOVERY_ADDRESS) {
        memcpy(l->theirs.bytes, message->bytes, sizeof(l->theirs.bytes));
        l->has_theirs = true;
    } else if (!l->adopted) {
        m->failed = m->ops->adopt(m->context, (uint32_t)(l - m->connections), message->value + 3);
        l->adopted = m->failed == ncclSuccess;
    }
}

void swl_qp_recovery_on_message(struct swl_qp_recovery *m,
                                const struct swl_control_message *message)
{
    struct pair *p = pair_of(m, message->from);

    if (!p)
        return;
    if (message->kind == SWL_QP_RECOVERY_ASK) {
        on_ask(m, p, message);
        return;
    }
    /* of these rounds only */
    if (!m->active || m->failed != ncclSuccess || message->value[0] != p->heard ||
        message->value[1] != m->round)
        return;
    if (message->kind == SWL_QP_RECOVERY_STOP)
        m->stopped = p->rank;
    else
        on_link(m, p, message);
}

void swl_qp_recovery_gone(struct swl_qp_recovery *m, uint32_t rank)
{
    struct pair *p = pair_of(m, rank);

    if (p)
        p->gone = true;
}

/* ---- what this rank does ---- */

static bool send_step(struct swl_qp_recovery *m, const struct pair *p,
                      enum swl_qp_recovery_kind kind, struct swl_control_message *message)
{
    message->kind = (uint16_t)kind;
    message->value[0] = m->round;
    message->value[1] = p->heard;
    return m->ops->send(m->context, p->rank, message);
}

static void ask_peer(struct swl_qp_recovery *m, struct pair *p)
{
    struct swl_control_message message = {.value = {0, 0, p->broken, m->generation}};

    if (p->ask)
        p->ask = !send_step(m, p, SWL_QP_RECOVERY_ASK, &message);
}

static ncclResult_t reset_pair(struct swl_qp_recovery *m, struct pair *p)
{
    for (uint32_t i = 0; !p->reset && i < m->nconnections; i++) {
        if (m->connections[i].is.rank != p->rank)
            continue;
        m->connections[i].dirty = true;
        SWL_TRY(m->ops->reset(m->context, i, &m->connections[i].mine));
    }
    p->reset = true;
    return ncclSuccess;
}

static ncclResult_t step_link(struct swl_qp_recovery *m, const struct pair *p, uint32_t i)
{
    struct connection *l = &m->connections[i];
    struct swl_control_message message = {.value = {0, 0, l->is.key}};

    if (!l->address_sent) {
        memcpy(message.bytes, l->mine.bytes, sizeof(l->mine.bytes));
        l->address_sent = send_step(m, p, SWL_QP_RECOVERY_ADDRESS, &message);
    }
    if (l->address_sent && l->has_theirs && !l->connected) {
        SWL_TRY(m->ops->connect(m->context, i, &l->theirs));
        l->connected = true;
    }
    if (l->connected && !l->told) {
        SWL_TRY(m->ops->read(m->context, i, message.value + 3));
        l->told = send_step(m, p, SWL_QP_RECOVERY_WORDS_MESSAGE, &message);
    }
    return ncclSuccess;
}

static ncclResult_t step_pair(struct swl_qp_recovery *m, struct pair *p)
{
    bool done = true;

    if (p->done)
        return ncclSuccess;
    if (p->gone)
        return swl_fail(ncclSystemError,
                        "queue pairs to rank %" PRIu32 " cannot be connected anew: that rank is "
                        "gone",
                        p->rank);
    ask_peer(m, p);
    if (!p->agreed || p->ask)
        return ncclSuccess;
    if (!p->broken && !p->theirs_broken) {
        p->done = true;
        return ncclSuccess;
    }
    SWL_TRY(reset_pair(m, p));
    for (uint32_t i = 0; i < m->nconnections; i++) {
        const struct connection *l = &m->connections[i];

        if (l->is.rank != p->rank)
            continue;
        SWL_TRY(step_link(m, p, i));
        done = done && l->told && l->adopted;
    }
    p->done = done;
    for (uint32_t i = 0; done && i < m->nconnections; i++)
        if (m->connections[i].is.rank == p->rank)
            m->connections[i].dirty = false;
    return ncclSuccess;
}

/* The round is over; peers that are still in it hear so. */
static void stop(struct swl_qp_recovery *m, ncclResult_t rc)
{
    m->active = false;
    for (uint32_t p = 0; p < m->npairs; p++) {
        struct swl_control_message message = {.value = {0, 0, (uint64_t)rc}};

        if (!m->pairs[p].gone)
            (void)send_step(m, &m->pairs[p], SWL_QP_RECOVERY_STOP, &message);
    }
}

ncclResult_t swl_qp_recovery_step(struct swl_qp_recovery *m, bool *done_p)
{
    ncclResult_t rc = m->failed;
    bool done = true;

    if (rc == ncclSuccess && m->stopped != UINT32_MAX)
        rc = swl_fail(ncclSystemError,
                      "queue pairs are not connected anew: rank %" PRIu32 " has given up",
                      m->stopped);
    for (uint32_t p = 0; rc == ncclSuccess && p < m->npairs; p++) {
        rc = step_pair(m, &m->pairs[p]);
        done = done && m->pairs[p].done;
    }
    *done_p = rc == ncclSuccess && done;
    if (rc != ncclSuccess)
        stop(m, rc);
    else if (done)
        m->active = false;
    return rc;
}

/* What the pair waits for. */
static const char *missing_text(const struct swl_qp_recovery *m, const struct pair *p)
{
    if (p->heard == 0 || !p->agreed)
        return "has not come to connect its queue pairs anew; it may not have cleared the failure";
    for (uint32_t i = 0; i < m->nconnections; i++)
        if (m->connections[i].is.rank == p->rank && !m->connections[i].has_theirs)
            return "has not reset its queue pairs";
    return "has not connected its queue pairs anew";
}

ncclResult_t swl_qp_recovery_expire(struct swl_qp_recovery *m, uint64_t limit_ns)
{
    ncclResult_t rc = ncclSuccess;
    char time[32];

    swl_time_text(limit_ns, time, sizeof(time));
    for (uint32_t p = 0; rc == ncclSuccess && p < m->npairs; p++)
        if (!m->pairs[p].done)
            rc = swl_fail(ncclSystemError, "rank %" PRIu32 " %s (limit %s)", m->pairs[p].rank,
                          missing_text(m, &m->pairs[p]), time);
    stop(m, rc);
    return rc;
}

bool swl_qp_recovery_asked(const struct swl_qp_recovery *m)
{
    for (uint32_t p = 0; p < m->npairs; p++)
        if (m->pairs[p].heard > m->pairs[p].answered)
            return true;
    return false;
}
