/* row_writer.cuh: one token to the ranks of this node that want it. Layer: kernels.
 *
 * Every link writer (a warp) owns one ring of link slots at every rank of its node. A slot holds the
 * record {row, picks} and, if the destination's tensor is plain, the row itself, which a receiver
 * there copies out; if the tensor is peer-addressable (*direct*), the row goes straight to its place.
 * The tail of the ring is the arrival signal in both cases, published after row and record.
 *
 * A token takes these steps: row_copy_begin (loads start), row_write_open (a lane stands for one
 * destination and has credit there), row_write_publish of the token before (its stores have had time),
 * row_copy_end (afterwards the source may be freed), row_write_record. A warp never waits for credit or
 * for new work with a finished row unpublished. */
#pragma once

#include "kernels/copy.cuh"
#include "kernels/entry.cuh"
#include "kernels/select.cuh"

struct row_writer {
    const struct swl_device_group *g;
    const struct swl_watch *w;
    struct copier *copier;
    struct warp_scratch *list; /* sel[n], sorted by gpu */
    uint64_t gen_call;
    uint32_t q; /* number of this link writer */
    uint32_t row_bytes;
    uint32_t row_at; /* of the row in a link slot */
    struct wait_at at;
};

struct row_target { /* of one lane */
    char *row;      /* where the row goes, or NULL */
    char *slot;     /* link slot at the destination, or NULL: no destination */
    uint64_t position;
    uint32_t gpu, first, count; /* selections [first, first + count) of the list */
};

/* Heads of the runs of equal gpu in the list, as bits. All lanes. */
SWL_DEV uint64_t list_heads(const struct warp_scratch *s, uint32_t n)
{
    const uint32_t i = lane_id(), k = i + 32;
    uint64_t heads =
        warp_ballot(i < n && (i == 0 || s->sel[i].gpu != s->sel[i == 0 ? 0 : i - 1].gpu));

    if (n > 32)
        heads |= (uint64_t)warp_ballot(k < n && s->sel[k].gpu != s->sel[k - 1].gpu) << 32;
    return heads;
}

SWL_DEV bool link_has_credit(const struct row_writer *rw, const struct row_target *t)
{
    const struct swl_device_group *g = rw->g;
    const uint64_t *word =
        own_word(g, g->at.link_head, (uint64_t)t->gpu * g->shape.nwriters + rw->q);

    return t->position - word_position(read_from_peer(word), rw->w->gen, g->shape.start_low) <
           g->shape.link_slots;
}

SWL_DEV bool await_link_credit(const struct row_writer *rw, uint32_t gpu, uint64_t position)
{
    const struct swl_device_group *g = rw->g;
    const uint64_t *word = own_word(g, g->at.link_head, (uint64_t)gpu * g->shape.nwriters + rw->q);
    struct wait_at at = rw->at;

    at.kind = SWL_FAULT_LINK_CREDIT;
    at.peer = g->local_rank[gpu];
    for (;;) {
        const uint64_t head = word_position(read_from_peer(word), rw->w->gen, g->shape.start_low);

        if (position - head < g->shape.link_slots)
            break;
        if (!wait_again(rw->w, at, position, head, SWL_PAUSE("link credit", at.peer, rw->q)))
            return false;
    }
    return true;
}

/* All lanes: the row before is complete at its destinations; publish it. release.sys of the lane that
 * issued row and record, after its bulk stores are complete; pairs with the acquire of the tail in
 * ht_dispatch_receive. The row before may have been published by another lane, and whoever reads the
 * later tail never saw that one's release: a warp_sync lies between the two (of row_copy_begin, of
 * forward_slot, or of the caller). */
SWL_DEV void row_write_publish(const struct row_writer *rw, struct row_target *before)
{
    const struct swl_device_group *g = rw->g;
    const uint64_t mine = (uint64_t)g->shape.local * g->shape.nwriters + rw->q;

    if (before->slot) {
        bulk_wait<0>();
        publish_to_peer(peer_word(g, before->gpu, g->at.link_tail, mine),
                        gen_word(rw->w->gen, before->position + 1));
        before->slot = 0;
    }
}

