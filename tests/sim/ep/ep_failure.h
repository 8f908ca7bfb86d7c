// ep_failure.h: one rank that lives through failures made on purpose, and the ways to make them.
#ifndef SWL_TESTS_SIM_EP_FAILURE_H
#define SWL_TESTS_SIM_EP_FAILURE_H

#include "tests/support/group_step.h"

#include "src/runtime/runtime.h"
#include "transport/host/probe.h"
#include "transport/soft/soft.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// Time is virtual in the emulator, and the kernel's own where messages go through its sockets: a
// limit over them ends hangs, it does not measure.
inline bool through_sockets()
{
    const char *list = getenv("SWIMLANE_TRANSPORT");

    return list && strstr(list, "tcp");
}

inline const uint64_t failure_limit_ns = on_gpus             ? 150000000
                                         : through_sockets() ? 2000000000
                                                             : 50000000;
// No wait lasts longer: three tiers of a sixteenth (wait.cuh), and some work before; on GPUs a
// launch or a thread of the host may be late too.
inline const uint64_t failure_most_ns =
    failure_limit_ns + failure_limit_ns / 16 * 3 + (on_gpus ? 100000000 : 5000000);

enum { ASYNC_TIMEOUT = 1 };

// What a victim does to the others. The first three need a network.
enum failure { DEAD_DOORBELL, STALLED_LINK, ERROR_ENTRY, DEAD_NIC, NEVER, LATE, NO_CREDIT };

inline const char *failure_name(failure how)
{
    static const char *const names[] = {"DeadDoorbell", "StalledLink", "ErrorEntry", "DeadNic",
                                        "NeverCalls",   "Late",        "NoCredit"};

    return names[how];
}

inline const char *call_name(int call)
{
    static const char *const names[] = {"Update", "Dispatch", "Combine"};

    return names[call];
}

inline std::string shape_name(const std::vector<int> &nodes)
{
    std::string name;

    for (int n : nodes)
        name += (name.empty() ? "" : "+") + std::to_string(n);
    return name;
}

// 100 data calls after the failure of a dispatch, in long runs after every failure.
inline int steps_after(int call)
{
#ifdef SWL_SANITIZED
    return getenv("SWL_TEST_LONG") && call == 1 ? 50 : 2;
#else
    return getenv("SWL_TEST_LONG") || call == 1 ? 50 : 3;
#endif
}

// qps: most rings toward a node, 0 = as the library likes
inline ncclEpGroupConfig_t failure_config(int nranks, unsigned qps)
{
    ncclEpGroupConfig_t config = small_config();

    config.num_experts = 2 * (unsigned)nranks;
    config.timeout_ns = failure_limit_ns;
    config.num_qp_per_rank = qps;
    return config;
}

struct FailingRank : GroupStep {
    int victim, steps = 0, nnodes = 0; // nnodes: for NO_CREDIT only
    bool accepted = true;              // all calls of the failing step

