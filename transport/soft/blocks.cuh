/* blocks.cuh: executor of a rank's software NIC on blocks of the calling kernel.
 *
 * Layer: transport/soft, above core.cuh; kernels/nic.cuh calls it. Owns nothing: a queue pair's state
 * lies in device memory and goes on in the next kernel. A block has one or two teams of warps; team
 * t of n serves queue pairs t, t + n … alone. Its first warp leads: it looks at doorbells, fetches and
 * checks up to 32 entries at once, one a lane, and posts the WRITEs on the board; all warps of the team
 * place them; then the leader executes adds and READs whose time has come, in order, and completes.
 *
 * Order: read_doorbell (pairs with ring_doorbell) in the leader's lane 0, warp_sync, the team's barrier;
 * payload; the team's barrier; one order_before_publish(SYS) by lane 0 for the whole batch, its adds
 * (pair with read_from_nic at the peer), another fence only before an add to another word; completion
 * released at GPU scope (pairs with read_completion: the poster is of this GPU). WRITEs land in any
 * order, also before earlier adds. */
#pragma once

#include "device.h"
#include "kernels/wait.cuh"
#include "transport/soft/blocks_move.cuh"

#define SOFT_FN SWL_DEV
#include "transport/soft/core.cuh"

#define NIC_TEAMS       2u    /* of a block with enough warps */
#define NIC_ALONE_BYTES 4096u /* the leader places batches up to this size without its team */
#define NIC_HEADER      64u   /* bytes of a message on the wire beside its payload */
#define NIC_LOOKS       64u   /* at a doorbell record that lags behind its doorbell */
#define NIC_NONE        0xffffffffu
#define NIC_NEVER       (~0ull)

/* A NIC's part of a kernel. */
struct nic_grid {
    uint32_t block, blocks;        /* this block and all of the NIC */
    const struct swl_watch *watch; /* without generation: nobody knows it when the kernel begins */
    const uint32_t
        *closing;        /* all other blocks of the kernel have ended: 1, or 2: it was given up */
    const uint64_t *gen; /* generation of the call, settled when `closing` is */
};

struct nic_team {
    struct soft_port *port;
    struct nic_board *board;
    struct nic_grid grid;
    uint32_t index, count; /* of all teams of the grid */
    uint32_t warp, warps;  /* of the team */
    int barrier;
};

/* core.cuh's way to memory. Regions change between kernels only, so nobody is counted inside. */
struct nic_memory {
    SWL_DEV uint32_t word(const uint32_t *p)
    {
        return peek_doorbell(p);
    }
    SWL_DEV bool look_again(uint32_t looks)
    {
        if (looks == NIC_LOOKS)
            return false;
        pause_lane(SWL_PAUSE("software NIC: doorbell record", static_cast<int>(looks), 0),
                   clock_ns() + 500);
        return true;
    }
    SWL_DEV uint32_t key(const uint32_t *p)
    {
        return *p;
    }
    SWL_DEV void enter(uint32_t *)
    {
    }
    SWL_DEV void leave(uint32_t *)
    {
    }
    SWL_DEV void copy(void *to, const void *from, uint64_t bytes)
    {
        for (uint64_t i = 0; i < bytes / sizeof(struct vec16); i++)
            static_cast<struct vec16 *>(to)[i] =
                load_data(static_cast<const struct vec16 *>(from) + i);
    }
};

SWL_DEV void nic_team_sync(const struct nic_team *t)
{
    named_sync(t->barrier, static_cast<int>(32 * t->warps));
}

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
    if (qp->far_live && !qp->told)
        publish_to_peer(&soft_qp_at(qp->far_live, qp->peer_qp)->peer_failed, 1u);
    qp->told = 1;
}

/* The first error of a queue pair. Its peer answers nobody behind it; the rest is flushed a little
 * later, so that pollers of the one completion can see the cause. */
