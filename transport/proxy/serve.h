/* serve.h: what serves a proxy NIC: one loop over doorbells, the wire and its completions. C++
 * only.
 *
 * Layer: transport/proxy, above core.cuh; for serve_sim.cc (emulator) and serve_cuda.cc. `Mem` is
 * core.cuh's way to memory; entries and completions lie in host memory.
 * Of a queue pair: completed <= executed (taken by the wire) <= fetched (decoded) <= end (told by
 * the doorbell). What is held back, reordered or made to fail on purpose: fault_injection.h. All
 * new entries of a queue go to the wire together. Successes are published together too: the one
 * completion names the newest signalled entry. */
#pragma once

#include "src/runtime/runtime.h"
#include "transport/host/core.cuh"
#include "transport/host/executor.h"
#include "transport/host/words.h"
#include "transport/proxy/fault_injection.h"
#include "transport/proxy/front.h"

#include <string.h>

namespace
{

const uint32_t batch_max = 32;
const uint64_t flush_after_ns = 20000; /* so that pollers of the one completion see the cause */

template <class Mem> struct proxy_server {
    struct proxy_nic *nic;
    Mem mem;
    uint64_t now; /* of this turn */
};

/* Entry q->completed has failed; what follows is flushed a little later. */
template <class Mem>
void fail(const proxy_server<Mem> &s, struct soft_qp *q, uint32_t opcode, uint32_t syndrome)
{
    q->syndrome = syndrome;
    q->bad_index = q->completed;
    s.nic->turns[q->link].syndrome = 0;
    count_own(&q->stats.errors, 1);
    soft_complete(s.mem, q, q->completed, opcode, syndrome);
    if (q->completed != q->end)
        q->completed++;
    q->flush_ns = swl_gpu_now_ns() + flush_after_ns;
    (void)s.nic->wire_ops->to_error(s.nic->wire, q->link);
    /* release: pairs with the acquire of query */
    __atomic_store_n(&q->state, SWL_NIC_QP_ERROR, __ATOMIC_RELEASE);
}

template <class Mem> void flush(const proxy_server<Mem> &s, struct soft_qp *q)
{
    q->flush_ns = UINT64_MAX;
    if (q->completed == q->end)
        return;
    count_own(&q->stats.errors, q->end - q->completed);
    q->completed = q->executed = q->fetched = q->end;
    soft_complete(s.mem, q, q->end - 1, SWL_WQE_NOP, SWL_SYNDROME_FLUSHED);
}

/* An entry whose own shape is wrong fails when everything before it is complete. */
template <class Mem> void fail_in_turn(const proxy_server<Mem> &s, struct soft_qp *q)
{
    const struct soft_op *op = op_at(q, q->completed);

    if (q->completed == q->fail_index && come(s.nic, op->due_ns, s.now))
        fail(s, q, op->opcode, op->syndrome);
}

/* Complete, in order, what the wire has done, unless somebody wrote into an entry meanwhile. */
template <class Mem> bool complete_done(const proxy_server<Mem> &s, struct soft_qp *q)
{
    uint64_t newest = UINT64_MAX;
    bool whole = true;

    while (q->completed < q->executed && whole) {
        const struct soft_op *op = op_at(q, q->completed);

        if (!op->done || !come(s.nic, op->ready_ns, s.now))
            break;
        whole = soft_untouched(s.mem, q, q->completed, op);
        if (!whole)
            break;
        if (op->signalled)
            newest = q->completed;
        count_own(&q->stats.completions, 1);
        count_own(&q->stats.adds, op->opcode == SWL_WQE_FETCH_ADD);
        count_own(&q->stats.bytes, op->opcode == SWL_WQE_FETCH_ADD ? 0 : op->bytes);
        q->completed++;
    }
    if (newest != UINT64_MAX)
        soft_complete(s.mem, q, newest, op_at(q, newest)->opcode, 0);
    if (whole)
        return true;
    count_own(&q->stats.rewritten, 1);
    fail(s, q, op_at(q, q->completed)->opcode, SWL_SYNDROME_LOCAL_OPERATION);
    return false;
}

/* What is complete now; then the error behind it, if there is one. */
template <class Mem> void publish(const proxy_server<Mem> &s, struct soft_qp *q)
{
    const struct proxy_turn *t = &s.nic->turns[q->link];
    const struct soft_op *op;

    if (!complete_done(s, q))
        return;
    op = q->completed < q->fetched ? op_at(q, q->completed) : nullptr;
    if (!t->syndrome)
        fail_in_turn(s, q);
    else if (!(op && q->completed < q->executed && op->done) && come(s.nic, t->fail_ns, s.now))
        fail(s, q, op ? op->opcode : static_cast<uint32_t>(SWL_WQE_NOP), t->syndrome);
}

template <class Mem> void take_done(const proxy_server<Mem> &s, const struct swl_wire_done *done)
{
    struct soft_qp *q = &s.nic->qps[done->qp];
    struct proxy_turn *t = &s.nic->turns[done->qp];
    const uint64_t end = done->syndrome ? done->index : done->index + 1;
    const uint64_t ready = s.nic->holds_ns ? s.now + s.nic->holds_ns : 0;

    /* acquire: pairs with the release of the host at the end of connect */
    const uint32_t state = __atomic_load_n(&q->state, __ATOMIC_ACQUIRE);

    if (state == SWL_NIC_QP_ERROR)
        return; /* behind an error of our own */
    if (end > q->executed)
        return; /* the wire has not been asked for that */
    for (; t->acked < end; t->acked++) {
        struct soft_op *op = op_at(q, op_at(q, t->acked)->entry);

        op->done = 1;
        op->ready_ns = ready;
    }
    if (done->syndrome) {
        t->syndrome = done->syndrome;
        t->fail_ns = ready;
    }
    /* before: the host is still connecting, and serve_queue says so when it has; or all is of an
     * earlier connection, and the host's reset forgets it */
    if (state == SWL_NIC_QP_READY)
        publish(s, q);
}

template <class Mem> bool take_all_done(const proxy_server<Mem> &s)
{
    struct swl_wire_done done[batch_max];
    bool any = false;
    uint32_t n;

    do {
        n = s.nic->wire_ops->poll(s.nic->wire, done, batch_max);
        for (uint32_t i = 0; i < n; i++)
            take_done(s, &done[i]);
        any = any || n > 0;
    } while (n == batch_max);
    return any;
}

void make_request(struct swl_wire_request *r, const struct soft_op *op, uint64_t index)
{
    memset(r, 0, sizeof(*r));
    r->index = index;
    r->opcode = op->opcode;
    r->bytes = op->bytes;
    r->local = op->local;
    r->remote = op->remote;
    r->value = op->value;
    r->lkey = op->lkey;
    r->rkey = op->rkey;
    r->is_inline = op->is_inline != 0;
    r->signalled = op->signalled != 0;
    if (op->is_inline)
        memcpy(r->data, op->data, sizeof(r->data));
}

/* Decode what is new, up to the first entry of a wrong shape. */
template <class Mem> void decode(const proxy_server<Mem> &s, struct soft_qp *q)
{
    while (q->fetched != q->end && q->fail_index == UINT64_MAX) {
        struct soft_op *op = op_at(q, q->fetched);

        op->syndrome = soft_read(s.mem, q, q->fetched, op);
        op->done = 0;
        op->entry = q->fetched;
        op->due_ns = 0;
        count_own(&q->stats.entries, 1);
        if (s.nic->modelled)
            plan(s.nic, q, q->fetched, op, s.now);
        if (op->syndrome)
            q->fail_index = q->fetched;
        q->fetched++;
    }
}

/* Hand over what the wire has room for; true = it took something. */
template <class Mem> bool hand_over(const proxy_server<Mem> &s, struct soft_qp *q)
{
    const uint64_t last = q->fetched < q->fail_index ? q->fetched : q->fail_index;
    struct swl_wire_request requests[batch_max];
    const uint64_t before = q->executed;
    uint32_t n, taken;

    do {
        n = 0;
        for (uint64_t i = q->executed; i < last && n < batch_max; i++, n++) {
            if (!come(s.nic, op_at(q, i)->due_ns, s.now))
                break;
            make_request(&requests[n], op_at(q, op_at(q, i)->entry), i);
        }
        taken = n ? s.nic->wire_ops->post(s.nic->wire, q->link, requests, n) : 0;
        q->executed += taken;
    } while (n == batch_max && taken == n);
    return q->executed != before;
}

/* A doorbell has changed. */
template <class Mem>
void take_doorbell(const proxy_server<Mem> &s, struct soft_qp *q, uint64_t value)
{
    uint64_t end;

    q->seen = value;
    count_own(&q->stats.doorbells, 1);
    if (s.nic->modelled && swl_faults_drop(&s.nic->faults, q->link, q->doorbell_count++)) {
        count_own(&q->stats.dropped, 1);
        return;
    }
    if (soft_accept(q, value, s.mem.word(soft_record(q)), &end)) {
        q->end = end;
        if (q->state == SWL_NIC_QP_ERROR)
            q->flush_ns = swl_gpu_now_ns() + flush_after_ns;
        return;
    }
    count_own(&q->stats.bad_doorbells, 1);
    if (q->state != SWL_NIC_QP_READY)
        return;
    q->completed = q->end; /* named by the completion; earlier ones are flushed by it */
    fail(s, q, SWL_WQE_NOP, SWL_SYNDROME_LOCAL_OPERATION);
}

/* One queue pair: doorbell, entries, what is due. True = something moved. */
template <class Mem> bool serve_queue(const proxy_server<Mem> &s, uint32_t i)
{
    struct soft_qp *q = &s.nic->qps[i];
    const uint32_t state = __atomic_load_n(&q->state, __ATOMIC_ACQUIRE);
    uint64_t value = __atomic_load_n(q->doorbell, __ATOMIC_RELAXED);
    bool moved = false;

    s.nic->looked[i] = value;
    if (state == SWL_NIC_QP_INIT)
        return false;
    if (value != q->seen) {
        /* acquire: pairs with ring_doorbell; entries and payload are visible from here on */
        value = s.mem.doorbell(q->doorbell);
        s.nic->looked[i] = value;
        take_doorbell(s, q, value);
        moved = true;
    }
    if (q->state == SWL_NIC_QP_ERROR) {
        if (q->flush_ns <= swl_gpu_now_ns())
            flush(s, q);
        return moved || q->flush_ns != UINT64_MAX;
    }
    decode(s, q);
    moved = hand_over(s, q) || moved;
    publish(s, q);
    return moved;
}

/* What the host asked for. */
template <class Mem> bool obey(const proxy_server<Mem> &s)
{
    const uint32_t kick = __atomic_load_n(&s.nic->kick, __ATOMIC_ACQUIRE);
    const uint32_t nqps = __atomic_load_n(&s.nic->nqps, __ATOMIC_ACQUIRE);

    if (kick == s.nic->kicked)
        return false;
    s.nic->kicked = kick;
    take_faults(s.nic, s.now);
    for (uint32_t i = 0; i < nqps; i++) {
        struct soft_qp *q = &s.nic->qps[i];
        const uint32_t request = __atomic_load_n(&q->request, __ATOMIC_ACQUIRE);

        if (request == SOFT_REQUEST_NONE)
            continue;
        if (request == SOFT_REQUEST_RESET) {
            restart_queue(s.mem, q, &s.nic->looked[i]);
            s.nic->turns[i] = {q->first_index, q->first_index, 0, 0};
        } else if (q->state != SWL_NIC_QP_ERROR) {
            fail(s, q, SWL_WQE_NOP, SWL_SYNDROME_FLUSHED);
        }
        /* release: pairs with the acquire of the waiting host */
        __atomic_store_n(&q->request, SOFT_REQUEST_NONE, __ATOMIC_RELEASE);
    }
    return true;
}

/* Is there anything new for the server? */
bool proxy_moved(void *arg)
{
    const struct proxy_nic *nic = static_cast<const struct proxy_nic *>(arg);

    return words_moved(nic, &nic->nqps) || swl_host_stopping();
}

/* A restart is over: the NIC has forgotten all connections. */
template <class Mem> void come_back(const proxy_server<Mem> &s)
{
    const uint32_t nqps = __atomic_load_n(&s.nic->nqps, __ATOMIC_ACQUIRE);

    s.nic->back_ns = swl_faults_back(&s.nic->faults, s.now);
    for (uint32_t i = 0; i < nqps; i++)
        if (__atomic_load_n(&s.nic->qps[i].state, __ATOMIC_ACQUIRE) == SWL_NIC_QP_READY)
            fail(s, &s.nic->qps[i], SWL_WQE_NOP, SWL_SYNDROME_FLUSHED);
}

/* Everything once; true = something moved. */
template <class Mem> bool serve_all(const proxy_server<Mem> &s)
{
    const uint32_t nqps = __atomic_load_n(&s.nic->nqps, __ATOMIC_ACQUIRE);
    bool moved = obey(s);

    if (s.nic->modelled && swl_faults_down(&s.nic->faults, s.now)) {
        go_down(s.nic);
        s.nic->next_ns = s.nic->back_ns;
        return moved;
    }
    s.nic->down = 0;
    if (s.now >= s.nic->back_ns)
        come_back(s);
    for (uint32_t i = 0; i < nqps; i++)
        moved = serve_queue(s, i) || moved;
    if (s.nic->wire_ops->progress)
        moved = s.nic->wire_ops->progress(s.nic->wire) || moved;
    return take_all_done(s) || moved;
}

/* Until nic->stop. An idle server looks again after an eighth of the time that nothing has moved:
 * it adds that part to a wait, and costs next to nothing where nobody calls for long. */
template <class Mem> void proxy_serve(struct proxy_nic *nic, Mem mem)
{
    proxy_server<Mem> s = {nic, mem, swl_gpu_now_ns()};
    uint64_t last = s.now, idle_ns;

    set_modelled(nic, nic->faults.begin_ns);
    while (!__atomic_load_n(&nic->stop, __ATOMIC_ACQUIRE) && !swl_host_stopping()) {
        s.now = swl_gpu_now_ns();
        nic->next_ns = UINT64_MAX;
        if (serve_all(s))
            last = s.now;
        idle_ns = (s.now - last) / 8;
        if (nic->next_ns != UINT64_MAX && nic->next_ns < s.now + idle_ns)
            idle_ns = nic->next_ns > s.now ? nic->next_ns - s.now : 0;
        swl_host_sleep_until("proxy nic idle", static_cast<int>(nic->rank), proxy_moved, nic,
                             idle_ns);
    }
    /* release: pairs with the acquire in destroy, which frees our memory */
    __atomic_store_n(&nic->ended, 1, __ATOMIC_RELEASE);
}

} // namespace
