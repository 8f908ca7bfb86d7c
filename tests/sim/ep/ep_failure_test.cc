// ep_failure_test.cc: every failure ends in time, is told to every rank, and can be recovered from
// where the hardware allows it. Runs emulated and on GPUs.
#include "tests/sim/ep/ep_failure.h"

#include <tuple>

namespace
{

typedef std::vector<std::vector<int>> shapes_list;

// GPUs have no time for more than both kinds of links: what differs there is not the shape.
const std::vector<int> one_node = {on_gpus ? 2 : 3};
#ifdef SWL_ONE_SHAPE
const shapes_list nodes_shapes = {{2, 2}};
#else
const shapes_list nodes_shapes =
    on_gpus ? shapes_list{{2, 2}} : shapes_list{{1, 1}, {2, 2}, {1, 1, 1}, {3, 2}};
#endif

shapes_list one_node_and(shapes_list shapes)
{
    shapes.insert(shapes.begin(), one_node);
    return shapes;
}

// On GPUs dispatch also fails with single ranks as nodes.
shapes_list shapes_for(int call)
{
    return on_gpus && call == 1 ? shapes_list{{1, 1}, {2, 2}} : nodes_shapes;
}

bool needs_network(failure how)
{
    return how != NEVER && how != LATE;
}

class EpFailure : public testing::TestWithParam<std::tuple<failure, int>>
{
};

TEST_P(EpFailure, EndsInTimeEverywhereAndRecovers)
{
    const failure how = std::get<0>(GetParam());
    const int call = std::get<1>(GetParam());

    for (const std::vector<int> &nodes :
         needs_network(how) ? shapes_for(call) : one_node_and(shapes_for(call))) {
        SCOPED_TRACE(shape_name(nodes));
        on_ranks(nodes, [&](swl_rank *rank) {
            FailingRank r(rank, rank->nranks - 1);

            r.exact_steps(2);
            fail_and_recover(r, how, call, steps_after(call));
        });
        if (HasFailure())
            break;
    }
}

std::string case_name(const testing::TestParamInfo<std::tuple<failure, int>> &info)
{
    return failure_name(std::get<0>(info.param)) + std::string("In") +
           call_name(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Calls, EpFailure,
                         testing::Combine(testing::Values(DEAD_DOORBELL, STALLED_LINK, NEVER, LATE),
                                          testing::Range(0, 3)),
                         case_name);

class EpLost : public testing::TestWithParam<std::tuple<failure, int>>
{
};

// A queue pair in error is connected anew by the first call after ErrorClear.
TEST_P(EpLost, IsConnectedAnew)
{
    const failure how = std::get<0>(GetParam());
    const int call = std::get<1>(GetParam());

    for (const std::vector<int> &nodes : shapes_for(call)) {
        SCOPED_TRACE(shape_name(nodes));
        on_ranks(nodes, [&](swl_rank *rank) {
            FailingRank r(rank, rank->nranks - 1);

            r.exact_steps(2);
            for (int twice = 0; twice < 2; twice++) {
                r.failing_step(how, call);
                expect_comm_works(rank);
                r.expect_told(how);
                r.expect_refusal();
                if (how == ERROR_ENTRY && r.is_victim())
                    expect_sentence({"queue pair 0x", "error completion", " (syndrome 0x"});
                r.end_fault(how);
                r.clear();
                r.exact_steps(twice ? 10 : 3);
            }
        });
        if (HasFailure())
            break;
    }
}

INSTANTIATE_TEST_SUITE_P(Calls, EpLost,
                         testing::Combine(testing::Values(ERROR_ENTRY, DEAD_NIC),
                                          testing::Range(0, 3)),
                         case_name);

TEST(EpFailures, CallsQueuedBehindEndAtOnce)
{
    for (const std::vector<int> &nodes :
         one_node_and(on_gpus ? shapes_list{{2, 2}} : shapes_list{{2, 2}, {3, 2}}))
        on_ranks(nodes, [&](swl_rank *rank) {
            FailingRank r(rank, 0);
            uint64_t began;

            r.exact_steps(1);
            r.route_everywhere();
            expect_comm_works(rank);
            r.begin(LATE);
            began = swl_gpu_now_ns();
            /* the late rank has been told before it calls */
            EXPECT_EQ(r.update(), r.is_victim() ? ncclSystemError : ncclSuccess);
            for (int i = 0; i < 6; i++) {
                /* refused as soon as the first of them has failed */
                const ncclResult_t rc = i & 1 ? r.combine() : r.dispatch();

                EXPECT_TRUE(rc == ncclSuccess || rc == ncclSystemError);
            }
            r.sync();
            EXPECT_LE(swl_gpu_now_ns() - began, failure_most_ns);
            r.expect_refusal();
            r.end_fault(LATE);
            r.clear();
            r.exact_steps(6);
        });
}

// A link that is cut fails at both ends: each waits for what the other has sent, and its own has
// gone into a queue pair in error, which it need not wait for the limit to find. One ring each way:
// counts of an update take the first queue pairs of a rank, those to its gateways; bases the
// others.
void cut_links(const std::vector<int> &nodes, bool counts)
{
    on_ranks(nodes, [&](swl_rank *rank) {
        FailingRank r(rank, 0, 1);
        const int first = counts ? 0 : (int)nodes.size() - 1;
        const int end = counts ? (int)nodes.size() - 1 : first + 3;
        std::string faults;

        for (int link = first; link < end; link++)
            faults += (faults.empty() ? "rank" : ";rank") + std::to_string(rank->rank) + ".link" +
                      std::to_string(link) + ":error=0+/access";
        r.exact_steps(1);
        r.route_everywhere();
        expect_comm_works(rank);
        r.set_faults(faults);
        expect_comm_works(rank);
        const uint64_t began = swl_gpu_now_ns();
        const ncclResult_t rc = r.update();

        EXPECT_TRUE(rc == ncclSuccess || rc == ncclSystemError); // it may have been told before
        r.sync();
        if (!on_gpus && !through_sockets()) { // virtual time
            EXPECT_LT(swl_gpu_now_ns() - began, failure_limit_ns / 2) << "rank " << rank->rank;
        }
        expect_comm_works(rank);
        EXPECT_EQ(r.dispatch(), ncclSystemError);
        const std::string said = swimlaneLastError();

        EXPECT_TRUE(said.find("error completion") != std::string::npos ||
                    said.find("another rank gave up before") != std::string::npos)
            << said;
        r.set_faults("");
        expect_comm_works(rank);
        r.clear();
        r.exact_steps(2);
    });
}

TEST(EpFailures, D_F2_BothEndsOfACutLinkFindTheirQueuePairInError)
{
    for (const std::vector<int> &nodes :
         on_gpus ? shapes_list{{1, 1}} : shapes_list{{1, 1}, {2, 2}, {1, 1, 1}, {3, 2}})
        for (bool counts : {true, false}) {
            SCOPED_TRACE(shape_name(nodes) + (counts ? " counts" : " bases"));
            cut_links(nodes, counts);
        }
}

TEST(EpFailures, FailuresInARowAreRecoveredFrom)
{
    for (const std::vector<int> &nodes :
         one_node_and(on_gpus ? shapes_list{{2, 2}} : shapes_list{{1, 1}, {2, 2}, {3, 2}}))
        on_ranks(nodes, [&](swl_rank *rank) {
            FailingRank r(rank, 1);

            r.exact_steps(1);
            for (failure how : {LATE, NEVER, LATE})
                for (int call = 0; call < 3; call++)
                    fail_and_recover(r, how, call, call == 1 ? 0 : 1);
            r.exact_steps(5);
        });
}

// The fault is still there when everybody clears: the recovery itself fails, everywhere.
TEST(EpFailures, AFailedRecoveryIsRepeated)
{
    for (failure how : {DEAD_DOORBELL, STALLED_LINK})
        for (const std::vector<int> &nodes : nodes_shapes) {
            SCOPED_TRACE(failure_name(how) + (" " + shape_name(nodes)));
            on_ranks(nodes, [&](swl_rank *rank) {
                FailingRank r(rank, 0);

                r.exact_steps(2);
                r.failing_step(how, 1);
                expect_comm_works(rank);
                r.expect_told(how);
                r.expect_refusal();
                r.fail_recovery(how);
                r.fail_recovery(how);
                r.end_fault(how);
                r.clear();
                r.exact_steps(10);
            });
        }
}

TEST(EpFailures, ClearingAHealthyGroupHasNoEffect)
{
    for (const std::vector<int> &nodes : one_node_and({{2, 2}}))
        on_ranks(nodes, [&](swl_rank *rank) {
            FailingRank r(rank, 0);

            for (int i = 0; i < 4; i++) {
                /* each rank another number of times, with nobody waiting for it */
                for (int n = 0; n < (rank->rank + i) % 3; n++)
                    EXPECT_EQ(ncclEpErrorClear(r.group), ncclSuccess);
                r.exact_steps(2);
            }
        });
}

TEST(EpFailures, RecoveryNearPowersOfTwo)
{
    for (uint64_t boundary : {UINT64_C(1) << 16, UINT64_C(1) << 31, UINT64_C(1) << 32}) {
        SCOPED_TRACE(boundary);
        setenv("SWIMLANE_START_POSITION", std::to_string(boundary - 20).c_str(), 1);
        for (failure how : {LATE, DEAD_DOORBELL})
            for (int call = on_gpus ? 1 : 0; call < (on_gpus ? 2 : 3); call++)
                on_ranks({2, 2}, [&](swl_rank *rank) {
                    FailingRank r(rank, 2);

                    r.exact_steps(1 + call);
                    fail_and_recover(r, how, call, 6);
                });
        unsetenv("SWIMLANE_START_POSITION");
    }
}

} // namespace
