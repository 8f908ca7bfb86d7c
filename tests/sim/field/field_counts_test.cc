/* field_counts_test.cc: field reports about token counts, ids and experts: ragged and empty ranks,
 * ids that do not exist, several experts of one rank, experts that do not divide evenly. */
#include "tests/support/field_slot.h"

#include <algorithm>

namespace
{

/* All steps one after the other on one group, each of them compared. */
void run_steps(const FieldJob &job, const std::vector<std::unique_ptr<FieldStep>> &steps)
{
    field_run(job, [&](FieldRank &field) {
        for (const auto &step : steps)
            ASSERT_TRUE(field.run(*step));
    });
}

std::unique_ptr<FieldStep> sealed(const FieldJob &job, uint64_t seed,
                                  const std::vector<int> &tokens)
{
    auto step = std::make_unique<FieldStep>(job, seed, tokens);

    step->seal();
    return step;
}

/* The comparison itself finds one wrong byte in every output and in every guard. */
TEST(Field, ComparisonSeesOneWrongByte)
{
    FieldJob job;

    job.hidden = 8;
    job.max_tokens = 4;
    FieldStep step(job, 1);

    step.seal();
    field_run(job, [&](FieldRank &field) {
        FieldSlot slot(step, field.rank());

        field.run_exactly(slot);
        for (const StepBuffer *buffer : {&slot.expert_counters, &slot.total, &slot.source_counters,
                                         &slot.rows, &slot.row_weights, &slot.row_ids, &slot.out})
            for (char *at : {buffer->data() - 1, buffer->data(), buffer->data() + buffer->bytes - 1,
                             buffer->data() + buffer->bytes}) {
                char old = 0, other = 0;

                EXPECT_EQ(cudaMemcpy(&old, at, 1, cudaMemcpyDeviceToHost), cudaSuccess);
                other = (char)(old ^ 1);
                EXPECT_EQ(cudaMemcpy(at, &other, 1, cudaMemcpyHostToDevice), cudaSuccess);
                EXPECT_NE(slot.complaint(), "");
                EXPECT_EQ(cudaMemcpy(at, &old, 1, cudaMemcpyHostToDevice), cudaSuccess);
            }
        ASSERT_EQ(slot.complaint(), "");
    });
}

TEST(Field, F01_RaggedTokenCountsFinish)
{
    const std::vector<std::vector<int>> tokens = {
        {1024, 17, 0, 640}, {3, 900, 64, 1}, {1, 1, 1, 1024}, {0, 0, 0, 1}, {33, 0, 1024, 0},
        {128, 127, 129, 1}, {0, 1000, 0, 0}, {5, 4, 3, 2},    {0, 0, 0, 0}, {700, 1, 2, 31}};
    FieldJob job;

    job.experts = 16;
    job.topk = 4;
    job.hidden = 256;
    job.max_tokens = 1024;
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{4}, {2, 2}}) {
        std::vector<std::unique_ptr<FieldStep>> steps;

        job.nodes = nodes;
        for (size_t i = 0; i < (slow_build ? 3 : tokens.size()); i++)
            steps.push_back(sealed(job, i + 1, tokens[i]));
        run_steps(job, steps);
    }
}

/* Counters against a histogram of the ids that were received, without the oracle. */
TEST(Field, F22_CountersAreTheHistogramOfReceivedIds)
{
    FieldJob job;

    job.topk = 3;
    FieldStep step(job, 22);

    for (std::vector<int64_t> &ids : step.ids)
        for (size_t t = 0; t < 32; t++) {
            if (t % 4 == 1)
                ids[t * 3 + t % 3] = -1;
            if (t % 4 == 2)
                std::copy_n(&ids[(t - 1) * 3], 3, &ids[t * 3]); /* the row before, once more */
            if (t % 8 == 3)
                std::iota(&ids[t * 3], &ids[t * 3] + 3, (int64_t)(t % 5)); /* of one rank, mostly */
        }
    step.seal();
    field_run(job, [&](FieldRank &field) {
        FieldSlot slot(step, field.rank());
        int32_t histogram[4] = {};
        int nrows = 0;

        field.run_exactly(slot);
        const int32_t total = slot.total.values<int32_t>(1)[0];
        const auto counters = slot.expert_counters.values<int32_t>(4);
        const auto ids = slot.row_ids.values<int64_t>(job.budget() * 3);

        for (size_t i = 0; i < job.budget(); i++)
            nrows += ids[i * 3] != -1;
        for (int64_t id : ids)
            if (id != -1) {
                ASSERT_TRUE(id >= 0 && id < 4) << id;
                histogram[id]++;
            }
        EXPECT_EQ(nrows, total);
        EXPECT_GT(total, 32);
        for (int e = 0; e < 4; e++)
            EXPECT_EQ(histogram[e], counters[e]) << "expert " << e;
    });
}

TEST(Field, F24_GroupOfOneRankWorks)
{
    for (int tokens : {0, 1, 33}) {
        FieldJob job;

        job.nodes = {1};
        job.topk = 4;
        job.max_tokens = 33;
        FieldStep step(job, 24, {tokens});

        step.identity = true;
        step.seal();
        field_run(job, [&](FieldRank &field) {
            FieldSlot slot(step, 0);

            field.run_exactly(slot);
            EXPECT_EQ(slot.out.get(), slot.in.get()); /* one rank, one row: the sum is the token */
        });
    }
}

