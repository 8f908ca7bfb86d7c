/* select.cuh: the view of a handle, and sorted lists of a token's selections. Layer: kernels.
 *
 * Lists are built in the warp's scratch memory and sorted by expert id: within a node that is the
 * order (gpu, expert), since ids are assigned to ranks and local ranks are numbered in rank
 * order. */
#pragma once

#include "kernels/common/args.h"
#include "kernels/common/block.h"
#include "kernels/common/rows.cuh"
#include "kernels/device/wait.cuh"

struct handle_view { /* pointers into handle memory; read-only after Update */
    const struct swl_handle_head *head;
    const uint32_t *row, *id, *at, *list, *list_start, *recv_n;
    const uint32_t
        *place;          /* [nranks] node << 16 | local index; a kernel may keep it in the block */
    uint64_t per_expert; /* of struct swl_device_group */
    uint32_t topk, experts;
};

SWL_DEV struct handle_view handle_view_at(const struct swl_device_group *g, const char *memory,
                                          const struct swl_handle_layout *l, uint32_t topk)
{
    const struct handle_view h = {(const struct swl_handle_head *)(memory + l->head),
                                  (const uint32_t *)(memory + l->row),
                                  (const uint32_t *)(memory + l->id),
                                  (const uint32_t *)(memory + l->at),
                                  (const uint32_t *)(memory + l->list),
                                  (const uint32_t *)(memory + l->list_start),
                                  (const uint32_t *)(memory + l->recv_n),
                                  g->rank_location,
                                  g->per_expert,
                                  topk,
                                  g->shape.nlocal_experts};
    return h;
}

SWL_DEV struct handle_view handle_view_of(const struct swl_device_group *g, const char *memory,
                                          uint32_t topk)
{
    const struct swl_handle_layout l = swl_handle_layout_of(&g->shape, topk);

    return handle_view_at(g, memory, &l, topk);
}

/* Are these the bytes of this group and layout (fingerprint), of this K and T? */
SWL_DEV bool handle_fits(const struct handle_view *h, uint64_t fingerprint, uint32_t tokens)
{
    const struct swl_handle_head head = *h->head; /* all of it at once */

    return head.magic == SWL_HANDLE_MAGIC && head.format == SWL_HANDLE_FORMAT &&
           head.fingerprint == fingerprint && head.topk == h->topk && head.complete == 1 &&
           head.tokens == tokens;
}

/* One thread per block: other bytes fail the call on all ranks. */
SWL_DEV void handle_refuse(const struct swl_device_group *g, const struct handle_view *h,
                           uint32_t tokens, const struct swl_watch *w)
{
    const struct waiter waiter =
        wait_for(waiter_of(w, SWL_WARP_PROLOGUE, 0), SWL_FAULT_HANDLE, g->shape.rank);

    wait_fault(waiter, tokens, h->head->tokens, SWL_ASYNC_BAD_HANDLE);
}

/* One thread per block. */
SWL_DEV bool handle_check(const struct swl_device_group *g, const struct handle_view *h,
                          uint64_t fingerprint, uint32_t tokens, const struct swl_watch *w)
{
    const bool fits = handle_fits(h, fingerprint, tokens);

    if (!fits)
        handle_refuse(g, h, tokens, w);
    return fits;
}

#define SWL_KEY_NONE 0xffffffffu

struct warp_scratch { /* in shared memory; one warp at a time */
    union {
        uint32_t key[SWL_TOPK_MAX]; /* while it is sorted */
        struct swl_record head[32]; /* of the row writers: records, by their first selection */
    };
    struct swl_selection sel[SWL_TOPK_MAX];
};
static_assert(sizeof(struct warp_scratch) <= SWL_SCRATCH_BYTES, "picture of block.h");
static_assert(sizeof(uint32_t) * SWL_TOPK_MAX == SWL_KEY_BYTES, "lists of combine lie behind");

/* This warp's; those of the block begin at byte `at`, `bytes` for each. */
SWL_DEV struct warp_scratch *warp_scratch_at(uint32_t at, uint32_t bytes)
{
    char *all = (char *)block_shared() + at;

    return (struct warp_scratch *)(all + (uint32_t)warp_id() * bytes);
}

SWL_DEV struct warp_scratch *warp_scratch_of(const struct swl_block *b)
{
    return warp_scratch_at(b->scratch, SWL_SCRATCH_BYTES);
}

/* Which ranks of the node a list is made for. */
enum select_part { SELECT_ALL, SELECT_SELF, SELECT_PEERS };

/* How the selections of one or several tokens are assigned to the lanes: lane r * topk + k looks
 * after selection k of token r, lane k of one token with more than 32 also after k + 32. */
struct lane_assignment {
    uint32_t tokens; /* at a time */
    uint32_t r, k;   /* of this lane; r >= tokens: none */
};

#define SELECT_TOKENS_MAX 4u

SWL_DEV struct lane_assignment lane_assignment_of(uint32_t topk, uint32_t most)
{
    const uint32_t fit = topk < 32 ? 32 / topk : 1;
    const uint32_t lane = (uint32_t)lane_id();
    const struct lane_assignment d = {fit < most ? fit : most, topk < 32 ? lane / topk : 0,
                                      topk < 32 ? lane % topk : lane};

    return d;
}

/* The selections that a lane looks after. */
struct select_ahead {
    uint32_t key[2]; /* id word; after select_filter: expert id, or SWL_KEY_NONE */
    uint32_t row[2];
    float weight[2];
};

