// The oracle against small cases worked out by hand, and its number formats against the compiler's.
#include "tools/support/oracle.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

namespace
{

struct Case {
    std::vector<int> node;
    swl_oracle_shape shape{};
    std::vector<std::vector<int64_t>> ids;
    std::vector<std::vector<float>> weights;
    std::vector<swl_oracle_source> sources;

    Case(std::vector<int> nodes, int nexperts, int topk) : node(std::move(nodes))
    {
        shape.nranks = (int)node.size();
        shape.node_of = node.data();
        shape.nexperts = nexperts;
        shape.topk = topk;
        shape.hidden = 2;
        shape.type = SWL_ORACLE_BF16;
        shape.budget = 100;
        ids.resize(node.size());
    }
    swl_oracle *create()
    {
        weights.resize(ids.size());
        sources.clear();
        for (size_t r = 0; r < ids.size(); r++) {
            weights[r].clear();
            for (size_t i = 0; i < ids[r].size(); i++)
                weights[r].push_back((float)(100 * r + i + 1));
            sources.push_back(
                {(int)ids[r].size() / shape.topk, 8, ids[r].data(), weights[r].data()});
        }
        return swl_oracle_create(&shape, sources.data());
    }
};

float bits(uint32_t value)
{
    float f;
    memcpy(&f, &value, 4);
    return f;
}

uint16_t stored(swl_oracle_type type, float value)
{
    uint16_t half;
    swl_oracle_store(type, &half, 0, value);
    return half;
}

} // namespace

TEST(Oracle, Bf16RoundsToNearestEven)
{
    EXPECT_EQ(stored(SWL_ORACLE_BF16, bits(0x3f808000)), 0x3f80);
    EXPECT_EQ(stored(SWL_ORACLE_BF16, bits(0x3f818000)), 0x3f82);
    EXPECT_EQ(stored(SWL_ORACLE_BF16, bits(0x3f808001)), 0x3f81);
    EXPECT_EQ(stored(SWL_ORACLE_BF16, bits(0x7f7fffff)), 0x7f80);
    EXPECT_EQ(stored(SWL_ORACLE_BF16, bits(0xff800001)), 0x7fff);
    EXPECT_EQ(stored(SWL_ORACLE_BF16, bits(0x80000000)), 0x8000);
}

TEST(Oracle, Fp16AgreesWithItsDefinitionOnEveryValueAndTie)
{
    auto value = [](uint32_t h) {
        int exponent = (int)(h >> 10), mantissa = (int)(h & 0x3ff);
        return (float)(exponent ? std::ldexp(1024 + mantissa, exponent - 25)
                                : std::ldexp(mantissa, -24));
    };
    for (uint32_t h = 0; h < 0x7c00; h++) {
        uint16_t half = (uint16_t)h;

        EXPECT_EQ(swl_oracle_load(SWL_ORACLE_FP16, &half, 0), value(h));
        EXPECT_EQ(stored(SWL_ORACLE_FP16, value(h)), half);
        float tie = (value(h) + value(h + 1)) / 2;

        EXPECT_EQ(stored(SWL_ORACLE_FP16, tie), h & 1 ? h + 1 : h);
        EXPECT_EQ(stored(SWL_ORACLE_FP16, -tie), 0x8000 | (h & 1 ? h + 1 : h));
        EXPECT_EQ(stored(SWL_ORACLE_FP16, std::nextafterf(tie, 1e6f)), h + 1);
        EXPECT_EQ(stored(SWL_ORACLE_FP16, std::nextafterf(tie, 0)), h);
    }
    EXPECT_EQ(stored(SWL_ORACLE_FP16, 65519.996f), 0x7bff);
    EXPECT_EQ(stored(SWL_ORACLE_FP16, 65520.0f), 0x7c00);
    EXPECT_EQ(stored(SWL_ORACLE_FP16, -1e30f), 0xfc00);
    EXPECT_EQ(stored(SWL_ORACLE_FP16, bits(0xffc00000)), 0x7fff);
}