    FailingRank(const swl_rank *rank, int victim_rank, unsigned qps = 0)
        : GroupStep(rank, failure_config(rank->nranks, qps)), victim(victim_rank)
    {
    }
    bool is_victim() const
    {
        return self->rank == victim;
    }
    // Another routing each step; now and then a token goes nowhere or twice to one expert.
    void change_routing()
    {
        const size_t n = (size_t)nexperts, s = (size_t)++steps, r = (size_t)self->rank;

        for (size_t i = 0; i < ids.size(); i++)
            ids[i] = (int64_t)((i * (1 + s % 3) + r * 5 + s * s) % n);
        ids[s % ids.size()] = -1;
    }
    // Every rank sends to every rank, so that none can do without the victim.
    void route_everywhere()
    {
        for (size_t i = 0; i < ids.size(); i++)
            ids[i] = (int64_t)((i + (size_t)self->rank) % (size_t)nexperts);
    }
    void exact_steps(int n)
    {
        for (int i = 0; i < n && !testing::Test::HasFailure(); i++) {
            change_routing();
            ASSERT_EQ(step(), ncclSuccess) << swimlaneLastError();
            sync();
            EXPECT_EQ(swl_gpu_pending_error(), cudaSuccess); // no failure harms the context
            if (bits()) {
                dispatch(); /* refused; its sentence says why */
                FAIL() << "step " << i << ": " << swimlaneLastError();
            }
            expect_exact();
        }
    }
    void set_faults(const std::string &text)
    {
        EXPECT_EQ(swl_host_set_faults((uint32_t)self->rank, text.c_str()), ncclSuccess);
    }
    void begin(failure how)
    {
        std::string text;
        const std::string ms = std::to_string(3 * failure_limit_ns / 1000000) + "ms";

        if (!is_victim())
            return;
        switch (how) {
        case DEAD_DOORBELL:
            set_faults("drop=0+");
            break;
        case STALLED_LINK:
            set_faults("stall=0+" + ms);
            break;
        case ERROR_ENTRY:
            set_faults("error=0/access");
            break;
        case DEAD_NIC:
            set_faults("dead=0");
            break;
        case LATE:
            swl_gpu_sleep_ns(3 * failure_limit_ns);
            break;
        case NO_CREDIT: /* links of one ring each: first those to its gateways, then from sources */
            for (int link = nnodes - 1; link < nnodes + 7; link++)
                text += (text.empty() ? "rank" : ";rank") + std::to_string(self->rank) + ".link" +
                        std::to_string(link) + ":drop=0+";
            set_faults(text);
            break;
        case NEVER:
            break;
        }
    }
    // All ranks: nobody is in a call, what stalled has been let go, what was broken is whole again.
    void end_fault(failure how = STALLED_LINK)
    {
        swl_gpu_sleep_ns(on_gpus && how != STALLED_LINK ? failure_limit_ns : 4 * failure_limit_ns);
        expect_comm_works(self);
        if (is_victim())
            set_faults("");
        expect_comm_works(self);
    }
    // A step that fails in `call`, enqueued without looking at errors in between.
    void failing_step(failure how, int call)
    {
        uint64_t began = swl_gpu_now_ns();

        accepted = true;
        expect_comm_works(self);
        route_everywhere();
        for (int c = 0; c < 3; c++) {
            ncclResult_t rc;

            if (c == call) {
                sync();
                expect_comm_works(self);
                begin(how);
                began = swl_gpu_now_ns();
                if (how == NEVER && is_victim())
                    break;
            }
            rc = c == 0 ? update() : c == 1 ? dispatch() : combine();
            accepted = accepted && rc == ncclSuccess;
            if (rc != ncclSystemError || !may_be_told_before(how, c - call)) {
                EXPECT_EQ(rc, ncclSuccess) << swimlaneLastError();
            }
        }
        sync();
        EXPECT_LE(swl_gpu_now_ns() - began, failure_most_ns) << "rank " << self->rank;
    }
    // The group says what happened and does nothing more.
    void expect_refusal()
    {
        const std::string own = "rank " + std::to_string(self->rank) + " (";
        const std::string limit = "(limit " + std::to_string(failure_limit_ns / 1000000) + " ms)";

        EXPECT_TRUE(bits() & ASYNC_TIMEOUT) << "rank " << self->rank;
        for (int c = 0; c < 3; c++) {
            EXPECT_EQ(c == 0 ? update() : c == 1 ? dispatch() : combine(), ncclSystemError);
            if (came_through())
                expect_sentence({"another rank gave up before, missing ", "ncclEpErrorClear"});
            else
                expect_sentence(
                    {" call ", own.c_str(), "gave up after ", limit.c_str(), "ncclEpErrorClear"});
        }
    }
    // Whose own calls had all come through, or never were, was told without a call.
    bool came_through() const
    {
        const std::string told =
            "rank " + std::to_string(self->rank) + " was told of a failed call";

        return std::string(swimlaneLastError()).find(told) != std::string::npos;
    }
    // All ranks have ended the call that failed: each has the bit, without a further call.
    void expect_told(failure how)
    {
        EXPECT_TRUE(bits() & ASYNC_TIMEOUT)
            << "rank " << self->rank << " after " << failure_name(how);
        EXPECT_EQ(update(), ncclSystemError);
        if (came_through() && accepted && (how != NEVER || !is_victim()))
            expect_exact();
    }
    // A step that another rank may have given up before this one enqueues it.
    void step_or_refusal()
    {
        const ncclResult_t rc = step();

        accepted = rc == ncclSuccess;
        if (rc != ncclSystemError) {
            EXPECT_EQ(rc, ncclSuccess) << swimlaneLastError();
        }
    }
    // Clear while the fault is still there: the recovery fails, everywhere and in time.
    void fail_recovery(failure how)
    {
        clear();
        if (how == STALLED_LINK)
            begin(how);
        change_routing();
        EXPECT_EQ(step(), ncclSuccess) << swimlaneLastError();
        sync();
        expect_comm_works(self);
        expect_told(how);
        expect_refusal();
    }
    void clear()
    {
        expect_comm_works(self);
        EXPECT_EQ(ncclEpErrorClear(group), ncclSuccess);
        EXPECT_EQ(bits(), 0);
        expect_comm_works(self);
    }
    // The part of the sentence that says who is missing.
    static std::string blame()
    {
        const std::string sentence = swimlaneLastError();
        const size_t colon = sentence.find(" ms):");

        return colon == std::string::npos ? sentence : sentence.substr(colon);
    }

  private:
    // A late rank, one that enqueues a later call, and all whose peers need no time limit to fail.
    bool may_be_told_before(failure how, int later) const
    {
        return later > 0 || how == ERROR_ENTRY || how == DEAD_NIC || (how == LATE && is_victim());
    }
};

inline void expect_blame(const FailingRank &r, failure how)
{
    const std::string victim = "rank " + std::to_string(r.victim);

    if (how == NEVER || how == LATE) {
        EXPECT_NE(FailingRank::blame().find(r.is_victim() ? "this rank" : victim),
                  std::string::npos)
            << swimlaneLastError();
    }
}

inline void fail_and_recover(FailingRank &r, failure how, int call, int steps)
{
    r.failing_step(how, call);
    expect_comm_works(r.self);
    r.expect_told(how);
    r.expect_refusal();
    expect_blame(r, how);
    EXPECT_EQ(ncclEpComplete(r.handle, nullptr, r.stream), ncclSuccess);
    r.end_fault(how);
    r.clear();
    r.exact_steps(steps);
}

#endif