SWL_DEV void nic_fail(const struct nic_team *t, struct soft_qp *qp, uint64_t index,
                      uint32_t syndrome)
{
    const uint64_t latency = t->port->link.latency_ns;

    nic_complete_error(qp, index, syndrome);
    qp->stats.errors++;
    qp->state = SWL_NIC_QP_ERROR;
    qp->syndrome = syndrome;
    qp->bad_index = index;
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

/* ---- doorbells; lane 0 ---- */

/* Counts of entries and doorbells, and times, begin when faults take effect. */
SWL_DEV void nic_faults_begin(const struct soft_port *port, struct soft_qp *qp)
{
    const uint32_t epoch = peek_doorbell(&port->fault_epoch);

    if (qp->fault_epoch == epoch)
        return;
    qp->fault_epoch = epoch;
    qp->fault_begin_ns = clock_ns();
    qp->entry_count = qp->doorbell_count = 0;
}

SWL_DEV void nic_doorbell(const struct nic_team *t, struct soft_qp *qp)
{
    const uint64_t value = read_doorbell(qp->doorbell);
    struct soft_port *port = t->port;
    uint64_t end;

    if (value == qp->seen)
        return;
    if (port->faults.nrules)
        nic_faults_begin(port, qp);
    qp->seen = value;
    qp->stats.doorbells++;
    if (swl_soft_faults_drop(&port->faults, qp->link, qp->doorbell_count++)) {
        qp->stats.dropped++;
    } else if (!soft_accept(nic_memory(), qp, value, &end)) {
        qp->stats.bad_doorbells++;
        if (qp->state == SWL_NIC_QP_READY)
            nic_fail(t, qp, qp->end, SWL_SYNDROME_LOCAL_OPERATION);
    } else {
        qp->end = end;
        if (qp->state == SWL_NIC_QP_ERROR && qp->flush_ns == NIC_NEVER)
            qp->flush_ns = clock_ns() + 1000;
    }
}

/* The next queue pair of this team with something to do, or NIC_NONE; *next_p: when the first of
 * them wants to be looked at again. */
SWL_DEV uint32_t nic_scan(const struct nic_team *t, uint32_t *turn, uint64_t now, uint64_t *next_p)
{
    const uint32_t nqps = t->port->nqps;
    const uint32_t own = nqps > t->index ? (nqps - t->index + t->count - 1) / t->count : 0;
    uint64_t next = NIC_NEVER;

    for (uint32_t k = 0; k < own; k++) {
        const uint32_t slot = *turn + k < own ? *turn + k : *turn + k - own;
        const uint32_t i = t->index + slot * t->count;
        struct soft_qp *qp = soft_qp_at(t->port, i);

        if ((peek_doorbell(qp->doorbell) != qp->seen && qp->state != SWL_NIC_QP_INIT) ||
            qp->next_ns <= now) {
            *turn = slot + 1 < own ? slot + 1 : 0;
            return i;
        }
        if (qp->next_ns < next)
            next = qp->next_ns;
    }
    *next_p = next;
    return NIC_NONE;
}

/* How long a NIC with work that is not due waits: while the call may succeed, to its deadline; and a
 * little, so that the poison of a failed call leaves. */
SWL_DEV uint64_t nic_limit(const struct nic_team *t, uint32_t closing, uint64_t closed_ns)
{
    const struct swl_watch *w = t->grid.watch;
    const uint64_t soon = closed_ns + ((w->deadline_ns - w->started_ns) >> 6);
    const bool given_up = closing == 2 || read_from_peer(w->poison) >> 16 >= *t->grid.gen;

    return given_up || soon > w->deadline_ns ? soon : w->deadline_ns;
}

SWL_DEV bool nic_dead(const struct nic_team *t)
{
    struct soft_qp *qp = soft_qp_at(t->port, t->index);

    if (t->index >= t->port->nqps)
        return false;
    nic_faults_begin(t->port, qp);
    return swl_soft_faults_dead(&t->port->faults, qp->fault_begin_ns, clock_ns());
}

/* A NIC that has died does nothing and answers nobody. */
SWL_DEV void nic_die(const struct nic_team *t)
{
    for (uint32_t i = t->index; i < t->port->nqps; i += t->count)
        nic_tell(soft_qp_at(t->port, i));
}

/* Wait for work; NIC_NONE = this team's part of the kernel is over. */
SWL_DEV uint32_t nic_next(const struct nic_team *t, uint32_t *turn)
{
    const struct swl_watch *w = t->grid.watch;
    /* the other blocks end within three sixteenths behind the deadline */
    const uint64_t most = w->deadline_ns + ((w->deadline_ns - w->started_ns) >> 1);
    uint64_t closed_ns = 0;

    for (;;) {
        /* both loads at once. Before the doorbells, so that the last ones are seen; pairs with the
         * publish in call_end */
        const uint32_t closed = peek_doorbell(t->grid.closing);
        const uint32_t faulty = peek_doorbell(&t->port->faults.nrules);
        const uint32_t closing = closed ? read_in_gpu(t->grid.closing) : 0;
        const uint64_t now = clock_ns();
        uint64_t next = NIC_NEVER, limit = most;
        const bool dead = faulty && nic_dead(t);
        const uint32_t i = dead ? NIC_NONE : nic_scan(t, turn, now, &next);

        if (i != NIC_NONE)
            return i;
        if (dead)
            nic_die(t);
        if (closing) {
            if (next == NIC_NEVER)
                return NIC_NONE;
            closed_ns = closed_ns ? closed_ns : now;
            limit = nic_limit(t, closing, closed_ns);
        }
        if (now >= limit)
            return NIC_NONE;
        pause_lane(SWL_PAUSE("software NIC: no work", static_cast<int>(t->index), 0),
                   next < limit ? next : limit);
    }
}

/* ---- a batch; all lanes of the leader ---- */

/* Take `wire` ns of a wire from `from` on; returns when they begin. */
SWL_DEV uint64_t nic_take_wire(uint64_t *taken, uint64_t from, uint64_t wire)
{
    uint64_t old = peek_doorbell(taken);

    for (;;) {
        const uint64_t begin = old > from ? old : from;
        const uint64_t seen = nic_cas(taken, old, begin + wire);

        if (seen == old)
            return begin;
        old = seen;
    }
}

/* When the message of each lane < n has arrived, by the link model and the faults. */
SWL_DEV uint64_t nic_arrival(const struct nic_team *t, struct soft_qp *qp, uint32_t n,
                             uint64_t bytes)
{
    struct soft_port *port = t->port;
    const uint64_t rate = port->link.ns_per_mib;
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    uint64_t sum = lane < n ? (bytes + NIC_HEADER) * rate >> 20 : 0;
    uint64_t at = 0, total;

    for (int step = 1; step < 32; step *= 2) {
        const uint64_t other = warp_shfl_up(sum, step);

        sum += lane >= static_cast<uint32_t>(step) ? other : 0;
    }
    total = warp_shfl(sum, 31);
    if (lane == 0) {
        at = swl_soft_faults_clear(&port->faults, qp->fault_begin_ns, qp->link,
                                   clock_ns() + port->faults.delay_ns);
        if (rate)
            at = swl_soft_faults_clear(&port->faults, qp->fault_begin_ns, qp->link,
                                       nic_take_wire(&port->egress_ns, at, total));
        at += port->link.latency_ns;
        if (rate)
            at = nic_take_wire(&qp->far_live->ingress_ns, at, total);
        if (at < qp->order_ns)
            at = qp->order_ns;
    }
    return warp_shfl(at, 0) + sum;
}

/* Entry `index` by one lane: everything that can be known. Sets all of *d but its time. */
SWL_DEV void nic_check(const struct nic_team *t, struct soft_qp *qp, uint64_t index, uint64_t count,
                       struct soft_due *d)
{
    struct soft_port *port = t->port;
    struct soft_op op = {};
    uint32_t syndrome = soft_fetch(nic_memory(), port, qp, index, &op);

    if (syndrome == 0)
        syndrome = swl_soft_faults_error(&port->faults, qp->link, count);
    if (syndrome == 0 && peek_doorbell(&qp->peer_failed))
        syndrome = SWL_SYNDROME_RETRY;
    d->far = d->near = nullptr;
    if (syndrome == 0 && op.opcode != SWL_WQE_NOP) {
        d->far = soft_reach_remote(nic_memory(), qp->far, &op, &syndrome);
        d->near = op.is_inline
                      ? qp->sq + (index & ((1ull << qp->depth_log2) - 1)) * SWL_WQE_BYTES + 36
                      : soft_reach_local(nic_memory(), port, &op);
    }
    d->value = op.value;
    d->opcode = op.opcode;
    d->bytes = op.bytes;
    d->control = op.control;
    d->signalled = op.signalled;
    d->syndrome = syndrome;
}

/* Fetch what the doorbell covers, at most an entry a lane, and put its WRITEs on the board. Returns
 * how many; lane l has entry l of them in *d. */
SWL_DEV uint32_t nic_fetch(const struct nic_team *t, struct soft_qp *qp, struct soft_due *d,
                           uint64_t *bytes_p)
{
    struct soft_port *port = t->port;
    const bool timed = port->link.ns_per_mib || port->link.latency_ns || port->faults.delay_ns ||
                       port->faults.nrules;
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint64_t first = qp->fetched, left = qp->end - first;
    uint32_t n = left < 32 ? static_cast<uint32_t>(left) : 32, failed, writes, rank;

    if (qp->state != SWL_NIC_QP_READY || qp->fail_index != NIC_NEVER)
        n = 0;
    if (n == 0)
        return 0;
    if (lane < n)
        nic_check(t, qp, first + lane, qp->entry_count + lane, d);
    failed = warp_ballot(lane < n && d->syndrome != 0);
    if (failed)
        n = static_cast<uint32_t>(first_bit(failed)) + 1;
    d->time_ns = timed ? nic_arrival(t, qp, n, lane < n && !d->syndrome ? d->bytes : 0) : 0;
    if (lane < n && d->syndrome == SWL_SYNDROME_RETRY)
        d->time_ns += port->faults.retry_ns;
    if (lane < n)
        qp->due[(first + lane) & ((1ull << qp->depth_log2) - 1)] = *d;
    writes = warp_ballot(lane < n && !d->syndrome && d->opcode == SWL_WQE_WRITE);
    rank = static_cast<uint32_t>(count_bits(writes & ((1u << lane) - 1)));
    if (writes >> lane & 1)
        t->board->move[rank] = {d->far, d->near, d->bytes};
    *bytes_p = 0;
    for (uint32_t left_writes = writes; left_writes; left_writes &= left_writes - 1)
        *bytes_p += warp_shfl(d->bytes, first_bit(left_writes));
    warp_sync(); /* all lanes have read the state */
    if (lane == n - 1 && timed)
        qp->order_ns = d->time_ns;
    if (lane == 0) {
        t->board->moves = static_cast<uint32_t>(count_bits(writes));
        qp->fetched = first + n;
        qp->entry_count += n;
        if (failed)
            qp->fail_index = first + n - 1;
        qp->stats.entries += n;
        qp->stats.pieces += static_cast<uint32_t>(count_bits(writes));
        qp->stats.bytes += *bytes_p;
    }
    warp_sync();
    return n;
}

/* Adds and READs of the lanes in `turns`, in their order. Everything earlier has been placed. */
SWL_DEV void nic_turns(struct soft_qp *qp, const struct soft_due *d, uint32_t turns)
{
    uint64_t ordered = 0; /* the word whose next add needs no fence */

    for (; turns; turns &= turns - 1) {
        const int turn = first_bit(turns);
        const uint64_t far = warp_shfl(reinterpret_cast<uint64_t>(d->far), turn);
        const uint64_t near = warp_shfl(reinterpret_cast<uint64_t>(d->near), turn);
        const uint64_t value = warp_shfl(d->value, turn);
        const uint32_t bytes = warp_shfl(d->bytes, turn);

        if (warp_shfl(d->opcode, turn) == SWL_WQE_READ) {
            nic_copy(reinterpret_cast<uint8_t *>(near), reinterpret_cast<const uint8_t *>(far),
                     bytes);
            warp_sync();
            ordered = 0;
        } else if (lane_id() == 0) {
            /* payload and earlier adds of this queue before this one; pairs with read_from_nic */
            if (far != ordered)
                order_before_publish(SWL_SCOPE_SYS);
            *reinterpret_cast<uint64_t *>(near) = nic_add(reinterpret_cast<uint64_t *>(far), value);
            ordered = far;
            qp->stats.adds++;
        }
    }
    warp_sync();
}

/* Lanes < n of the window at `first`: the part that is due at `now`. */
SWL_DEV uint32_t nic_due(bool there, uint64_t time_ns, uint64_t now, uint32_t n)
{
    const uint32_t late = warp_ballot(there && time_ns > now);

    return late ? static_cast<uint32_t>(first_bit(late)) : n;
}

/* Execute what is due; *d holds `fresh` entries that were fetched just now. */
SWL_DEV void nic_execute(struct soft_qp *qp, struct soft_due *d, uint32_t fresh, uint64_t now)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint64_t first = qp->executed, left = qp->fetched - first;
    uint32_t n = left < 32 ? static_cast<uint32_t>(left) : 32;

    if (lane < n && left != fresh) /* older entries come first */
        *d = qp->due[(first + lane) & ((1ull << qp->depth_log2) - 1)];
    n = nic_due(lane < n, d->time_ns, now, n);
    nic_turns(qp, d,
              warp_ballot(lane < n && !d->syndrome &&
                          (d->opcode == SWL_WQE_FETCH_ADD || d->opcode == SWL_WQE_READ)));
    if (lane == 0)
        qp->executed = first + n;
    warp_sync();
}

