// ep_failure_schedules_test.cc: failures under many schedules of the emulator, and its hang report.
#include "tests/sim/ep/ep_failure.h"

#include "sim/simt.h"

namespace
{

TEST(EpFailures, ManySchedules)
{
    const struct simt_config before = simt_config_get();
    struct simt_config config = before;

    config.preempt_per_1000 = 50;
    simt_config_set(&config);
    for (uint64_t seed = 0; seed <= 5; seed++)
        for (failure how : {DEAD_DOORBELL, STALLED_LINK, ERROR_ENTRY, DEAD_NIC, LATE, NEVER}) {
            const std::vector<int> nodes =
                seed % 2 ? std::vector<int>{2, 1} : std::vector<int>{1, 2};
            const int call = (int)(seed + (uint64_t)how) % 3;

            SCOPED_TRACE("seed " + std::to_string(seed) + " " + failure_name(how) + " in " +
                         call_name(call));
            EXPECT_EQ(run_ranks(nodes, SWL_PLACE_FIBERS, seed,
                                [&](swl_rank *rank) {
                                    FailingRank r(rank, (int)seed % rank->nranks);

                                    r.exact_steps(1);
                                    fail_and_recover(r, how, call, 3);
                                }),
                      0);
        }
    simt_config_set(&before);
}

// With SIMT_HANG=report a hang ends the run instead of its calls. In a child: ranks stay behind.
[[noreturn]] void hang(const std::vector<int> &nodes, failure how, int call)
{
    struct simt_config config = simt_config_get();

    config.hang_report = true;
    simt_config_set(&config);
    _exit(run_ranks(nodes, SWL_PLACE_FIBERS, 1,
                    [&](swl_rank *rank) {
                        FailingRank r(rank, 1);

                        r.exact_steps(1);
                        r.failing_step(how, call);
                        expect_comm_works(rank); // whoever left the call out waits here
                    }) == -1
              ? 7
              : 1);
}

TEST(EpHangReport, NamesTheLanesThatWait)
{
    const testing::ExitedWithCode reported(7);

    EXPECT_EXIT(hang({1, 1}, DEAD_DOORBELL, 0), reported,
                "no lane can make progress.*swl_route_kernel block 0 warp .* lanes .*route message "
                "of rank .1, ");
    EXPECT_EXIT(hang({1, 1}, DEAD_DOORBELL, 1), reported,
                "swl_ht_dispatch_kernel.*slots from rank .1, ");
    EXPECT_EXIT(hang({1, 1}, DEAD_DOORBELL, 2), reported,
                "swl_ht_combine_kernel.*requests or partial credit of rank .1, ");
    EXPECT_EXIT(hang({3}, NEVER, 1), reported,
                "swl_ht_dispatch_kernel.*entry of rank .1, .*replay with SIMT_SEED=1");
}

// Messages of a call that was given up land while the ranks recover, or later: a rank that comes
// back finds nothing of before in its way.
TEST(EpFailures, F100_MessagesOfBeforeTheReturnAreDropped)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{1, 1}, {2, 2}})
        for (int call = 0; call < 3; call++)
            for (int percent : {125, 150, 190}) {
                const uint64_t stall_us = failure_limit_ns / 100000 * (uint64_t)percent;
                const std::string faults = "stall=0+" + std::to_string(stall_us) + "us";

                SCOPED_TRACE(shape_name(nodes) + " " + call_name(call) + " " + faults);
                on_ranks(nodes, [&](swl_rank *rank) {
                    FailingRank r(rank, rank->nranks - 1);

                    r.exact_steps(1);
                    r.route_everywhere();
                    for (int c = 0; c < 3; c++) {
                        r.sync();
                        expect_comm_works(rank);
                        if (c == call && r.is_victim()) {
                            EXPECT_EQ(swl_host_set_faults((uint32_t)rank->rank, faults.c_str()),
                                      ncclSuccess);
                        }
                        expect_comm_works(rank);
                        (void)(c == 0 ? r.update() : c == 1 ? r.dispatch() : r.combine());
                    }
                    r.sync();
                    expect_comm_works(rank);
                    EXPECT_TRUE(r.bits() & ASYNC_TIMEOUT);
                    r.clear();
                    r.exact_steps(3);
                    EXPECT_EQ(swl_host_set_faults((uint32_t)rank->rank, ""), ncclSuccess);
                });
                if (HasFailure())
                    return;
            }
}

} // namespace
