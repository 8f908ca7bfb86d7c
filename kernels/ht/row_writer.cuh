/* row_writer.cuh: rows to the ranks of this node that want them. Layer: kernels.
 *
 * Every local writer (a warp) owns one local ring at every rank of its node. If rows are stored
 * straight into the destination's tensor (peer-addressable, or the writer's own), the ring has many
 * small slots with a record {row, selections} each; else few large ones with the record and the row
 * itself, which a receiver there copies out. Positions count slots of the kind that the destination
 * has in this call; a ring is empty between calls, so that both kinds may share its memory. The
 * tail of the ring is the arrival signal in both cases.
 *
 * All that leaves for a destination is stored in bulk, the record before the row, in the group of
 * the row's first piece. Records lie ready beside the list of a batch, in memory of the warp. A
 * release at system scope waits for the warp's own plain stores on their way to peers, which takes
 * microseconds on a busy link; so there are none but the tails.
 *
 * Tails are published late and for several rows at once: every `publish_every` rows a mark is set,
 * and published when SWL_PUBLISH_DELAY more pieces have been stored, so that the marked rows'
 * stores have had time to complete. A warp never waits for credit or for new work with a finished
 * row unpublished (row_write_flush). */
#pragma once

#include "kernels/common/copy.cuh"
#include "kernels/common/open_record.cuh"
#include "kernels/common/select.cuh"

#define SWL_PUBLISH_DELAY     4u  /* pieces */
#define SWL_PUBLISH_EVERY_MAX 16u /* rows */

struct local_ring {     /* of one destination; in shared memory, this warp's alone */
    uint64_t sent;      /* next position */
    uint64_t marked;    /* positions before it were stored before the mark */
    uint64_t published; /* as the destination knows it */
    uint64_t freed;     /* credit as last seen */
    char *ring;         /* this warp's ring there */
};
static_assert(sizeof(struct local_ring) == SWL_LOCAL_RING_BYTES, "picture of block.h");

struct local_target {        /* a destination, to all writers of the block */
    char *rows;              /* row 0 of its tensor; NULL: rows travel in slots */
    uint32_t nrows;          /* of the tensor */
    uint32_t nslots, stride; /* of a ring there: a power of two; bytes */
};
static_assert(sizeof(struct local_target) <= SWL_TARGET_BYTES, "picture of block.h");

struct row_writer {
    const struct swl_device_group *g;
    struct copier *copier;
    struct warp_scratch *list;         /* sel[n], sorted by gpu */
    struct local_ring *local;          /* [nlocal] */
    const struct local_target *target; /* [nlocal] */
    char *own_rows;                    /* this rank's own tensor */
    uint64_t gen_call;
    uint32_t q; /* number of this local writer */
    uint32_t row_bytes;
    uint32_t row_at;        /* of the row in a slot that carries it */
    uint32_t publish_every; /* rows from mark to mark */
    uint32_t unmarked;      /* rows written since the last one */
    uint32_t marked;        /* 1: a mark waits to be published */
    uint32_t mark_piece;    /* pieces stored when it was set */
    struct waiter waiter;
};

SWL_DEV struct local_ring *local_rings_of(const struct swl_block *b, uint32_t nlocal_rings)
{
    char *all = (char *)block_shared() + b->local_rings;

    return (struct local_ring *)(all + (uint32_t)warp_id() * nlocal_rings * SWL_LOCAL_RING_BYTES);
}

SWL_DEV struct local_target *local_targets_of(const struct swl_block *b)
{
    return (struct local_target *)((char *)block_shared() + b->targets);
}

SWL_DEV uint64_t local_head(const struct row_writer *rw, uint32_t gpu)
{
    const struct swl_device_group *g = rw->g;
    const uint64_t *word =
        own_word(g, g->at.ht.local_head, (uint64_t)gpu * g->shape.nwriters + rw->q);

    return word_position(read_from_peer(word), rw->waiter.watch->gen, g->shape.start_low);
}

