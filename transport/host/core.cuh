/* core.cuh: what a software NIC does with a doorbell and a work request: check, look up, place,
 * add, complete. No time, no order, no threads: those belong to the executor that includes it.
 *
 * Layer: transport/host. `Mem` is the executor's way to touch memory, passed by value, SOFT_FN how
 * its functions are declared if they run on a device:
 *   uint64_t doorbell(const uint64_t *)            acquire.sys; pairs with ring_doorbell in qp.cuh
 *   uint32_t word(const uint32_t *)                relaxed.sys load
 *   uint32_t key(const uint32_t *)                 sequentially consistent load
 *   void enter(uint32_t *), void leave(uint32_t *) sequentially consistent add of +1 and -1
 *   void copy(void *, const void *, uint64_t)      plain
 *   uint64_t add(uint64_t *, uint64_t)             after ordering everything placed before it
 *   void publish(uint32_t *, uint32_t)             release.sys; pairs with read_completion
 * Error codes are syndromes, as the hardware reports them. */
#pragma once

#include "transport/host/port.h"

#ifndef SOFT_FN
#    define SOFT_FN static inline
#endif

/* Between soft_enter and soft_leave no region of the NIC goes away: dereg_mr clears the key, then
 * waits until nobody is inside. */
template <class Mem> SOFT_FN void soft_enter(Mem mem, struct soft_port *port)
{
    mem.enter(&port->users);
}

template <class Mem> SOFT_FN void soft_leave(Mem mem, struct soft_port *port)
{
    mem.leave(&port->users);
}

SOFT_FN uint32_t soft_slot(uint32_t key)
{
    return (key >> 8) & (SOFT_REGIONS - 1);
}

/* Memory of [address, address + bytes) of a region of the right key, if it allows that, else NULL.
 * Without branches, so that all of the region is loaded at once. */
SOFT_FN uint8_t *soft_within(const struct soft_region *r, uint32_t pd, uint64_t address,
                             uint64_t bytes, uint32_t access)
{
    const uint64_t first = address - r->address;
    const bool allowed = (r->pd == pd) & ((r->access & access) == access);
    const bool within = (address >= r->address) & (bytes <= r->bytes) & (first <= r->bytes - bytes);

    return (allowed & within) ? r->memory + first : nullptr;
}

/* Memory of [address, address + bytes) if the key allows it, else NULL. Inside enter/leave. */
template <class Mem>
SOFT_FN uint8_t *soft_reach(Mem mem, const struct soft_port *port, uint32_t key, uint64_t address,
                            uint64_t bytes, uint32_t access)
{
    const struct soft_region *r = &port->regions[soft_slot(key)];

    if (key == 0 || mem.key(&r->key) != key)
        return nullptr;
    return soft_within(r, port->pd, address, bytes, access);
}

SOFT_FN const uint32_t *soft_record(const struct soft_qp *qp)
{
    return qp->dbr + SWL_DBR_SEND;
}

/* Does the record agree with a doorbell up to `end`? It is equal, or already at a later doorbell's
 * value. */
SOFT_FN bool soft_recorded(const struct soft_qp *qp, uint32_t word, uint64_t end)
{
    const uint32_t record = swl_be32(word);

    return (record <= 0xffffu) & (((record - (uint32_t)end) & 0xffffu) <= 1ull << qp->depth_log2);
}

/* New producer index after a doorbell; false = it makes no sense (nothing is taken). `record`: as
 * read behind the acquired doorbell; it is stored before it. */
SOFT_FN bool soft_accept(const struct soft_qp *qp, uint64_t doorbell, uint32_t record,
                         uint64_t *end_p)
{
    const uint64_t end = swl_index_after(qp->end, swl_doorbell_index(doorbell));
    const uint32_t qpn = swl_doorbell_qpn(doorbell);
    const bool recorded = soft_recorded(qp, record, end);

    *end_p = end;
    return (qpn == qp->qpn) & (end - qp->completed <= 1ull << qp->depth_log2) & recorded;
}

