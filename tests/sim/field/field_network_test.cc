// Field reports about networks: the same exchange over every path.
#include "tests/support/ep_bench.h"
#include "tests/support/words.h"

#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>

namespace
{

/* Before the first message, which settles the level: groups say which network they use. */
const int logging = setenv("SWIMLANE_LOG", "info", 1);

class FieldNetwork : public ::testing::Test
{
  protected:
    ~FieldNetwork() override
    {
        unsetenv("SWIMLANE_TRANSPORT");
        unsetenv("SWIMLANE_SOFT_EXECUTOR");
        unsetenv("SWIMLANE_SOFT_FAULTS");
        unsetenv("SWIMLANE_SOCKET_IFNAME");
        unsetenv("NCCL_EP_TOKENS_PER_CHUNK");
    }
};

std::string line(int nodes, int ranks_per_node, const std::string &more)
{
    return "--place fibers --nodes " + std::to_string(nodes) + " --ranks-per-node " +
           std::to_string(ranks_per_node) + " --experts 210 --topk 8 --iterations 2 --sms 4 " +
           more;
}

void over_tcp()
{
    setenv("SWIMLANE_TRANSPORT", "peer,tcp", 1);
    setenv("SWIMLANE_SOCKET_IFNAME", "lo", 1);
}

// What is said by a run that must pass, or fail.
std::string said_by(const std::string &words, bool passes)
{
    ::testing::internal::CaptureStderr();
    const bool passed = ep_bench(words);
    const std::string text = ::testing::internal::GetCapturedStderr();

    EXPECT_EQ(passed, passes) << words << "\n" << text;
    return text;
}

std::string failing(const std::string &more)
{
    return said_by(line(2, 1, more), false);
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
        const std::string text = failing("--tokens 32 --hidden 128 --timeout-ms 20");

        for (const char *words : {"rank 0 ", "rank 1 has not", "network soft", "limit 20 ms"})
            EXPECT_NE(text.find(words), std::string::npos) << text;
    }
}

// The oracle is the same for all: what verifies in one combination has the bytes of the others.
TEST_F(FieldNetwork, F85_PathsSwitchedOffDoNotChangeResults)
{
    for (const char *list : {"auto", "peer,soft", "soft", "mlx5,soft", "peer,mlx5,verbs,soft,tcp"})
        for (const char *executor : {"engine", "blocks"}) {
            SCOPED_TRACE(list);
            setenv("SWIMLANE_TRANSPORT", list, 1);
            setenv("SWIMLANE_SOFT_EXECUTOR", executor, 1);
            EXPECT_NE(said_by(line(2, 2, "--tokens 17 --hidden 128 --ragged"), true)
                          .find("group: network soft between "),
                      std::string::npos);
        }
}

// The same through the proxy over TCP, inside a node as well.
TEST_F(FieldNetwork, F85_ProxiesDoNotChangeResults)
{
    over_tcp();
    for (const char *list : {"peer,tcp", "tcp", "mlx5,tcp"}) {
        SCOPED_TRACE(list);
        setenv("SWIMLANE_TRANSPORT", list, 1);
        EXPECT_NE(said_by(line(2, 2, "--tokens 17 --hidden 128 --ragged"), true)
                      .find("group: network tcp between "),
                  std::string::npos);
    }
}

// ---- failures made on purpose, through the proxy over TCP ----

TEST_F(FieldNetwork, RehearsedTroubleOverTcpDoesNotChangeResults)
{
    over_tcp();
    for (const char *faults :
         {"delay=5us;jitter=20us", "loss=100;retry=100us", "reorder=on;seed=3", "hold=30us",
          "stall=0+300us", "reorder=on;jitter=20us;loss=50;retry=100us;hold=10us"}) {
        SCOPED_TRACE(faults);
        setenv("SWIMLANE_SOFT_FAULTS", faults, 1);
        EXPECT_BENCH(line(2, 1, "--tokens 32 --hidden 128 --schedule-seed 5"));
        EXPECT_BENCH(line(2, 1, "--tokens 32 --hidden 128 --link 100:2 --schedule-seed 6"));
    }
}

TEST_F(FieldNetwork, RehearsedFailuresOverTcpEndWithSentences)
{
    const struct {
        const char *faults, *words;
    } rows[] = {
        {"rank1:drop=0+", "rank 1 has not"},
        {"rank1:stall=0+10s", "rank 1 has not"},
        {"rank1:dead=500us", "rank 1"},
        {"rank0:error=2/access", "syndrome 0x13"},
        {"rank0:error=2/protection", "syndrome 0x04"},
        {"rank0:error=2/rnr", "syndrome 0x16"},
        {"rank0:loss=1000", "syndrome 0x15"},
        {"rank0:restart=500us+1ms", "queue pair"},
    };

    over_tcp();
    for (const auto &row : rows) {
        SCOPED_TRACE(row.faults);
        setenv("SWIMLANE_SOFT_FAULTS", row.faults, 1);
        const std::string text =
            failing("--tokens 32 --hidden 128 --iterations 30 --timeout-ms 20");

        EXPECT_NE(text.find(row.words), std::string::npos) << row.words << ": " << text;
        if (text.find("ncclEpCreateGroup") != std::string::npos)
            continue; // it was early: there are no calls yet
        for (const char *words : {"rank 0 ", "network tcp", "limit 20 ms"})
            EXPECT_NE(text.find(words), std::string::npos) << words << ": " << text;
    }
}

