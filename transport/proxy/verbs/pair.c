/* pair.c: what the parts of the verbs wire ask of a queue pair: a post, a receive, its first error;
 * see verbs.h. Layer: transport/proxy/verbs. With the queue pair's lock. */
#include "transport/proxy/verbs/verbs.h"

#include "src/base/log.h"

void swl_verbs_fail(const struct verbs_wire *w, struct verbs_queue *q, uint32_t syndrome,
                    const char *what)
{
    if (q->syndrome)
        return;
    q->syndrome = syndrome;
    swl_log(SWL_LEVEL_DEBUG, "rank %u nic: %s queue pair 0x%06x: %s", w->rank, w->port.name,
            q->qp->qp_num, what);
}

int swl_verbs_post_send(const struct verbs_queue *q, struct verbs_send_wr *first)
{
    struct verbs_send_wr *bad;

    return q->qp->context->post_send(q->qp, first, &bad);
}

int swl_verbs_post_receive(const struct verbs_queue *q, uint32_t slot)
{
    struct verbs_sge sge = {(uintptr_t)&q->mailbox->messages[slot], sizeof(struct verbs_message),
                            q->mailbox_mr->lkey};
    struct verbs_recv_wr wr = {.wr_id = VERBS_ID_RECEIVE | slot, .sg_list = &sge, .num_sge = 1};
    struct verbs_recv_wr *bad;

    return q->qp->context->post_recv(q->qp, &wr, &bad);
}
