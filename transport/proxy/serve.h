/* serve.h: what serves a proxy NIC: one loop over doorbells, the wire and its completions. C++ only.
 *
 * Layer: transport/proxy, above core.cuh; for serve_sim.cc (emulator) and serve_cuda.cc. `Mem` is
 * core.cuh's way to memory; entries and completions lie in host memory.
 * Of a queue pair: completed <= executed (taken by the wire) <= fetched (decoded) <= end (told by the
 * doorbell). All new entries of a queue go to the wire together. Successes are published together
 * too: the one completion names the newest signalled entry. */
#pragma once

#include "src/gpu.h"
#include "transport/proxy/front.h"
#include "transport/soft/core.cuh"
#include "transport/soft/executor.h"
#include "transport/soft/words.h"

#include <string.h>

namespace
{

const uint32_t batch_max = 32;
const uint64_t flush_after_ns = 20000; /* so that pollers of the one completion see the cause */

template <class Mem> struct proxy_server {
    struct proxy_nic *nic;
    Mem mem;
};

struct soft_op *op_at(const struct soft_qp *q, uint64_t index)
{
    return &q->ops[index & ((1ull << q->depth_log2) - 1)];
}

/* Entry q->completed has failed; what follows is flushed a little later. */
template <class Mem>
void fail(const proxy_server<Mem> &s, struct soft_qp *q, uint32_t opcode, uint32_t syndrome)
{
    q->syndrome = syndrome;
    q->bad_index = q->completed;
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
    q->completed = q->executed = q->fetched = q->end;
    soft_complete(s.mem, q, q->end - 1, SWL_WQE_NOP, SWL_SYNDROME_FLUSHED);
}

/* An entry whose own shape is wrong fails when everything before it is complete. */
template <class Mem> void fail_in_turn(const proxy_server<Mem> &s, struct soft_qp *q)
{
    const struct soft_op *op = op_at(q, q->completed);

    if (q->completed == q->fail_index)
        fail(s, q, op->opcode, op->syndrome);
}

/* Entries before `end` have succeeded, unless somebody wrote into one of them meanwhile. */
template <class Mem>
bool complete_until(const proxy_server<Mem> &s, struct soft_qp *q, uint64_t end)
{
    uint64_t newest = UINT64_MAX;
    bool whole = true;

    while (q->completed < end && whole) {
        const struct soft_op *op = op_at(q, q->completed);

        whole = soft_untouched(s.mem, q, q->completed, op);
        if (whole && op->signalled)
            newest = q->completed;
        if (whole)
            q->completed++;
    }
    if (newest != UINT64_MAX)
        soft_complete(s.mem, q, newest, op_at(q, newest)->opcode, 0);
    if (!whole)
        fail(s, q, op_at(q, q->completed)->opcode, SWL_SYNDROME_LOCAL_OPERATION);
    return whole;
}

template <class Mem> void take_done(const proxy_server<Mem> &s, const struct swl_wire_done *done)
{
    struct soft_qp *q = &s.nic->qps[done->qp];
    const uint64_t end = done->syndrome ? done->index : done->index + 1;

    if (__atomic_load_n(&q->state, __ATOMIC_ACQUIRE) != SWL_NIC_QP_READY)
        return; /* of an earlier connection, or behind an error of our own */
    if (end > q->executed)
        return; /* the wire has not been asked for that */
    if (!complete_until(s, q, end))
        return;
    if (done->syndrome && q->completed < q->fetched)
        fail(s, q, op_at(q, q->completed)->opcode, done->syndrome);
    else if (done->syndrome)
        fail(s, q, SWL_WQE_NOP, done->syndrome);
    else
        fail_in_turn(s, q);
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
        for (uint64_t i = q->executed; i < last && n < batch_max; i++, n++)
            make_request(&requests[n], op_at(q, i), i);
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
    if (soft_accept(q, value, s.mem.word(soft_record(q)), &end)) {
        q->end = end;
        if (q->state == SWL_NIC_QP_ERROR)
            q->flush_ns = swl_gpu_now_ns() + flush_after_ns;
        return;
    }
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
    fail_in_turn(s, q);
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
    for (uint32_t i = 0; i < nqps; i++) {
        struct soft_qp *q = &s.nic->qps[i];
        const uint32_t request = __atomic_load_n(&q->request, __ATOMIC_ACQUIRE);

        if (request == SOFT_REQUEST_NONE)
            continue;
        if (request == SOFT_REQUEST_RESET)
            restart_queue(s.mem, q, &s.nic->looked[i]);
        else if (q->state != SWL_NIC_QP_ERROR)
            fail(s, q, SWL_WQE_NOP, SWL_SYNDROME_FLUSHED);
        /* release: pairs with the acquire of the waiting host */
        __atomic_store_n(&q->request, SOFT_REQUEST_NONE, __ATOMIC_RELEASE);
    }
    return true;
}

/* Is there anything new for the server? */
bool proxy_moved(void *arg)
{
    const struct proxy_nic *nic = static_cast<const struct proxy_nic *>(arg);

    return words_moved(nic, &nic->nqps) || swl_soft_stopping();
}

/* Until nic->stop. An idle server looks again after an eighth of the time that nothing has moved: it
 * adds that part to a wait, and costs next to nothing where nobody calls for long. */
template <class Mem> void proxy_serve(struct proxy_nic *nic, Mem mem)
{
    const proxy_server<Mem> s = {nic, mem};
    uint64_t last = swl_gpu_now_ns();

    while (!__atomic_load_n(&nic->stop, __ATOMIC_ACQUIRE) && !swl_soft_stopping()) {
        const uint32_t nqps = __atomic_load_n(&nic->nqps, __ATOMIC_ACQUIRE);
        bool moved = obey(s);

        for (uint32_t i = 0; i < nqps; i++)
            moved = serve_queue(s, i) || moved;
        if (nic->wire_ops->progress)
            moved = nic->wire_ops->progress(nic->wire) || moved;
        moved = take_all_done(s) || moved;
        if (moved)
            last = swl_gpu_now_ns();
        swl_soft_nap("proxy nic idle", static_cast<int>(nic->rank), proxy_moved, nic,
                     (swl_gpu_now_ns() - last) / 8);
    }
    /* release: pairs with the acquire in destroy, which frees our memory */
    __atomic_store_n(&nic->ended, 1, __ATOMIC_RELEASE);
}

} // namespace
