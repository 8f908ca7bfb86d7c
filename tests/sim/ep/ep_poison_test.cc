// ep_poison_test.cc: the poison word changes while a call begins, as late words of peers do.
#include "tests/sim/ep/ep_failure.h"

extern "C" {
#include "src/group/group.h"
}

#include <cstddef>

namespace
{

struct swl_state *state_of(ncclEpGroup_t group)
{
    return reinterpret_cast<struct swl_state *>(reinterpret_cast<char *>(group->tables.clears) -
                                                offsetof(struct swl_state, clears));
}

void set_poison(ncclEpGroup_t group, uint64_t word)
{
    char *at = reinterpret_cast<char *>(group->window.base) + group->plan.at.poison;

    __atomic_store_n(reinterpret_cast<uint64_t *>(at), word, __ATOMIC_RELEASE);
}

// Poison of this generation is there when the kernel comes, and that of an older one `behind_ns`
// later. The call has failed, or it is exact. Returns whether it has failed.
bool overwritten(GroupStep &s, uint64_t behind_ns)
{
    const uint64_t gen = state_of(s.group)->gen;
    bool failed;

    EXPECT_EQ(s.update(), ncclSuccess);
    EXPECT_EQ(cudaMemsetAsync(s.rows_at, 0xff, s.rows.bytes, s.stream), cudaSuccess);
    s.sync();
    set_poison(s.group, swl_poison_word(gen, 0));
    EXPECT_EQ(s.dispatch(), ncclSuccess);
    swl_gpu_sleep_ns(behind_ns);
    set_poison(s.group, swl_poison_word(gen - 1, 0));
    s.sync();
    failed = s.bits() != 0;
    if (failed) {
        EXPECT_EQ(ncclEpErrorClear(s.group), ncclSuccess);
        return true;
    }
    EXPECT_EQ(s.combine(), ncclSuccess);
    s.sync();
    s.expect_exact();
    return false;
}

#ifdef SWL_SANITIZED
constexpr uint64_t step_ns = 160;
#else
constexpr uint64_t step_ns = 20;
#endif

TEST(EpPoison, ACallThatItRefusedHasFailedThoughItIsOverwritten)
{
    on_ranks({1}, [](swl_rank *rank) {
        GroupStep s(rank, failure_config(1, 0));
        int failed = 0, came_through = 0;

        ASSERT_EQ(s.step(), ncclSuccess);
        s.sync();
        for (uint64_t ns = 0; ns < 4000 && !testing::Test::HasFailure(); ns += step_ns) {
            SCOPED_TRACE(testing::Message() << ns << " ns behind");
            (overwritten(s, ns) ? failed : came_through)++;
        }
        EXPECT_GT(failed, 0);
        EXPECT_GT(came_through, 0);
    });
}

} // namespace