/* Complete, in order, what has been executed one latency ago. */
SWL_DEV void nic_finish(const struct nic_team *t, struct soft_qp *qp, uint64_t now)
{
    const uint64_t mask = (1ull << qp->depth_log2) - 1, latency = t->port->link.latency_ns;
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint64_t first = qp->completed, left = qp->executed - first;
    uint32_t n = left < 32 ? static_cast<uint32_t>(left) : 32, failed, signalled;
    struct soft_due d = {};
    bool changed;

    if (lane < n)
        d = qp->due[(first + lane) & mask];
    n = nic_due(lane < n, d.time_ns + latency, now, n);
    changed = lane < n && !d.syndrome &&
              nic_memory().word(reinterpret_cast<const uint32_t *>(
                  qp->sq + ((first + lane) & mask) * SWL_WQE_BYTES)) != d.control;
    if (changed)
        d.syndrome = SWL_SYNDROME_LOCAL_OPERATION;
    failed = warp_ballot(lane < n && d.syndrome != 0);
    if (failed)
        n = static_cast<uint32_t>(first_bit(failed));
    signalled = warp_ballot(lane < n && d.signalled);
    warp_sync(); /* all lanes have read their entries before the poster may write there again */
    if (signalled && signalled >> lane == 1)
        nic_complete(qp, first + lane, d.opcode);
    warp_sync();
    if (failed >> lane & 1 && lane == n) {
        qp->stats.rewritten += changed;
        nic_fail(t, qp, first + n, d.syndrome);
    }
    if (lane == 0) {
        qp->stats.completions += n;
        qp->completed = first + n + (failed != 0);
    }
    warp_sync();
}

