/* blocks.cuh: executor of a rank's software NIC on blocks of the calling kernel.
 *
 * Layer: transport/soft, above core.cuh; nic.cuh calls it. Owns nothing: a queue pair's state
 * lies in device memory and goes on in the next kernel. A block has one to four teams of warps;
 * team t of n serves queue pairs t, t + n … alone. Its first warp leads: it looks at doorbells,
 * fetches and checks up to 32 entries at once, one a lane, and posts the WRITEs on the queue; all
 * warps of the team place them; then the leader executes adds and READs whose time has come, in
 * order, and completes. A small WRITE is placed by the lane that fetched it; adds to one word that
 * follow each other become one, since nothing can come between them.
 *
 * Order: read_doorbell (pairs with ring_doorbell) in a lane of the leader, warp_sync, the team's
 * barrier; payload; the team's barrier; one order_before_publish(SYS) by lane 0 for the whole
 * batch, its adds (pair with read_from_nic at the peer), another fence only before an add to
 * another word (nic_order); completion released at GPU scope (pairs with read_completion: the
 * poster is of this GPU). WRITEs land in any order, also before earlier adds. */
#pragma once

#include "transport/soft/blocks_service.cuh"

#define NIC_ALONE_BYTES 4096u /* the leader places batches up to this size without its team */
#define NIC_HEADER      64u   /* bytes of a message on the wire beside its payload */
/* Teams take the wire toward a peer in another order than their own one. Idle time on it counts as
 * lost when it is this old, so that it may be used by who comes later to ask for it. */
#define NIC_SLACK_NS 50000u

/* Messages on their way: time on the wire up to and with each lane's; of lane 0: when the first bit
 * arrives, and when the wire to the peer is free. */
struct nic_flight {
    uint64_t wire_ns, first_ns, taken_ns;
};

/* A batch of fetched entries. */
struct nic_batch {
    uint32_t n;
    bool quick;             /* nothing else is under way: done when this service ends */
    bool timed;             /* by wire model or faults */
    uint32_t writes, large; /* lanes with a WRITE, and those whose WRITE is on the queue */
    struct nic_flight flight;
};

/* ---- a batch; all lanes of the leader ---- */

/* Take `wire` ns of a wire from `from` on; returns when they begin. Until somebody uses that time,
 * the round trip to the wire's owner goes on beside the rest. */
SWL_DEV uint64_t nic_take_wire(uint64_t *taken, uint64_t from, uint64_t wire)
{
    (void)nic_max(taken, from);
    return nic_take(taken, wire);
}

/* The messages of a batch leave; `bytes` of each lane's on the wire. By the wire model and the
 * faults. */
SWL_DEV struct nic_flight nic_depart(const struct nic_team *t, const struct nic_look *look,
                                     const struct soft_qp *qp, uint64_t bytes)
{
    struct soft_port *port = t->port;
    const uint64_t rate = t->ns_per_mib;
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    struct nic_flight f = {bytes * rate >> 20, 0, 0};
    uint64_t total;

    for (int step = 1; step < 32; step *= 2) {
        const uint64_t other = warp_shfl_up(f.wire_ns, step);

        f.wire_ns += lane >= static_cast<uint32_t>(step) ? other : 0;
    }
    total = warp_shfl(f.wire_ns, 31);
    if (lane == 0) {
        f.first_ns = clock_ns() + look->delay_ns;
        if (look->nrules)
            f.first_ns = swl_faults_clear(&port->faults, qp->fault_begin_ns, qp->link, f.first_ns);
        if (rate)
            f.first_ns = nic_take_wire(&port->egress_ns, f.first_ns, total);
        if (rate && look->nrules)
            f.first_ns = swl_faults_clear(&port->faults, qp->fault_begin_ns, qp->link, f.first_ns);
        f.first_ns += t->latency_ns;
        if (rate)
            f.taken_ns =
                nic_take_wire(&qp->remote_live->ingress_ns, f.first_ns - NIC_SLACK_NS, total);
    }
    return f;
}

/* When the message of each lane has arrived. */
SWL_DEV uint64_t nic_arrival(const struct soft_qp *qp, const struct nic_flight *f)
{
    uint64_t at = f->first_ns > f->taken_ns ? f->first_ns : f->taken_ns; /* of lane 0 */

    if (at < qp->order_ns)
        at = qp->order_ns;
    return warp_shfl(at, 0) + f->wire_ns;
}

