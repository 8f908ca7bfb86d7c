/* ht_dispatch_send.cuh: odd SM, tokens for other nodes. Layer: kernels.
 *
 * ht_dispatch_send (sender warps): copy the tokens of one channel into its send rings.
 * Reads:    handle lists, user tokens and weights      Writes: slots of its own send rings
 * Waits:    credit of any gateway (send_credit)
 * Signals:  bit of the completion mask of the slot -> ht_dispatch_send_coord
 * Order:    acquire.sys of send_credit by a lane of the block, limit word, warp_sync, proxy fence
 *           of the lane that stores; slot stores complete (bulk_wait), warp_sync, release.cta of
 *           the bit of the completion mask
 * Progress: a warp takes a slot only when it is free, of any ring of the channel, and holds nothing
 *           while it looks; so what is taken is finished, and posted (chunk <= ring / 2)
 * Ends:     every listed token is in its ring
 *
 * ht_dispatch_send_coord (one lane): posts finished slots, a chunk at a time, fewer when the
 * call begins.
 * Waits:    mask bits            Signals: recv_tail at the gateway, after the slots, on one queue
 * Ends:     every listed token is posted */
#pragma once

#include "kernels/ht/ht_dispatch.cuh"

/* All lanes: token `token` into slot `position` of ring x. */
SWL_DEV bool send_token(const struct dispatch_block *b, struct copier *copier,
                        struct warp_scratch *list, uint32_t x, uint64_t position, uint32_t token)
{
    const struct swl_device_group *g = b->g;
    const uint32_t node = ring_end(g, RINGS_OUT, x)->node;
    const uint32_t n = select_in_node(&b->h, token, node, SWL_ID_VALID, b->a->weights, list);
    char *slot = g->window + g->at.ht.send_ring +
                 slot_number(&g->shape, x, position) * swl_slot_bytes(&g->shape);

    if (lane_id() == 0)
        order_before_bulk_load(); /* the freed slot is overwritten by a bulk store of this lane */
    for (uint32_t i = lane_id(); i <= n; i += 32) {
        const uint64_t gen_call = b->common->gen_call;
        struct vec16 v = {{(uint32_t)gen_call, (uint32_t)(gen_call >> 32), token,
                           n | swl_call_tag(&b->a->entry)}};

        if (i > 0)
            v = *(const struct vec16 *)&list->sel[i - 1];
        store_data((struct vec16 *)slot + i, v);
    }
    if (!row_copy(copier, b->a->tokens + (uint64_t)token * b->a->row_bytes, b->a->row_bytes,
                  lane_id() == 0 ? slot + b->slot_row_at : 0, b->waiter))
        return false;
    bulk_wait<0>(); /* complete, not only read: the NIC reads the slot next */
    warp_sync();
    if (lane_id() == 0) /* pairs with read_in_block in duty_turn */
        mask_finish_in_block(&b->rings.filled[x / g->shape.nchannels], position);
    return true;
}

SWL_ROLE void ht_dispatch_send(const struct dispatch_block *b, uint32_t index,
                               struct copier *copier, struct warp_scratch *list)
{
    const struct ring_room room = {b->g, b->h.list, b->rings, b->g->at.ht.send_credit, b->waiter};
    uint32_t turn = index, x, token;
    uint64_t position;

    while (room_take(room, &turn, &x, &position, &token))
        if (!send_token(b, copier, list, x, position, token))
            return;
}

/* Lane 0 of its warp. */
SWL_ROLE void ht_dispatch_send_coord(const struct dispatch_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct waiter w = wait_for(b->waiter, SWL_FAULT_ARRIVAL, g->shape.rank);
    struct coordinator c = {g, &b->h, RINGS_OUT, w, "finished slots of own senders", {}, {}};

    c.first =
        duty_of(DUTY_POST, b->rings.filled, g->ht.now.sent, g->ht.next.sent, g->at.ht.recv_tail);
    c.first.slots = {g->at.ht.send_ring, g->at.ht.recv_ring, swl_slot_bytes(&g->shape),
                     b->slot_row_at + b->a->row_bytes};
    coordinate(c);
}
