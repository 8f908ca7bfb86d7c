// ep_bench.h: run swimlane-bench inside a test, with the command line a person would use to repeat it.
#ifndef SWL_TESTS_SIM_EP_BENCH_H
#define SWL_TESTS_SIM_EP_BENCH_H

#include "tools/bench.h"

#include <sstream>
#include <string>
#include <vector>

// True when the run verified. The options are words of one command line.
inline bool ep_bench(const std::string &line)
{
    static bench_options options;
    std::istringstream words("swimlane-bench --quiet " + line);
    std::vector<std::string> arguments;
    std::vector<char *> argv;
    std::string word;

    while (words >> word)
        arguments.push_back(word);
    for (std::string &argument : arguments)
        argv.push_back(argument.data());
    bool ok = bench_options_parse(&options, (int)argv.size(), argv.data()) == BENCH_RUN &&
              bench_job_run(&options);
    bench_options_free(&options);
    return ok;
}

#define EXPECT_BENCH(line) EXPECT_TRUE(ep_bench(line)) << "repeat with: swimlane-bench " << (line)

#endif
