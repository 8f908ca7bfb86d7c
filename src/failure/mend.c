/* mend.c: the state machine of mend.h. Layer: src/failure; owns its tables. Model:
 * tests/model/repair.pml. */
#include "src/failure/mend.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "transport/nic.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct swl_nic_address) == SWL_OOB_BYTES, "an address fits a message");

/* One queue pair, within the rounds of its pair. */
struct link {
    struct swl_mend_link is;
    bool offered, connected, told, adopted;
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

struct swl_mend {
    const struct swl_mend_ops *ops;
    void *context;
    struct link *links;
    struct pair *pairs;
    uint32_t nlinks, npairs;
    uint64_t round, generation;
    bool active;
    ncclResult_t failed; /* in swl_mend_hear: said by the next step */
    uint32_t stopped;    /* the rank that said STOP; UINT32_MAX: none */
};

ncclResult_t swl_mend_open(struct swl_mend **mend_p, const struct swl_mend_ops *ops, void *context,
                           const struct swl_mend_link *links, uint32_t nlinks)
{
    struct swl_mend *m = calloc(1, sizeof(*m));

    if (m) {
        m->links = calloc(nlinks + 1u, sizeof(*m->links));
        m->pairs = calloc(nlinks + 1u, sizeof(*m->pairs));
    }
    if (!m || !m->links || !m->pairs) {
        swl_mend_close(m);
        return swl_no_memory("the repair of %" PRIu32 " links", nlinks);
    }
    m->ops = ops;
    m->context = context;
    m->nlinks = nlinks;
    m->stopped = UINT32_MAX;
    for (uint32_t i = 0; i < nlinks; i++) {
        uint32_t p = 0;

        m->links[i].is = links[i];
        while (p < m->npairs && m->pairs[p].rank != links[i].rank)
            p++;
        m->pairs[p].rank = links[i].rank;
        m->npairs += p == m->npairs;
    }
    *mend_p = m;
    return ncclSuccess;
}

void swl_mend_close(struct swl_mend *m)
{
    if (!m)
        return;
    free(m->links);
    free(m->pairs);
    free(m);
}

uint32_t swl_mend_rank(const struct swl_mend *m, uint32_t link)
{
    return m->links[link].is.rank;
}

static struct pair *pair_of(struct swl_mend *m, uint32_t rank)
{
    for (uint32_t p = 0; p < m->npairs; p++)
        if (m->pairs[p].rank == rank)
            return &m->pairs[p];
    return NULL;
}

/* Two ranks begin again, with whatever rounds they are in now. */
static void start_pair(struct swl_mend *m, struct pair *p)
{
    p->ask = true;
    p->agreed = p->reset = p->done = false;
    for (uint32_t i = 0; i < m->nlinks; i++) {
        struct link *l = &m->links[i];

        if (l->is.rank != p->rank)
            continue;
        l->offered = l->connected = l->told = l->adopted = l->has_theirs = false;
        p->broken = p->broken || l->dirty;
    }
}

void swl_mend_begin(struct swl_mend *m, const bool *broken, uint64_t generation)
{
    m->round++;
    m->generation = generation;
    m->active = true;
    m->failed = ncclSuccess;
    m->stopped = UINT32_MAX;
    for (uint32_t p = 0; p < m->npairs; p++) {
        struct pair *pair = &m->pairs[p];

        pair->broken = false;
        for (uint32_t i = 0; i < m->nlinks; i++)
            pair->broken = pair->broken || (broken[i] && m->links[i].is.rank == pair->rank);
        pair->asked = pair->heard > pair->answered;
        start_pair(m, pair);
        pair->answered = pair->heard;
    }
}

void swl_mend_spare(struct swl_mend *m, uint32_t rank)
{
    struct pair *p = pair_of(m, rank);

    if (!p || p->broken || p->asked)
        return;
    p->done = true;
    p->ask = false;
}

/* ---- what peers say ---- */

static void hear_ask(struct swl_mend *m, struct pair *p, const struct swl_oob_message *message)
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

static struct link *link_of(struct swl_mend *m, const struct pair *p, uint64_t key)
{
    for (uint32_t i = 0; i < m->nlinks; i++)
        if (m->links[i].is.rank == p->rank && m->links[i].is.key == key)
            return &m->links[i];
    return NULL;
}

static void hear_link(struct swl_mend *m, const struct pair *p,
                      const struct swl_oob_message *message)
{
    struct link *l = link_of(m, p, message->value[2]);

    if (!l)
        return;
    if (message->kind == SWL_MEND_OFFER) {
        memcpy(l->theirs.bytes, message->bytes, sizeof(l->theirs.bytes));
        l->has_theirs = true;
    } else if (!l->adopted) {
        m->failed = m->ops->adopt(m->context, (uint32_t)(l - m->links), message->value + 3);
        l->adopted = m->failed == ncclSuccess;
    }
}

void swl_mend_hear(struct swl_mend *m, const struct swl_oob_message *message)
{
    struct pair *p = pair_of(m, message->from);

    if (!p)
        return;
    if (message->kind == SWL_MEND_ASK) {
        hear_ask(m, p, message);
        return;
    }
    /* of these rounds only */
    if (!m->active || m->failed != ncclSuccess || message->value[0] != p->heard ||
        message->value[1] != m->round)
        return;
    if (message->kind == SWL_MEND_STOP)
        m->stopped = p->rank;
    else
        hear_link(m, p, message);
}

void swl_mend_gone(struct swl_mend *m, uint32_t rank)
{
    struct pair *p = pair_of(m, rank);

    if (p)
        p->gone = true;
}

/* ---- what this rank does ---- */

static bool say(struct swl_mend *m, const struct pair *p, enum swl_mend_kind kind,
                struct swl_oob_message *message)
{
    message->kind = (uint16_t)kind;
    message->value[0] = m->round;
    message->value[1] = p->heard;
    return m->ops->send(m->context, p->rank, message);
}

static void ask(struct swl_mend *m, struct pair *p)
{
    struct swl_oob_message message = {.value = {0, 0, p->broken, m->generation}};

    if (p->ask)
        p->ask = !say(m, p, SWL_MEND_ASK, &message);
}

static ncclResult_t reset_pair(struct swl_mend *m, struct pair *p)
{
    for (uint32_t i = 0; !p->reset && i < m->nlinks; i++) {
        if (m->links[i].is.rank != p->rank)
            continue;
        m->links[i].dirty = true;
        SWL_TRY(m->ops->reset(m->context, i, &m->links[i].mine));
    }
    p->reset = true;
    return ncclSuccess;
}

static ncclResult_t step_link(struct swl_mend *m, const struct pair *p, uint32_t i)
{
    struct link *l = &m->links[i];
    struct swl_oob_message message = {.value = {0, 0, l->is.key}};

    if (!l->offered) {
        memcpy(message.bytes, l->mine.bytes, sizeof(l->mine.bytes));
        l->offered = say(m, p, SWL_MEND_OFFER, &message);
    }
    if (l->offered && l->has_theirs && !l->connected) {
        SWL_TRY(m->ops->connect(m->context, i, &l->theirs));
        l->connected = true;
    }
    if (l->connected && !l->told) {
        SWL_TRY(m->ops->read(m->context, i, message.value + 3));
        l->told = say(m, p, SWL_MEND_WORDS_ARE, &message);
    }
    return ncclSuccess;
}

static ncclResult_t step_pair(struct swl_mend *m, struct pair *p)
{
    bool done = true;

    if (p->done)
        return ncclSuccess;
    if (p->gone)
        return swl_fail(ncclSystemError,
                        "queue pairs to rank %" PRIu32 " cannot be connected anew: that rank is "
                        "gone",
                        p->rank);
    ask(m, p);
    if (!p->agreed || p->ask)
        return ncclSuccess;
    if (!p->broken && !p->theirs_broken) {
        p->done = true;
        return ncclSuccess;
    }
    SWL_TRY(reset_pair(m, p));
    for (uint32_t i = 0; i < m->nlinks; i++) {
        const struct link *l = &m->links[i];

        if (l->is.rank != p->rank)
            continue;
        SWL_TRY(step_link(m, p, i));
        done = done && l->told && l->adopted;
    }
    p->done = done;
    for (uint32_t i = 0; done && i < m->nlinks; i++)
        if (m->links[i].is.rank == p->rank)
            m->links[i].dirty = false;
    return ncclSuccess;
}

/* The round is over; peers that are still in it hear so. */
static void stop(struct swl_mend *m, ncclResult_t rc)
{
    m->active = false;
    for (uint32_t p = 0; p < m->npairs; p++) {
        struct swl_oob_message message = {.value = {0, 0, (uint64_t)rc}};

        if (!m->pairs[p].gone)
            (void)say(m, &m->pairs[p], SWL_MEND_STOP, &message);
    }
}

ncclResult_t swl_mend_step(struct swl_mend *m, bool *done_p)
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
static const char *missing_text(const struct swl_mend *m, const struct pair *p)
{
    if (p->heard == 0 || !p->agreed)
        return "has not come to connect its queue pairs anew; it may not have cleared the failure";
    for (uint32_t i = 0; i < m->nlinks; i++)
        if (m->links[i].is.rank == p->rank && !m->links[i].has_theirs)
            return "has not reset its queue pairs";
    return "has not connected its queue pairs anew";
}

ncclResult_t swl_mend_expire(struct swl_mend *m, uint64_t limit_ns)
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

bool swl_mend_lost(const struct swl_mend *m, uint32_t rank)
{
    for (uint32_t p = 0; p < m->npairs; p++)
        if (m->pairs[p].rank == rank)
            return m->pairs[p].gone || !m->pairs[p].done;
    return false;
}

bool swl_mend_asked(const struct swl_mend *m)
{
    for (uint32_t p = 0; p < m->npairs; p++)
        if (m->pairs[p].heard > m->pairs[p].answered)
            return true;
    return false;
}
