/* grids_test.cu: do grids that wait for each other run at the same time on one GPU? Several ranks
 * on a GPU are built on it: cooperative grids do while all their blocks fit together
 * (docs/groups.md), and one block more makes the second grid wait for the end of the first. Every
 * wait has its limit. */
#include "device.h"

#include "tests/gpu/gpu_fixture.h"

namespace
{

struct meet_args {
    uint64_t *mine, *other; /* rounds that each grid has come to */
    uint64_t *ended;        /* of this grid: 1 met, 2 gave up; its other blocks wait for it */
    uint64_t rounds, limit_ns;
};

SWL_DEV bool meet_until(const uint64_t *p, uint64_t want, uint64_t deadline)
{
    while (read_in_gpu(p) < want) {
        if (clock_ns() > deadline)
            return false;
        pause_lane(SWL_PAUSE("another grid", 0, 0), deadline);
    }
    return true;
}

/* Block 0 plays ping-pong with block 0 of the other grid; the others stay until it has ended. */
SWL_KERNEL void meet_kernel(struct meet_args a)
{
    const uint64_t deadline = clock_ns() + a.limit_ns;
    bool met = true;

    if (warp_id() || lane_id())
        return;
    if (block_id()) {
        meet_until(a.ended, 1, deadline + a.limit_ns);
        return;
    }
    for (uint64_t round = 1; round <= a.rounds && met; round++) {
        publish_in_gpu(a.mine, round);
        met = meet_until(a.other, round, deadline);
    }
    publish_in_gpu(a.ended, met ? uint64_t(1) : uint64_t(2));
}

class Grids : public OnGpu
{
  protected:
    void TearDown() override
    {
        if (second) {
            EXPECT_EQ(swl_gpu_stream_destroy(second), cudaSuccess);
        }
        OnGpu::TearDown();
    }
    /* How each grid ended. */
    std::vector<uint64_t> meet(int first_blocks, int second_blocks, size_t shared,
                               uint64_t limit_ns)
    {
        uint64_t *words = zeroed<uint64_t>(64);
        const struct meet_args a[2] = {{words, words + 16, words + 32, 200, limit_ns},
                                       {words + 16, words, words + 48, 200, limit_ns}};
        const cudaStream_t first = stream;

        wait();
        if (!second)
            EXPECT_EQ(swl_gpu_stream_create(&second), cudaSuccess);
        start(meet_kernel, a[0], first_blocks, 64, shared);
        stream = second;
        start(meet_kernel, a[1], second_blocks, 64, shared);
        wait();
        stream = first;
        wait();
        const std::vector<uint64_t> all = download(words, 64);
        return {all[32], all[48]};
    }
    int sms() const
    {
        struct swl_gpu_info info = {};

        EXPECT_EQ(swl_gpu_info(0, &info), cudaSuccess);
        return info.nsms;
    }

    cudaStream_t second = nullptr;
};

const std::vector<uint64_t> both_met = {1, 1}, both_gave_up = {2, 2};
const size_t ONE_BLOCK_A_SM = (size_t)180 << 10;

TEST_F(Grids, FewBlocksOfTwoGridsRunAtOnce)
{
    EXPECT_EQ(meet(16, 16, 0, 2 * SECOND_NS), both_met);
    EXPECT_EQ(meet(16, 16, ONE_BLOCK_A_SM, 2 * SECOND_NS), both_met);
}

TEST_F(Grids, TwoGridsThatFillTheGpuTogetherRunAtOnce)
{
    EXPECT_EQ(meet(sms() / 2, sms() - sms() / 2, ONE_BLOCK_A_SM, 2 * SECOND_NS), both_met);
}

/* The reason why the sum is checked when a group is created. */
TEST_F(Grids, OneBlockTooManyMakesTheSecondGridWaitForTheEnd)
{
    EXPECT_EQ(meet(sms() / 2, sms() - sms() / 2 + 1, ONE_BLOCK_A_SM, SECOND_NS / 5), both_gave_up);
    EXPECT_EQ(meet(16, 16, 0, 2 * SECOND_NS), both_met); /* and nothing is left of it */
}

} // namespace
