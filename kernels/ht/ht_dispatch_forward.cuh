/* ht_dispatch_forward.cuh: even SM, slots that arrive from other nodes. Layer: kernels.
 *
 * ht_dispatch_forward (forwarder warps): share out the arrived slots of one channel, spread each
 * over the ranks of this node.
 * Reads:    receive rings                  Writes: local rings and tensors of local ranks
 * Waits:    arrival (recv_tail), open record, local credit of the receivers
 * Signals:  bit of the completion mask of the slot when it has been loaded ->
 *           ht_dispatch_forward_coord; local tails
 * Order:    acquire.sys of recv_tail, warp_sync, proxy fence in the loading lane; the loads
 *           complete before the bit of the completion mask
 * Progress: receivers free local slots without waiting for anybody; any warp may take any slot
 * Ends:     every slot that the handle promises has been taken and written
 *
 * ht_dispatch_forward_coord (one lane): returns credit in chunks, the rest at the end.
 * Waits:    mask bits            Signals: send_credit at the source
 * Ends:     credit of every promised slot is returned */
#pragma once

#include "kernels/ht/ht_dispatch.cuh"

struct slot_claim {
    uint32_t ring; /* y */
    uint64_t position;
};

/* Arrived slots, as claim_take sees them. */
struct arrivals {
    const struct dispatch_block *b;
    struct row_writer *rw;
};

SWL_DEV uint32_t arrivals_ring(const struct arrivals &from, uint32_t r)
{
    return channel_ring(from.b->g, from.b->channel, r);
}

SWL_DEV uint64_t *claim_word(const struct arrivals &from, uint32_t r)
{
    return &from.b->rings.taken[r];
}

SWL_DEV uint64_t claim_end(const struct arrivals &from, uint32_t r)
{
    const uint32_t y = arrivals_ring(from, r);

    return from.b->g->ht.now.recv[y] + from.b->h.recv_n[y];
}

SWL_DEV uint64_t claim_limit(const struct arrivals &from, uint32_t r)
{
    const struct swl_device_group *g = from.b->g;

    /* acquire: pairs with the source's adds */
    return read_from_nic(own_word(g, g->at.ht.recv_tail, arrivals_ring(from, r)));
}

SWL_DEV bool claim_idle(const struct arrivals &from)
{
    return row_write_flush(from.rw);
}

SWL_DEV bool claim_await(const struct arrivals &from, uint32_t r)
{
    const struct dispatch_block *b = from.b;
    const uint32_t rank = ring_end(b->g, RINGS_IN, arrivals_ring(from, r))->rank;

    return wait_again(wait_for(b->waiter, SWL_FAULT_ARRIVAL, rank), claim_end(from, r),
                      claim_limit(from, r), SWL_PAUSE("slots from rank", rank, b->channel));
}

/* All lanes: the selections of a slot of rank w.peer, one a lane and turn, are of rows, ranks and
 * experts of this node, and in order. */
SWL_DEV bool forward_check(const struct dispatch_block *b, const struct swl_selection *sel, int n,
                           struct waiter w)
{
    const struct swl_shape *s = &b->g->shape;
    bool ok = true;

    for (int i = lane_id(); i < n && ok; i += 32) {
        const uint32_t gpu = sel[i].gpu, expert = sel[i].expert, row = sel[i].row;
        const uint32_t key = gpu * s->nlocal_experts + expert;
        const bool in_node =
            gpu < s->nlocal && expert < s->nlocal_experts &&
            (i == 0 || key > sel[i - 1].gpu * s->nlocal_experts + sel[i - 1].expert);

        ok = in_node && row < s->max_rows;
        if (!ok)
            wait_bounds(w, in_node ? s->max_rows - 1 : s->nlocal * s->nlocal_experts - 1,
                        in_node ? row : key);
    }
    return warp_all(ok);
}

/* All lanes: the slot's selections into the scratch list; number, or -1: a foreign slot. */
SWL_DEV int forward_read(const struct dispatch_block *b, const char *slot, uint32_t y,
                         struct warp_scratch *list)
{
    const struct swl_slot_head *head = (const struct swl_slot_head *)slot;
    const struct waiter w =
        wait_for(b->waiter, SWL_FAULT_WRONG_CALL, ring_end(b->g, RINGS_IN, y)->rank);
    const int n = tagged_count(&b->a->entry, b->common->gen_call, head->gen_call, head->n, w);

    for (int i = lane_id(); i < n; i += 32)
        *(struct vec16 *)&list->sel[i] = load_data((const struct vec16 *)slot + 1 + i);
    warp_sync();
    return forward_check(b, list->sel, n, w) ? n : -1;
}

SWL_DEV bool forward_slot(const struct dispatch_block *b, struct row_writer *rw,
                          const struct slot_claim *claim)
{
    const struct swl_device_group *g = b->g;
    const char *slot =
        g->window + g->at.ht.recv_ring +
        slot_number(&g->shape, claim->ring, claim->position) * swl_slot_bytes(&g->shape);
    struct copy_row row, none = {0, 0};
    struct row_list list;
    int n;

    if (lane_id() == 0)
        order_before_bulk_load(); /* after the acquire of recv_tail: the NIC wrote the slot */
    row_copy_begin(rw->copier, &row, slot + b->slot_row_at, rw->row_bytes);
    n = forward_read(b, slot, claim->ring, rw->list);
    if (n < 0)
        return false;
    list = row_list_of(rw, {(uint32_t)n, 1, 0});
    if (n == 0)
        copier_drain(rw->copier, rw->waiter);
    else if (!row_write(rw, &list, 0, &row, &none))
        return false;
    warp_sync();        /* header and row have been loaded by all lanes: the slot is free */
    if (lane_id() == 0) /* pairs with read_in_block in duty_turn */
        mask_finish_in_block(&b->rings.read[claim->ring / g->shape.nchannels], claim->position);
    return true;
}

SWL_ROLE void ht_dispatch_forward(const struct dispatch_block *b, struct row_writer *rw,
                                  uint32_t index)
{
    const uint32_t nrings =
        channel_rings(side_rings(b->g, RINGS_IN), b->channel, b->g->shape.nchannels);
    const struct arrivals from = {b, rw};
    struct slot_claim claim;
    uint32_t turn = index, r;

    row_write_prepare(rw);
    if (!local_targets_await(b))
        return;
    row_write_begin(rw);
    while (nrings && claim_take(from, nrings, turn++, &r, &claim.position) > 0) {
        claim.ring = arrivals_ring(from, r);
        if (!forward_slot(b, rw, &claim))
            return;
    }
    row_write_end(rw);
}

/* Lane 0 of its warp. */
SWL_ROLE void ht_dispatch_forward_coord(const struct dispatch_block *b)
{
    const struct swl_device_group *g = b->g;
    const struct waiter w = wait_for(b->waiter, SWL_FAULT_ARRIVAL, g->shape.rank);
    struct coordinator c = {g, &b->h, RINGS_IN, w, "slots read by own forwarders", {}, {}};

    c.first =
        duty_of(DUTY_CREDIT, b->rings.read, g->ht.now.recv, g->ht.next.recv, g->at.ht.send_credit);
    c.first.credited = g->ht.next.recv_credited;
    coordinate(c);
}