/* All lanes of one warp, after await_open_records: where the rows of this call go. */
SWL_DEV void local_targets_fill(const struct swl_device_group *g, const struct swl_watch *w,
                                char *own_rows, struct local_target *target)
{
    for (uint32_t gpu = lane_id(); gpu < g->shape.nlocal; gpu += 32) {
        const struct swl_open_record *e = open_record_of(g, gpu, w->call);
        struct local_target t = {0, e->rows, g->shape.local_slots, swl_local_slot_bytes(&g->shape)};

        if (gpu == g->shape.local)
            t.rows = own_rows;
        else if (e->direct)
            t.rows = g->memory[e->memory * g->shape.nlocal + gpu] + e->offset;
        if (t.rows) {
            t.nslots = swl_record_slots(&g->shape);
            t.stride = swl_record_bytes(&g->shape);
        }
        target[gpu] = t;
    }
    warp_sync();
}

/* All lanes, before the targets are open: what says nothing about the peers' tensors. */
SWL_DEV void row_write_prepare(struct row_writer *rw)
{
    const struct swl_device_group *g = rw->g;
    const uint64_t mine = (uint64_t)g->shape.local * g->shape.nwriters + rw->q;
    const uint64_t ring_bytes = (uint64_t)g->shape.local_slots * swl_local_slot_bytes(&g->shape);

    for (uint32_t gpu = lane_id(); gpu < g->shape.nlocal; gpu += 32) {
        struct local_ring *l = &rw->local[gpu];

        l->sent = l->marked = l->published = g->ht.local_sent[gpu * g->shape.nwriters + rw->q];
        l->freed = l->sent; /* a ring is empty between calls: its rank's open record says so */
        l->ring = g->peer_window[gpu] + g->at.ht.local_ring + mine * ring_bytes;
    }
}

/* All lanes, when the targets are open. */
SWL_DEV void row_write_begin(struct row_writer *rw)
{
    const struct swl_device_group *g = rw->g;
    bool slots_carry_rows = false;

    for (uint32_t gpu = lane_id(); gpu < g->shape.nlocal; gpu += 32)
        slots_carry_rows = slots_carry_rows || !rw->target[gpu].rows;
    order_before_bulk_load(); /* the slots of earlier calls are overwritten by bulk stores */
    rw->publish_every =
        warp_any(slots_carry_rows) ? g->shape.local_slots : swl_record_slots(&g->shape);
    rw->publish_every =
        swl_min_u32(rw->publish_every / 4 > 0 ? rw->publish_every / 4 : 1, SWL_PUBLISH_EVERY_MAX);
    rw->unmarked = rw->marked = rw->mark_piece = 0;
    warp_sync();
}

/* All lanes; stores of the rows up to the mark, or of all, are complete in every lane. release.sys
 * after warp_sync covers rows and records of all lanes; pairs with the acquire of the tail in
 * ht_dispatch_receive. */
SWL_DEV void row_write_publish(struct row_writer *rw, bool all)
{
    const struct swl_device_group *g = rw->g;
    const uint64_t mine = (uint64_t)g->shape.local * g->shape.nwriters + rw->q;

    warp_sync();
    for (uint32_t gpu = lane_id(); gpu < g->shape.nlocal; gpu += 32) {
        struct local_ring *l = &rw->local[gpu];

        if (all)
            l->marked = l->sent;
        if (l->marked != l->published)
            publish_to_peer(peer_word(g, gpu, g->at.ht.local_tail, mine),
                            gen_word(rw->waiter.watch->gen, l->marked));
        l->published = l->marked;
    }
    rw->marked = 0;
    warp_sync();
}

