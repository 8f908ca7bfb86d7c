// Many schedules: the same small exchanges under several hundred seeds of the emulator.
#include "tests/support/ep_bench.h"

#include "sim/simt.h"

#include <gtest/gtest.h>

namespace
{

const char *const shapes[] = {
    "--nodes 1 --ranks-per-node 2 --outputs plain",
    "--nodes 1 --ranks-per-node 3 --outputs library",
    "--nodes 2 --ranks-per-node 1 --outputs mixed --link 100:2",
    "--nodes 2 --ranks-per-node 2 --outputs plain --link 400:3",
    "--nodes 2 --ranks-per-node 2 --outputs library --poison --delay 50",
    "--node-sizes 1,2 --outputs mixed --ragged --ranks-order interleaved",
    "--nodes 3 --ranks-per-node 1 --outputs plain --ragged --negative-fraction 0.3",
};

class EpSeeds : public testing::TestWithParam<const char *>
{
};

} // namespace

TEST_P(EpSeeds, EveryScheduleIsExact)
{
    struct simt_config before = simt_config_get(), config = before;
    const int seeds = test_seeds(48, 6, 1000);

    config.preempt_per_1000 = 30;
    simt_config_set(&config);
    for (int seed = 1; seed <= seeds; seed++) {
        const Variable qps("SWIMLANE_IB_QPS", seed % 4 ? std::to_string(seed % 4) : "");
        std::string line = std::string(GetParam()) +
                           " --tokens 5 --hidden 16 --topk 2 --experts 6 --pipelined --warmup 0 "
                           "--iterations 2 --sms 4 --schedule-seed " +
                           std::to_string(seed);
        EXPECT_BENCH(line) << " (with SIMT_PREEMPT=30 SWIMLANE_IB_QPS=" << seed % 4
                           << ", 0: unset)";
        if (HasFailure())
            break;
    }
    simt_config_set(&before);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EpSeeds, testing::ValuesIn(shapes));
