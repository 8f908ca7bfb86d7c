// Dispatch and combine, end to end and bit by bit, over a set of shapes in which every pair of
// values of two properties occurs. The set is built here, greedily; one test proves that it covers.
#include "tests/support/ep_bench.h"

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <set>

namespace
{

enum { NODES, TOKENS, HIDDEN, TOPK, EXPERTS, TYPE, OUTPUTS, NPROPERTIES };

struct Nodes {
    const char *options;
    int ranks;
};
const Nodes nodes[] = {{"--nodes 1 --ranks-per-node 1", 1},  {"--nodes 1 --ranks-per-node 2", 2},
                       {"--nodes 2 --ranks-per-node 1", 2},  {"--nodes 2 --ranks-per-node 4", 8},
                       {"--nodes 3 --ranks-per-node 5", 15}, {"--node-sizes 3,5", 8},
                       {"--nodes 4 --ranks-per-node 8", 32}};
const char *const tokens[] = {"--tokens 23 --ragged", "--tokens 1", "--tokens 17", "--tokens 256"};
const int token_counts[] = {23, 1, 17, 256};
const int hiddens[] = {8, 128, 7168};
const int topks[] = {1, 2, 8, 33};
const char *const types[] = {"bf16", "fp16", "fp32"};
const char *const outputs[] = {"plain", "library", "mixed"};
const int extents[NPROPERTIES] = {7, 4, 3, 4, 3, 3, 3};

using Shape = std::array<int, NPROPERTIES>;

int experts_of(const Shape &s)
{
    const int ranks = nodes[s[NODES]].ranks;
    const int counts[] = {ranks, 3 * ranks + 1, 256};

    return counts[s[EXPERTS]];
}

// Room for all rows on all ranks, in bytes: bounds the memory and the time of one run.
double size_of(const Shape &s)
{
    const double ranks = nodes[s[NODES]].ranks;

    return ranks * ranks * token_counts[s[TOKENS]] * hiddens[s[HIDDEN]] * (s[TYPE] == 2 ? 4 : 2);
}

bool allowed(const Shape &s)
{
#ifdef SWL_SANITIZED /* a lane costs a sanitizer ten times the memory and time */
    const double limit = 4e6;
    const int most_ranks = 8;
#else
    const double limit = 5e8;
    const int most_ranks = 32;
#endif
    /* minutes, for pairs that cheaper shapes cover as well */
    const bool slow =
        nodes[s[NODES]].ranks > 8 && token_counts[s[TOKENS]] > 23 && topks[s[TOPK]] > 2;

    return topks[s[TOPK]] <= experts_of(s) && size_of(s) <= limit && !slow &&
           nodes[s[NODES]].ranks <= most_ranks;
}

// A rank has 384 lanes an SM: the fewer ranks, the more SMs.
int sms_of(const Shape &s, int index)
{
#ifdef SWL_SANITIZED
    (void)s;
    return 2 + index % 2 * 2;
#else
    return nodes[s[NODES]].ranks > 8 ? 2 + index % 2 * 2 : nodes[s[NODES]].ranks > 2 ? 6 : 16;
#endif
}

// What a run costs, roughly.
double cost_of(const Shape &s)
{
    return size_of(s) * topks[s[TOPK]];
}

int pair_id(const Shape &s, int a, int b)
{
    return ((a * NPROPERTIES + b) * 8 + s[(size_t)a]) * 8 + s[(size_t)b];
}

std::vector<Shape> all_shapes()
{
    std::vector<Shape> shapes;
    Shape s{};

    for (;;) {
        if (allowed(s))
            shapes.push_back(s);
        size_t at = 0;
        while (at < NPROPERTIES && ++s[at] == extents[at])
            s[at++] = 0;
        if (at == NPROPERTIES)
            return shapes;
    }
}

std::set<int> pairs_of(const std::vector<Shape> &shapes)
{
    std::set<int> pairs;

    for (const Shape &s : shapes)
        for (int a = 0; a < NPROPERTIES; a++)
            for (int b = a + 1; b < NPROPERTIES; b++)
                pairs.insert(pair_id(s, a, b));
    return pairs;
}

int gain(const Shape &s, const std::set<int> &open)
{
    int n = 0;

    for (int a = 0; a < NPROPERTIES; a++)
        for (int b = a + 1; b < NPROPERTIES; b++)
            n += (int)open.count(pair_id(s, a, b));
    return n;
}

// Each time the shape with the most uncovered pairs; of equal ones the cheapest.
std::vector<Shape> covering_shapes()
{
    const std::vector<Shape> all = all_shapes();
    std::set<int> open = pairs_of(all);
    std::vector<Shape> chosen;

    while (!open.empty()) {
        const Shape best =
            *std::max_element(all.begin(), all.end(), [&](const Shape &x, const Shape &y) {
                const int gx = gain(x, open), gy = gain(y, open);
                return gx != gy ? gx < gy : cost_of(x) > cost_of(y);
            });
        chosen.push_back(best);
        for (int pair : pairs_of({best}))
            open.erase(pair);
    }
    return chosen;
}

std::string line_of(const Shape &s, int index)
{
    std::ostringstream line;

    line << nodes[s[NODES]].options << ' ' << tokens[s[TOKENS]] << " --hidden "
         << hiddens[s[HIDDEN]] << " --topk " << topks[s[TOPK]] << " --experts " << experts_of(s)
         << " --dtype " << types[s[TYPE]] << " --outputs " << outputs[s[OUTPUTS]] << " --seed "
         << index + 1 << " --sms " << sms_of(s, index) << " --iterations 1 --warmup 1 --ids "
         << (index % 2 ? "int32" : "int64")
         << (index % 3 == 0 ? " --negative-fraction 0.1 --duplicates 0.1" : "")
         << (index % 4 == 0 ? " --beyond 0.05" : "") << (index % 5 == 0 ? " --global-ids" : "")
         << (index % 2 ? " --poison" : "") << (index % 3 == 1 ? " --ranks-order interleaved" : "");
    return line.str();
}

class EpShapes : public testing::TestWithParam<int>
{
};

const std::vector<Shape> &shapes()
{
    static const std::vector<Shape> chosen = covering_shapes();

    return chosen;
}

} // namespace

TEST(EpCover, EveryPairOfPropertiesOccurs)
{
#ifndef SWL_SANITIZED
    const Shape one{};
    size_t pairs = 0;

    for (size_t a = 0; a < one.size(); a++)
        for (size_t b = a + 1; b < one.size(); b++)
            pairs += (size_t)extents[a] * (size_t)extents[b];
    /* one is impossible: 33 choices of as many experts as ranks, which are 32 at most */
    EXPECT_EQ(pairs_of(all_shapes()).size(), pairs - 1);
#endif
    EXPECT_EQ(pairs_of(shapes()), pairs_of(all_shapes()));
}

TEST_P(EpShapes, DispatchAndCombineAreExact)
{
    EXPECT_BENCH(line_of(shapes()[(size_t)GetParam()], GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Cover, EpShapes, testing::Range(0, (int)shapes().size()));
