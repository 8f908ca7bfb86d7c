// Rings that run out: whole calls with a few slots in every ring, so that each ring goes round many
// times and rings of a channel run far ahead of each other. Exact results, and nothing stops.
#include "tests/support/ep_bench.h"

#include "sim/simt.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace
{

// What one seed tries: a shape, its traffic, the sizes of all rings and a schedule.
class Draw
{
  public:
    explicit Draw(uint32_t seed) : random(seed), seed(seed)
    {
    }
    template <size_t N> const char *one_of(const char *const (&all)[N])
    {
        return all[random() % N];
    }
    int below(int n)
    {
        return (int)(random() % (uint32_t)n);
    }
    std::string sizes()
    {
        static const char *const all[] = {"2:1:1:2", "2:1:1:2", "2:1:2:4", "4:1:1:2", "4:2:2:2"};

        return one_of(all);
    }
    int preempt()
    {
        return 40 * below(3);
    }
    std::string line()
    {
        static const char *const small[] = {"1,1", "1,1", "1,1,1", "1,1,1", "2,1"};
        static const char *const large[] = {"2,2", "3,1",       "1,2,1", "1,1,1,1",        "2,2,2",
                                            "4,4", "1,1,1,1,1", "4,1,2", "1,1,1,1,1,1,1,1"};
        static const char *const traffic[] = {"uniform",
                                              "hot:0.5",
                                              "hot:0.9",
                                              "hot:1",
                                              "zipf:1.2",
                                              "blocks:16",
                                              "blocks:64",
                                              "blocks",
                                              "silent",
                                              "hot:0.5 --ragged",
                                              "uniform --ragged",
                                              "zipf --negative-fraction 0.3",
                                              "blocks --ragged",
                                              "silent --ragged",
                                              "hot --duplicates 0.2"};
        static const char *const steps[] = {"1", "1", "2 --pipelined", "2 --delay 60",
                                            "2 --poison"};
        static const char *const outputs[] = {"plain", "library", "mixed"};
        const bool is_small = below(25) < 24;
        const std::string nodes = is_small ? one_of(small) : one_of(large);
        const int topk = 1 + below(3), sms = is_small && below(4) ? 1 : 1 + below(4);
        const std::string tokens = std::to_string(is_small ? 90 + below(60) : 60);
        int ranks = 0;

        for (char c : nodes)
            ranks += c == ',' ? 0 : c - '0';
        return "--node-sizes " + nodes + " --hidden 8 --topk " + std::to_string(topk) +
               " --experts " + std::to_string(std::max(topk, ranks * (1 + below(2)))) +
               " --tokens " + tokens + " --sms " + std::to_string(sms) + " --routing " +
               one_of(traffic) + " --outputs " + one_of(outputs) +
               (below(4) ? "" : " --policy drop --budget " + tokens) + " --warmup 0 --iterations " +
               one_of(steps) + " --seed " + std::to_string(seed) + " --schedule-seed " +
               std::to_string(seed);
    }

  private:
    std::mt19937 random;
    uint32_t seed;
};

void run_seed(uint32_t seed)
{
    Draw draw(seed);
    struct simt_config config = simt_config_get();
    const std::string sizes = draw.sizes(), line = draw.line();

    config.preempt_per_1000 = (unsigned)draw.preempt();
    simt_config_set(&config);

    const Variable rings("SWIMLANE_RING_SIZES", sizes);
    const Variable qps("SWIMLANE_IB_QPS", seed % 3 ? "1" : "");

    EXPECT_BENCH(line) << " (seed " << seed << ": SWIMLANE_RING_SIZES=" << sizes
                       << " SIMT_PREEMPT=" << config.preempt_per_1000
                       << (seed % 3 ? " SWIMLANE_IB_QPS=1)" : ")");
}

int number(const char *variable, int usual)
{
    const char *text = std::getenv(variable);

    return text ? std::atoi(text) : usual;
}

} // namespace

// A slot whose rows were all dropped is loaded and not stored. Its pieces counted as stored ones,
// so that rows before it were published while their stores were under way.
TEST(EpRings, SlotsWithoutRowsPublishNothingTooEarly)
{
    const Variable qps("SWIMLANE_IB_QPS", "1");

    for (int seed = 1; seed <= (slow_build ? 3 : 12) && !HasFailure(); seed++)
        EXPECT_BENCH("--node-sizes 4,1,2 --tokens 60 --hidden 8 --topk 2 --experts 14 --sms 2 "
                     "--routing uniform --outputs mixed --policy drop --budget 60 --warmup 0 "
                     "--iterations 2 --seed " +
                     std::to_string(seed))
            << " (SWIMLANE_IB_QPS=1)";
}

// SWL_TEST_SEEDS runs, from seed SWL_TEST_FIRST on.
TEST(EpRings, TinyRingsGoRoundManyTimes)
{
    const struct simt_config before = simt_config_get();
    const int first = number("SWL_TEST_FIRST", 1), seeds = test_seeds(150, 12, 1000);

    for (int seed = first; seed < first + seeds && !HasFailure(); seed++)
        run_seed((uint32_t)seed);
    simt_config_set(&before);
}
