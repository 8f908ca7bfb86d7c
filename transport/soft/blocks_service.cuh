/* blocks_service.cuh: how a leader of a software NIC on blocks finds work and ends what cannot go
 * on: doorbells, time limits, completions, errors. Layer: transport/soft, used by blocks.cuh.
 *
 * Order: in the head of blocks.cuh. */
#pragma once

#include "transport/soft/blocks_team.cuh"

#define NIC_NONE  0xffffffffu
#define NIC_NEVER (~0ull)

/* What a leader found when it looked for work; equal in all lanes. */
struct nic_look {
    uint32_t slot; /* of the team's queue pairs, or NIC_NONE: the team's work is over */
    uint32_t nrules;
    uint64_t delay_ns; /* of the faults */
    uint64_t doorbell; /* acquired */
    uint32_t record;   /* its record; may be older than the doorbell */
    uint32_t pad;
};

/* ---- completions; lane 0 ---- */

SWL_DEV void nic_complete(const struct soft_qp *qp, uint64_t index, uint32_t opcode)
{
    struct swl_cqe c;

    swl_cqe_make(&c, index, opcode, qp->qpn, 0);
    qp->cq[SWL_CQE_QPN_WORD] = c.word[SWL_CQE_QPN_WORD];
    publish_in_gpu(qp->cq + SWL_CQE_LAST_WORD, c.word[SWL_CQE_LAST_WORD]);
}

SWL_DEV void nic_complete_error(struct soft_qp *qp, uint64_t index, uint32_t syndrome)
{
    struct swl_cqe c;

    swl_cqe_make(&c, index, SWL_WQE_NOP, qp->qpn, syndrome);
    publish_in_gpu(qp->cq + SWL_CQE_SYNDROME_WORD, c.word[SWL_CQE_SYNDROME_WORD]);
    publish_in_gpu(qp->cq + SWL_CQE_LAST_WORD, c.word[SWL_CQE_LAST_WORD]);
}

/* The peer learns that this end answers nobody any more. */
SWL_DEV void nic_tell(struct soft_qp *qp)
{
    if (qp->remote_live && !qp->told)
        publish_to_peer(&soft_qp_at(qp->remote_live, qp->peer_qp)->peer_failed, 1u);
    qp->told = 1;
}

/* The first error of a queue pair. Its peer answers nobody behind it; the rest is flushed a little
 * later, so that pollers of the one completion can see the cause. */
SWL_DEV void nic_fail(const struct nic_team *t, struct soft_qp *qp, uint64_t index,
                      uint32_t syndrome, uint64_t word)
{
    const uint64_t latency = t->latency_ns;

    nic_complete_error(qp, index, syndrome);
    qp->stats.errors++;
    qp->state = SWL_NIC_QP_ERROR;
    qp->syndrome = syndrome;
    qp->bad_index = index;
    qp->bad_word = word;
    qp->flush_ns = clock_ns() + (latency > 1000 ? latency : 1000);
    nic_tell(qp);
}

SWL_DEV void nic_flush(struct soft_qp *qp)
{
    const uint64_t left = qp->end - qp->completed;

    if (left)
        nic_complete_error(qp, qp->end - 1, SWL_SYNDROME_FLUSHED);
    qp->stats.errors += left;
    qp->completed = qp->executed = qp->fetched = qp->end;
    qp->flush_ns = NIC_NEVER;
}

/* ---- doorbells; lane 0, where nothing else is said ---- */

/* Counts of entries and doorbells, and times, begin when faults take effect. */
SWL_DEV void nic_faults_begin(const struct soft_port *port, struct soft_qp *qp)
{
    const uint32_t epoch = load_relaxed_doorbell(&port->fault_epoch);

    if (qp->fault_epoch == epoch)
        return;
    qp->fault_epoch = epoch;
    qp->fault_begin_ns = clock_ns();
    qp->entry_count = qp->doorbell_count = 0;
}

