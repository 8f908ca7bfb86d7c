// Whole calls whose software NICs run on blocks of the calling kernels (transport/soft/blocks.cuh)
// or on a thread, instead of on an engine of the emulator.
#include "tests/support/ep_bench.h"

#include "sim/simt.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace
{

const char *const shapes[] = {
    "--nodes 2 --ranks-per-node 1 --outputs mixed",
    "--nodes 2 --ranks-per-node 1 --outputs mixed --link 100:2",
    "--nodes 2 --ranks-per-node 4 --outputs plain",
    "--node-sizes 3,5 --outputs library --ragged --negative-fraction 0.2",
    "--nodes 3 --ranks-per-node 1 --outputs plain --link 400:3 --poison",
};
const char *const faults[] = {"", "delay=20us", "stall=100us+200us"};

class EpBlocks : public testing::TestWithParam<const char *>
{
};

void run(const char *shape, const char *more, int seed, bool hang_report = false)
{
    struct simt_config before = simt_config_get(), config = before;

    config.preempt_per_1000 = seed ? 30 : 0;
    config.hang_report = hang_report;
    simt_config_set(&config);
    EXPECT_BENCH(std::string(shape) + " --tokens 9 --topk 3 --experts 16 --sms 4 " + more +
                 " --schedule-seed " + std::to_string(seed));
    simt_config_set(&before);
}

} // namespace

TEST_P(EpBlocks, ExchangesAreExact)
{
    int turn = 0;

    for (const char *blocks : {"1", "3"})
        for (const char *fault : faults) {
            if (slow_build && turn++ % 2)
                continue;
            Variable executor("SWIMLANE_SOFT_EXECUTOR", "blocks");
            Variable count("SWIMLANE_SOFT_BLOCKS", blocks);
            Variable fails("SWIMLANE_SOFT_FAULTS", fault);

            SCOPED_TRACE(testing::Message() << "SWIMLANE_SOFT_EXECUTOR=blocks SWIMLANE_SOFT_BLOCKS="
                                            << blocks << " SWIMLANE_SOFT_FAULTS=" << fault);
            run(GetParam(), "--hidden 520 --warmup 1 --iterations 2", 0);
        }
}

TEST_P(EpBlocks, EveryScheduleIsExact)
{
    Variable executor("SWIMLANE_SOFT_EXECUTOR", "blocks");

    for (int seed = 1; seed <= (std::getenv("SWL_TEST_LONG") ? 100 : slow_build ? 2 : 4); seed++)
        run(GetParam(), "--hidden 16 --pipelined --warmup 0 --iterations 2", seed);
}

// What the NIC delivers later is no hang: a run that is well ends, also where hangs are to be
// reported.
TEST_P(EpBlocks, DeliveriesToComeAreNoHang)
{
    Variable executor("SWIMLANE_SOFT_EXECUTOR", "blocks");

    for (const char *fault : faults) {
        Variable fails("SWIMLANE_SOFT_FAULTS", fault);

        SCOPED_TRACE(fault);
        run(GetParam(), "--hidden 16 --warmup 0 --iterations 1", 1, true);
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EpBlocks, testing::ValuesIn(shapes));
