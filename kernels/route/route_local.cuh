/* route_local.cuh: the part of route that needs no other rank. Layer: kernels.
 *
 * All warps of all blocks, each for its chunk of tokens; between the steps the caller puts grid
 * barriers. Words of a chunk's histogram are touched by one warp (route_count, route_place) or, in
 * route_scan, by one thread per bin. */
#pragma once

#include "kernels/route/route.cuh"

SWL_DEV uint32_t load_id(const struct route_block *b, uint64_t place, bool *bad_p)
{
    const int64_t id = b->a->id_bytes == 8 ? ((const int64_t *)b->a->ids)[place]
                                           : ((const int32_t *)b->a->ids)[place];

    *bad_p = id >= (int64_t)b->g->shape.nexperts;
    return id < 0 || *bad_p ? SWL_KEY_NONE : (uint32_t)id;
}

/* Flags of key[k], given the keys before it. */
SWL_DEV uint32_t id_flags(const struct route_block *b, uint32_t k)
{
    const struct swl_device_group *g = b->g;
    const uint32_t key = b->scratch->key[k];
    uint32_t flags = SWL_ID_VALID | SWL_ID_FIRST_ROW | SWL_ID_FIRST_NODE;

    if (key == SWL_KEY_NONE)
        return 0;
    for (uint32_t j = 0; j < k; j++) {
        const uint32_t other = b->scratch->key[j];

        if (other == SWL_KEY_NONE)
            continue;
        if (other == key)
            return 0; /* a repeated id acts as no route */
        if (ids_share_row(g, other, key))
            flags &= ~SWL_ID_FIRST_ROW;
        if (g->rank_node[id_rank(g, other)] == g->rank_node[id_rank(g, key)])
            flags &= ~SWL_ID_FIRST_NODE;
    }
    return flags;
}

SWL_DEV void count_token(const struct route_block *b, uint32_t token)
{
    const struct swl_device_group *g = b->g;
    const uint64_t first = (uint64_t)token * b->a->topk;

    warp_sync();
    for (uint32_t k = lane_id(); k < b->a->topk; k += 32) {
        bool bad;

        b->scratch->key[k] = load_id(b, first + k, &bad);
        if (bad)
            or_in_gpu(&g->state->async_bits, SWL_ASYNC_BAD_ID);
    }
    warp_sync();
    for (uint32_t k = lane_id(); k < b->a->topk; k += 32) {
        const uint32_t key = b->scratch->key[k], flags = id_flags(b, k);

        b->id[first + k] = flags ? key | flags : 0;
        if (flags)
            add_in_gpu(&g->selected[key], 1u);
        if (flags & SWL_ID_FIRST_ROW) /* the lanes of a token count different bins */
            b->histogram[row_bin(g, key)]++;
        if (flags & SWL_ID_FIRST_NODE)
            b->histogram[list_bin(g, list_of(g, token, g->rank_node[id_rank(g, key)]))]++;
    }
}

SWL_DEV void route_count(const struct route_block *b)
{
    for (uint32_t i = lane_id(); i < b->nbins; i += 32)
        b->histogram[i] = 0;
    for (uint32_t t = b->first_token; t < b->end_token; t++)
        count_token(b, t);
}

/* Exclusive prefix over the chunks of every bin; totals. One warp a bin, over the whole grid. */
SWL_DEV void route_scan(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    const uint32_t chunks = g->route_blocks * g->route_warps;
    const uint32_t step = (uint32_t)warp_count() * work_blocks(b->g);

    for (uint32_t bin = (uint32_t)(block_id() * warp_count() + warp_id()); bin < b->nbins;
         bin += step) {
        uint32_t sum = 0;

        for (uint32_t first = 0; first < chunks; first += 32) {
            const uint32_t c = first + (uint32_t)lane_id();
            uint32_t *word = g->histogram + (uint64_t)c * b->nbins + bin;
            const uint32_t count = c < chunks ? *word : 0;
            const uint32_t upto = warp_prefix(count);

            if (c < chunks)
                *word = sum + upto - count;
            sum += warp_shfl(upto, 31);
        }
        if (lane_id() == 0)
            g->totals[bin] = sum;
    }
}

/* One thread of the grid. */
SWL_DEV void route_list_starts(const struct route_block *b)
{
    const uint32_t lists = swl_route_lists(&b->g->shape);
    uint32_t at = 0;

    for (uint32_t i = 0; i < lists; i++) {
        b->list_start[i] = at;
        at += b->g->totals[list_bin(b->g, i)];
    }
    b->list_start[lists] = at;
}

/* Places of one token: its ordinals in the bins of its rows (in row, until the bases are known) and
 * in each list. */
SWL_DEV void place_token(const struct route_block *b, uint32_t token)
{
    const struct swl_device_group *g = b->g;
    const uint64_t first = (uint64_t)token * b->a->topk;
    struct warp_scratch *s = b->scratch;

    warp_sync();
    for (uint32_t k = lane_id(); k < b->a->topk; k += 32) {
        const uint32_t id = b->id[first + k];

        s->key[k] = id;
        if (id & SWL_ID_FIRST_ROW)
            s->sel[k].row = b->histogram[row_bin(g, id)]++;
        if (id & SWL_ID_FIRST_NODE) {
            const uint32_t list = list_of(g, token, g->rank_node[id_rank(g, id)]);
            const uint32_t at = b->histogram[list_bin(g, list)]++;

            b->list[b->list_start[list] + at] = token;
            if (list != side_rings(g, RINGS_OUT))
                b->at[first + k] = at;
        }
    }
    warp_sync();
    for (uint32_t k = lane_id(); k < b->a->topk; k += 32) {
        uint32_t ordinal = SWL_ROW_NONE;

        for (uint32_t j = 0; j <= k && s->key[k] & SWL_ID_VALID; j++)
            if (s->key[j] & SWL_ID_FIRST_ROW && ids_share_row(g, s->key[j], s->key[k]))
                ordinal = s->sel[j].row;
        b->row[first + k] = ordinal;
    }
}

SWL_DEV void route_place(const struct route_block *b)
{
    for (uint32_t t = b->first_token; t < b->end_token; t++)
        place_token(b, t);
    warp_sync();
}

/* Final rows; selections that survive at a destination where this rank crosses the budget are
 * counted. */
SWL_DEV void route_rows(const struct route_block *b)
{
    const struct swl_device_group *g = b->g;
    const uint64_t end = (uint64_t)b->end_token * b->a->topk;

    for (uint64_t i = (uint64_t)b->first_token * b->a->topk + lane_id(); i < end; i += 32) {
        const uint32_t id = b->id[i];
        const uint32_t bin = row_bin(g, id);
        uint32_t row;

        if (!(id & SWL_ID_VALID))
            continue;
        row = row_number(g, bin, b->row[i]);
        if (row != SWL_ROW_NONE && bin_crosses_budget(g, bin))
            add_in_gpu(&g->overflow_count[id & SWL_ID_MASK], 1u);
        b->row[i] = row;
    }
}
