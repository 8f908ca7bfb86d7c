/* serve.h: what an executor of the host does: one NIC, an event after the other. C++ only.
 *
 * Layer: transport/soft, above core.cuh; for engine.cc (emulator, virtual time) and thread.cc (real
 * time). Owner of its events; everything else is the NIC's.
 * A doorbell makes events: the parts of a WRITE are placed at random moments before the WRITE's
 * turn (payload is read then, i.e. late), also before parts of earlier WRITEs and earlier adds; an
 * add or READ is executed at its turn, when everything before it has been placed; completions come
 * in order. Turns follow the wire model and the faults. Queues know nothing of each other but the
 * wire they share. */
#pragma once

#include "src/runtime/runtime.h"
#include "transport/host/core.cuh"
#include "transport/host/executor.h"
#include "transport/host/wire_model.h"
#include "transport/host/words.h"
#include "transport/soft/events.h"
#include "transport/soft/executor.h"

#include <string.h>

namespace
{

const uint32_t pieces_max = 4;
const uint64_t tick_ns = 256; /* parts and completions share moments: fewer turns of the engine */

/* One NIC's executor. */
template <class Mem> struct engine {
    struct soft_nic *nic;
    Mem mem;
    struct soft_events events;
    uint64_t random;  /* state of an own stream, 0 = the emulator's */
    uint64_t back_ns; /* end of the next restart, UINT64_MAX = none */
    bool broken;      /* out of memory: everything fails from now on */
};

void count(uint64_t *counter, uint64_t n)
{
    __atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

template <class Mem>
void push(struct engine<Mem> *e, const struct soft_qp *qp, uint64_t time_ns, uint32_t kind,
          uint64_t index)
{
    struct soft_event event = {time_ns, 0, index, kind, qp->link, qp->epoch, 0, 0};

    if (!soft_events_push(&e->events, event))
        e->broken = true;
}

/* When a message of this size, ready at `ready`, has arrived at the peer. Takes the wire. */
template <class Mem>
uint64_t arrival(struct engine<Mem> *e, const struct soft_qp *qp, uint64_t ready, uint64_t bytes)
{
    struct soft_nic *nic = e->nic;
    struct soft_port *peer = qp->remote_live;
    const uint64_t wire = wire_ns(&nic->port->link, bytes);
    uint64_t begin = departure(&nic->port->link, &nic->port->faults, qp->link, ready, bytes,
                               &nic->port->egress_ns);
    uint64_t arrive, old;

    begin += nic->port->link.latency_ns +
             random_below(&e->random, nic->port->link.jitter_ns + nic->port->faults.jitter_ns);
    if (nic->port->link.ns_per_mib == 0)
        return begin;
    /* the wire into the peer is shared by all that send to it */
    old = __atomic_load_n(&peer->ingress_ns, __ATOMIC_RELAXED);
    do
        arrive = later(begin, old) + wire;
    while (!__atomic_compare_exchange_n(&peer->ingress_ns, &old, arrive, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
    return arrive;
}

/* Cut a WRITE into parts and give each its moment, at the latest the WRITE's turn. */
template <class Mem>
void plan_pieces(struct engine<Mem> *e, const struct soft_qp *qp, uint64_t index,
                 struct soft_op *op, uint64_t now)
{
    const struct soft_nic *nic = e->nic;
    uint64_t window =
        nic->port->link.latency_ns + nic->port->link.jitter_ns + nic->port->faults.jitter_ns;
    uint32_t n = 1;
    uint32_t from = 0;

    if (nic->port->faults.reorder && op->bytes >= 256)
        n += static_cast<uint32_t>(random_below(&e->random, pieces_max - 1));
    op->pieces = n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t to =
            i + 1 == n
                ? op->bytes
                : from +
                      static_cast<uint32_t>(random_below(&e->random, (op->bytes - from) / 16)) * 16;
        uint64_t when = qp->order_ns;
        struct soft_event event;

        if (nic->port->faults.reorder)
            when = later(now, (when - random_below(&e->random, window < when ? window : when)) &
                                  ~(tick_ns - 1));
        event = {when, 0, index, SOFT_EVENT_PIECE, qp->link, qp->epoch, from, to - from};
        if (!soft_events_push(&e->events, event))
            e->broken = true;
        from = to;
    }
}

bool peer_answers(const struct soft_qp *qp, uint64_t now)
{
    struct soft_port *peer = qp->remote_live;

    return !__atomic_load_n(&peer->dead, __ATOMIC_ACQUIRE) &&
           now < __atomic_load_n(&peer->dead_ns, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(&soft_qp_at(peer, qp->peer_qp)->state, __ATOMIC_ACQUIRE) ==
               SWL_NIC_QP_READY;
}

void fail_at(struct soft_qp *qp, uint64_t index, struct soft_op *op, uint32_t syndrome)
{
    op->syndrome = syndrome;
    if (index < qp->fail_index)
        qp->fail_index = index;
}

/* Take one entry from the queue and plan it. */
template <class Mem> void take_entry(struct engine<Mem> *e, struct soft_qp *qp, uint64_t now)
{
    struct soft_nic *nic = e->nic;
    uint64_t index = qp->fetched++;
    struct soft_op *op = &qp->ops[index & ((1ull << qp->depth_log2) - 1)];
    uint32_t syndrome = soft_fetch(e->mem, nic->port, qp, index, op);
    uint64_t arrive = now;
    uint32_t lost = 0;

    op->syndrome = 0;
    count(&nic->port->stats.entries, 1);
    if (syndrome == 0)
        syndrome = swl_faults_error(&nic->port->faults, qp->link, qp->entry_count);
    qp->entry_count++;
    if (syndrome == 0 && !peer_answers(qp, now))
        syndrome = SWL_SYNDROME_RETRY;
    if (syndrome == 0)
        syndrome = host_probe(e->mem, qp->remote, op);
    if (syndrome == 0) {
        lost = losses(&nic->port->faults, &e->random);
        count(&nic->port->stats.retries, lost < SOFT_SENDS ? lost : SOFT_SENDS - 1);
        syndrome = lost < SOFT_SENDS ? 0 : SWL_SYNDROME_RETRY;
    }
    if (syndrome == SWL_SYNDROME_RETRY)
        arrive = now + nic->port->faults.retry_ns;
    else if (syndrome == 0 || syndrome >= SWL_SYNDROME_BAD_RESPONSE)
        arrive = arrival(e, qp, now + loss_ns(&nic->port->faults, lost), syndrome ? 0 : op->bytes);
    qp->order_ns = later(qp->order_ns, arrive);
    if (syndrome != 0)
        fail_at(qp, index, op, syndrome);
    else if (op->opcode == SWL_WQE_WRITE)
        plan_pieces(e, qp, index, op, now);
    else
        push(e, qp, qp->order_ns, SOFT_EVENT_EXECUTE, index);
    arrive = qp->order_ns + nic->port->link.latency_ns + nic->port->faults.hold_ns;
    qp->ack_ns = later(qp->ack_ns, arrive | (tick_ns - 1));
    push(e, qp, qp->ack_ns, SOFT_EVENT_COMPLETE, index);
}

/* Everything posted ends with "flushed". */
template <class Mem> void flush(struct engine<Mem> *e, struct soft_qp *qp)
{
    for (; qp->completed != qp->end; qp->completed++) {
        count(&e->nic->port->stats.errors, 1);
        soft_complete(e->mem, qp, qp->completed, SWL_WQE_NOP, SWL_SYNDROME_FLUSHED);
    }
    qp->fetched = qp->end;
}

template <class Mem>
void enter_error(struct engine<Mem> *e, struct soft_qp *qp, uint64_t index, uint32_t syndrome,
                 uint64_t now)
{
    qp->epoch++; /* voids what is under way */
    qp->syndrome = syndrome;
    qp->bad_index = index;
    /* release: pairs with the acquires of query and of the peer's executor */
    __atomic_store_n(&qp->state, SWL_NIC_QP_ERROR, __ATOMIC_RELEASE);
    /* a little later, so that pollers of the one completion can see the cause */
    push(e, qp, now + e->nic->port->link.latency_ns, SOFT_EVENT_FLUSH, 0);
}

template <class Mem>
void complete_entry(struct engine<Mem> *e, struct soft_qp *qp, uint64_t index, uint64_t now)
{
    struct soft_nic *nic = e->nic;
    struct soft_op *op = &qp->ops[index & ((1ull << qp->depth_log2) - 1)];

    if (op->syndrome == 0 && !soft_untouched(e->mem, qp, index, op)) {
        count(&nic->port->stats.rewritten, 1);
        fail_at(qp, index, op, SWL_SYNDROME_LOCAL_OPERATION);
    }
    qp->completed = index + 1;
    if (op->syndrome == 0) {
        count(&nic->port->stats.completions, 1);
        if (op->signalled)
            soft_complete(e->mem, qp, index, op->opcode, 0);
        return;
    }
    count(&nic->port->stats.errors, 1);
    soft_complete(e->mem, qp, index, op->opcode, op->syndrome);
    enter_error(e, qp, index, op->syndrome, now);
}

template <class Mem>
void place_piece(struct engine<Mem> *e, struct soft_qp *qp, const struct soft_event *event,
                 struct soft_op *op)
{
    struct soft_nic *nic = e->nic;
    uint32_t syndrome = soft_place(e->mem, nic->port, qp->remote, op, event->from, event->bytes);

    if (syndrome != 0) {
        fail_at(qp, event->index, op, syndrome);
        return;
    }
    count(&nic->port->stats.pieces, 1);
    count(&nic->port->stats.bytes, event->bytes);
    if (event->index + 1 < qp->newest_piece)
        count(&nic->port->stats.reordered, 1);
    else
        qp->newest_piece = event->index + 1;
}

template <class Mem>
void execute(struct engine<Mem> *e, struct soft_qp *qp, uint64_t index, struct soft_op *op)
{
    struct soft_nic *nic = e->nic;
    uint32_t syndrome = 0;

    if (op->opcode == SWL_WQE_FETCH_ADD) {
        syndrome = soft_add(e->mem, nic->port, qp->remote, op);
        count(&nic->port->stats.adds, syndrome == 0);
    } else if (op->opcode == SWL_WQE_READ) {
        syndrome = soft_place(e->mem, nic->port, qp->remote, op, 0, op->bytes);
    }
    if (syndrome != 0)
        fail_at(qp, index, op, syndrome);
}

template <class Mem>
void run_event(struct engine<Mem> *e, const struct soft_event *event, uint64_t now)
{
    struct soft_qp *qp = &e->nic->qps[event->qp];
    struct soft_op *op = &qp->ops[event->index & ((1ull << qp->depth_log2) - 1)];

    if (event->epoch != qp->epoch)
        return;
    if (event->kind == SOFT_EVENT_FLUSH) {
        flush(e, qp);
        return;
    }
    /* behind a failed entry nothing is executed or completed */
    if (event->index > qp->fail_index || (op->syndrome && event->kind != SOFT_EVENT_COMPLETE))
        return;
    if (event->kind == SOFT_EVENT_COMPLETE) {
        complete_entry(e, qp, event->index, now);
        return;
    }
    if (!peer_answers(qp, now))
        fail_at(qp, event->index, op, SWL_SYNDROME_RETRY);
    else if (event->kind == SOFT_EVENT_PIECE)
        place_piece(e, qp, event, op);
    else
        execute(e, qp, event->index, op);
}

/* A doorbell has changed. */
template <class Mem>
void take_doorbell(struct engine<Mem> *e, struct soft_qp *qp, uint64_t value, uint64_t now)
{
    struct soft_nic *nic = e->nic;
    uint64_t end;

    qp->seen = value;
    count(&nic->port->stats.doorbells, 1);
    if (swl_faults_drop(&nic->port->faults, qp->link, qp->doorbell_count++)) {
        count(&nic->port->stats.dropped, 1);
        return;
    }
    if (!soft_accept(qp, value, e->mem.word(soft_record(qp)), &end)) {
        count(&nic->port->stats.bad_doorbells, 1);
        if (qp->state == SWL_NIC_QP_READY) {
            soft_complete(e->mem, qp, qp->end, SWL_WQE_NOP, SWL_SYNDROME_LOCAL_OPERATION);
            count(&nic->port->stats.errors, 1);
            enter_error(e, qp, qp->end, SWL_SYNDROME_LOCAL_OPERATION, now);
        }
        return;
    }
    qp->end = end;
    if (qp->state == SWL_NIC_QP_ERROR)
        push(e, qp, now + nic->port->link.latency_ns, SOFT_EVENT_FLUSH, 0);
    while (qp->state == SWL_NIC_QP_READY && qp->fetched != qp->end && qp->fail_index == UINT64_MAX)
        take_entry(e, qp, now);
}

/* Look at all doorbells that moved; `all`: also at those looked at before. */
template <class Mem> void look(struct engine<Mem> *e, bool all, uint64_t now)
{
    struct soft_nic *nic = e->nic;
    uint32_t nqps = __atomic_load_n(&nic->port->nqps, __ATOMIC_ACQUIRE);
    bool dead = swl_faults_down(&nic->port->faults, now);

    for (uint32_t i = 0; i < nqps; i++) {
        struct soft_qp *qp = &nic->qps[i];
        uint64_t value = __atomic_load_n(&nic->doorbells[i], __ATOMIC_RELAXED);

        if (value == nic->looked[i] && !all)
            continue;
        nic->looked[i] = value;
        if (value == qp->seen || dead ||
            __atomic_load_n(&qp->state, __ATOMIC_ACQUIRE) == SWL_NIC_QP_INIT)
            continue;
        /* acquire: pairs with ring_doorbell; entries and payload are visible from here on */
        value = e->mem.doorbell(&nic->doorbells[i]);
        nic->looked[i] = value;
        take_doorbell(e, qp, value, now);
    }
}

/* When the next restart is over, and from when on peers get no answer. */
template <class Mem> void schedule(struct engine<Mem> *e, uint64_t now)
{
    struct soft_port *port = e->nic->port;

    e->back_ns = swl_faults_back(&port->faults, now);
    __atomic_store_n(&port->dead_ns, swl_faults_falls(&port->faults, now), __ATOMIC_RELEASE);
}

/* A restart is over: the NIC has forgotten all connections. */
template <class Mem> void come_back(struct engine<Mem> *e, uint64_t now)
{
    const uint32_t nqps = __atomic_load_n(&e->nic->port->nqps, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; i < nqps; i++)
        if (e->nic->qps[i].state == SWL_NIC_QP_READY)
            enter_error(e, &e->nic->qps[i], e->nic->qps[i].completed, SWL_SYNDROME_FLUSHED, now);
    schedule(e, now);
}

/* What the host asked for. */
template <class Mem> void obey(struct engine<Mem> *e, uint64_t now)
{
    struct soft_nic *nic = e->nic;
    struct soft_faults *faults = __atomic_exchange_n(&nic->new_faults, nullptr, __ATOMIC_ACQ_REL);
    uint32_t nqps = __atomic_load_n(&nic->port->nqps, __ATOMIC_ACQUIRE);

    if (faults != nullptr) {
        nic->port->faults = *faults;
        free(faults);
        e->random = nic->port->faults.seed;
        schedule(e, now);
        for (uint32_t i = 0; i < nqps; i++)
            nic->qps[i].entry_count = nic->qps[i].doorbell_count = 0;
    }
    for (uint32_t i = 0; i < nqps; i++) {
        struct soft_qp *qp = &nic->qps[i];
        uint32_t request = __atomic_load_n(&qp->request, __ATOMIC_ACQUIRE);

        if (request == SOFT_REQUEST_NONE)
            continue;
        if (request == SOFT_REQUEST_RESET) {
            qp->epoch++;
            restart_queue(e->mem, qp, &nic->looked[i]);
        } else if (qp->state != SWL_NIC_QP_ERROR) {
            enter_error(e, qp, qp->completed, SWL_SYNDROME_FLUSHED, now);
        }
        /* release: pairs with the acquire of the waiting host */
        __atomic_store_n(&qp->request, SOFT_REQUEST_NONE, __ATOMIC_RELEASE);
    }
}

/* Runs on the scheduler: is there anything new for the engine? */
bool moved(void *arg)
{
    const struct soft_nic *nic = static_cast<const struct soft_nic *>(arg);

    return words_moved(nic, &nic->port->nqps) || swl_host_stopping();
}

/* Until nic->stop; `close` gives back what mem holds. */
template <class Mem, class Close> void serve(struct soft_nic *nic, Mem mem, Close close)
{
    struct engine<Mem> e = {
        nic, mem, {nullptr, 0, 0, 0}, nic->port->faults.seed, UINT64_MAX, false
    };

    e.back_ns = swl_faults_back(&nic->port->faults, nic->port->faults.begin_ns);
    while (!__atomic_load_n(&nic->stop, __ATOMIC_ACQUIRE) && !swl_host_stopping() && !e.broken) {
        uint32_t kick = __atomic_load_n(&nic->kick, __ATOMIC_ACQUIRE);
        bool kicked = kick != nic->kicked;
        uint64_t now = swl_gpu_now_ns();
        uint64_t next;

        nic->kicked = kick;
        if (kicked || e.events.order == 0)
            obey(&e, now);
        if (now >= e.back_ns) {
            come_back(&e, now);
            kicked = true; /* doorbells rung meanwhile have been looked at and not taken */
        }
        look(&e, kicked, now);
        while (e.events.count && e.events.heap[0].time_ns <= now) {
            struct soft_event event = soft_events_pop(&e.events);

            if (!swl_faults_down(&nic->port->faults, now))
                run_event(&e, &event, now);
        }
        next = e.events.count ? e.events.heap[0].time_ns : UINT64_MAX;
        next = next < e.back_ns ? next : e.back_ns;
        swl_host_wait_until("soft nic idle", static_cast<int>(nic->rank), moved, nic, next);
    }
    free(e.events.heap);
    close();
    __atomic_store_n(&nic->port->dead, 1, __ATOMIC_RELEASE);
    /* release: pairs with the acquire in destroy, which frees our memory */
    __atomic_store_n(&nic->ended, 1, __ATOMIC_RELEASE);
    swl_soft_nic_drop(nic);
}

} // namespace