TEST_F(FieldNetwork, FaultsThatNobodyMakesAreSaid)
{
    const struct {
        const char *faults, *executor, *words;
        int nodes;
        bool runs;
    } rows[] = {
        {"rank2:drop=0+", "engine", "names rank 2, and there are ranks 0 to 1", 2, true},
        {"rank0.link99:drop=0+", "engine", "names link 99, and there are links 0 to", 2, true},
        {"drop=0+", "engine", "one node has no network", 1, true},
        {"loss=5", "blocks", "asks for loss, which a software NIC on blocks cannot do", 2, false},
    };

    for (const auto &row : rows) {
        SCOPED_TRACE(row.faults);
        setenv("SWIMLANE_SOFT_FAULTS", row.faults, 1);
        setenv("SWIMLANE_SOFT_EXECUTOR", row.executor, 1);
        ::testing::internal::CaptureStderr();
        EXPECT_EQ(ep_bench(line(row.nodes, 2 / row.nodes, "--tokens 17 --hidden 128")), row.runs);
        const std::string text = ::testing::internal::GetCapturedStderr();

        EXPECT_NE(text.find(row.words), std::string::npos) << text;
    }
}

TEST_F(FieldNetwork, F89_NetworkSwitchedOffInAnyCase)
{
    for (const char *word : {"peer", "PEER", "Peer"}) {
        SCOPED_TRACE(word);
        setenv("SWIMLANE_TRANSPORT", word, 1);
        EXPECT_EQ(
            occurrences(said_by(line(1, 2, "--tokens 17 --hidden 128"), true), "group: network"),
            0u);
        EXPECT_EQ(occurrences(failing("--tokens 17 --hidden 128"), "group: network"), 0u);
    }
}

TEST_F(FieldNetwork, F84_ChunksOfAnySize)
{
    for (const char *chunk :
         {"0", "-1", "1", "31", "32", "33", "63", "64", "65", "65536", "2147483648"}) {
        SCOPED_TRACE(chunk);
        setenv("NCCL_EP_TOKENS_PER_CHUNK", chunk, 1);
        const std::string text = said_by(line(2, 1, "--tokens 73 --hidden 128"), true);
        const bool refused = strcmp(chunk, "-1") == 0 || strcmp(chunk, "2147483648") == 0;

        /* once for each rank */
        EXPECT_EQ(occurrences(text, "NCCL_EP_TOKENS_PER_CHUNK '"), refused ? 2u : 0u) << text;
    }
}

// Every network setting beside every transport: it is used, or one line says that it is not. None
// stops a group because a default does not suit a transport.
TEST_F(FieldNetwork, F98_EverySettingBesideEveryTransport)
{
    enum { VERBS = 1, SOFT = 2, ANY_SOFT = 4, ALL = 8 };
    const struct {
        const char *name, *value;
        int used_by;
    } settings[] = {{"SWIMLANE_IB_HCA", "=mlx5_7:1", VERBS},
                    {"NCCL_IB_HCA", "^mlx5_0", VERBS},
                    {"SWIMLANE_IB_GID_INDEX", "3", VERBS},
                    {"SWIMLANE_IB_SL", "3", VERBS},
                    {"NCCL_IB_SL", "15", VERBS},
                    {"SWIMLANE_IB_TC", "106", VERBS},
                    {"SWIMLANE_IB_TIMEOUT", "31", VERBS},
                    {"NCCL_IB_RETRY_CNT", "1", VERBS},
                    {"SWIMLANE_IB_PKEY", "7", VERBS},
                    {"SWIMLANE_MLX5_RINGS", "host", VERBS},
                    {"SWIMLANE_VERBS_ADDS", "messages", VERBS},
                    {"SWIMLANE_SOFT_LINK", "400:3", ANY_SOFT},
                    {"SWIMLANE_SOFT_EXECUTOR", "blocks", SOFT},
                    {"SWIMLANE_SOFT_BLOCKS", "2", SOFT},
                    {"SWIMLANE_SOCKET_IFNAME", "lo", ALL},
                    {"SWIMLANE_NICS", "2", ALL},
                    {"SWIMLANE_IB_QPS", "1", ALL},
                    {"NCCL_IB_QPS_PER_CONNECTION", "1", ALL}};
    const std::string shape = line(2, 1, "--tokens 5 --hidden 16 --iterations 1 --warmup 0");

    for (const char *transports : {"auto", "soft", "peer,mlx5,soft", "peer,tcp", "mlx5,verbs,tcp"})
        for (const auto &setting : settings) {
            const bool tcp = strstr(transports, "tcp") != nullptr;
            const Variable list("SWIMLANE_TRANSPORT", transports);
            const Variable loopback("SWIMLANE_SOCKET_IFNAME", tcp ? "lo" : "");
            const Variable one(setting.name, setting.value);
            const int uses = tcp ? ANY_SOFT | ALL : SOFT | ANY_SOFT | ALL;

            SCOPED_TRACE(std::string(transports) + " " + setting.name);
            const std::string text = said_by(shape, true);

            EXPECT_EQ(occurrences(text, "does not use " + std::string(setting.name)),
                      uses & setting.used_by ? 0u : 1u)
                << text;
            EXPECT_EQ(occurrences(text, "does not use"), uses & setting.used_by ? 0u : 1u) << text;
        }
}

// Without a network none of them is used.
TEST_F(FieldNetwork, F98_SettingsOfANetworkInOneNode)
{
    const Variable hca("SWIMLANE_IB_HCA", "mlx5_0"), link("SWIMLANE_SOFT_LINK", "400:3"),
        sl("NCCL_IB_SL", "3");

    EXPECT_EQ(occurrences(said_by(line(1, 2, "--tokens 5 --hidden 16"), true),
                          "no network between nodes does not use SWIMLANE_IB_HCA, NCCL_IB_SL, "
                          "SWIMLANE_SOFT_LINK"),
              1u);
}

} // namespace
