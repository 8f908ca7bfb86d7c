/* Tests of collectives, barriers and position: sim/simt_warp.cc. */
#include "tests/sim/simt/simt_fixture.h"

#include <atomic>

namespace
{

class SimtWarp : public SimtTest
{
};

TEST_F(SimtWarp, PositionsCountLanesWarpsAndBlocks)
{
    std::vector<int> seen(3 * 64);

    ASSERT_EQ(run(3, 64,
                  [&] {
                      int at = (block_id() * warp_count() + warp_id()) * 32 + lane_id();

                      seen[static_cast<size_t>(at)]++;
                      if (block_count() != 3 || warp_count() != 2)
                          seen[0] = 100;
                  }),
              0);
    EXPECT_EQ(seen, std::vector<int>(3 * 64, 1));
}

TEST_F(SimtWarp, ShufflesMoveTheLanesValues)
{
    std::vector<uint64_t> from(32), up(32), by_xor(32);
    std::vector<int> negative(32);

    ASSERT_EQ(run(1, 32,
                  [&] {
                      unsigned i = static_cast<unsigned>(lane_id());

                      from[i] = warp_shfl(uint64_t(i) << 40, 7);
                      up[i] = warp_shfl_up(uint64_t(i), 3);
                      by_xor[i] = warp_shfl_xor(uint64_t(i), 5);
                      negative[i] = warp_shfl(-static_cast<int>(i), 9);
                  }),
              0);
    for (unsigned i = 0; i < 32; i++) {
        EXPECT_EQ(from[i], uint64_t(7) << 40);
        EXPECT_EQ(up[i], i < 3 ? i : i - 3);
        EXPECT_EQ(by_xor[i], i ^ 5);
        EXPECT_EQ(negative[i], -9);
    }
}

TEST_F(SimtWarp, VotesSeeAllLanes)
{
    std::vector<uint32_t> ballot(32);
    std::vector<int> any(32), all(32), none(32);

    ASSERT_EQ(run(1, 32,
                  [&] {
                      unsigned i = static_cast<unsigned>(lane_id());

                      ballot[i] = warp_ballot(i % 3 == 0);
                      any[i] = warp_any(i == 31);
                      all[i] = warp_all(i < 31);
                      none[i] = warp_any(false);
                  }),
              0);
    for (unsigned i = 0; i < 32; i++) {
        EXPECT_EQ(ballot[i], 0x49249249u);
        EXPECT_EQ(any[i], 1);
        EXPECT_EQ(all[i], 0);
        EXPECT_EQ(none[i], 0);
    }
}

TEST_F(SimtWarp, BlockSyncHoldsEveryThread)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        std::vector<uint32_t> count(4);
        int early = 0;

        fuzz(seed);
        ASSERT_EQ(run(4, 128,
                      [&] {
                          uint32_t *mine = &count[static_cast<size_t>(block_id())];

                          add_in_block(mine, 1u);
                          block_sync();
                          if (read_in_block(mine) != 128)
                              __atomic_fetch_add(&early, 1, __ATOMIC_RELAXED);
                      }),
                  0);
        EXPECT_EQ(early, 0) << "seed " << seed;
    }
}

TEST_F(SimtWarp, BlockSyncCountsThreadsThatHaveEnded)
{
    int passed = 0;

    ASSERT_EQ(run(1, 128,
                  [&] {
                      if (warp_id() == 3)
                          return;
                      block_sync();
                      __atomic_fetch_add(&passed, 1, __ATOMIC_RELAXED);
                  }),
              0);
    EXPECT_EQ(passed, 96);
}

TEST_F(SimtWarp, NamedBarriersAreIndependent)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint32_t count[2] = {};
        int early = 0;

        fuzz(seed);
        ASSERT_EQ(run(1, 160,
                      [&] {
                          int id = warp_id() < 2 ? 1 : 2, threads = id == 1 ? 64 : 96;

                          for (int round = 1; round <= 3; round++) {
                              add_in_block(&count[id - 1], 1u);
                              named_sync(id, threads);
                              if (read_in_block(&count[id - 1]) < uint32_t(threads * round))
                                  __atomic_fetch_add(&early, 1, __ATOMIC_RELAXED);
                              named_sync(id, threads);
                          }
                      }),
                  0);
        EXPECT_EQ(early, 0) << "seed " << seed;
    }
}

TEST_F(SimtWarp, ADivergentCollectiveNamesBothPlaces)
{
    std::atomic<int> line{0};
    int rc;
    std::string text = report(
        1, 32,
        [&] {
            line = __LINE__ + 1;
            lane_id() < 16 ? warp_sync() : (void)warp_ballot(true);
        },
        &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("different collectives"), std::string::npos) << text;
    EXPECT_NE(text.find("simt_warp_test.cc:" + std::to_string(line)), std::string::npos) << text;
    EXPECT_NE(text.find("other place"), std::string::npos) << text;
}

TEST_F(SimtWarp, TheSameCollectiveOnTwoLinesIsDivergent)
{
    int rc;
    std::string text = report(
        1, 32,
        [&] {
            if (lane_id() == 5)
                warp_sync();
            else
                warp_sync();
        },
        &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("different collectives"), std::string::npos) << text;
}

TEST_F(SimtWarp, ANamedBarrierOfTwoSizesIsAFault)
{
    int rc;
    std::string text = report(
        1, 96, [&] { named_sync(3, warp_id() ? 96 : 64); }, &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("disagree about its size"), std::string::npos) << text;
}

TEST_F(SimtWarp, SharedMemoryIsPerBlockAlignedAndUndefined)
{
    std::vector<uint32_t> first(4), wrong(4);

    ASSERT_EQ(run(4, 64,
                  [&] {
                      uint32_t *word = static_cast<uint32_t *>(block_shared());
                      size_t b = static_cast<size_t>(block_id());

                      if (warp_id() == 0 && lane_id() == 0) {
                          first[b] = word[5];
                          wrong[b] += reinterpret_cast<uintptr_t>(word) % 128 != 0;
                          word[5] = static_cast<uint32_t>(b);
                      }
                      block_sync();
                      if (warp_id() == 1 && lane_id() == 3)
                          wrong[b] += word[5] != b;
                  }),
              0);
    EXPECT_EQ(first, std::vector<uint32_t>(4, 0xA5A5A5A5u));
    EXPECT_EQ(wrong, std::vector<uint32_t>(4, 0));
}

} // namespace
