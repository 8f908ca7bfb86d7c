/* ht_dispatch_send.cuh: odd SM, tokens for other nodes. Layer: kernels.
 *
 * ht_dispatch_send (sender warps): copy the tokens of one channel into its send rings.
 * Reads:    handle lists, user tokens and weights      Writes: slots of its own send rings
 * Waits:    credit of any gateway (send_credit)
 * Signals:  window bit of the slot -> ht_dispatch_send_coord
 * Order:    acquire.sys of send_credit by a lane of the block, limit word, warp_sync, proxy fence of the
 *           lane that stores; slot stores complete (bulk_wait), warp_sync, release.cta of the window bit
 * Progress: a warp takes a slot only when it is free, of any ring of the channel, and holds nothing
 *           while it looks; so what is taken is finished, and posted (chunk <= ring / 2)
 * Ends:     every listed token is in its ring
 *
 * ht_dispatch_send_coord (one lane): posts finished slots, a chunk at a time, fewer when the
 * call begins.
 * Waits:    window bits          Signals: recv_tail at the gateway, after the slots, on one queue
 * Ends:     every listed token is posted */
#pragma once

#include "kernels/ht/ht_dispatch.cuh"

/* All lanes: token `token` into slot `position` of ring x. */
SWL_DEV bool send_token(const struct dispatch_block *b, struct copier *copier,
                        struct warp_scratch *list, uint32_t x, uint64_t position, uint32_t token)
{
    const struct swl_device_group *g = b->g;
    const uint32_t node = g->out[x / g->shape.nrings].node;
    const uint32_t n = select_in_node(&b->h, token, node, SWL_ID_VALID, b->a->weights, list);
    const uint64_t ring = (uint64_t)x * g->shape.ring_slots + position % g->shape.ring_slots;
    char *slot = g->window + g->at.ht.send_ring + ring * swl_slot_bytes(&g->shape);

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
    if (lane_id() == 0) /* pairs with read_in_block in send_post */
        window_finish_in_block(&b->rings.out_window[x / g->shape.nchannels], position);
    return true;
}

SWL_DEV struct ring_room send_room_of(const struct dispatch_block *b)
{
    struct ring_room room =
        ring_room_of(b->g, &b->h, b->waiter, b->rings.out_room, b->a->block.nrings);

    room.credit = b->g->at.ht.send_credit;
    return room;
}

SWL_ROLE void ht_dispatch_send(const struct dispatch_block *b, uint32_t index,
                               struct copier *copier, struct warp_scratch *list)
{
    const struct ring_room room = send_room_of(b);
    uint32_t turn = index, x, token;
    uint64_t position;

    while (room_take(room, &turn, &x, &position, &token))
        if (!send_token(b, copier, list, x, position, token))
            return;
}

/* Post slots [sent, sent + n) of ring x, which do not wrap, then their count. */
SWL_DEV bool send_chunk(const struct dispatch_block *b, uint32_t x, uint64_t sent, uint32_t n)
{
    const struct swl_device_group *g = b->g;
    const struct connection conn = out_connection(g, x);
    const uint32_t stride = swl_slot_bytes(&g->shape);
    const uint32_t used = b->slot_row_at + b->a->row_bytes;
    const uint64_t slot = sent % g->shape.ring_slots;
    const uint64_t from = g->at.ht.send_ring + ((uint64_t)x * g->shape.ring_slots + slot) * stride;
    const uint64_t to =
        g->at.ht.recv_ring + ((uint64_t)conn.ring * g->shape.ring_slots + slot) * stride;
    bool ok = true;

    if (used >= stride - stride / 8) { /* one write for the chunk: little between the slots */
        ok = connection_write(conn, {from, to, (n - 1) * stride + used}, b->waiter);
    } else {
        for (uint32_t i = 0; ok && i < n; i++)
            ok = connection_write(
                conn, {from + (uint64_t)i * stride, to + (uint64_t)i * stride, used}, b->waiter);
    }
    return ok && connection_tell(conn, g->at.ht.recv_tail, n, b->waiter);
}

/* Post what ring x has ready. Returns slots posted, or -1. */
SWL_DEV int send_post(const struct dispatch_block *b, uint32_t x, uint64_t sent, uint64_t end)
{
    const struct swl_device_group *g = b->g;
    uint64_t *window = &b->rings.out_window[x / g->shape.nchannels];
    const uint32_t ready = window_run(read_in_block(window), sent); /* pairs with send_token */
    const uint32_t n = slots_to_post(&g->shape, ready, g->ht.now.sent[x], sent, end);

    if (n == 0)
        return 0;
    and_in_block(window, ~window_bits(sent, n));
    return send_chunk(b, x, sent, n) ? (int)n : -1;
}

/* Lane 0 of its warp. */
SWL_ROLE void ht_dispatch_send_coord(const struct dispatch_block *b)
{
    const struct swl_device_group *g = b->g;
    const uint32_t c = g->shape.nchannels;
    const uint32_t nrings = channel_rings(out_rings(g), b->channel, c);
    const struct waiter w = wait_for(b->waiter, SWL_FAULT_ARRIVAL, g->shape.rank);
    uint32_t open = nrings;

    while (open) {
        bool moved = false;

        open = 0;
        for (uint32_t i = 0; i < nrings; i++) {
            const uint32_t x = b->channel + (i + g->shape.rank) % nrings * c;
            const uint64_t end = g->ht.now.sent[x] + list_length(&b->h, x);
            const int n = send_post(b, x, g->ht.next.sent[x], end);

            if (n < 0)
                return;
            g->ht.next.sent[x] += (uint32_t)n;
            moved = moved || n > 0;
            open += g->ht.next.sent[x] != end;
        }
        if (open && !moved &&
            (!out_poll_channel(g, b->channel, w) ||
             !wait_again(w, open, 0, SWL_PAUSE("finished slots of own senders", b->channel, open))))
            return;
    }
}
