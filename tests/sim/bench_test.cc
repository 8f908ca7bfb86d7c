// bench_test.cc: what swimlane-bench says and does when a run fails.
#include "tests/sim/ep_bench.h"

#include <cstdlib>

namespace
{

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

// A link model that the library ignores is none in the report either.
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
    EXPECT_NE(report.find("without a link model"), std::string::npos) << report;
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
