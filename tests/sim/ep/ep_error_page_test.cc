// ep_error_page_test.cc: the host of every rank hears of a failure, wherever it happened.
#include "tests/sim/ep/ep_failure.h"

namespace
{

// The failing dispatch needs nothing from the ranks of the first node, so that all their calls come
// through. They hear of it from others, with no call of their own; where that node is the larger
// one, some by the page of the node only, as no link goes from whoever gave up to them.
class QuietRank : public FailingRank
{
  public:
    bool quiet;

    QuietRank(const swl_rank *rank, const std::vector<int> &nodes)
        : FailingRank(rank, rank->nranks - 1), quiet(rank->rank < nodes[0])
    {
        const size_t all = 2 * (size_t)rank->nranks, split = 2 * (size_t)nodes[0];

        for (size_t i = 0; i < ids.size(); i++) {
            const size_t spread = i + (size_t)rank->rank;

            ids[i] = (int64_t)(quiet ? spread % split : split + spread % (all - split));
        }
    }
};

void come_through_and_hear(const swl_rank *rank, const std::vector<int> &nodes)
{
    QuietRank r(rank, nodes);

    EXPECT_EQ(r.update(), ncclSuccess);
    r.sync();
    expect_comm_works(rank);
    if (!r.is_victim()) {
        EXPECT_EQ(r.dispatch(), ncclSuccess);
        if (r.quiet) {
            EXPECT_EQ(r.combine(), ncclSuccess);
        }
    }
    r.sync();
    EXPECT_TRUE(!r.quiet || r.bits() == 0) << "rank " << rank->rank << " did not come through";
    expect_comm_works(rank); /* all have ended their calls */
    EXPECT_EQ(r.bits(), ASYNC_TIMEOUT) << "rank " << rank->rank;
    r.expect_refusal();
    EXPECT_EQ(r.came_through(), r.quiet || r.is_victim()) << swimlaneLastError();
    expect_blame(r, NEVER);
    EXPECT_EQ(ncclEpComplete(r.handle, nullptr, r.stream), ncclSuccess);
    if (r.quiet)
        r.expect_exact();
    r.clear();
    r.exact_steps(rank->nranks == 4 ? steps_after(1) : 3);
}

class EpQuiet : public testing::TestWithParam<std::vector<int>>
{
};

TEST_P(EpQuiet, RanksHearWhatOthersGaveUp)
{
    on_ranks(GetParam(), [&](swl_rank *rank) { come_through_and_hear(rank, GetParam()); });
}

std::string nodes_name(const testing::TestParamInfo<std::vector<int>> &info)
{
    std::string name = "Nodes";

    for (int n : info.param)
        name += "_" + std::to_string(n);
    return name;
}

INSTANTIATE_TEST_SUITE_P(
    EpAlarm, EpQuiet,
    testing::ValuesIn(std::vector<std::vector<int>>{
        {1, 2}, {3, 2}, {2, 2}, {1, 1, 1}, {1, 1, 1, 1}, {4, 4}, {3, 5}, {5, 3}}),
    nodes_name);

TEST(EpAlarm, ReachesEveryRankOfLargerShapes)
{
    const struct {
        std::vector<int> nodes;
        failure how;
        int call, steps;
    } cases[] = {
        {{4}, NEVER, 2, 3},
        {{1, 1, 1, 1}, DEAD_DOORBELL, 1, 3},
        {{1, 1, 1, 1}, LATE, 2, 3},
        {{4, 4}, NEVER, 1, 3},
        {{4, 4}, STALLED_LINK, 2, 3},
        {{3, 5}, STALLED_LINK, 0, 3},
        {{3, 5}, DEAD_DOORBELL, 1, steps_after(1)},
    };

    for (const auto &c : cases) {
        SCOPED_TRACE(shape_name(c.nodes) + " " + failure_name(c.how));
        on_ranks(c.nodes, [&](swl_rank *rank) {
            FailingRank r(rank, rank->nranks / 2);

            r.exact_steps(1);
            fail_and_recover(r, c.how, c.call, c.steps);
        });
        if (HasFailure())
            break;
    }
}

// One gateway takes slots and returns no credit: nothing fails until a ring is full.
TEST(EpAlarm, FollowsWithheldCredit)
{
    for (const std::vector<int> &nodes :
         std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 1, 1}, {3, 2}, {4, 4}, {3, 5}}) {
        SCOPED_TRACE(shape_name(nodes));
        on_ranks(nodes, [&](swl_rank *rank) {
            FailingRank r(rank, nodes[0], 1); /* the first of its node serves sources everywhere */
            uint64_t began;

            r.nnodes = (int)nodes.size();
            r.exact_steps(1);
            r.route_everywhere();
            EXPECT_EQ(r.update(), ncclSuccess);
            r.sync();
            expect_comm_works(rank);
            r.begin(NO_CREDIT);
            expect_comm_works(rank);
            began = swl_gpu_now_ns();
            for (int i = 0; i < 30 && r.bits() == 0; i++) { /* a ring has up to 64 slots */
                EXPECT_EQ(r.dispatch(), ncclSuccess) << swimlaneLastError();
                r.sync();
            }
            EXPECT_LE(swl_gpu_now_ns() - began, failure_most_ns);
            r.accepted = false;
            expect_comm_works(rank);
            r.expect_told(NO_CREDIT);
            r.expect_refusal();
            if (rank->nranks == 2 && !r.is_victim())
                expect_sentence({"has not freed slots of its receive ring"});
            r.end_fault();
            r.clear();
            r.exact_steps(3);
        });
        if (HasFailure())
            break;
    }
}

} // namespace
