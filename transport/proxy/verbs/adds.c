/* adds.c: adds that the host of the receiver executes; see verbs.h.
 *
 * Layer: transport/proxy/verbs. Serving thread, with the queue pair's lock. */
#include "transport/proxy/verbs/verbs.h"

/* Is the word one that this peer may add to? The region stays while the lock is held. */
static uint32_t check_word(const struct verbs_wire *w, const struct verbs_message *m)
{
    for (uint32_t i = 0; i < w->nregions; i++) {
        const struct verbs_region *r = &w->regions[i];

        if (r->mr->rkey == m->rkey && (r->access & SWL_NIC_REMOTE_ADD) && r->bytes >= 8 &&
            m->address >= r->address && m->address - r->address <= r->bytes - 8)
            return m->address % 8 == 0 ? SWL_SYNDROME_NONE : SWL_SYNDROME_REMOTE_REQUEST;
    }
    return SWL_SYNDROME_REMOTE_ACCESS;
}

static uint32_t apply(struct verbs_wire *w, const struct verbs_message *m)
{
    uint32_t syndrome;

    (void)pthread_mutex_lock(&w->lock);
    syndrome = check_word(w, m);
    /* the copier's add is a release: whoever acquires the sum sees the writes before it, which the
     * device had placed when it completed the receive, or a READ since (flush.c) */
    if (syndrome == SWL_SYNDROME_NONE &&
        !swl_dma_add_now(w->dma, (uint64_t *)(uintptr_t)m->address, m->value))
        syndrome = SWL_SYNDROME_REMOTE_OPERATION;
    (void)pthread_mutex_unlock(&w->lock);
    return syndrome;
}

/* Apply, make room for the next, count. Behind a refused message none is applied. */
static void take_message(struct verbs_wire *w, struct verbs_queue *q, const struct verbs_wc *wc)
{
    const uint32_t slot = (uint32_t)(wc->wr_id & ~VERBS_ID_RECEIVE);
    const struct verbs_message *m = &q->mailbox->messages[slot];
    uint32_t syndrome = SWL_SYNDROME_REMOTE_REQUEST;

    if (q->applied & 0xff)
        return;
    if (wc->byte_len == sizeof(*m) && m->magic == VERBS_MESSAGE_ADD)
        syndrome = apply(w, m);
    if (syndrome)
        q->applied |= syndrome;
    else
        q->applied += 1 << 8;
    if (swl_verbs_post_receive(q, slot) != 0)
        swl_verbs_fail(w, q, SWL_SYNDROME_LOCAL_OPERATION, "the device refuses a receive");
}

void swl_verbs_add_receive(struct verbs_wire *w, struct verbs_queue *q, const struct verbs_wc *wc)
{
    if (!swl_verbs_flushes(w)) {
        take_message(w, q, wc);
        return;
    }
    /* no more can wait than receives were posted */
    q->held[q->held_end++ % w->depth] = (struct verbs_held){*wc, w->flush.asked + 1};
    w->flush.wanted = true;
}

void swl_verbs_add_release(struct verbs_wire *w, struct verbs_queue *q)
{
    for (; q->held_first != q->held_end; q->held_first++) {
        const struct verbs_held *held = &q->held[q->held_first % w->depth];

        if (held->turn > w->flush.done)
            break;
        take_message(w, q, &held->wc);
    }
    if (q->held_first != q->held_end && w->flush.broken)
        swl_verbs_fail(w, q, SWL_SYNDROME_LOCAL_OPERATION, "the device cannot read its own memory");
}

/* One such write at a time. */
void swl_verbs_add_acknowledge(const struct verbs_wire *w, struct verbs_queue *q)
{
    struct verbs_sge sge = {(uintptr_t)&q->applied, sizeof(q->applied), 0};
    struct verbs_send_wr wr = {.wr_id = VERBS_ID_ACK,
                               .sg_list = &sge,
                               .num_sge = 1,
                               .opcode = VERBS_WR_WRITE,
                               .send_flags = VERBS_SEND_INLINE | VERBS_SEND_SIGNALLED};

    if (q->applied == q->applied_told || q->ack_posted || q->syndrome)
        return;
    wr.wr.rdma.remote_addr = q->peer_applied;
    wr.wr.rdma.rkey = q->peer_applied_key;
    if (swl_verbs_post_send(q, &wr) != 0) {
        swl_verbs_fail(w, q, SWL_SYNDROME_LOCAL_OPERATION, "the device refuses a count");
        return;
    }
    q->applied_told = q->applied;
    q->ack_posted = true;
}
