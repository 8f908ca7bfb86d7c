/* qp.cuh: posting to a queue pair from device code.
 *
 * Layer: transport, used by warp roles. Owns no memory. Two ways to drive a queue:
 *   qp_…         one warp owns it; one lane at a time, another lane only after warp_sync;
 *   qp_shared_…  any number of lanes of one GPU.
 * Posting does not tell the NIC; qp_ring does, once for all entries before it. Only a full queue is
 * rung by the poster itself, as otherwise it could never drain. Every wait is bounded by the watch;
 * false = give up (full queue: SWL_FAULT_QUEUE; error completion: SWL_FAULT_COMPLETION with number
 * << 8 | syndrome as `seen` and the entry as `expected`).
 *
 * Order: payload stores and entries, order_before_doorbell(scope), record,
 * order_before_doorbell(scope), doorbell; pairs with read_doorbell in the software NIC, with the
 * read of the queue over PCIe in hardware. The second is needed: a doorbell is a store to another
 * kind of memory, and on a busy GPU a record has been seen to land tens of microseconds behind it.
 * WRITEs land in any order; an add lands after everything posted before it in this queue. */
#pragma once

#include "device.h"
#include "kernels/device/wait.cuh"
#include "transport/qp_view.h"
#include "transport/wqe.h"

static_assert(SWL_SCOPE_GPU == SWL_QP_SCOPE_GPU && SWL_SCOPE_SYS == SWL_QP_SCOPE_SYS,
              "the host writes the scope into the view");

/* ---- common parts ---- */

SWL_DEV void qp_put(const struct swl_qp *qp, uint64_t index, const struct swl_wqe *w)
{
    uint64_t at = index & ((1ull << qp->depth_log2) - 1);
    struct vec16 *to = reinterpret_cast<struct vec16 *>(qp->sq + at * SWL_WQE_BYTES);

    for (int i = 0; i < 4; i++)
        store_data(to + i, vec16{{w->word[4 * i], w->word[4 * i + 1], w->word[4 * i + 2],
                                  w->word[4 * i + 3]}});
}

/* The entries of this queue known to be complete, at least `done`; *syndrome_p != 0 on error.
 * Completions lie in a ring of cq_mask + 1, one for each entry in order, and nobody takes them:
 * where the next one is expected there is that one, or a newer one of the same place, or still the
 * one a ring's length before it. A look at each place finds the newest of all. */
SWL_DEV uint64_t qp_completed(const struct swl_qp *qp, uint64_t done, uint32_t *syndrome_p)
{
    *syndrome_p = 0;
    for (uint32_t places = qp->cq_mask + 1; places > 0; places--) {
        const uint32_t *cq =
            qp->cq + (static_cast<uint32_t>(done) & qp->cq_mask) * (SWL_CQE_BYTES / 4);
        uint32_t last = read_completion(cq + SWL_CQE_LAST_WORD);
        uint32_t opcode = swl_cqe_opcode(last), more;

        if (opcode == SWL_CQE_NONE)
            return done;
        if (opcode != SWL_CQE_DONE) {
            *syndrome_p = swl_cqe_syndrome(read_completion(cq + SWL_CQE_SYNDROME_WORD));
            return done;
        }
        more = (swl_cqe_index(last) + 1 - static_cast<uint32_t>(done)) & 0xffffu;
        if (more > SWL_WQE_DEPTH_MAX)
            return done;
        done += more;
    }
    return done;
}

/* For the host: which queue pair, and why (swl_completion_text). */
SWL_DEV void qp_fault(const struct swl_qp *qp, struct waiter w, uint64_t done, uint32_t syndrome)
{
    w.kind = SWL_FAULT_COMPLETION;
    wait_fault(w, done, static_cast<uint64_t>(qp->qpn) << 8 | syndrome, SWL_ASYNC_TIMEOUT);
}

SWL_DEV void qp_tell(const struct swl_qp *qp, uint64_t end)
{
    const enum swl_scope scope = static_cast<enum swl_scope>(qp->scope);

    order_before_doorbell(scope); /* entries before the record */
    store_doorbell_record(qp->dbr + SWL_DBR_SEND, swl_dbr_value(end));
    order_before_doorbell(scope); /* the record before the doorbell */
    ring_doorbell(qp->doorbell, swl_doorbell_value(end, qp->qpn));
}

/* ---- one warp ---- */

/* Tell the NIC about everything posted so remote. */
SWL_DEV void qp_ring(struct swl_qp *qp)
{
    if (qp->rung == qp->ready)
        return;
    qp_tell(qp, qp->ready);
    qp->rung = qp->ready;
}

