/* runtime_run.h: run a test body as host code of one or several virtual GPUs, under several
 * seeds. */
#ifndef SWL_RUNTIME_RUN_H
#define SWL_RUNTIME_RUN_H

#include "tools/support/ranks.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

using rank_body = std::function<void(struct swl_rank *)>;

inline int run_rank_body(struct swl_rank *rank, void *arg)
{
    (*static_cast<rank_body *>(arg))(rank);
    return 0;
}

inline int run_ranks(const std::vector<int> &nodes, enum swl_place place, uint64_t seed,
                     rank_body body, const int *device_of_rank = nullptr)
{
    struct swl_job job = {};

    job.nnodes = (int)nodes.size();
    job.node_ranks = nodes.data();
    job.place = place;
    job.device_of_rank = device_of_rank;
    job.seed = seed;
    job.timeout_ns = device_of_rank ? 300000000000ull : 60000000000ull;
    return swl_ranks_run(&job, run_rank_body, &body);
}

/* One host fiber, in order and under a few seeds. */
inline void on_host(const rank_body &body)
{
    for (uint64_t seed : {0, 1, 2, 3})
        EXPECT_EQ(run_ranks({1}, SWL_PLACE_FIBERS, seed, body), 0) << "seed " << seed;
}

#endif