/* Lane with a destination: where its row and its record go. */
SWL_DEV void row_write_place(const struct row_writer *rw, struct row_target *t)
{
    const struct swl_device_group *g = rw->g;
    const uint64_t ring =
        ((uint64_t)g->shape.local * g->shape.nwriters + rw->q) * g->shape.link_slots;
    const struct swl_entry *e = entry_of(g, t->gpu, rw->w->call);
    const uint32_t row = rw->list->sel[t->first].row;

    t->slot = g->peer_window[t->gpu] + g->at.link_ring +
              (ring + t->position % g->shape.link_slots) * swl_link_slot_bytes(&g->shape);
    if (!e->direct)
        t->row = t->slot + rw->row_at;
    else if (row < e->rows) /* never beyond the caller's tensor */
        t->row = g->memory[e->memory * g->shape.nlocal + t->gpu] + e->offset +
                 (uint64_t)row * rw->row_bytes;
}

/* All lanes. Destination number `number` of the list whose heads are `heads`, if there is one.
 * Publishes `before` at once if credit has to be waited for: a receiver may need it to free a slot. */
SWL_DEV bool row_write_open(const struct row_writer *rw, uint64_t heads, uint32_t n,
                            uint32_t number, struct row_target *t, struct row_target *before)
{
    const struct swl_device_group *g = rw->g;
    bool ok = true;

    t->row = t->slot = 0;
    for (uint32_t i = 0; i < number && heads; i++)
        heads &= heads - 1;
    if (heads) {
        const uint64_t rest = heads & (heads - 1);
        const uint32_t index = (uint32_t)first_bit(heads);

        t->first = index;
        t->count = (rest ? (uint32_t)first_bit(rest) : n) - index;
        t->gpu = rw->list->sel[index].gpu;
        t->position = g->link_sent[t->gpu * g->shape.nwriters + rw->q]++;
        ok = link_has_credit(rw, t);
    }
    if (!warp_all(ok)) {
        row_write_publish(rw, before);
        ok = ok || await_link_credit(rw, t->gpu, t->position);
        if (!warp_all(ok))
            return false;
    }
    if (heads) {
        order_before_bulk_load(); /* the freed slot is overwritten by a bulk store of this lane */
        row_write_place(rw, t);
    }
    return true;
}

/* All lanes, after the row's stores were issued: the record. */
SWL_DEV void row_write_record(const struct row_writer *rw, const struct row_target *t)
{
    if (t->slot) {
        const struct swl_selection *sel = rw->list->sel + t->first;
        const struct vec16 head = {
            {(uint32_t)rw->gen_call, (uint32_t)(rw->gen_call >> 32), sel[0].row, t->count}};
        struct swl_pick *pick = (struct swl_pick *)(t->slot + sizeof(struct swl_record));

        store_data((struct vec16 *)t->slot, head);
        for (uint32_t i = 0; i < t->count; i++) {
            pick[i].expert = sel[i].expert;
            pick[i].weight = sel[i].weight;
        }
    }
}

/* All lanes: the row whose load was begun goes to the first 32 destinations of the list, further ones
 * are served from the source again. On true `before` is the last batch, not yet published. */
SWL_DEV bool row_write(const struct row_writer *rw, const char *src, uint32_t n,
                       struct row_target *before)
{
    const uint64_t heads = list_heads(rw->list, n);
    const uint32_t targets = (uint32_t)count_bits(heads);

    for (uint32_t first = 0; first < targets; first += 32) {
        struct row_target t;

        if (first > 0)
            row_copy_begin(rw->copier, src, rw->row_bytes);
        if (!row_write_open(rw, heads, n, first + (uint32_t)lane_id(), &t, before)) {
            row_copy_drop(rw->copier, rw->row_bytes, rw->w, rw->at);
            return false;
        }
        row_write_publish(rw, before);
        if (!row_copy_end(rw->copier, src, rw->row_bytes, t.row, rw->w, rw->at))
            return false;
        row_write_record(rw, &t);
        *before = t;
    }
    if (targets == 0)
        row_copy_drop(rw->copier, rw->row_bytes, rw->w, rw->at);
    return true;
}