/* Look at completions without waiting; false = the queue is in error (reported). */
SWL_DEV bool qp_poll(struct swl_qp *qp, struct waiter w)
{
    uint32_t syndrome;

    if (qp->done == qp->rung)
        return true;
    qp->done = qp_completed(qp, qp->done, &syndrome);
    if (syndrome)
        qp_fault(qp, w, qp->done, syndrome);
    return syndrome == 0;
}

/* Wait until entry reserved may be written. */
SWL_DEV bool qp_await_wqe(struct swl_qp *qp, struct waiter w)
{
    uint64_t depth = 1ull << qp->depth_log2;

    if (qp->reserved - qp->done < depth)
        return true;
    qp_ring(qp);
    w.kind = SWL_FAULT_QUEUE;
    for (;;) {
        if (!qp_poll(qp, w))
            return false;
        if (qp->reserved - qp->done < depth)
            return true;
        if (!wait_again(w, qp->reserved - depth + 1, qp->done,
                        SWL_PAUSE("queue pair has no free entry", static_cast<int>(w.peer),
                                  static_cast<int>(w.channel))))
            return false;
    }
}

SWL_DEV void qp_append(struct swl_qp *qp, const struct swl_wqe *w)
{
    qp_put(qp, qp->reserved, w);
    qp->reserved++;
    qp->ready = qp->reserved;
}

/* `bytes` (1 … 1 GiB) of registered memory of this rank. */
SWL_DEV struct swl_wqe_local qp_local(const void *memory, uint32_t lkey, uint32_t bytes)
{
    return {reinterpret_cast<uint64_t>(memory), lkey, bytes};
}

/* RDMA WRITE of registered memory. */
SWL_DEV bool qp_write(struct swl_qp *qp, struct waiter w, struct swl_wqe_local local,
                      struct swl_wqe_remote remote)
{
    struct swl_wqe e;

    if (!qp_await_wqe(qp, w))
        return false;
    swl_wqe_move(&e, qp->reserved, SWL_WQE_WRITE, qp->qpn, local, remote);
    qp_append(qp, &e);
    return true;
}

/* RDMA WRITE of 4 … 28 bytes, a multiple of 4, read now. */
SWL_DEV bool qp_write_inline(struct swl_qp *qp, struct waiter w, const void *data, uint32_t bytes,
                             struct swl_wqe_remote remote)
{
    struct swl_wqe e;

    if (!qp_await_wqe(qp, w))
        return false;
    swl_wqe_inline(&e, qp->reserved, qp->qpn, static_cast<const uint32_t *>(data), bytes, remote);
    qp_append(qp, &e);
    return true;
}

/* Add to an 8-byte word of a strictly ordered region, after everything posted before. */
SWL_DEV bool qp_add(struct swl_qp *qp, struct waiter w, uint64_t remote, uint32_t rkey,
                    uint64_t value)
{
    struct swl_wqe e;

    if (!qp_await_wqe(qp, w))
        return false;
    swl_wqe_fetch_add(&e, qp->reserved, qp->qpn, value, {qp->sink, qp->sink_lkey, 8},
                      {remote, rkey});
    qp_append(qp, &e);
    return true;
}

/* Ring and wait until everything posted is complete: the NIC no longer reads local memory. */
SWL_DEV bool qp_flush(struct swl_qp *qp, struct waiter w)
{
    qp_ring(qp);
    w.kind = SWL_FAULT_QUEUE;
    for (;;) {
        if (!qp_poll(qp, w))
            return false;
        if (qp->done == qp->rung)
            return true;
        if (!wait_again(w, qp->rung, qp->done,
                        SWL_PAUSE("queue pair is not drained", static_cast<int>(w.peer),
                                  static_cast<int>(w.channel))))
            return false;
    }
}

/* ---- many lanes ----
 * reserved is taken by compare-and-swap, and only when the entries are free, so that nobody waits
 * for the NIC with an entry in his hands. ready advances in entry order: a poster swaps his index
 * for the next, which releases his stores to whoever rings. A poster that gives up between the two
 * leaves ready behind reserved; the queue must then be reset by the host. Each of the two is a
 * round trip to the memory of the GPU that one poster after the other makes: who has several
 * entries to post takes and publishes them together. */

/* Move done forward; false = the queue is in error (reported). */
SWL_DEV bool qp_shared_poll(struct swl_qp *qp, struct waiter w, uint64_t *done_p)
{
    uint32_t syndrome;
    uint64_t seen = read_in_gpu(&qp->done);
    uint64_t done = qp_completed(qp, seen, &syndrome);

    if (syndrome) {
        qp_fault(qp, w, seen, syndrome);
        return false;
    }
    /* If done moved meanwhile, our extension of the 16-bit index may be old: drop it. */
    if (done != seen) {
        uint64_t old = cas_in_gpu(&qp->done, seen, done);

        done = old == seen ? done : old;
    }
    *done_p = done;
    return true;
}

