/* fault_injection.h: the wire model and the faults of a proxy NIC, as its server asks them. C++
 * only.
 *
 * Layer: transport/proxy, part of serve.h. Everything happens between the queues and the wire:
 * requests are held back or handed over in another order, completions are held back, entries fail
 * before the wire sees them, doorbells are not seen, a NIC that is down makes no progress. So every
 * wire can do it. All state is the server's. Without wire model and faults a NIC is not modelled,
 * and no clock is read. */
#pragma once

#include "transport/host/wire_model.h"
#include "transport/proxy/front.h"

#include <stdlib.h>

namespace
{

/* One writer. */
inline void count_own(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

inline struct soft_op *op_at(const struct soft_qp *q, uint64_t index)
{
    return &q->ops[index & ((1ull << q->depth_log2) - 1)];
}

inline void set_modelled(struct proxy_nic *nic, uint64_t now)
{
    const struct soft_faults *f = &nic->faults;

    nic->random = f->seed;
    nic->back_ns = swl_faults_back(f, now);
    nic->reorders = f->reorder && (f->asked & SOFT_CAN_REORDER);
    nic->holds_ns = nic->link.latency_ns + f->hold_ns;
    nic->modelled = nic->link.ns_per_mib || nic->holds_ns || f->delay_ns || f->jitter_ns ||
                    f->loss || f->nrules || nic->reorders;
}

/* The host has set others: their counts begin. */
inline void take_faults(struct proxy_nic *nic, uint64_t now)
{
    struct soft_faults *f = __atomic_exchange_n(&nic->new_faults, nullptr, __ATOMIC_ACQ_REL);

    if (f == nullptr)
        return;
    nic->faults = *f;
    free(f);
    set_modelled(nic, now);
    for (uint32_t i = 0; i < nic->max_qps; i++)
        nic->qps[i].entry_count = nic->qps[i].doorbell_count = 0;
}

/* Not before this moment, and then the server has to look. True = it has come. */
inline bool come(struct proxy_nic *nic, uint64_t due_ns, uint64_t now)
{
    if (due_ns <= now)
        return true;
    if (due_ns < nic->next_ns)
        nic->next_ns = due_ns;
    return false;
}

/* The entry changes its place with an earlier one of its run of WRITEs that the wire has not
 * taken. */
inline void shuffle(struct proxy_nic *nic, struct soft_qp *q, struct proxy_turn *t, uint64_t index)
{
    const uint64_t first = later(t->run, q->executed);
    const uint64_t place = first + random_below(&nic->random, index - first);
    struct soft_op *here = op_at(q, index), *there = op_at(q, place);

    here->entry = there->entry;
    there->entry = index;
    count_own(&q->stats.reordered, place != index);
}

/* A new entry, decoded: does it fail on purpose, when may the wire have it. */
inline void plan(struct proxy_nic *nic, struct soft_qp *q, uint64_t index, struct soft_op *op,
                 uint64_t now)
{
    const struct soft_faults *f = &nic->faults;
    uint64_t due = now;
    uint32_t lost = 0;

    if (op->syndrome == 0)
        op->syndrome = swl_faults_error(f, q->link, q->entry_count);
    q->entry_count++;
    if (op->syndrome == 0) {
        lost = losses(f, &nic->random);
        count_own(&q->stats.retries, lost < SOFT_SENDS ? lost : SOFT_SENDS - 1);
        op->syndrome = lost < SOFT_SENDS ? 0 : SWL_SYNDROME_RETRY;
    }
    if (op->syndrome == SWL_SYNDROME_RETRY)
        due = now + f->retry_ns;
    else if (op->syndrome == 0)
        due =
            departure(&nic->link, f, q->link, now + loss_ns(f, lost), op->bytes, &nic->egress_ns) +
            wire_ns(&nic->link, op->bytes) + nic->link.latency_ns +
            random_below(&nic->random, f->jitter_ns);
    q->order_ns = later(q->order_ns, due);
    op->due_ns = q->order_ns;
    if (nic->reorders && op->syndrome == 0 && op->opcode == SWL_WQE_WRITE)
        shuffle(nic, q, &nic->turns[q->link], index);
    else
        nic->turns[q->link].run = index + 1;
}

/* The NIC stands still: nobody is looked at. Peers that hardware answers are told by an error. */
inline void go_down(struct proxy_nic *nic)
{
    const uint32_t nqps = __atomic_load_n(&nic->nqps, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; i < nqps; i++) {
        struct soft_qp *q = &nic->qps[i];

        nic->looked[i] = __atomic_load_n(q->doorbell, __ATOMIC_RELAXED);
        if (!nic->down && nic->caps.answers_alone &&
            __atomic_load_n(&q->state, __ATOMIC_ACQUIRE) == SWL_NIC_QP_READY)
            (void)nic->wire_ops->to_error(nic->wire, q->link);
    }
    nic->down = 1;
}

} // namespace
