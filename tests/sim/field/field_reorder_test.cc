// Field reports about networks that are late or in another order: high-throughput calls stay exact.
#include "tests/support/ep_bench.h"

#include "sim/simt.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace
{

/* What a network may do without changing a result; all of them reorder. */
const char *const harmless[] = {
    "loss=100;retry=80us",
    "rank0:hold=40us;jitter=10us",
    "jitter=20us",
    "delay=5us;jitter=3us",
    "stall=50us+200us",
    "rank0:jitter=50us",
    "rank1.link0:stall=0+300us",
};

class FieldReorder : public ::testing::Test
{
  protected:
    FieldReorder() : before(simt_config_get())
    {
        struct simt_config config = before;

        config.preempt_per_1000 = 20;
        simt_config_set(&config);
    }
    ~FieldReorder() override
    {
        simt_config_set(&before);
        unsetenv("SWIMLANE_SOFT_FAULTS");
    }

  private:
    const struct simt_config before;
};

/* Runs of two ranks on two nodes, each with a schedule of its own and the next fault. */
void expect_exact(int seeds, int tokens, int topk)
{
    for (int seed = 1; seed <= seeds && !testing::Test::HasFailure(); seed++) {
        const char *fault = harmless[(size_t)seed % (sizeof(harmless) / sizeof(*harmless))];

        SCOPED_TRACE(std::string("SIMT_PREEMPT=20 SWIMLANE_SOFT_FAULTS='") + fault + "'");
        setenv("SWIMLANE_SOFT_FAULTS", fault, 1);
        EXPECT_BENCH("--nodes 2 --ranks-per-node 1 --hidden 16 --experts 48 --sms 4 --warmup 0 "
                     "--iterations 1 --tokens " +
                     std::to_string(tokens) + " --topk " + std::to_string(topk) +
                     " --schedule-seed " + std::to_string(seed));
    }
}

#ifdef SWL_SANITIZED
const int seeds = 6;
#else
const int seeds = 100;
#endif

TEST_F(FieldReorder, F19_AnyOrderOneExpertForEachToken)
{
    expect_exact(seeds, 40, 1);
}

TEST_F(FieldReorder, F19_AnyOrderEightExpertsForEachToken)
{
    expect_exact(seeds, 40, 8);
}

TEST_F(FieldReorder, F19_FullSize)
{
    for (int topk : {1, 8})
        expect_exact(std::getenv("SWL_TEST_LONG") ? 100 : 1,
                     std::getenv("SWL_TEST_LONG") ? 4096 : 512, topk);
}

// The queue is 256 entries deep; nothing completes for a tenth of a second.
TEST_F(FieldReorder, F45_BurstBehindLateCompletions)
{
    EXPECT_BENCH("--nodes 2 --ranks-per-node 1 --hidden 16 --experts 48 --sms 4 --warmup 0 "
                 "--iterations 1 --tokens 1024 --topk 8 --link 400:50000 --schedule-seed 1");
}

} // namespace
