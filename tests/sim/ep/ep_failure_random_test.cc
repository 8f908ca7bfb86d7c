// ep_failure_random_test.cc: failures drawn from a seed: shape, victim, faults, schedule,
// positions.
#include "tests/sim/ep/ep_failure.h"

#include "sim/simt.h"

#include <atomic>
#include <random>
#include <utility>

namespace
{

int draws()
{
    const bool full = getenv("SWL_TEST_LONG") != nullptr;

#ifdef SWL_SANITIZED
    return full ? 40 : 4;
#else
    return full ? 400 : 24;
#endif
}

void preempt(unsigned per_1000)
{
    struct simt_config config = simt_config_get();

    config.preempt_per_1000 = per_1000;
    simt_config_set(&config);
}

struct Draw {
    std::mt19937 random;
    std::vector<int> nodes;
    int nranks = 0, victim;
    std::string trace;

    Draw(unsigned seed, bool several_nodes) : random(seed)
    {
        const std::vector<std::vector<int>> shapes = {{1, 1}, {2, 2}, {1, 1, 1}, {3, 2},
                                                      {2, 1}, {1, 2}, {3}};

        nodes = shapes[pick(shapes.size() - several_nodes)];
        for (int n : nodes)
            nranks += n;
        victim = (int)pick((size_t)nranks);
        preempt((unsigned)pick(120));
        trace = "seed " + std::to_string(seed) + ":";
    }
    size_t pick(size_t n)
    {
        return random() % n;
    }
    bool run(unsigned seed, const rank_body &body) const
    {
        SCOPED_TRACE(trace);
        EXPECT_EQ(run_ranks(nodes, SWL_PLACE_FIBERS, seed + 1, body), 0);
        return !testing::Test::HasFailure();
    }
};

// Three failures, each recovered from; a recovery may fail on the way.
bool recover_thrice(unsigned seed)
{
    const failure kinds[] = {NEVER, LATE, DEAD_DOORBELL, STALLED_LINK, ERROR_ENTRY, DEAD_NIC};
    Draw d(seed, false);
    std::vector<std::pair<failure, int>> list;

    for (int i = 0; i < 3; i++) {
        list.emplace_back(kinds[d.pick(d.nodes.size() > 1 ? 6 : 2)], (int)d.pick(3));
        d.trace +=
            std::string(" ") + failure_name(list[i].first) + "In" + call_name(list[i].second);
    }
    if (d.pick(2))
        setenv("SWIMLANE_SOFT_FAULTS", "jitter=20us", 1);
    setenv("SWIMLANE_START_POSITION",
           std::to_string((UINT64_C(1) << (d.pick(2) ? 16 : 32)) - d.pick(60)).c_str(), 1);

    const bool too_soon = d.pick(2);
    const bool ok = d.run(seed, [&](swl_rank *rank) {
        FailingRank r(rank, d.victim);

        r.exact_steps(1);
        for (const auto &[how, call] : list) {
            r.failing_step(how, call);
            expect_comm_works(rank);
            r.expect_told(how);
            r.expect_refusal();
            if (too_soon && how == DEAD_DOORBELL)
                r.fail_recovery(how);
            r.end_fault(how);
            r.clear();
            r.exact_steps(2);
        }
    });
    unsetenv("SWIMLANE_SOFT_FAULTS");
    unsetenv("SWIMLANE_START_POSITION");
    return ok;
}

bool names_queue_pair()
{
    return std::string(swimlaneLastError()).find("queue pair") != std::string::npos;
}

// One entry somewhere fails, for one of several reasons. Steps before it are exact, and so are
// those after the queue pair has been connected anew.
bool lose_an_entry(unsigned seed)
{
    const char *const syndromes[] = {"access", "retry", "remote", "length", "operation", "flushed"};
    Draw d(seed, true);
    std::string text = "error=" + std::to_string(d.pick(25)) + "/" + syndromes[d.pick(6)];
    std::atomic<int> failed{0}, named{0}; // fibers count as threads for TSan

    if (d.pick(3) == 0)
        text = "rank" + std::to_string(d.victim) + ".link" + std::to_string(d.pick(2)) + ":" + text;
    d.trace += " " + text;
    const bool ok = d.run(seed, [&](swl_rank *rank) {
        FailingRank r(rank, d.victim);

        r.exact_steps(1);
        expect_comm_works(rank);
        if (r.is_victim()) {
            EXPECT_EQ(swl_host_set_faults((uint32_t)rank->rank, text.c_str()), ncclSuccess);
        }
        for (int i = 0; i < 40; i++) {
            const uint64_t began = simt_now_ns();
            bool known = false;

            r.route_everywhere();
            r.step_or_refusal();
            r.sync();
            EXPECT_LE(simt_now_ns() - began, failure_most_ns);
            for (int bits : said_by_all(rank, r.bits()))
                known = known || bits;
            if (known && !r.bits()) { /* nobody could tell it, through that queue pair */
                r.expect_exact();
                r.step_or_refusal();
                r.sync();
            }
            if (known) {
                EXPECT_TRUE(r.bits());
                EXPECT_EQ(r.dispatch(), ncclSystemError);
                failed++;
                named += names_queue_pair();
                break;
            }
            r.expect_exact();
        }
        if (r.bits()) {
            r.end_fault();
            r.clear();
            r.exact_steps(3);
        }
    });
    EXPECT_TRUE(failed == 0 || failed == d.nranks) << d.trace << ": " << failed;
    EXPECT_TRUE(failed == 0 || named > 0) << d.trace << ": nobody names the queue pair";
    return ok && !testing::Test::HasFailure();
}

class EpFailureDraws : public testing::Test
{
  protected:
    struct simt_config before = simt_config_get();

    void TearDown() override
    {
        simt_config_set(&before);
    }
};

TEST_F(EpFailureDraws, AreRecoveredFrom)
{
    for (int seed = 0; seed < draws() && recover_thrice((unsigned)seed); seed++)
        ;
}

TEST_F(EpFailureDraws, LostEntriesAreNeverValidData)
{
    for (int seed = 0; seed < draws() && lose_an_entry((unsigned)seed); seed++)
        ;
}

} // namespace
