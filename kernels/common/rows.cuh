/* rows.cuh: which selections of a token share a row, and how the rows of a rank are numbered.
 * Layer: kernels.
 *
 * Layout FLAT. A token has one row at each rank that it selects experts of, for all its selections
 * there. The rows of a rank are numbered by source rank, then by token. So a source that knows its
 * first row there (base) numbers its own by counting them: a row of a source has an ordinal among
 * those of the same *bin*. Rows at or above the budget do not exist.
 *
 * Update numbers rows by this, dispatch makes a record of the selections that share a row, and
 * combine adds a contribution for each row. Two of its regions count on one row of a token at a
 * rank: requests, which name rows by ascending rank, and landing slots, of which a gatherer has
 * one for each rank and token. */
#pragma once

#include "device.h"
#include "kernels/common/args.h"

/* Rank that has expert `id`: id / experts of a rank, of which per_expert is the inverse in 2^-40.
 * Exact: per_expert is less than one too large, which makes id / 2^40 < 1 / experts, and the
 * quotient is at least that far below the next whole number. */
SWL_DEV uint32_t expert_rank(uint64_t per_expert, uint32_t id)
{
    return (uint32_t)(id * per_expert >> 40);
}

/* Of an id word of a handle. */
SWL_DEV uint32_t id_rank(const struct swl_device_group *g, uint32_t id)
{
    return expert_rank(g->per_expert, id & SWL_ID_MASK);
}

/* Two selections of one token, by id words. */
SWL_DEV bool ids_share_row(const struct swl_device_group *g, uint32_t id, uint32_t other)
{
    return id_rank(g, id) == id_rank(g, other);
}

/* The same of surviving selections for one node. In sorted lists they lie side by side. */
SWL_DEV bool selections_share_row(const struct swl_selection *one, const struct swl_selection *two)
{
    return one->gpu == two->gpu;
}

/* Bin that the row of a selection is counted in, of swl_row_bins: the destination. */
SWL_DEV uint32_t row_bin(const struct swl_device_group *g, uint32_t id)
{
    return id_rank(g, id);
}

/* Row number `ordinal` of this rank's in a bin, once the bases are known. */
SWL_DEV uint32_t row_number(const struct swl_device_group *g, uint32_t bin, uint32_t ordinal)
{
    const uint32_t row = g->base[bin] + ordinal;

    return row < g->shape.max_rows ? row : SWL_ROW_NONE;
}

/* Of `rows` rows from `base` on, those within the budget. */
SWL_DEV uint32_t rows_within(const struct swl_shape *s, uint32_t base, uint32_t rows)
{
    return base >= s->max_rows ? 0 : swl_min_u32(rows, s->max_rows - base);
}

/* Do some of them exist, and some not? */
SWL_DEV bool rows_cross_budget(const struct swl_shape *s, uint32_t base, uint32_t rows)
{
    return base < s->max_rows && base + rows > s->max_rows;
}

/* Do some of this rank's rows of a bin, and not all? */
SWL_DEV bool bin_crosses_budget(const struct swl_device_group *g, uint32_t bin)
{
    return rows_cross_budget(&g->shape, g->base[bin], g->totals[bin]);
}
