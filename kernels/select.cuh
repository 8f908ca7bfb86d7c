/* select.cuh: the view of a handle, and sorted lists of a token's selections. Layer: kernels.
 *
 * Lists are built in the warp's scratch memory and sorted by expert id: within a node that is the
 * order (gpu, expert), since ids are dealt to ranks and local ranks are numbered in rank order. */
#pragma once

#include "kernels/args.h"
#include "kernels/block.h"
#include "kernels/wait.cuh"

struct handle_view { /* pointers into handle memory; read-only after Update */
    const struct swl_handle_head *head;
    const uint32_t *row, *id, *at, *list, *list_start, *recv_n;
    uint32_t topk;
};

SWL_DEV struct handle_view handle_view_of(const struct swl_device_group *g, const char *memory,
                                          uint32_t topk)
{
    const struct swl_handle_layout l = swl_handle_layout_of(&g->shape, topk);
    const struct handle_view h = {(const struct swl_handle_head *)(memory + l.head),
                                  (const uint32_t *)(memory + l.row),
                                  (const uint32_t *)(memory + l.id),
                                  (const uint32_t *)(memory + l.at),
                                  (const uint32_t *)(memory + l.list),
                                  (const uint32_t *)(memory + l.list_start),
                                  (const uint32_t *)(memory + l.recv_n),
                                  topk};
    return h;
}

/* One thread per block. Bytes of another group, layout, K or T fail the call on all ranks. */
SWL_DEV bool handle_check(const struct swl_device_group *g, const struct handle_view *h,
                          uint32_t tokens, const struct swl_watch *w)
{
    const struct swl_handle_head *head = h->head;
    const struct wait_at at = {SWL_FAULT_HANDLE, SWL_WARP_PROLOGUE, 0, g->shape.rank};

    if (head->magic == SWL_HANDLE_MAGIC && head->format == SWL_HANDLE_FORMAT &&
        head->fingerprint == g->fingerprint && head->topk == h->topk && head->complete == 1 &&
        head->tokens == tokens)
        return true;
    watch_fault(w, at, tokens, head->tokens, SWL_ASYNC_BAD_HANDLE);
    return false;
}

#define SWL_KEY_NONE 0xffffffffu

struct warp_scratch { /* in shared memory; one warp at a time */
    uint32_t key[SWL_TOPK_MAX];
    struct swl_selection sel[SWL_TOPK_MAX];
};
static_assert(sizeof(struct warp_scratch) <= SWL_SCRATCH_BYTES, "picture of block.h");

/* This warp's; the lists of the block begin at byte `at`. */
SWL_DEV struct warp_scratch *warp_scratch_at(uint32_t at)
{
    char *all = (char *)block_shared() + at;

    return (struct warp_scratch *)(all + (uint32_t)warp_id() * SWL_SCRATCH_BYTES);
}

SWL_DEV struct warp_scratch *warp_scratch_of(const struct swl_block *b)
{
    return warp_scratch_at(b->scratch);
}

/* Place of key[k] among the topk keys of the scratch list, and how many keys there are. */
SWL_DEV uint32_t key_place(const struct warp_scratch *s, uint32_t topk, uint32_t key,
                           uint32_t *count_p)
{
    uint32_t place = 0, count = 0;

    for (uint32_t j = 0; j < topk; j++) {
        place += s->key[j] < key;
        count += s->key[j] != SWL_KEY_NONE;
    }
    *count_p = count;
    return place;
}

/* All lanes. The surviving selections of `token` in `node` that carry all bits of `flags`, sorted,
 * in s->sel; returns their number. Ends with a warp_sync. */
SWL_DEV uint32_t select_in_node(const struct swl_device_group *g, const struct handle_view *h,
                                uint32_t token, uint32_t node, uint32_t flags, const float *weights,
                                struct warp_scratch *s)
{
    const uint64_t first = (uint64_t)token * h->topk;
    const uint32_t experts = g->shape.nlocal_experts;
    uint32_t n = 0;

    warp_sync(); /* the list before is no longer read */
    for (uint32_t k = lane_id(); k < h->topk; k += 32) {
        const uint32_t id = h->id[first + k];
        const bool take = (id & flags) == flags && h->row[first + k] != SWL_ROW_NONE &&
                          g->rank_node[(id & SWL_ID_MASK) / experts] == node;

        s->key[k] = take ? id & SWL_ID_MASK : SWL_KEY_NONE;
    }
    warp_sync();
    for (uint32_t k = lane_id(); k < h->topk || k == (uint32_t)lane_id(); k += 32) {
        const uint32_t key = k < h->topk ? s->key[k] : SWL_KEY_NONE;
        const uint32_t place = key_place(s, h->topk, key, &n);

        if (key != SWL_KEY_NONE) {
            struct swl_selection *to = &s->sel[place];

            to->row = h->row[first + k];
            to->expert = key % experts;
            to->weight = weights ? weights[first + k] : 0.0f;
            to->gpu = (uint16_t)g->rank_local[key / experts];
            to->k = (uint16_t)k;
        }
    }
    warp_sync();
    return n;
}