/* Payload of an inline WRITE. */
SWL_DEV uint8_t *nic_inline_at(const struct soft_qp *qp, uint64_t index)
{
    return qp->sq + (index & ((1ull << qp->depth_log2) - 1)) * SWL_WQE_BYTES + 36;
}

/* The payload of an inline WRITE. */
struct nic_held {
    uint32_t word[SWL_WQE_INLINE_MAX / 4];
    bool has;
};

/* The entry of each lane < n: everything that can be known. Sets all of *d but its time. */
SWL_DEV void nic_check(const struct nic_team *t, const struct nic_look *look,
                       const struct soft_qp *qp, uint32_t n, struct soft_due *d,
                       struct nic_held *held)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint64_t index = qp->fetched + lane;
    struct soft_op op = {};
    uint32_t failed = 0, syndrome = 0;
    bool moves;

    if (lane < n) {
        failed = load_relaxed_doorbell(&nic_live_qp(t, look->slot)->peer_failed);
        syndrome = soft_read(nic_memory(), qp, index, &op);
    }
    for (uint32_t i = 0; i < SWL_WQE_INLINE_MAX / 4; i++)
        held->word[i] = op.data[i];
    held->has = op.is_inline;
    moves = lane < n && syndrome == 0 && op.opcode != SWL_WQE_NOP;
    const struct nic_want local = {t->port, op.lkey, soft_local_access(op.opcode), op.local,
                                   op.bytes};
    const struct nic_want remote = {qp->remote, op.rkey, soft_remote_access(op.opcode), op.remote,
                                    op.bytes};
    d->local = nic_reach(t, moves && !op.is_inline, &local);
    if (moves && op.is_inline)
        d->local = nic_inline_at(qp, index);
    if (moves && d->local == nullptr)
        syndrome = SWL_SYNDROME_LOCAL_PROTECTION;
    if (syndrome == 0 && look->nrules && lane < n)
        syndrome = swl_faults_error(&t->port->faults, qp->link, qp->entry_count + lane);
    if (syndrome == 0 && failed)
        syndrome = SWL_SYNDROME_RETRY;
    moves = moves && syndrome == 0;
    if (moves && soft_misaligned(&op))
        syndrome = SWL_SYNDROME_REMOTE_REQUEST;
    d->remote = nic_reach(t, moves && !syndrome, &remote);
    if (moves && !syndrome && d->remote == nullptr)
        syndrome = SWL_SYNDROME_REMOTE_ACCESS;
    d->value = op.value;
    d->opcode = op.opcode;
    d->bytes = op.bytes;
    d->control = op.control;
    d->signalled = op.signalled;
    d->syndrome = syndrome;
    d->seen = (uint64_t)op.lkey << 32 | swl_be32(op.control);
}

/* Put the WRITEs of the lanes in `large` on the queue. */
SWL_DEV void nic_distribute(struct nic_team *t, uint32_t large, const struct soft_due *d)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    struct nic_copy_queue *queue = nic_copy_queue_of(t);
    struct nic_move move = {};
    uint32_t pieces = 0;

    if (large >> lane & 1)
        move = nic_move_of(d->remote, d->local, d->bytes, &pieces);
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t other = warp_shfl_up(pieces, step);

        pieces += lane >= static_cast<uint32_t>(step) ? other : 0;
    }
    move.end = pieces;
    if (large >> lane & 1)
        queue->move[count_bits(large & ((1u << lane) - 1))] = move;
    if (lane == 31) {
        queue->moves = static_cast<uint32_t>(count_bits(large));
        queue->pieces = pieces;
    }
}

/* Fetch what the doorbell covers, at most an entry a lane; its WRITEs go to the queue, small ones
 * where they belong. Lane l has entry l of the batch in *d. */