/* All lanes, between rows: publish all there is. False: there was nothing. */
SWL_DEV bool row_write_flush(struct row_writer *rw)
{
    bool held = false;

    for (uint32_t gpu = lane_id(); gpu < rw->g->shape.nlocal; gpu += 32)
        held = held || rw->local[gpu].sent != rw->local[gpu].published;
    if (!warp_any(held)) {
        warp_sync(); /* other lanes move `sent` on with the next row */
        return false;
    }
    bulk_wait<0>();
    row_write_publish(rw, true);
    rw->unmarked = 0;
    return true;
}

/* All lanes, after a row: publish what was marked a while ago, or set a mark. */
SWL_DEV void row_write_mark(struct row_writer *rw)
{
    rw->unmarked++;
    if (rw->marked && rw->copier->stored - rw->mark_piece >= SWL_PUBLISH_DELAY) {
        bulk_wait<SWL_PUBLISH_DELAY>(); /* what was stored before the mark is complete */
        row_write_publish(rw, false);
    } else if (!rw->marked && rw->unmarked >= rw->publish_every) {
        for (uint32_t gpu = lane_id(); gpu < rw->g->shape.nlocal; gpu += 32)
            rw->local[gpu].marked = rw->local[gpu].sent;
        warp_sync(); /* other lanes move `sent` on with the next row */
        rw->marked = 1;
        rw->unmarked = 0;
        rw->mark_piece = rw->copier->stored;
    }
}

/* All lanes, when all rows are written: publish the rest, remember the positions. */
SWL_DEV void row_write_end(struct row_writer *rw)
{
    const struct swl_device_group *g = rw->g;

    row_write_flush(rw);
    for (uint32_t gpu = lane_id(); gpu < g->shape.nlocal; gpu += 32)
        g->ht.local_sent[gpu * g->shape.nwriters + rw->q] = rw->local[gpu].sent;
}

/* A list cut into runs that share a row: one destination each. All lanes the same but `of`. */
struct row_list {
    struct select_list entries;
    uint64_t heads; /* bit i: a run begins at entry i */
};

/* Selections of the run that begins at entry `first`. */
SWL_DEV uint32_t run_length(const struct row_list *list, uint32_t first)
{
    const uint64_t rest = list->heads >> first >> 1;

    return rest ? (uint32_t)first_bit(rest) + 1 : list->entries.n - first;
}

/* All lanes: the records of the runs that begin at entries `from` to `from` + 31. */
SWL_DEV void row_list_heads(const struct row_writer *rw, const struct row_list *list, uint32_t from)
{
    const uint32_t lane = (uint32_t)lane_id();

    if (list->heads >> from >> lane & 1)
        rw->list->head[lane] = {rw->gen_call, rw->list->sel[from + lane].row,
                                run_length(list, from + lane)};
    order_before_bulk_store(); /* this lane's part of the list, and its record */
    warp_sync();
}

/* All lanes, after a warp_sync behind the list. */
SWL_DEV struct row_list row_list_of(const struct row_writer *rw, struct select_list entries)
{
    const struct warp_scratch *s = rw->list;
    const uint32_t i = (uint32_t)lane_id(), k = i + 32;
    struct row_list l = {entries, 0};
    const uint32_t of_before = warp_shfl_up(entries.of, 1);

    l.heads = warp_ballot(i < entries.n && (i == 0 || entries.of != of_before ||
                                            !selections_share_row(&s->sel[i], &s->sel[i - 1])));
    if (entries.n > 32)
        l.heads |= (uint64_t)warp_ballot(k < entries.n &&
                                         !selections_share_row(&s->sel[k], &s->sel[k - 1]))
                   << 32;
    row_list_heads(rw, &l, 0);
    return l;
}

SWL_DEV bool await_local_credit(const struct row_writer *rw, uint32_t gpu)
{
    const struct swl_device_group *g = rw->g;
    struct local_ring *l = &rw->local[gpu];
    const struct waiter w = wait_for(rw->waiter, SWL_FAULT_LOCAL_CREDIT, g->local_rank[gpu]);

    for (;;) {
        l->freed = local_head(rw, gpu);
        if (l->sent - l->freed < rw->target[gpu].nslots)
            return true;
        if (!wait_again(w, l->sent, l->freed, SWL_PAUSE("local credit", w.peer, rw->q)))
            return false;
    }
}