/* When this queue pair wants to be looked at without a doorbell; lane 0. */
SWL_DEV uint64_t nic_again(const struct nic_team *t, const struct soft_qp *qp)
{
    const uint64_t mask = (1ull << qp->depth_log2) - 1;
    uint64_t next = qp->flush_ns, at;

    if (qp->state != SWL_NIC_QP_READY)
        return next;
    if (qp->fetched != qp->end && qp->fail_index == NIC_NEVER)
        return 0;
    if (qp->executed != qp->fetched) {
        at = qp->due[qp->executed & mask].time_ns;
        next = at < next ? at : next;
    }
    if (qp->completed != qp->executed) {
        at = qp->due[qp->completed & mask].time_ns + t->port->link.latency_ns;
        next = at < next ? at : next;
    }
    return next;
}

SWL_DEV void nic_visit(const struct nic_team *t, struct soft_qp *qp)
{
    struct soft_due d = {};
    uint64_t bytes = 0, now;
    uint32_t fresh;

    if (lane_id() == 0)
        nic_doorbell(t, qp);
    warp_sync();
    fresh = nic_fetch(t, qp, &d, &bytes);
    if (bytes > NIC_ALONE_BYTES) {
        nic_team_sync(t);
        nic_place(t->board, 0, t->warps);
        nic_team_sync(t);
    } else if (bytes) {
        nic_place(t->board, 0, 1);
        warp_sync();
    }
    now = warp_shfl(clock_ns(), 0);
    if (qp->state == SWL_NIC_QP_READY) {
        nic_execute(qp, &d, fresh, now);
        nic_finish(t, qp, now);
    }
    if (lane_id() == 0) {
        if (qp->flush_ns <= now)
            nic_flush(qp);
        qp->next_ns = nic_again(t, qp);
    }
    warp_sync();
}