SWL_DEV struct nic_batch nic_fetch(struct nic_team *t, const struct nic_look *look,
                                   struct soft_qp *qp, struct soft_due *d)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint64_t first = qp->fetched, left = qp->end - first;
    uint32_t n = left < 32 ? static_cast<uint32_t>(left) : 32, failed;
    struct nic_held held;
    struct nic_batch batch = {};

    if (qp->state != SWL_NIC_QP_READY || qp->fail_index != NIC_NEVER)
        n = 0;
    if (n == 0)
        return batch;
    nic_check(t, look, qp, n, d, &held);
    failed = warp_ballot(lane < n && d->syndrome != 0);
    if (failed)
        n = static_cast<uint32_t>(first_bit(failed)) + 1;
    batch.n = n;
    batch.timed = (t->ns_per_mib | t->latency_ns | look->delay_ns | look->nrules) != 0;
    batch.quick = !batch.timed & !failed & (qp->completed == first);
    if (batch.timed)
        batch.flight =
            nic_depart(t, look, qp, lane < n ? NIC_HEADER + (d->syndrome ? 0 : d->bytes) : 0);
    batch.writes = warp_ballot(lane < n && !d->syndrome && d->opcode == SWL_WQE_WRITE);
    batch.large = warp_ballot((batch.writes >> lane & 1) && d->bytes > NIC_LANE_BYTES);
    if (batch.large)
        nic_distribute(t, batch.large, d);
    if ((batch.writes ^ batch.large) >> lane & 1) {
        if (held.has)
            nic_copy_held(d->remote, d->local, d->bytes, held.word);
        else
            nic_copy(d->remote, d->local, d->bytes, 0, 1);
    }
    warp_sync(); /* all lanes have read the state */
    if (lane == 0) {
        t->ordered = NIC_UNORDERED;
        qp->fetched = first + n;
        qp->entry_count += n;
        if (failed)
            qp->fail_index = first + n - 1;
        qp->stats.entries += n;
        qp->stats.pieces += static_cast<uint32_t>(count_bits(batch.writes));
    }
    warp_sync();
    return batch;
}

/* The payload of a batch that does not end with this service has been placed: when is it due? */
SWL_DEV void nic_land(const struct nic_team *t, struct soft_qp *qp, const struct nic_batch *batch,
                      struct soft_due *d)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint64_t first = qp->fetched - batch->n;

    d->time_ns = batch->timed ? nic_arrival(qp, &batch->flight) : 0;
    if (d->syndrome == SWL_SYNDROME_RETRY)
        d->time_ns += t->port->faults.retry_ns;
    warp_sync();
    if (lane < batch->n)
        qp->due[(first + lane) & ((1ull << qp->depth_log2) - 1)] = *d;
    if (lane == batch->n - 1 && batch->timed)
        qp->order_ns = d->time_ns;
    warp_sync();
}

/* Payload and adds that were executed before the next add, of lane 0; pairs with read_from_nic. */
SWL_DEV void nic_order(struct nic_team *t)
{
    order_before_publish(SWL_SCOPE_SYS);
    t->ordered = 0;
}

/* The adds of the lanes in `run`, all to one word, at once. */
SWL_DEV void nic_add_run(struct nic_team *t, struct soft_qp *qp, const struct soft_due *d,
                         uint32_t run)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint64_t local = reinterpret_cast<uint64_t>(d->local);
    const uint64_t remote = warp_shfl(reinterpret_cast<uint64_t>(d->remote), first_bit(run));
    const bool one = (run & (run - 1)) == 0;
    uint64_t before = 0, sum = one ? warp_shfl(d->value, first_bit(run)) : 0, old = 0;
    bool writes = run >> lane & 1;

    for (uint32_t left = one ? 0 : run; left; left &= left - 1) {
        const int turn = first_bit(left);

        before = turn == lane_id() ? sum : before;
        sum += warp_shfl(d->value, turn);
        /* of old values for one place the last one stays */
        if (warp_shfl(local, turn) == local && turn > lane_id())
            writes = false;
    }
    if (lane == 0) {
        if (t->ordered != 0 && t->ordered != remote)
            nic_order(t);
        old = nic_add(reinterpret_cast<uint64_t *>(remote), sum);
        t->ordered = remote;
        qp->stats.adds += static_cast<uint32_t>(count_bits(run));
    }
    old = warp_shfl(old, 0);
    if (writes)
        *reinterpret_cast<uint64_t *>(local) = old + before;
    warp_sync();
}

