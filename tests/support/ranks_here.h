/* ranks_here.h: where the ranks of a test run: on fibers of the emulator, or as threads on the GPUs
 * of this machine. A job that this machine or this build cannot run skips its test and says why. */
#ifndef SWL_RANKS_HERE_H
#define SWL_RANKS_HERE_H

#include "src/runtime/runtime.h"
#include "tests/support/runtime_run.h"
#include "tools/support/comm.h"

#include <numeric>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <vector>

#if SWL_EMULATED
constexpr bool on_gpus = false;
#else
constexpr bool on_gpus = true;
#endif

/* A test that is built for the stand-in runs no job with NCCL itself, which would leave most of
 * them out. */
#ifdef SWL_TEST_STANDIN
constexpr bool wants_standin = true;
#else
constexpr bool wants_standin = false;
#endif

/* Under a sanitizer, which takes up to ten times as long, tests make do with less. */
#ifdef SWL_SANITIZED
constexpr bool slow_build = true;
#else
constexpr bool slow_build = false;
#endif

inline int gpus_here()
{
    int n = 0;

    swl_ranks_environment(); /* read when CUDA is used first */
    EXPECT_EQ(swl_gpu_count(&n), cudaSuccess);
    return n;
}

/* GPUs that a job uses which takes so many at most (0: all there are). */
inline int gpus_used(int max_gpus)
{
    const int ngpus = gpus_here();

    return max_gpus && max_gpus < ngpus ? max_gpus : ngpus;
}

/* Why a job with nodes of these sizes cannot run here on so many GPUs at most, or "". */
inline std::string ranks_missing(const std::vector<int> &nodes, int max_gpus = 0)
{
    const int nranks = std::accumulate(nodes.begin(), nodes.end(), 0);
    const int used = on_gpus ? gpus_used(max_gpus) : nranks;

    if (!on_gpus)
        return "";
    if (used == 0)
        return "no GPU on this machine";
    if ((nodes.size() > 1 || nranks > used) && !swl_comm_is_standin())
        return "NCCL takes threads for one node, and one rank of it on a GPU; with the stand-in it "
               "runs";
    return "";
}

/* Whether this test has run a job; a test that has is not skipped for the jobs it leaves out. */
inline bool any_job_of_this_test(bool one_runs = false)
{
    static const testing::TestInfo *ran;
    const testing::TestInfo *test = testing::UnitTest::GetInstance()->current_test_info();

    if (one_runs)
        ran = test;
    return ran && ran == test;
}

/* Emulated: under schedule 1, or the one that SIMT_SEED names. On GPUs: ranks dealt to them in
 * turns. */
inline void on_ranks(const std::vector<int> &nodes, const rank_body &body, int max_gpus = 0)
{
    const std::string missing = ranks_missing(nodes, max_gpus);
    std::vector<int> devices;

    EXPECT_TRUE(!wants_standin || swl_comm_is_standin()) << "linked with NCCL, not the stand-in";

    if (!missing.empty() && any_job_of_this_test()) {
        printf("    left out: %s\n", missing.c_str());
        return;
    }
    if (!missing.empty())
        GTEST_SKIP() << missing;
    any_job_of_this_test(true);
    if (!on_gpus) {
        EXPECT_EQ(run_ranks(nodes, SWL_PLACE_FIBERS, getenv("SIMT_SEED") ? 0 : 1, body), 0);
        return;
    }
    const int ngpus = gpus_used(max_gpus);
    for (int n = std::accumulate(nodes.begin(), nodes.end(), 0), r = 0; r < n; r++)
        devices.push_back(r % ngpus);
    EXPECT_EQ(run_ranks(nodes, SWL_PLACE_THREADS, 0, body, devices.data()), 0);
}

/* Copies and fills without a stream are done: streams that do not block are not ordered behind
 * them. */
inline void settle()
{
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
}

#endif