TEST(Oracle, RowsFollowSourceThenToken)
{
    Case c({0, 0}, 4, 2);
    c.ids = {{3, 0, 2, 3}, {1, 2}};
    swl_oracle *o = c.create();

    const swl_oracle_rows *r = swl_oracle_rows_of(o, 0);
    ASSERT_EQ(r->nrows, 2);
    EXPECT_EQ(r->total, 2);
    EXPECT_EQ(r->src[0], 0);
    EXPECT_EQ(r->token[0], 0);
    EXPECT_EQ(r->src[1], 1);
    EXPECT_EQ(r->idx[0], 0);
    EXPECT_EQ(r->idx[1], -1);
    EXPECT_EQ(r->weights[0], 2.0f);
    EXPECT_EQ(r->weights[1], 0.0f);
    r = swl_oracle_rows_of(o, 1);
    ASSERT_EQ(r->nrows, 3);
    EXPECT_EQ(r->token[1], 1);
    EXPECT_EQ(r->idx[2], 0); // token 1 of rank 0: experts 2, 3, ascending
    EXPECT_EQ(r->idx[3], 1);
    EXPECT_EQ(r->weights[2], 3.0f);
    EXPECT_EQ(r->weights[3], 4.0f);
    EXPECT_EQ(r->expert_rows[0], 2);
    EXPECT_EQ(r->expert_rows[1], 2);
    EXPECT_EQ(r->source_rows[0], 2);
    EXPECT_EQ(r->source_rows[1], 1);
    EXPECT_EQ(swl_oracle_row(o, 0, 1, 0), -1);
    EXPECT_EQ(swl_oracle_row(o, 0, 1, 1), 1);
    swl_oracle_destroy(o);
}

TEST(Oracle, IdsAscendWhateverTheOrderOfK)
{
    Case c({0, 1}, 8, 4);
    c.shape.global_ids = true;
    c.ids = {{7, 4, 1, 5}, {}};
    swl_oracle *o = c.create();
    const swl_oracle_rows *r = swl_oracle_rows_of(o, 1);

    ASSERT_EQ(r->nrows, 1);
    EXPECT_EQ(std::vector<int64_t>(r->idx, r->idx + 4), (std::vector<int64_t>{4, 5, 7, -1}));
    EXPECT_EQ(std::vector<float>(r->weights, r->weights + 4), (std::vector<float>{2, 4, 1, 0}));
    swl_oracle_destroy(o);
}

TEST(Oracle, DuplicatesCountOnceAndOddIdsNotAtAll)
{
    Case c({0, 0}, 4, 4);
    c.ids = {{2, 2, -7, 4}, {-1, -1, -1, -1}};
    swl_oracle *o = c.create();
    const swl_oracle_rows *r = swl_oracle_rows_of(o, 1);

    ASSERT_EQ(r->nrows, 1);
    EXPECT_EQ(std::vector<int64_t>(r->idx, r->idx + 4), (std::vector<int64_t>{0, -1, -1, -1}));
    EXPECT_EQ(r->weights[0], 1.0f);
    EXPECT_EQ(swl_oracle_rows_of(o, 0)->nrows, 0);
    EXPECT_TRUE(swl_oracle_bad_id(o, 0));
    EXPECT_FALSE(swl_oracle_bad_id(o, 1));
    swl_oracle_destroy(o);
}

TEST(Oracle, UnevenExpertsGiveTheLastRankFewer)
{
    Case c({0, 0, 0}, 10, 1); // L = 4: ranks own 4, 4, 2
    c.ids = {{3, 4, 7, 8, 9}, {}, {}};
    swl_oracle *o = c.create();

    EXPECT_EQ(swl_oracle_rows_of(o, 0)->nrows, 1);
    EXPECT_EQ(swl_oracle_rows_of(o, 1)->nrows, 2);
    EXPECT_EQ(swl_oracle_rows_of(o, 2)->nrows, 2);
    EXPECT_EQ(swl_oracle_rows_of(o, 2)->expert_rows[3], 0);
    swl_oracle_destroy(o);
}