/* Adds and READs of the lanes in `turns`, in their order. Everything earlier has been placed. */
SWL_DEV void nic_turns(struct nic_team *t, struct soft_qp *qp, const struct soft_due *d,
                       uint32_t turns)
{
    while (turns) {
        const int turn = first_bit(turns);
        const uint64_t remote = warp_shfl(reinterpret_cast<uint64_t>(d->remote), turn);

        if (warp_shfl(d->opcode, turn) == SWL_WQE_READ) {
            nic_copy(
                reinterpret_cast<uint8_t *>(warp_shfl(reinterpret_cast<uint64_t>(d->local), turn)),
                reinterpret_cast<const uint8_t *>(remote), warp_shfl(d->bytes, turn),
                static_cast<uint32_t>(lane_id()), 32);
            if (lane_id() == 0)
                t->ordered = NIC_UNORDERED;
            warp_sync();
            turns &= turns - 1;
        } else {
            const uint32_t other =
                turns & warp_ballot(d->opcode != SWL_WQE_FETCH_ADD ||
                                    reinterpret_cast<uint64_t>(d->remote) != remote);
            const uint32_t run = turns & ((other & (0u - other)) - 1);

            nic_add_run(t, qp, d, run);
            turns &= ~run;
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

/* Execute what is due; *d holds the `fresh` newest entries, which were fetched just now. */
SWL_DEV void nic_execute(struct nic_team *t, struct soft_qp *qp, struct soft_due *d, uint32_t fresh,
                         uint64_t now)
{
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint64_t first = qp->executed, left = qp->fetched - first;
    uint32_t n = left < 32 ? static_cast<uint32_t>(left) : 32;

    if (lane < n && left != fresh) /* older entries come first */
        *d = qp->due[(first + lane) & ((1ull << qp->depth_log2) - 1)];
    n = nic_due(lane < n, d->time_ns, now, n);
    nic_turns(t, qp, d,
              warp_ballot(lane < n && !d->syndrome &&
                          (d->opcode == SWL_WQE_FETCH_ADD || d->opcode == SWL_WQE_READ)));
    if (lane == 0)
        qp->executed = first + n;
    warp_sync();
}

/* Complete, in order, what has been executed one latency ago; d: of a quick batch. */
SWL_DEV void nic_finish(const struct nic_team *t, const struct nic_look *look, struct soft_qp *qp,
                        uint64_t now, bool quick, struct soft_due d)
{
    const uint64_t mask = (1ull << qp->depth_log2) - 1;
    const uint32_t lane = static_cast<uint32_t>(lane_id());
    const uint64_t first = qp->completed, left = qp->executed - first;
    uint32_t n = left < 32 ? static_cast<uint32_t>(left) : 32, failed, signalled;
    uint32_t control = 0;
    bool changed;

    if (!quick && lane < n)
        d = qp->due[(first + lane) & mask];
    n = nic_due(lane < n, d.time_ns + t->latency_ns, now, n);
    if (lane < n)
        control = nic_memory().word(
            reinterpret_cast<const uint32_t *>(qp->sq + ((first + lane) & mask) * SWL_WQE_BYTES));
    changed = lane < n && !d.syndrome && control != d.control;
    if (changed) {
        d.syndrome = SWL_SYNDROME_LOCAL_OPERATION;
        d.seen = (uint64_t)swl_be32(d.control) << 32 | swl_be32(control);
    }
    failed = warp_ballot(lane < n && d.syndrome != 0);
    if (failed)
        n = static_cast<uint32_t>(first_bit(failed));
    signalled = warp_ballot(lane < n && d.signalled);
    warp_sync(); /* all lanes have read their entries before the poster may write there again */
    if (lane == 0) {
        qp->stats.completions += n;
        qp->completed = first + n + (failed != 0);
    }
    warp_sync();
    if (signalled) { /* who sees the completion sees counters that hold it */
        nic_write_back(t, look->slot);
        warp_sync();
    }
    if (signalled && signalled >> lane == 1)
        nic_complete(qp, first + lane, d.opcode);
    warp_sync();
    if (failed >> lane & 1 && lane == n) {
        qp->stats.rewritten += changed;
        nic_fail(t, qp, first + n, d.syndrome, d.seen);
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
        at = qp->due[qp->completed & mask].time_ns + t->latency_ns;
        next = at < next ? at : next;
    }
    return next;
}

SWL_DEV void nic_team_sync(int barrier, uint32_t warps)
{
    named_sync(barrier, static_cast<int>(32 * warps));
}

/* What is on the queue goes to its place. `bytes`: of this lane's entry. */
SWL_DEV void nic_place_batch(struct nic_team *t, uint32_t large, uint32_t bytes)
{
    const bool little = (large & (large - 1)) == 0 && bytes <= NIC_ALONE_BYTES;

    if (large == 0)
        return;
    if (warp_shfl(little, first_bit(large))) {
        nic_place_alone(nic_copy_queue_of(t));
        warp_sync();
        return;
    }
    nic_team_sync(t->barrier, t->warps);
    nic_place(nic_copy_queue_of(t), 0, t->warps);
    nic_team_sync(t->barrier, t->warps);
}

/* Count the payload of a batch; `bytes`: of this lane's entry. */
SWL_DEV void nic_count(struct soft_qp *qp, uint32_t writes, uint64_t bytes)
{
    bytes = writes >> lane_id() & 1 ? bytes : 0;
    for (int step = 16; step; step /= 2)
        bytes += warp_shfl_xor(bytes, step);
    if (lane_id() == 0)
        qp->stats.bytes += bytes;
}

SWL_DEV void nic_service(struct nic_team *t, const struct nic_look *look)
{
    struct soft_qp *qp = nic_qp(t, look->slot);
    struct soft_due d = {};
    struct nic_batch batch;
    uint32_t bytes;
    uint64_t now;

    /* the doorbell was acquired by the lane that looked at it: its record, and its entries */
    warp_sync();
    if (lane_id() == 0)
        nic_doorbell(t, qp, look);
    warp_sync();
    batch = nic_fetch(t, look, qp, &d);
    bytes = d.bytes;
    nic_place_batch(t, batch.large, bytes);
    if (batch.n && !batch.quick) {
        if (lane_id() == 0)
            nic_order(t); /* before its adds are due */
        nic_land(t, qp, &batch, &d);
    }
    now = batch.quick ? 0 : warp_shfl(clock_ns(), 0); /* what is quick has no times */
    if (qp->state == SWL_NIC_QP_READY) {
        nic_execute(t, qp, &d, batch.n, now);
        nic_count(qp, batch.writes, bytes); /* behind what somebody waits for */
        nic_finish(t, look, qp, now, batch.quick, d);
    }
    warp_sync(); /* all lanes have read the state, also where nothing was fetched or executed */
    if (lane_id() == 0) {
        if (qp->flush_ns <= now)
            nic_flush(qp);
        qp->next_ns = nic_again(t, qp);
    }
    warp_sync();
    if (!batch.quick)
        nic_write_back(t, look->slot);
    warp_sync(); /* all lanes have read the state before lane 0 changes it */
}

/* ---- teams ---- */

SWL_DEV void nic_lead(struct nic_team *t)
{
    uint32_t turn = 0;

    for (;;) {
        const struct nic_look look = nic_next(t, &turn);

        if (look.slot == NIC_NONE)
            break;
        nic_service(t, &look);
    }
    /* a shuffle does not order what lane 0 has written of the queue pairs */
    warp_sync();
    for (uint32_t i = 0; i < t->nkept; i++) /* a NIC that has died has told its peers */
        nic_write_back(t, i);
    if (lane_id() == 0)
        nic_copy_queue_of(t)->moves = NIC_END;
    nic_team_sync(t->barrier, t->warps);
}

SWL_DEV void nic_help(const struct nic_copy_queue *queue, const struct nic_part *p)
{
    const int barrier = static_cast<int>(p->mine) + 1;

    for (;;) {
        nic_team_sync(barrier, p->warps);
        if (queue->moves == NIC_END)
            break;
        nic_place(queue, p->warp, p->warps);
        nic_team_sync(barrier, p->warps);
    }
}

/* All lanes of a leader. */
SWL_DEV void nic_team_begin(struct nic_team_memory *memory, struct soft_port *port,
                            const struct nic_grid *grid, const struct nic_part *p)
{
    struct nic_team *t = &memory->team;

    if (lane_id() == 0) {
        t->port = port;
        t->known = memory->known;
        t->kept = reinterpret_cast<struct soft_qp *>(p->at + p->kept_at);
        t->grid = *grid;
        t->ns_per_mib = port->link.ns_per_mib;
        t->latency_ns = port->link.latency_ns;
        t->nown = p->nown;
        t->nkept = p->nkept;
        t->nknown = p->nknown;
        t->index = p->index;
        t->count = p->count;
        t->warps = p->warps;
        t->barrier = static_cast<int>(p->mine) + 1;
        t->ordered = NIC_UNORDERED;
    }
    warp_sync();
    nic_keep_all(t);
}

/* All threads of a block that runs the NIC; `room`: at least NIC_ROOM_BYTES for each team, and the
 * more the better. Returns when the other blocks have ended and this block's queue pairs are
 * drained, or at the limit of the call. */
SWL_DEV void nic_serve(struct soft_port *port, struct nic_grid grid, struct nic_room room)
{
    const struct nic_part p = nic_part_of(port, &grid, room);
    struct nic_team_memory *memory = reinterpret_cast<struct nic_team_memory *>(p.at);

    if (p.mine >= p.teams)
        return;
    if (p.warp == 0) {
        nic_team_begin(memory, port, &grid, &p);
        nic_lead(&memory->team);
    } else {
        nic_help(&memory->queue, &p);
    }
}
