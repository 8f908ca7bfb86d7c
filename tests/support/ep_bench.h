// ep_bench.h: run swimlane-bench inside a test, with the command line a person would use to repeat
// it.
#ifndef SWL_TESTS_SIM_EP_BENCH_H
#define SWL_TESTS_SIM_EP_BENCH_H

#include "tests/support/ranks_here.h"
#include "tests/support/variable.h"
#include "tools/bench.h"

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

// Runs of a test over seeds: SWL_TEST_SEEDS if set, else by what the build and the form allow.
inline int test_seeds(int usual, int sanitized, int in_long_form)
{
    const char *text = std::getenv("SWL_TEST_SEEDS");

    if (text)
        return std::atoi(text);
    if (std::getenv("SWL_TEST_LONG"))
        return slow_build ? usual : in_long_form;
    return slow_build ? sanitized : usual;
}

// Skips the test, with the reason, when this machine or build cannot run such a job.
inline bool ep_bench_possible(const bench_options &o)
{
    const std::vector<int> nodes(o.node_size, o.node_size + o.nnodes);
    const std::string missing = ranks_missing(nodes);

    if (!missing.empty())
        [&missing] { GTEST_SKIP() << missing; }();
    return missing.empty();
}

// True when the run verified. The options are words of one command line.
inline bool ep_bench(const std::string &line, bool quiet = true)
{
    static bench_options options;
    std::istringstream words((quiet ? "swimlane-bench --quiet " : "swimlane-bench ") + line);
    std::vector<std::string> arguments;
    std::vector<char *> argv;
    std::string word;

    while (words >> word)
        arguments.push_back(word);
    for (std::string &argument : arguments)
        argv.push_back(argument.data());
    bool ok = bench_options_parse(&options, (int)argv.size(), argv.data()) == BENCH_RUN &&
              (!ep_bench_possible(options) ||
               (bench_job_place(&options, argv.data()) && bench_job_run(&options)));
    bench_options_free(&options);
    return ok;
}

#define EXPECT_BENCH(line) EXPECT_TRUE(ep_bench(line)) << "repeat with: swimlane-bench " << (line)

#endif