/* Tell the NIC about every entry that is ready. If another lane is doing it, that one goes on. */
SWL_DEV void qp_shared_ring(struct swl_qp *qp)
{
    if (or_in_gpu(&qp->ringing, 3u) & 1u)
        return; /* the holder sees the 2 before it lets go */
    do {
        uint64_t ready;

        and_in_gpu(&qp->ringing, ~2u); /* acquires the entries of whoever asked */
        ready = read_in_gpu(&qp->ready);
        if (ready != read_in_gpu(&qp->rung)) {
            qp_tell(qp, ready);
            publish_in_gpu(&qp->rung, ready);
        }
    } while (cas_in_gpu(&qp->ringing, 1u, 0u) != 1u);
}

/* Take `n` free entries that follow each other, at most half of the queue; *index_p: the first. */
SWL_DEV bool qp_shared_reserve(struct swl_qp *qp, struct waiter w, uint32_t n, uint64_t *index_p)
{
    uint64_t room = (1ull << qp->depth_log2) - n + 1; /* entries in use may be fewer than these */
    uint64_t index = read_in_gpu(&qp->reserved);
    uint64_t done = read_in_gpu(&qp->done);

    w.kind = SWL_FAULT_QUEUE;
    for (;;) {
        uint64_t old;

        /* done may be newer than index, never older than what freed the entries */
        if (static_cast<int64_t>(index - done) < static_cast<int64_t>(room)) {
            old = cas_in_gpu(&qp->reserved, index, index + n);
            if (old == index) {
                *index_p = index;
                return true;
            }
            index = old;
            continue;
        }
        qp_shared_ring(qp);
        if (!qp_shared_poll(qp, w, &done))
            return false;
        index = read_in_gpu(&qp->reserved);
        if (static_cast<int64_t>(index - done) >= static_cast<int64_t>(room) &&
            !wait_again(w, index - room + 1, done,
                        SWL_PAUSE("shared queue pair has no free entry", static_cast<int>(w.peer),
                                  static_cast<int>(w.channel))))
            return false;
    }
}

/* `n` entries from `index` on are written: wait for the ones before them, then publish them. */
SWL_DEV bool qp_shared_commit(struct swl_qp *qp, struct waiter w, uint64_t index, uint32_t n)
{
    w.kind = SWL_FAULT_QUEUE;
    for (;;) {
        /* releases our entries and payload; pairs with read_in_gpu(ready) of whoever rings */
        uint64_t ready = cas_in_gpu(&qp->ready, index, index + n);

        if (ready == index)
            return true;
        if (!wait_again(w, index, ready,
                        SWL_PAUSE("an earlier entry of a shared queue pair is not written",
                                  static_cast<int>(w.peer), static_cast<int>(w.channel))))
            return false;
    }
}

SWL_DEV bool qp_shared_write(struct swl_qp *qp, struct waiter w, struct swl_wqe_local local,
                             struct swl_wqe_remote remote)
{
    struct swl_wqe e;
    uint64_t index;

    if (!qp_shared_reserve(qp, w, 1, &index))
        return false;
    swl_wqe_move(&e, index, SWL_WQE_WRITE, qp->qpn, local, remote);
    qp_put(qp, index, &e);
    return qp_shared_commit(qp, w, index, 1);
}

SWL_DEV bool qp_shared_add(struct swl_qp *qp, struct waiter w, uint64_t remote, uint32_t rkey,
                           uint64_t value)
{
    struct swl_wqe e;
    uint64_t index;

    if (!qp_shared_reserve(qp, w, 1, &index))
        return false;
    swl_wqe_fetch_add(&e, index, qp->qpn, value, {qp->sink, qp->sink_lkey, 8}, {remote, rkey});
    qp_put(qp, index, &e);
    return qp_shared_commit(qp, w, index, 1);
}

/* Wait until everything that was ready at this moment is complete. */
SWL_DEV bool qp_shared_flush(struct swl_qp *qp, struct waiter w)
{
    uint64_t end = read_in_gpu(&qp->ready);
    uint64_t done = read_in_gpu(&qp->done);

    qp_shared_ring(qp);
    w.kind = SWL_FAULT_QUEUE;
    while (static_cast<int64_t>(end - done) > 0) {
        if (!qp_shared_poll(qp, w, &done))
            return false;
        if (static_cast<int64_t>(end - done) > 0 &&
            !wait_again(w, end, done,
                        SWL_PAUSE("shared queue pair is not drained", static_cast<int>(w.peer),
                                  static_cast<int>(w.channel))))
            return false;
    }
    return true;
}