TEST(Field, F33_IdsOutOfRangeTouchNothingElse)
{
    for (int64_t id : {(int64_t)8, (int64_t)13, (int64_t)-2, INT64_MAX, INT64_MIN, (int64_t)1 << 32,
                       ((int64_t)1 << 32) + 1})
        for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {1, 1}}) {
            FieldJob job;

            job.nodes = nodes;
            job.max_tokens = 64;
            FieldStep step(job, 33);

            step.ids[1][2 * 40] = id;
            step.seal();
            field_run(job, [&](FieldRank &field) {
                EXPECT_TRUE(field.run(step, id >= 8 && field.rank() == 1 ? 4 : 0)) << id;
            });
        }
}

TEST(Field, F34_ZeroTokensAreLegal)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {1, 1}, {2, 2}}) {
        FieldJob job;

        job.nodes = nodes;
        job.max_tokens = 16;
        job.hidden = 64;
        const size_t n = (size_t)job.nranks();
        std::vector<std::unique_ptr<FieldStep>> steps;
        std::vector<int> tokens(n, 16);

        tokens[0] = 0; /* no storage either */
        steps.push_back(sealed(job, 1, tokens));
        steps.push_back(sealed(job, 2, std::vector<int>(n, 0)));
        for (int i = 0; i < (slow_build ? 8 : 100); i++) {
            for (size_t r = 0; r < n; r++)
                tokens[r] = ((size_t)i + r) % 2 ? 16 : 0;
            steps.push_back(sealed(job, 3 + (uint64_t)i, tokens));
        }
        run_steps(job, steps);
    }
}

TEST(Field, F67_ExpertsThatDoNotDivideEvenly)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{3}, {2, 1}})
        for (int experts : {256, 255, 2, 1}) {
            FieldJob job;

            job.nodes = nodes;
            job.experts = experts;
            job.topk = experts > 1 ? 2 : 1;
            FieldStep step(job, 67);

            step.seal();
            /* rank r owns r * L to (r + 1) * L - 1, with L = experts / 3 rounded up */
            EXPECT_EQ(step.rows(2).total == 0, experts <= 2);
            field_run(job, [&](FieldRank &field) { EXPECT_TRUE(field.run(step)) << experts; });
        }
}

TEST(Field, F72_TwoExpertsOnOneRankAreOneRow)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {1, 1}}) {
        FieldJob job;

        job.nodes = nodes;
        job.topk = 4;
        FieldStep step(job, 72, {1, 0});

        step.ids[0] = {2, 5, 0, 1};
        step.weights[0] = {0.25f, 0.5f, 0.125f, 2.0f};
        step.identity = true;
        step.seal();
        field_run(job, [&](FieldRank &field) {
            const std::vector<int64_t> expected[] = {{0, 1, 2, -1}, {1, -1, -1, -1}};
            const std::vector<float> expected_weights[] = {{0.125f, 2.0f, 0.25f, 0},
                                                           {0.5f, 0, 0, 0}};
            FieldSlot slot(step, field.rank());

            field.run_exactly(slot);
            EXPECT_EQ(slot.total.values<int32_t>(1)[0], 1);
            EXPECT_EQ(slot.row_ids.values<int64_t>(4), expected[field.rank()]);
            EXPECT_EQ(slot.row_weights.values<float>(4), expected_weights[field.rank()]);
        });
    }
}

/* Experts 0 and 1 are copies of one and lie on rank 0. A token that names both comes once, with
 * both weights; named twice, the first counts. What the copies make of it is one row, weights
 * added. */
TEST(Field, F107_CopiesOfAnExpertOnOneRankAreOneRow)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {1, 1}}) {
        FieldJob job;

        job.nodes = nodes;
        job.topk = 2;
        FieldStep step(job, 107, {0, 4});

        step.ids[1] = {0, 1, 1, 0, 0, 0, 1, -1};
        step.weights[1] = {0.5f, 0.25f, 0.5f, 0.25f, 0.5f, 0.25f, 2.0f, 4.0f};
        step.identity = true;
        step.seal();
        field_run(job, [&](FieldRank &field) {
            const std::vector<int64_t> expected = {0, 1, 0, 1, 0, -1, 1, -1};
            const std::vector<float> expected_sums = {0.75f, 0.75f, 0.5f, 2.0f};
            FieldSlot slot(step, field.rank());

            field.run_exactly(slot);
            EXPECT_EQ(slot.total.values<int32_t>(1)[0], field.rank() == 0 ? 4 : 0);
            if (field.rank() == 1)
                return;
            const auto weights = slot.row_weights.values<float>(8);

            EXPECT_EQ(slot.expert_counters.values<int32_t>(2), (std::vector<int32_t>{3, 3}));
            EXPECT_EQ(slot.row_ids.values<int64_t>(8), expected);
            for (size_t row = 0; row < 4; row++)
                EXPECT_EQ(weights[2 * row] + weights[2 * row + 1], expected_sums[row]);
        });
    }
}

} // namespace