/* Shape of an entry: what its kind demands. */
SOFT_FN uint32_t soft_decode(const struct swl_wqe *w, struct soft_op *op)
{
    uint32_t segments = swl_wqe_segments(w);
    uint32_t count = swl_be32(w->word[8]);

    op->remote = swl_wqe_long(w, 4);
    op->rkey = swl_be32(w->word[6]);
    op->bytes = 0;
    op->is_inline = 0;
    switch (op->opcode) {
    case SWL_WQE_NOP:
        return segments == 1 ? 0 : SWL_SYNDROME_LOCAL_OPERATION;
    case SWL_WQE_FETCH_ADD:
        op->value = swl_wqe_long(w, 8);
        op->bytes = swl_be32(w->word[12]);
        op->lkey = swl_be32(w->word[13]);
        op->local = swl_wqe_long(w, 14);
        if (segments != 4 || w->word[7] != 0)
            return SWL_SYNDROME_LOCAL_OPERATION;
        return op->bytes == 8 ? 0 : SWL_SYNDROME_LOCAL_LENGTH;
    case SWL_WQE_WRITE:
    case SWL_WQE_READ:
        break;
    default:
        return SWL_SYNDROME_LOCAL_OPERATION;
    }
    if (w->word[7] != 0)
        return SWL_SYNDROME_LOCAL_OPERATION;
    if (op->opcode == SWL_WQE_WRITE && (count & SWL_WQE_INLINE)) {
        op->is_inline = 1;
        op->bytes = count & ~SWL_WQE_INLINE;
        for (uint32_t i = 0; i < SWL_WQE_INLINE_MAX / 4; i++)
            op->data[i] = w->word[9 + i];
        if (op->bytes == 0 || op->bytes > SWL_WQE_INLINE_MAX)
            return SWL_SYNDROME_LOCAL_LENGTH;
        return segments == 2 + (op->bytes + 19) / 16 ? 0 : SWL_SYNDROME_LOCAL_OPERATION;
    }
    op->bytes = count;
    op->lkey = swl_be32(w->word[9]);
    op->local = swl_wqe_long(w, 10);
    if (segments != 3)
        return SWL_SYNDROME_LOCAL_OPERATION;
    return op->bytes > 0 && op->bytes <= SWL_WQE_BYTES_MAX ? 0 : SWL_SYNDROME_LOCAL_LENGTH;
}

SOFT_FN uint32_t soft_local_access(uint32_t opcode)
{
    return opcode == SWL_WQE_WRITE ? 0 : SWL_NIC_LOCAL_WRITE;
}

SOFT_FN uint32_t soft_remote_access(uint32_t opcode)
{
    return opcode == SWL_WQE_WRITE  ? SWL_NIC_REMOTE_WRITE
           : opcode == SWL_WQE_READ ? SWL_NIC_REMOTE_READ
                                    : SWL_NIC_REMOTE_ADD;
}

/* Local end of an operation; NULL = not allowed. Inside enter/leave of this NIC. */
template <class Mem>
SOFT_FN uint8_t *soft_reach_local(Mem mem, const struct soft_port *port, const struct soft_op *op)
{
    return soft_reach(mem, port, op->lkey, op->local, op->bytes, soft_local_access(op->opcode));
}

SOFT_FN bool soft_misaligned(const struct soft_op *op)
{
    return op->opcode == SWL_WQE_FETCH_ADD && op->remote % 8 != 0;
}

/* Remote end. Inside enter/leave of the peer. */
template <class Mem>
SOFT_FN uint8_t *soft_reach_remote(Mem mem, const struct soft_port *peer, const struct soft_op *op,
                                   uint32_t *syndrome_p)
{
    uint8_t *memory;

    *syndrome_p = 0;
    if (soft_misaligned(op)) {
        *syndrome_p = SWL_SYNDROME_REMOTE_REQUEST;
        return nullptr;
    }
    memory = soft_reach(mem, peer, op->rkey, op->remote, op->bytes, soft_remote_access(op->opcode));
    if (memory == nullptr)
        *syndrome_p = SWL_SYNDROME_REMOTE_ACCESS;
    return memory;
}

/* Read entry `index` of the queue and check its shape. Returns a syndrome. */
template <class Mem>
SOFT_FN uint32_t soft_read(Mem mem, const struct soft_qp *qp, uint64_t index, struct soft_op *op)
{
    uint64_t slot = index & ((1ull << qp->depth_log2) - 1);
    struct swl_wqe w = {};
    uint32_t flags, at, qpn, modifier, syndrome;
    bool bad;

    mem.copy(&w, qp->sq + slot * SWL_WQE_BYTES, sizeof(w));
    flags = swl_wqe_flags(&w);
    op->control = w.word[0];
    op->opcode = swl_wqe_opcode(&w);
    op->signalled = (flags & 0x0cu) == SWL_WQE_SIGNALLED;
    op->pieces = 0;
    at = swl_wqe_index(&w);
    qpn = swl_wqe_qpn(&w);
    modifier = swl_wqe_modifier(&w);
    bad = (at != (index & 0xffffu)) | (qpn != qp->qpn) | (modifier != 0) | ((flags & ~0xeeu) != 0);
    syndrome = soft_decode(&w, op);
    return bad ? (uint32_t)SWL_SYNDROME_LOCAL_OPERATION : syndrome;
}