SWL_DEV void nic_doorbell(const struct nic_team *t, struct soft_qp *qp, const struct nic_look *look)
{
    const uint64_t value = look->doorbell;
    const uint32_t nrules = look->nrules;
    uint32_t record = look->record;
    struct soft_port *port = t->port;
    uint64_t end;

    if (value == qp->seen)
        return;
    if (nrules)
        nic_faults_begin(port, qp);
    qp->seen = value;
    qp->stats.doorbells++;
    if (nrules && swl_faults_drop(&port->faults, qp->link, qp->doorbell_count++)) {
        qp->stats.dropped++;
    } else if (!soft_accept(qp, value, record, &end) &&
               /* it was under way together with the doorbell: read it again behind that */
               !soft_accept(qp, value, record = load_relaxed_doorbell(soft_record(qp)), &end)) {
        qp->stats.bad_doorbells++;
        if (qp->state == SWL_NIC_QP_READY)
            nic_fail(t, qp, qp->end, SWL_SYNDROME_LOCAL_OPERATION,
                     (uint64_t)swl_be32(record) << 32 | swl_doorbell_index(value));
    } else {
        qp->end = end;
        if (qp->state == SWL_NIC_QP_ERROR && qp->flush_ns == NIC_NEVER)
            qp->flush_ns = clock_ns() + 1000;
    }
}

/* The earliest time of all lanes. */
SWL_DEV uint64_t nic_earliest(uint64_t time_ns)
{
    if (!warp_any(time_ns != NIC_NEVER))
        return NIC_NEVER;
    for (int step = 16; step; step /= 2) {
        const uint64_t other = warp_shfl_xor(time_ns, step);

        time_ns = other < time_ns ? other : time_ns;
    }
    return time_ns;
}

/* All lanes, a slot each from `first` on: those whose doorbell has moved or whose time has come, as
 * bits; *next_p: when the first of them wants to be looked at again, if that is earlier. The loads
 * of all doorbells are under way together. */
SWL_DEV uint32_t nic_scan_some(const struct nic_team *t, uint32_t first, struct nic_look *mine,
                               uint64_t *next_p)
{
    const uint32_t slot = first + static_cast<uint32_t>(lane_id());
    uint64_t next = NIC_NEVER;
    bool wants = false;

    if (slot < t->nown) {
        const struct soft_qp *qp = nic_qp(t, slot);

        mine->record = load_relaxed_doorbell(soft_record(qp));
        mine->doorbell = read_doorbell(qp->doorbell);
        next = qp->next_ns;
        wants = (mine->doorbell != qp->seen && qp->state != SWL_NIC_QP_INIT) ||
                (next != NIC_NEVER && (next == 0 || next <= clock_ns()));
    }
    next = nic_earliest(next);
    *next_p = next < *next_p ? next : *next_p;
    return warp_ballot(wants);
}

/* All lanes: the next queue pair of this team with something to do, from number *turn on, with its
 * doorbell in *look_p; slot NIC_NONE: none, and *next_p is when the first of them wants to be
 * looked at again. */
SWL_DEV void nic_scan(const struct nic_team *t, uint32_t *turn, struct nic_look *look_p,
                      uint64_t *next_p)
{
    const uint32_t sets = (t->nown + 31) / 32, from = *turn / 32;

    *next_p = NIC_NEVER;
    for (uint32_t i = 0; i < sets + (sets > 1);
         i++) { /* the first set once more, for its beginning */
        const uint32_t set = from + i < sets ? from + i : from + i - sets;
        struct nic_look mine = {};
        const uint32_t wants = nic_scan_some(t, 32 * set, &mine, next_p);
        const uint32_t behind = i == 0 ? wants & (~0u << (*turn & 31)) : wants;
        const uint32_t hits = behind || sets > 1 ? behind : wants;

        if (hits) {
            const int lane = first_bit(hits);

            look_p->slot = 32 * set + static_cast<uint32_t>(lane);
            look_p->doorbell = warp_shfl(mine.doorbell, lane);
            look_p->record = warp_shfl(mine.record, lane);
            *turn = look_p->slot + 1 < t->nown ? look_p->slot + 1 : 0;
            return;
        }
    }
}

