// bench_test.cc: what swimlane-bench says and does when a run fails.
#include "tests/support/ep_bench.h"

#include <cstdlib>
#include <fstream>
#include <unistd.h>

namespace
{

// Table and JSON file of a run that passes.
struct Results {
    std::string table, json;

    explicit Results(const std::string &line)
    {
        const std::string path =
            testing::TempDir() + "swl-bench-" + std::to_string(getpid()) + ".json";

        testing::internal::CaptureStdout();
        const bool ok = ep_bench(line + " --json " + path, false);

        table = testing::internal::GetCapturedStdout();
        EXPECT_TRUE(ok) << "repeat with: swimlane-bench " << line << "\n" << table;
        std::ifstream in(path);

        json.assign(std::istreambuf_iterator<char>(in), {});
        unlink(path.c_str());
    }
    // The first number of this name behind the one of `section`.
    double number(const std::string &section, const std::string &name) const
    {
        const std::string key = "\"" + name + "\":";
        const size_t at = json.find(key, json.find("\"" + section + "\":"));

        EXPECT_NE(at, std::string::npos) << section << " " << name << "\n" << json;
        return at == std::string::npos ? -1 : std::stod(json.substr(at + key.size()));
    }
    bool says(const char *words) const
    {
        return table.find(words) != std::string::npos;
    }
};

// Words of the log of a run that must fail.
std::string failed_run(const char *faults, const std::string &line)
{
    setenv("SWIMLANE_SOFT_FAULTS", faults, 1);
    testing::internal::CaptureStderr();
    EXPECT_FALSE(ep_bench(line)) << "did not fail: swimlane-bench " << line;
    unsetenv("SWIMLANE_SOFT_FAULTS");
    return testing::internal::GetCapturedStderr();
}

// One rank fails in a call, the others come through it and wait for that rank before the next one.
TEST(Bench, RanksComeToTheEndTogether)
{
    const std::string shape =
        "--node-sizes 2,1 --tokens 1 --hidden 64 --topk 3 --experts 3 --sms 4 "
        "--iterations 3 --timeout-ms 50 --schedule-seed 356815 --seed 356815";

    for (const char *more : {"", " --pipelined", " --update-once"}) {
        for (int entry = 0; entry < 10; entry++) {
            const std::string faults = "rank0:drop=" + std::to_string(entry) + "+";
            const std::string log = failed_run(faults.c_str(), shape + more);

            EXPECT_NE(log.find("gave up after"), std::string::npos) << faults << more << "\n"
                                                                    << log;
            for (const char *word :
                 {"invalid usage", "ncclAllGather", "barrier failed", "GroupDestroy"})
                EXPECT_EQ(log.find(word), std::string::npos) << faults << more << "\n" << log;
        }
    }
}

// All ranks are refused for the same reason.
TEST(Bench, WhatAllRanksSayIsPrintedOnce)
{
    const std::string log = failed_run("", "--nodes 1 --ranks-per-node 3 --algorithm ll");
    size_t lines = 0;

    for (size_t at = log.find("swimlane-bench:"); at != std::string::npos;
         at = log.find("swimlane-bench:", at + 1))
        lines++;
    EXPECT_EQ(lines, 2u) << log;
    EXPECT_NE(log.find("swimlane-bench: and on 2 more ranks\n"), std::string::npos) << log;
}

// Refused before any rank starts, naming the option and what was given.
TEST(Bench, WrongValuesAreNamed)
{
    const struct {
        const char *line;
        std::vector<const char *> words;
    } bad[] = {{"--nodes 0", {"'0'", "--nodes"}},
               {"--ranks-per-node 0", {"'0'", "--ranks-per-node"}},
               {"--tokens 1e3", {"'1e3'", "--tokens"}},
               {"--link inf:0", {"'inf:0'", "--link"}},
               {"--link 1e-9:0", {"'1e-9:0'", "--link"}},
               {"--node-sizes 3,5 --nodes 7", {"--node-sizes", "instead of --nodes"}},
               {"--nodes 1 --node-sizes 3,5", {"--node-sizes", "instead of --nodes"}},
               {"--node-sizes 3,5 --ranks-per-node 4", {"--node-sizes", "--ranks-per-node"}}};

    for (const auto &b : bad) {
        const std::string log = failed_run("", b.line);

        for (const char *word : b.words)
            EXPECT_NE(log.find(word), std::string::npos) << b.line << "\n" << log;
        EXPECT_EQ(log.find("rank 0"), std::string::npos) << b.line << "\n" << log;
    }
}

// One sentence, with the cause: what a shape may be is no news for who named a file.
TEST(Bench, AWrongRoutingIsOneSentenceWithTheCause)
{
    const struct {
        const char *value, *cause;
    } bad[] = {{"no-such-file.npy", "No such file"}, {"/", "'/'"},
               {"zipf:", "zipf:0 to zipf:8"},        {"zipf:9", "zipf:0 to zipf:8"},
               {"hot:2", "hot:0 to hot:1"},          {"uniform:1", "No such file"}};

    for (const auto &b : bad) {
        const std::string log = failed_run("", std::string("--routing ") + b.value);

        EXPECT_NE(log.find(b.cause), std::string::npos) << log;
        EXPECT_NE(log.find("--routing"), std::string::npos) << log;
        EXPECT_EQ(log.find('\n'), log.size() - 1) << log;
        EXPECT_EQ(log.find("uniform (default)"), std::string::npos) << log;
    }
}

// A wire model that the library ignores is none in the report either.
TEST(Bench, LinkModelOfTheReportIsTheLibrarys)
{
    setenv("SWIMLANE_SOFT_LINK", "inf:0", 1);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const bool ok = ep_bench("--nodes 2 --ranks-per-node 1 --tokens 1 --hidden 8 --sms 2", false);
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string report = testing::internal::GetCapturedStdout();

    unsetenv("SWIMLANE_SOFT_LINK");
    EXPECT_TRUE(ok);
    EXPECT_NE(said.find("'inf:0' is not understood"), std::string::npos) << said;
    EXPECT_NE(report.find("without a wire model"), std::string::npos) << report;
}

// Only ranks that are fibers have virtual time; figures of real time model nothing.
TEST(Bench, ReportSaysWhetherItsTimesAreModelled)
{
    for (const char *place : {"processes", "threads", "fibers"}) {
        const bool modelled = std::string(place) == "fibers";

        testing::internal::CaptureStdout();
        const bool ok = ep_bench(std::string("--nodes 2 --ranks-per-node 1 --tokens 1 --hidden 8 "
                                             "--sms 2 --iterations 1 --place ") +
                                     place,
                                 false);
        const std::string report = testing::internal::GetCapturedStdout();

        EXPECT_TRUE(ok) << place << "\n" << report;
        EXPECT_EQ(report.find("modelled (virtual time") != std::string::npos, modelled) << report;
        EXPECT_EQ(report.find("models nothing") == std::string::npos, modelled) << report;
    }
}

// Lanes that wait look at the clock; that took the time of the whole run. Times are virtual: the
// machine has no part in them.
TEST(Bench, TimesWithALinkAreNotThoseOfLooksAtTheClock)
{
    double before = 0;

    for (const char *nodes : {"4", "8"}) {
        const Results run(
            std::string("--ranks-per-node 1 --tokens 64 --hidden 64 --sms 4 --iterations 1 "
                        "--warmup 0 --no-verify --link 400:3 --nodes ") +
            nodes);
        const double us = run.number("dispatch", "median_us");

        EXPECT_LT(us, 90) << nodes << " nodes"; // 43 and 65; 118 and 306 with one clock for all
        if (before > 0) {
            EXPECT_LT(us, 2 * before) << "twice the nodes share the same bytes";
        }
        before = us;
    }
}

// A single rank moves nothing.
TEST(Bench, D_B5OneGpuIsTwoNodesOfTwoRanks)
{
    int nodes = 0, ranks = 0;

    bench_default_nodes(1, &nodes, &ranks);
    EXPECT_EQ(nodes, 2);
    EXPECT_EQ(ranks, 2);
    bench_default_nodes(8, &nodes, &ranks);
    EXPECT_EQ(nodes, 1);
    EXPECT_EQ(ranks, 8);
    const Results one("--nodes 1 --ranks-per-node 1 --tokens 2 --hidden 8 --sms 2 --iterations 1");

    EXPECT_TRUE(one.says("one rank: no row leaves it")) << one.table;
    EXPECT_FALSE(one.says("1 ranks")) << one.table;
}

TEST(Bench, D_B5TrafficInsideOneGpuIsNoNvlink)
{
    const std::string shape = "--nodes 1 --ranks-per-node 4 --tokens 16 --hidden 64 --topk 4 "
                              "--experts 8 --sms 2 --iterations 1 ";
    const Results apart(shape), shared(shape + "--ranks-per-gpu 4"),
        pairs(shape + "--ranks-per-gpu 2");

    EXPECT_TRUE(apart.says("NVLink GB/s") && !apart.says("in GPU GB/s")) << apart.table;
    EXPECT_TRUE(!shared.says("NVLink GB/s") && shared.says("in GPU GB/s")) << shared.table;
    EXPECT_TRUE(pairs.says("NVLink GB/s") && pairs.says("in GPU GB/s")) << pairs.table;
    EXPECT_GT(apart.number("dispatch", "nvlink_bytes"), 0);
    EXPECT_EQ(apart.number("dispatch", "shared_gpu_bytes"), 0);
    EXPECT_EQ(shared.number("dispatch", "nvlink_bytes"), 0);
    EXPECT_EQ(shared.number("dispatch", "shared_gpu_bytes"),
              apart.number("dispatch", "nvlink_bytes"));
    EXPECT_GT(pairs.number("combine", "nvlink_bytes"), 0);
    EXPECT_GT(pairs.number("combine", "shared_gpu_bytes"), 0);
}

// What a call takes of the host, apart from barrier and copies.
TEST(Bench, D_B5CostOfTheCallsHasAColumn)
{
    const Results run("--nodes 2 --ranks-per-node 1 --tokens 64 --hidden 64 --sms 2");

    EXPECT_TRUE(run.says("call us") && run.says("wall ms")) << run.table;
    for (const char *operation : {"update", "dispatch", "combine"}) {
        EXPECT_GT(run.number(operation, "call_us"), 0) << operation;
        EXPECT_LT(run.number(operation, "call_us"), 1e3 * run.number(operation, "wall_ms"));
    }
}

// Every token of each rank goes to the other node, to the one ring or dealt to all in turn.
TEST(Bench, D_A4FullestRingIsCounted)
{
    const std::string shape = "--nodes 2 --ranks-per-node 1 --hidden 8 --topk 2 --experts 2 "
                              "--sms 4 --iterations 1 --warmup 0 ";

    for (int tokens : {1, 300, 1000}) {
        const Results run(shape + "--tokens " + std::to_string(tokens));
        const int rings = (int)run.number("shape", "rings");
        const double slots = run.number("shape", "ring_slots");

        ASSERT_GT(rings, 0);
        ASSERT_GT(slots, 0);
        for (const char *operation : {"dispatch", "combine"})
            EXPECT_EQ(run.number(operation, "ring_rounds"), (tokens + rings - 1) / rings / slots);
        EXPECT_EQ(run.number("update", "ring_rounds"), 0);
        EXPECT_TRUE(run.says("ring rounds")) << run.table;
    }
    const Results silent(shape + "--tokens 64 --negative-fraction 1");

    EXPECT_EQ(silent.number("dispatch", "ring_rounds"), 0);
    const Results near("--nodes 1 --ranks-per-node 2 --tokens 8 --hidden 8 --sms 2 --iterations 1");

    EXPECT_EQ(near.number("shape", "rings"), 0);
    EXPECT_EQ(near.number("dispatch", "ring_rounds"), 0);
}

// The emulator has a limit; ranks beyond it share GPUs.
TEST(Bench, MoreRanksThanGpusShareThem)
{
    static bench_options o;
    std::string words[] = {"swimlane-bench", "--nodes", "2", "--ranks-per-node", "150"};
    char *argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                    words[4].data()};

    ASSERT_EQ(bench_options_parse(&o, 5, argv), BENCH_RUN);
    ASSERT_TRUE(bench_job_place(&o, argv));
    EXPECT_EQ(o.size.nranks, 300);
    EXPECT_LT(o.device_of[299], 256);
    bench_options_free(&o);
}

} // namespace