/* Lane with a destination, which has credit: store the record; where the row goes, or NULL. */
SWL_DEV char *row_write_record(const struct row_writer *rw, uint32_t gpu, uint32_t first,
                               uint32_t count)
{
    const struct swl_selection *sel = rw->list->sel + first;
    const struct local_target *t = &rw->target[gpu];
    struct local_ring *l = &rw->local[gpu];
    char *slot = l->ring + (uint32_t)(l->sent++ & (t->nslots - 1)) * t->stride;

    bulk_store(slot, &rw->list->head[first & 31], sizeof(struct swl_record));
    bulk_store(slot + sizeof(struct swl_record), sel, count * (uint32_t)sizeof(*sel));
    if (!t->rows)
        return slot + rw->row_at;
    if (sel->row < t->nrows) /* never beyond the caller's tensor */
        return t->rows + (uint64_t)sel->row * rw->row_bytes;
    return 0;
}

/* All lanes. If `mine`, the run that begins at entry `first` of the list: store its record; say
 * where its row goes. Flushes if credit has to be waited for: a receiver may need that to free a
 * slot. */
SWL_DEV bool row_write_open(struct row_writer *rw, const struct row_list *list, uint32_t first,
                            bool mine, char **dst_p)
{
    struct local_ring *l = 0;
    uint32_t gpu = 0;
    bool ok = true;

    *dst_p = 0;
    if (mine) {
        gpu = rw->list->sel[first].gpu;
        l = &rw->local[gpu];
        ok = l->sent - l->freed < rw->target[gpu].nslots;
    }
    if (!warp_all(ok)) {
        row_write_flush(rw);
        if (!ok) {
            ok = await_local_credit(rw, gpu);
            order_before_bulk_load(); /* freed slots are overwritten by bulk stores of this lane */
        }
        if (!warp_all(ok))
            return false;
    }
    if (mine)
        *dst_p = row_write_record(rw, gpu, first, run_length(list, first));
    return true;
}

/* All lanes: `row`, begun before, is token r of the list and goes to the destinations whose runs
 * begin in the first half of the list; others are served from the source again. Loads of `next`
 * start meanwhile. When all tokens of the list are written, it may be overwritten: a record goes in
 * the group of its row's first piece, and a later piece waits for that to be read. */
SWL_DEV bool row_write(struct row_writer *rw, const struct row_list *list, uint32_t r,
                       struct copy_row *row, struct copy_row *next)
{
    const uint32_t lane = (uint32_t)lane_id();
    const bool again = r == 0 && list->heads >> 32; /* a second round */

    for (uint32_t first = 0; first < (again ? 64u : 32u); first += 32) {
        const bool last = first == 32 || !again;
        struct copy_row ahead = {last ? next->src : 0, 0};
        char *dst;

        if (first > 0) {
            row_copy_begin(rw->copier, row, row->src, rw->row_bytes);
            bulk_wait_read<0>();
            warp_sync(); /* the records before have been read */
            row_list_heads(rw, list, first);
        }
        if (!row_write_open(rw, list, first + lane,
                            (list->heads >> first >> lane & 1) &&
                                (first == 32 || list->entries.of == r),
                            &dst) ||
            !row_copy_end(rw->copier, row, &ahead, rw->row_bytes, dst, rw->waiter))
            return false;
        next->begun = ahead.begun;
    }
    if (rw->row_bytes <= rw->copier->behind * rw->copier->piece_bytes &&
        !(list->entries.rows >> r >> 1))
        bulk_wait_read<0>(); /* the last row, few pieces: the list may not have been read yet */
    warp_sync();
    row_write_mark(rw);
    return true;
}