TEST(Oracle, RowsAtAndBeyondTheBudgetAreDropped)
{
    Case c({0, 0}, 2, 1);
    c.shape.budget = 2;
    c.ids = {{0, 0}, {0, 1}};
    swl_oracle *o = c.create();
    const swl_oracle_rows *r = swl_oracle_rows_of(o, 0);

    EXPECT_EQ(r->total, 3);
    EXPECT_EQ(r->nrows, 2);
    EXPECT_EQ(r->expert_rows[0], 2);
    EXPECT_EQ(r->source_rows[1], 0);
    EXPECT_EQ(swl_oracle_row(o, 1, 0, 0), -1);
    EXPECT_EQ(swl_oracle_row(o, 1, 1, 1), 0);
    swl_oracle_destroy(o);
}

namespace
{

// Rank d contributes values[d] in every element; a negative limit of rows hides a rank's row.
struct Contributions {
    std::vector<float> values;
    std::vector<int64_t> limit;
};

bool contribution(void *arg, int dst, int64_t row, int, int, void *out)
{
    auto *c = static_cast<Contributions *>(arg);

    if (!c->limit.empty() && row >= c->limit[(size_t)dst])
        return false;
    swl_oracle_store(SWL_ORACLE_BF16, out, 0, c->values[(size_t)dst]);
    swl_oracle_store(SWL_ORACLE_BF16, out, 1, -c->values[(size_t)dst]);
    return true;
}

float combined(Case &c, Contributions contributions, int src = 0)
{
    swl_oracle *o = c.create();
    uint16_t out[2];

    swl_oracle_combine(o, src, 0, contribution, &contributions, out);
    EXPECT_EQ(out[0] ? out[0] ^ 0x8000 : 0, out[1]);
    swl_oracle_destroy(o);
    return swl_oracle_load(SWL_ORACLE_BF16, out, 0);
}

} // namespace

TEST(Oracle, CombineRoundsEachRemoteNodeOnce)
{
    // Nodes {0,1} and {2,3}. Remote partial 1 + 1/256 rounds to 1 (tie to even); with the own
    // node's 1/256 the exact sum would be 1 + 2/256, one bf16 unit more.
    Case c({5, 5, 9, 9}, 4, 4);
    c.ids = {{0, 1, 2, 3}, {}, {}, {}};
    const Contributions values{{0x1p-8f, 0, 1, 0x1p-8f}, {}};

    EXPECT_EQ(combined(c, values), 1.0f);
    c.shape.wire_fp32 = true;
    EXPECT_EQ(combined(c, values), 1.0f + 0x1p-7f);
}

TEST(Oracle, CombineDoesNotRoundTheOwnNode)
{
    Case c({1, 1, 0, 0}, 4, 4);
    c.ids = {{0, 1, 2, 3}, {}, {}, {}};

    EXPECT_EQ(combined(c, {{1, 0x1p-8f, 0x1p-8f, 0}, {}}), 1.0f + 0x1p-7f);
}

TEST(Oracle, CombineSumsByNodeThenRank)
{
    // Interleaved nodes {0,2} and {1,3}: (big - big) inside node 0 leaves the small terms whole.
    Case c({0, 1, 0, 1}, 4, 4);
    c.ids = {{0, 1, 2, 3}, {}, {}, {}};

    EXPECT_EQ(combined(c, {{0x1p30f, 1, -0x1p30f, 1}, {}}), 2.0f);
}

TEST(Oracle, CombineLeavesOutDroppedAndMissingRows)
{
    Case c({0, 0}, 2, 2);
    c.ids = {{0, 1}, {0, 1}};
    c.shape.budget = 1;
    EXPECT_EQ(combined(c, {{3, 4}, {}}, 1), 0.0f);
    EXPECT_EQ(combined(c, {{3, 4}, {}}, 0), 7.0f);
    EXPECT_EQ(combined(c, {{3, 4}, {0, 1}}, 0), 4.0f);
}