/* Read entry `index` of the queue and check all that this NIC can know. Returns a syndrome. */
template <class Mem>
SOFT_FN uint32_t soft_fetch(Mem mem, struct soft_port *port, struct soft_qp *qp, uint64_t index,
                            struct soft_op *op)
{
    uint32_t syndrome = soft_read(mem, qp, index, op);

    if (syndrome != 0 || op->opcode == SWL_WQE_NOP || op->is_inline)
        return syndrome;
    soft_enter(mem, port);
    if (soft_reach_local(mem, port, op) == nullptr)
        syndrome = SWL_SYNDROME_LOCAL_PROTECTION;
    soft_leave(mem, port);
    return syndrome;
}

/* Ask the peer whether it would take the operation. Returns a syndrome. */
template <class Mem>
SOFT_FN uint32_t host_probe(Mem mem, struct soft_port *peer, const struct soft_op *op)
{
    uint32_t syndrome;

    if (op->opcode == SWL_WQE_NOP)
        return 0;
    soft_enter(mem, peer);
    (void)soft_reach_remote(mem, peer, op, &syndrome);
    soft_leave(mem, peer);
    return syndrome;
}

/* Place bytes [from, from + bytes) of a WRITE, or all of a READ. Returns a syndrome. */
template <class Mem>
SOFT_FN uint32_t soft_place(Mem mem, struct soft_port *port, struct soft_port *peer,
                            const struct soft_op *op, uint64_t from, uint64_t bytes)
{
    uint32_t syndrome;
    uint8_t *remote, *local;

    soft_enter(mem, port);
    soft_enter(mem, peer);
    remote = soft_reach_remote(mem, peer, op, &syndrome);
    local = op->is_inline ? (uint8_t *)op->data : soft_reach_local(mem, port, op);
    if (syndrome == 0 && local == nullptr)
        syndrome = SWL_SYNDROME_LOCAL_PROTECTION;
    if (syndrome == 0 && op->opcode == SWL_WQE_WRITE)
        mem.copy(remote + from, local + from, bytes);
    else if (syndrome == 0)
        mem.copy(local + from, remote + from, bytes);
    soft_leave(mem, peer);
    soft_leave(mem, port);
    return syndrome;
}

/* Execute an add; everything earlier of its queue has been placed. Returns a syndrome. */
template <class Mem>
SOFT_FN uint32_t soft_add(Mem mem, struct soft_port *port, struct soft_port *peer,
                          const struct soft_op *op)
{
    uint32_t syndrome;
    uint8_t *remote, *sink;

    soft_enter(mem, port);
    soft_enter(mem, peer);
    remote = soft_reach_remote(mem, peer, op, &syndrome);
    sink = soft_reach_local(mem, port, op);
    if (syndrome == 0 && sink == nullptr)
        syndrome = SWL_SYNDROME_LOCAL_PROTECTION;
    if (syndrome == 0) {
        uint64_t old = mem.add((uint64_t *)remote, op->value);

        mem.copy(sink, &old, sizeof(old));
    }
    soft_leave(mem, peer);
    soft_leave(mem, port);
    return syndrome;
}

/* False: somebody wrote into the entry's slot before its completion. */
template <class Mem>
SOFT_FN bool soft_untouched(Mem mem, const struct soft_qp *qp, uint64_t index,
                            const struct soft_op *op)
{
    uint64_t slot = index & ((1ull << qp->depth_log2) - 1);

    return mem.word((const uint32_t *)(qp->sq + slot * SWL_WQE_BYTES)) == op->control;
}

/* Write the completion of entry `index`. */
template <class Mem>
SOFT_FN void soft_complete(Mem mem, const struct soft_qp *qp, uint64_t index, uint32_t opcode,
                           uint32_t syndrome)
{
    struct swl_cqe c;

    swl_cqe_make(&c, index, opcode, qp->qpn, syndrome);
    mem.publish(qp->cq + SWL_CQE_SYNDROME_WORD, c.word[SWL_CQE_SYNDROME_WORD]);
    mem.publish(qp->cq + SWL_CQE_QPN_WORD, c.word[SWL_CQE_QPN_WORD]);
    mem.publish(qp->cq + SWL_CQE_LAST_WORD, c.word[SWL_CQE_LAST_WORD]);
}
