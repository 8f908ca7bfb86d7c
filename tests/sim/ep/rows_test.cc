// rows_test.cc: layout FLAT: which selections share a row, and how rows are numbered.
#include "kernels/common/rows.cuh"

#include <gtest/gtest.h>

namespace
{

constexpr uint32_t ranks = 6, experts = 3, budget = 100;

struct numbering {
    uint32_t base[ranks] = {0, 40, 90, 98, 100, 120}, totals[ranks] = {40, 50, 8, 5, 7, 1};
    swl_device_group g = {};

    numbering()
    {
        g.shape.nranks = ranks;
        g.shape.nlocal_experts = experts;
        g.shape.max_rows = budget;
        g.per_expert = ((1ull << 40) + experts - 1) / experts;
        g.base = base;
        g.totals = totals;
    }
};

TEST(Rows, SelectionsOfARankShareOne)
{
    const numbering n;

    for (uint32_t one = 0; one < ranks * experts; one++)
        for (uint32_t two = 0; two < ranks * experts; two++)
            EXPECT_EQ(
                ids_share_row(&n.g, one | SWL_ID_VALID | SWL_ID_FIRST_ROW, two | SWL_ID_VALID),
                one / experts == two / experts);
}

TEST(Rows, ListsAgreeWithIdsOnWhatIsShared)
{
    const swl_selection one = {7, 0, 1.0f, 2, 0}, same = {7, 2, 0.5f, 2, 3},
                        other = {7, 0, 1.0f, 3, 1};

    EXPECT_TRUE(selections_share_row(&one, &same));
    EXPECT_FALSE(selections_share_row(&one, &other));
}

TEST(Rows, ARankIsABin)
{
    const numbering n;

    EXPECT_EQ(swl_row_bins(&n.g.shape), ranks);
    for (uint32_t id = 0; id < ranks * experts; id++)
        EXPECT_EQ(row_bin(&n.g, id | SWL_ID_VALID), id / experts);
}

TEST(Rows, AreNumberedFromTheBaseUpToTheBudget)
{
    const numbering n;

    EXPECT_EQ(row_number(&n.g, 1, 0), 40u);
    EXPECT_EQ(row_number(&n.g, 2, 9), 99u);
    EXPECT_EQ(row_number(&n.g, 2, 10), SWL_ROW_NONE);
    EXPECT_EQ(row_number(&n.g, 5, 0), SWL_ROW_NONE);
}

TEST(Rows, OnlyAShareWithBothKindsCrossesTheBudget)
{
    const numbering n;

    for (uint32_t bin = 0; bin < ranks; bin++)
        EXPECT_EQ(bin_crosses_budget(&n.g, bin), bin == 3) << bin;
    EXPECT_EQ(rows_within(&n.g.shape, 98, 5), 2u);
    EXPECT_EQ(rows_within(&n.g.shape, 40, 50), 50u);
    EXPECT_EQ(rows_within(&n.g.shape, 120, 1), 0u);
}

} // namespace
