// Ranks far apart in time, with a user who overwrites all memory between the calls: all steps are
// enqueued at once, each rank is held back at random before its calls.
#include "tests/support/ep_bench.h"

#include <gtest/gtest.h>

namespace
{

const char *const small = "--tokens 9 --hidden 64 --topk 3 --experts 16 --pipelined --warmup 0 "
                          "--poison --delay 300 --link 200:2 ";

std::string with(const char *more)
{
    return std::string(small) + (slow_build ? "--iterations 4 " : "--iterations 7 ") + more;
}

} // namespace

TEST(EpApart, OneNode)
{
    EXPECT_BENCH(with("--nodes 1 --ranks-per-node 4 --outputs plain"));
    EXPECT_BENCH(with("--nodes 1 --ranks-per-node 4 --outputs library"));
    EXPECT_BENCH(with("--nodes 1 --ranks-per-node 4 --outputs mixed"));
}

TEST(EpApart, TwoNodes)
{
    EXPECT_BENCH(with("--nodes 2 --ranks-per-node 2 --outputs plain"));
    EXPECT_BENCH(with("--nodes 2 --ranks-per-node 2 --outputs library"));
    EXPECT_BENCH(with("--nodes 2 --ranks-per-node 2 --outputs mixed"));
}

TEST(EpApart, UnevenInterleavedNodesWithRaggedTokens)
{
    EXPECT_BENCH(with("--node-sizes 2,3 --ranks-order interleaved --ragged --outputs mixed"));
}

TEST(EpApart, OneRoutingForManySteps)
{
    EXPECT_BENCH(with("--nodes 2 --ranks-per-node 2 --update-once --outputs plain"));
    EXPECT_BENCH(with("--nodes 2 --ranks-per-node 2 --update-once --outputs library"));
}

TEST(EpApart, RanksThatReceiveNothing)
{
    // One expert chosen by every token: all other ranks receive nothing and still serve their
    // rails.
    EXPECT_BENCH(
        "--tokens 9 --hidden 64 --topk 1 --experts 8 --routing hot:1 --pipelined --warmup 0 "
        "--iterations 6 --poison --delay 300 --nodes 2 --ranks-per-node 2");
}