/* How long a NIC with work that is not due waits: while the call may succeed, to its deadline; and
 * a little, so that the poison of a failed call leaves. */
SWL_DEV uint64_t nic_limit(const struct nic_team *t, uint32_t closing, uint64_t closed_ns)
{
    const struct swl_watch *w = t->grid.watch;
    const uint64_t soon = closed_ns + ((w->deadline_ns - w->started_ns) >> 6);
    const bool given_up = closing == 2 || read_from_peer(w->poison) >> 16 >= *t->grid.gen;

    return given_up || soon > w->deadline_ns ? soon : w->deadline_ns;
}

SWL_DEV bool nic_dead(const struct nic_team *t)
{
    struct soft_qp *qp;

    if (t->nown == 0)
        return false;
    qp = nic_qp(t, 0);
    nic_faults_begin(t->port, qp);
    return swl_faults_dead(&t->port->faults, qp->fault_begin_ns, clock_ns());
}

/* A NIC that has died does nothing and answers nobody. */
SWL_DEV void nic_die(const struct nic_team *t)
{
    for (uint32_t i = 0; i < t->nown; i++)
        nic_tell(nic_qp(t, i));
}

/* All lanes: wait for work; slot NIC_NONE = this team's part of the kernel is over. The clock is
 * read only when there is a time to wait for, and now and then. */
SWL_DEV struct nic_look nic_next(const struct nic_team *t, uint32_t *turn)
{
    const struct swl_watch *w = t->grid.watch;
    /* the other blocks end within three sixteenths behind the deadline */
    const uint64_t most = w->deadline_ns + ((w->deadline_ns - w->started_ns) >> 1);
    uint32_t closing = 0, idle = 0;
    uint64_t closed_ns = 0;

    for (;;) {
        /* all loads of a look are under way together */
        uint32_t closed = load_relaxed_doorbell(t->grid.closing);
        struct nic_look look = {NIC_NONE,
                                load_relaxed_doorbell(&t->port->faults.nrules),
                                load_relaxed_doorbell(&t->port->faults.delay_ns),
                                0,
                                0,
                                0};
        uint64_t next = NIC_NEVER, limit = most, now;
        bool dead = false;

        nic_scan(t, turn, &look, &next);
        look.nrules = warp_shfl(look.nrules, 0);
        if (look.nrules) {
            dead = warp_shfl(lane_id() == 0 && nic_dead(t), 0);
            if (dead && lane_id() == 0)
                nic_die(t);
        }
        if (!dead && look.slot != NIC_NONE) {
            look.delay_ns = warp_shfl(look.delay_ns, 0);
            return look;
        }
        if (dead)
            next = NIC_NEVER;
        look.slot = NIC_NONE;
        closed = warp_shfl(closed, 0);
        if (closed && !closing) { /* pairs with the publish in call_end; look once more behind it */
            closing = warp_shfl(read_in_gpu(t->grid.closing), 0);
            warp_sync();
            continue;
        }
        if (closing || next != NIC_NEVER || (idle++ & 15) == 0) {
            now = warp_shfl(clock_ns(), 0);
            if (closing) {
                if (next == NIC_NEVER)
                    return look;
                closed_ns = closed_ns ? closed_ns : now;
                limit = warp_shfl(nic_limit(t, closing, closed_ns), 0);
            }
            if (now >= limit)
                return look;
        }
        if (next < limit)
            pause_lane_until(SWL_PAUSE("software NIC: not due yet", static_cast<int>(t->index), 0),
                             next);
        else
            pause_lane(SWL_PAUSE("software NIC: no work", static_cast<int>(t->index), 0), limit);
    }
}
