// Several NICs of a rank: whole calls against the oracle, with packets late and out of order on
// each.
#include "tests/support/ep_bench.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace
{

const char *const shapes[] = {
    "--nodes 2 --ranks-per-node 1 --outputs mixed --link 100:2",
    "--nodes 2 --ranks-per-node 2 --outputs plain",
    "--node-sizes 1,2 --outputs mixed --ragged --ranks-order interleaved",
    "--nodes 3 --ranks-per-node 1 --outputs plain --ragged --negative-fraction 0.3",
};

const char *const rest =
    " --tokens 9 --hidden 16 --topk 2 --experts 6 --pipelined --warmup 0 --iterations 2 --sms 8";

} // namespace

TEST(EpNics, EveryNumberOfNicsIsExact)
{
    const int seeds = std::getenv("SWL_TEST_LONG") ? 50 : 3;

    for (int nics : {2, 3, 8})
        for (const char *shape : shapes)
            for (int seed = 1; seed <= seeds && !HasFailure(); seed++) {
                const Variable count("SWIMLANE_NICS", std::to_string(nics));
                const Variable faults("SWIMLANE_SOFT_FAULTS", "jitter=20us");
                const Variable qps("SWIMLANE_IB_QPS", std::to_string(1 + seed % 3));

                EXPECT_BENCH(shape + std::string(rest) + " --schedule-seed " + std::to_string(seed))
                    << " with SWIMLANE_NICS=" << nics;
            }
}

TEST(EpNics, BlocksOfKernelsRunOneWhateverIsAsked)
{
    const Variable count("SWIMLANE_NICS", "4");
    const Variable executor("SWIMLANE_SOFT_EXECUTOR", "blocks");

    EXPECT_BENCH(shapes[1] + std::string(rest));
}