/* All lanes; `token` is that of the lane's assignment, if it has one. Loads only, so that
 * they pass while the warp does something else. */
SWL_DEV struct select_ahead select_load(const struct handle_view *h,
                                        const struct lane_assignment *d, bool valid, uint32_t token,
                                        const float *weights)
{
    const uint64_t first = (uint64_t)token * h->topk + d->k;
    struct select_ahead s;

    for (uint32_t j = 0; j < 2; j++) {
        const bool mine =
            valid && d->r < d->tokens && d->k + 32 * j < h->topk && (j == 0 || h->topk > 32);

        s.key[j] = mine ? h->id[first + 32 * j] : 0;
        s.row[j] = mine ? h->row[first + 32 * j] : SWL_ROW_NONE;
        s.weight[j] = mine && weights ? weights[first + 32 * j] : 0.0f;
    }
    return s;
}

/* All lanes: keep what survives in `node`, carries all bits of `flags` and goes to `part`, seen
 * from local rank `self`. The lanes that have something left, as bits. */
SWL_DEV uint32_t select_filter(const struct handle_view *h, struct select_ahead *s, uint32_t node,
                               uint32_t self, uint32_t flags, enum select_part part)
{
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t id = s->key[j] & SWL_ID_MASK;
        bool take = (s->key[j] & flags) == flags && s->row[j] != SWL_ROW_NONE;

        if (take) {
            const uint32_t place = h->place[expert_rank(h->per_expert, id)];

            take = place >> 16 == node &&
                   (part == SELECT_ALL || ((place & 0xffff) == self) == (part == SELECT_SELF));
        }
        s->key[j] = take ? id : SWL_KEY_NONE;
    }
    return warp_ballot(s->key[0] != SWL_KEY_NONE || s->key[1] != SWL_KEY_NONE);
}

/* Entries of a list, in order of tokens, each token's by expert id. */
struct select_list {
    uint32_t n;
    uint32_t rows; /* bit r: token r has entries */
    uint32_t of;   /* token of entry number lane_id(); entries from 32 on are token 0's */
};

/* Place in the list of a selection of expert `key`: behind `base` entries of tokens before, among
 * the `topk` keys at keys[]. */
SWL_DEV uint32_t select_place(const uint32_t *keys, uint32_t topk, uint32_t base, uint32_t key)
{
    for (uint32_t j = 0; j < topk; j++)
        base += keys[j] < key;
    return base;
}

/* The lane's selection j, number k of its token, to its place. */
SWL_DEV void select_put(const struct handle_view *h, const struct select_ahead *s, int j,
                        uint32_t k, struct swl_selection *to)
{
    const uint32_t rank = expert_rank(h->per_expert, s->key[j]);

    to->row = s->row[j];
    to->expert = s->key[j] - rank * h->experts;
    to->weight = s->weight[j];
    to->gpu = (uint16_t)h->place[rank];
    to->k = (uint16_t)k;
}

/* All lanes: what was filtered, sorted, in list->sel. Ends with a warp_sync. */
SWL_DEV struct select_list select_sort(const struct handle_view *h, const struct lane_assignment *d,
                                       const struct select_ahead *s, struct warp_scratch *list)
{
    const uint32_t lane = (uint32_t)lane_id();
    const uint32_t low = warp_ballot(s->key[0] != SWL_KEY_NONE);
    const uint32_t high = warp_ballot(s->key[1] != SWL_KEY_NONE);
    const uint32_t first = d->r * h->topk; /* lane of this token's first selection */
    struct select_list l = {(uint32_t)(count_bits(low) + count_bits(high)), 0, 0};
    uint32_t before = 0;

    for (uint32_t r = 0; r < d->tokens; r++) {
        const uint32_t all = h->topk < 32 ? ((1u << h->topk) - 1) << r * h->topk : ~0u;

        l.rows |= (uint32_t)((low & all) != 0 || (r == 0 && high != 0)) << r;
        before += (uint32_t)count_bits(low & all);
        l.of += r + 1 < d->tokens && lane >= before;
    }
    warp_sync(); /* the list before is no longer read */
    list->key[lane] = s->key[0];
    if (h->topk > 32)
        list->key[lane + 32] = s->key[1];
    warp_sync();
    if (d->r < d->tokens && s->key[0] != SWL_KEY_NONE)
        select_put(h, s, 0, d->k,
                   &list->sel[select_place(list->key + first, h->topk,
                                           (uint32_t)count_bits(low & ((1u << first % 32) - 1)),
                                           s->key[0])]);
    if (h->topk > 32 && s->key[1] != SWL_KEY_NONE)
        select_put(h, s, 1, d->k + 32, &list->sel[select_place(list->key, h->topk, 0, s->key[1])]);
    warp_sync();
    return l;
}

/* All lanes. The surviving selections of `token` in `node` that carry all bits of `flags`, sorted,
 * in list->sel; returns their number. Ends with a warp_sync. */
SWL_DEV uint32_t select_in_node(const struct handle_view *h, uint32_t token, uint32_t node,
                                uint32_t flags, const float *weights, struct warp_scratch *list)
{
    const struct lane_assignment one = lane_assignment_of(h->topk, 1);
    struct select_ahead s = select_load(h, &one, true, token, weights);

    select_filter(h, &s, node, 0, flags, SELECT_ALL);
    return select_sort(h, &one, &s, list).n;
}