/* ---- teams ---- */

SWL_DEV void nic_lead(const struct nic_team *t)
{
    uint32_t turn = 0;

    for (;;) {
        uint32_t i = NIC_NONE;

        if (lane_id() == 0)
            i = nic_next(t, &turn);
        i = warp_shfl(i, 0);
        if (i == NIC_NONE)
            break;
        nic_visit(t, soft_qp_at(t->port, i));
    }
    if (lane_id() == 0)
        t->board->moves = NIC_END;
    nic_team_sync(t);
}

SWL_DEV void nic_help(const struct nic_team *t)
{
    for (;;) {
        nic_team_sync(t);
        if (t->board->moves == NIC_END)
            break;
        nic_place(t->board, t->warp, t->warps);
        nic_team_sync(t);
    }
}

/* All threads of a block that runs the NIC; `boards`: shared memory. Returns when the
 * other blocks have ended and this block's queue pairs are drained, or at the limit of the call. */
SWL_DEV void nic_serve(struct soft_port *port, struct nic_grid grid, char *boards)
{
    const uint32_t all = static_cast<uint32_t>(warp_count());
    const uint32_t teams = all >= 2 * NIC_TEAMS ? NIC_TEAMS : 1;
    const uint32_t warps = all / teams, mine = static_cast<uint32_t>(warp_id()) / warps;
    const struct nic_team t = {
        port,
        reinterpret_cast<struct nic_board *>(boards + mine * NIC_BOARD_BYTES),
        grid,
        grid.block + mine * grid.blocks,
        teams * grid.blocks,
        static_cast<uint32_t>(warp_id()) % warps,
        warps,
        static_cast<int>(mine) + 1,
    };

    if (mine >= teams)
        return;
    if (t.warp == 0)
        nic_lead(&t);
    else
        nic_help(&t);
}
