// Ring positions and epochs that cross 2^16, 2^31 and 2^32 while the group is at work.
#include "tests/support/ep_bench.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace
{

class EpPositions : public testing::TestWithParam<uint64_t>
{
};

} // namespace

TEST_P(EpPositions, CallsStayExactAcrossTheBoundary)
{
    // A few before and a few slots after: each call moves positions by some dozen.
    for (uint64_t before : {3u, 40u}) {
        if (slow_build && before > 3)
            continue;
        setenv("SWIMLANE_START_POSITION", std::to_string(GetParam() - before).c_str(), 1);
        EXPECT_BENCH("--nodes 2 --ranks-per-node 2 --tokens 20 --hidden 32 --topk 3 --experts 8 "
                     "--iterations 6 --warmup 0 --outputs plain --pipelined --poison --delay 20")
            << " with SWIMLANE_START_POSITION=" << getenv("SWIMLANE_START_POSITION");
        EXPECT_BENCH("--node-sizes 1,2 --tokens 20 --hidden 32 --topk 3 --experts 8 --iterations 6 "
                     "--warmup 0 --outputs library")
            << " with SWIMLANE_START_POSITION=" << getenv("SWIMLANE_START_POSITION");
    }
    unsetenv("SWIMLANE_START_POSITION");
}

INSTANTIATE_TEST_SUITE_P(Boundaries, EpPositions,
                         testing::Values(uint64_t{1} << 16, uint64_t{1} << 31, uint64_t{1} << 32));
