// Field reports about networks: the same exchange over every path.
#include "tests/sim/ep_bench.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace
{

class FieldNetwork : public ::testing::Test
{
  protected:
    ~FieldNetwork() override
    {
        unsetenv("SWIMLANE_TRANSPORT");
        unsetenv("SWIMLANE_SOFT_EXECUTOR");
        unsetenv("SWIMLANE_SOFT_FAULTS");
        unsetenv("NCCL_EP_TOKENS_PER_CHUNK");
    }
};

std::string line(int nodes, int ranks_per_node, const std::string &more)
{
    return "--place fibers --nodes " + std::to_string(nodes) + " --ranks-per-node " +
           std::to_string(ranks_per_node) + " --experts 210 --topk 8 --iterations 2 --sms 4 " +
           more;
}

// Every rank sends to every rank and to itself; no memory of a peer is used.
TEST_F(FieldNetwork, F02_RanksOfOneNodeOverTheNetworkPath)
{
    setenv("SWIMLANE_TRANSPORT", "soft", 1);
    for (int ranks : {2, 3, 5, 7})
        for (const char *row : {"--tokens 23 --hidden 8", "--tokens 9 --hidden 2048"})
            EXPECT_BENCH(line(1, ranks, row));
}

TEST_F(FieldNetwork, F03_EveryExecutorOfTheNicGivesTheSameBytes)
{
    for (const char *executor : {"engine", "blocks", "thread"}) {
        SCOPED_TRACE(executor);
        setenv("SWIMLANE_SOFT_EXECUTOR", executor, 1);
        EXPECT_BENCH(line(2, 1, "--tokens 32 --hidden 128"));
    }
}

TEST_F(FieldNetwork, F03_DeadDoorbellIsReportedWithNetworkAndPeer)
{
    for (const char *executor : {"engine", "blocks"}) {
        SCOPED_TRACE(executor);
        setenv("SWIMLANE_SOFT_EXECUTOR", executor, 1);
        setenv("SWIMLANE_SOFT_FAULTS", "rank1:drop=0+", 1);
        ::testing::internal::CaptureStderr();
        EXPECT_FALSE(ep_bench(line(2, 1, "--tokens 32 --hidden 128 --timeout-ms 20")));
        const std::string text = ::testing::internal::GetCapturedStderr();

        for (const char *words : {"rank 0 ", "rank 1 has not", "network soft", "limit 20 ms"})
            EXPECT_NE(text.find(words), std::string::npos) << text;
    }
}

// The oracle is the same for all: what verifies in one combination has the bytes of the others.
TEST_F(FieldNetwork, F85_PathsSwitchedOffDoNotChangeResults)
{
    for (const char *list :
         {"auto", "peer,soft", "soft", "devx,soft", "peer,devx,verbs,proxy,soft,tcp"})
        for (const char *executor : {"engine", "blocks"}) {
            SCOPED_TRACE(list);
            setenv("SWIMLANE_TRANSPORT", list, 1);
            setenv("SWIMLANE_SOFT_EXECUTOR", executor, 1);
            EXPECT_BENCH(line(2, 2, "--tokens 17 --hidden 128 --ragged"));
        }
}

TEST_F(FieldNetwork, F89_NetworkSwitchedOffInAnyCase)
{
    for (const char *word : {"peer", "PEER", "Peer"}) {
        SCOPED_TRACE(word);
        setenv("SWIMLANE_TRANSPORT", word, 1);
        EXPECT_BENCH(line(1, 2, "--tokens 17 --hidden 128"));
        EXPECT_FALSE(ep_bench(line(2, 1, "--tokens 17 --hidden 128"))) << "there is no network";
    }
}

TEST_F(FieldNetwork, F84_ChunksOfAnySize)
{
    for (const char *chunk :
         {"0", "-1", "1", "31", "32", "33", "63", "64", "65", "65536", "2147483648"}) {
        SCOPED_TRACE(chunk);
        setenv("NCCL_EP_TOKENS_PER_CHUNK", chunk, 1);
        EXPECT_BENCH(line(2, 1, "--tokens 73 --hidden 128"));
    }
}

} // namespace
