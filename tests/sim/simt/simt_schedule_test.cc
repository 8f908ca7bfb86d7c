/* Tests of the scheduler: fairness, replay, hangs, deadlines, raw spins, residency: sim/simt.cc. */
#include "tests/sim/simt/simt_fixture.h"

#include <atomic>
#include <chrono>

namespace
{

class SimtSchedule : public SimtTest
{
  protected:
    /* Lanes of many blocks take turns with a counter. */
    int turns(std::vector<uint32_t> *order)
    {
        uint32_t turn = 0;

        return run(4, 64, [&] {
            for (int i = 0; i < 20; i++)
                if (lane_id() == 0)
                    order->at(add_in_gpu(&turn, 1u)) =
                        static_cast<uint32_t>(block_id() * 2 + warp_id());
        });
    }
};

TEST_F(SimtSchedule, EqualSeedsReplayAndOthersDiffer)
{
    std::vector<uint32_t> order[4];
    uint64_t hash[4];
    uint64_t seeds[4] = {0, 7, 7, 8};

    for (int i = 0; i < 4; i++) {
        order[i].resize(160);
        fuzz(seeds[i], i ? 100 : 0);
        ASSERT_EQ(turns(&order[i]), 0);
        hash[i] = simt_stats().schedule_hash;
    }
    EXPECT_EQ(hash[1], hash[2]);
    EXPECT_EQ(order[1], order[2]);
    EXPECT_NE(hash[1], hash[3]);
    EXPECT_NE(order[1], order[3]);
    EXPECT_NE(hash[0], hash[1]);
}

TEST_F(SimtSchedule, AWaitingLaneSeesAStoreOfAnotherBlock)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint32_t flag = 0, data = 0;
        int wrong = 0;

        fuzz(seed);
        ASSERT_EQ(run(2, 64,
                      [&] {
                          if (block_id() == 1) {
                              if (warp_id() == 1 && lane_id() == 9) {
                                  data = 42;
                                  publish_in_gpu(&flag, 1u);
                              }
                              return;
                          }
                          WAIT_UNTIL(read_in_gpu(&flag), "test: flag");
                          if (data != 42)
                              __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
                      }),
                  0);
        EXPECT_EQ(wrong, 0);
    }
}

TEST_F(SimtSchedule, PlainStoresWakeAWaitingLane)
{
    uint32_t flag = 0;

    ASSERT_EQ(run(2, 32,
                  [&] {
                      if (block_id() == 0) {
                          WAIT_UNTIL(read_from_peer(&flag), "test: flag");
                      } else if (lane_id() == 0) {
                          __atomic_store_n(&flag, 1u, __ATOMIC_RELEASE); /* no primitive */
                      }
                  }),
              0);
}

TEST_F(SimtSchedule, ALaneMayWaitForManyWords)
{
    for (unsigned chosen : {0u, 5u, 6u, 199u, 380u, 899u}) {
        std::vector<uint64_t> words(900);
        unsigned found = 0;

        ASSERT_EQ(run(2, 32,
                      [&] {
                          if (lane_id())
                              return;
                          if (block_id()) {
                              uint64_t until = clock_ns() + 5000;

                              while (clock_ns() < until) /* the other lane parks first */
                                  pause_lane(SWL_PAUSE("test: delay", 0, 0), until);
                              publish_in_gpu(&words[chosen], uint64_t(1));
                              return;
                          }
                          for (;;) {
                              for (found = 0; found < 900; found++)
                                  if (read_in_gpu(&words[found]))
                                      return;
                              pause_lane(SWL_PAUSE("test: one of many", 0, 0), UINT64_MAX);
                          }
                      }),
                  0);
        EXPECT_EQ(found, chosen);
    }
}

TEST_F(SimtSchedule, ASpinningLaneDoesNotStarveOthers)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        uint32_t stop = 0, rounds = 0;

        fuzz(seed, seed ? 100 : 0);
        ASSERT_EQ(run(2, 32,
                      [&] {
                          if (block_id() == 0) {
                              while (!read_in_gpu(&stop))
                                  add_in_gpu(&rounds, 1u); /* busy, never pauses */
                          } else if (lane_id() == 0) {
                              for (int i = 0; i < 50; i++)
                                  add_in_gpu(&rounds, 1u);
                              publish_in_gpu(&stop, 1u);
                          }
                      }),
                  0);
    }
}

TEST_F(SimtSchedule, AHangNamesWhoWaitsForWhat)
{
    uint32_t word = 77;
    std::atomic<int> line{0}; /* all lanes store it */
    int rc;
    std::string text =
        report({{3, 2, 64,
                 [&] {
                     if (warp_id() == 1)
                         return;
                     if (lane_id() < 4) {
                         line = __LINE__ + 2;
                         while (read_in_gpu(&word) != 78)
                             pause_lane(SWL_PAUSE("sender: no credit", 5, 9), UINT64_MAX);
                     }
                     warp_sync();
                 },
                 "stuck"}},
               &rc);

    EXPECT_EQ(rc, 1);
    for (const char *part :
         {"no lane can make progress", "gpu 3 stuck block 0 warp  0 lanes 0000000f: ",
          "gpu 3 stuck block 1 warp  0 lanes 0000000f: ", "sender: no credit (5, 9)", "=77",
          "lanes fffffff0: warp_sync", "host stuck: host: grid (3, 0)", "SIMT_SEED=0", "schedule "})
        EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
    EXPECT_NE(text.find("simt_schedule_test.cc:" + std::to_string(line)), std::string::npos)
        << text;
    EXPECT_EQ(text.find("warp  1"), std::string::npos) << text;
}

TEST_F(SimtSchedule, AHangIsFoundUnderEverySeed)
{
    uint32_t word = 0;

    for (uint64_t seed = 1; seed < 6; seed++) {
        int rc;

        fuzz(seed, 200);
        report(
            20, 128, [&] { WAIT_UNTIL(read_in_gpu(&word), "test: never"); }, &rc);
        EXPECT_EQ(rc, 1);
        EXPECT_EQ(run(2, 64, [&] { block_sync(); }), 0) << "the run after a hang works";
    }
}

TEST_F(SimtSchedule, ADeadlineExpiresInVirtualTime)
{
    uint32_t word = 0;
    uint64_t waited = 0;
    auto start = std::chrono::steady_clock::now();

    ASSERT_EQ(run(1, 32,
                  [&] {
                      uint64_t from = clock_ns(), until = from + 100000000000ull;

                      while (!read_in_gpu(&word) && clock_ns() < until)
                          pause_lane(SWL_PAUSE("test: never", 0, 0), until);
                      if (lane_id() == 0)
                          waited = clock_ns() - from;
                  }),
              0);
    EXPECT_GE(waited, 100000000000ull);
    EXPECT_LT(waited, 101000000000ull);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(95));
}

TEST_F(SimtSchedule, ADeadlineExpiresWhileOthersRun)
{
    uint32_t word = 0, stop = 0, work = 0;

    ASSERT_EQ(run(2, 32,
                  [&] {
                      if (lane_id())
                          return;
                      if (block_id()) {
                          while (!read_in_gpu(&stop)) {
                              add_in_gpu(&work, 1u);
                              pause_lane(SWL_PAUSE("test: short", 0, 0), clock_ns() + 1);
                          }
                          return;
                      }
                      uint64_t until = clock_ns() + 20000;

                      while (!read_in_gpu(&word) && clock_ns() < until)
                          pause_lane(SWL_PAUSE("test: never", 0, 0), until);
                      publish_in_gpu(&stop, 1u);
                  }),
              0);
    EXPECT_GT(work, 10u);
}

TEST_F(SimtSchedule, HangReportStopsInsteadOfExpiringDeadlines)
{
    uint32_t word = 0;
    int rc;

    config.hang_report = true;
    std::string text = report(
        1, 32,
        [&] {
            uint64_t until = clock_ns() + 1000000000;

            while (!read_in_gpu(&word) && clock_ns() < until)
                pause_lane(SWL_PAUSE("test: never", 0, 0), until);
        },
        &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("test: never"), std::string::npos) << text;
}

TEST_F(SimtSchedule, ARawSpinStopsWithItsLine)
{
    uint32_t word = 0;
    int rc, line = 0;
    std::string text = report(
        1, 32,
        [&] {
            line = __LINE__ + 1; /* of the first lane, the others never run */
            while (!read_in_gpu(&word)) {
            }
        },
        &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("raw spin"), std::string::npos) << text;
    EXPECT_NE(text.find("simt_schedule_test.cc:" + std::to_string(line)), std::string::npos)
        << text;
}

TEST_F(SimtSchedule, ReadsBetweenOtherWorkAreNoRawSpin)
{
    uint32_t word = 0, count = 0;

    EXPECT_EQ(run(1, 32,
                  [&] {
                      for (int i = 0; i < 3000; i++) {
                          read_in_gpu(&word);
                          add_in_gpu(&count, 1u);
                      }
                  }),
              0);
}

TEST_F(SimtSchedule, AGridThatDoesNotFitWaitsForItsTurn)
{
    uint32_t running = 0, most = 0;
    auto body = [&] {
        if (lane_id())
            return;
        uint32_t now = add_in_gpu(&running, 1u) + 1, seen = read_in_gpu(&most);
        uint64_t until = clock_ns() + 1000;

        while (now > seen && cas_in_gpu(&most, seen, now) != seen)
            seen = read_in_gpu(&most);
        while (clock_ns() < until)
            pause_lane(SWL_PAUSE("test: stay", 0, 0), until);
        add_in_gpu(&running, ~0u);
    };

    config.nsms = 6;
    ASSERT_EQ(run({{0, 4, 32, body, "a"}, {0, 4, 32, body, "b"}, {0, 2, 32, body, "c"}}), 0);
    EXPECT_LE(most, 6u);
    EXPECT_GE(most, 4u);
}

TEST_F(SimtSchedule, AnOverfullGpuIsAHangReport)
{
    uint32_t arrived = 0;
    int rc;
    auto meet = [&] {
        if (lane_id() == 0)
            add_to_peer(&arrived, 1u);
        WAIT_UNTIL(read_from_peer(&arrived) == 8, "test: the other grid");
    };

    config.nsms = 8;
    ASSERT_EQ(run({{0, 4, 32, meet, "a"}, {0, 4, 32, meet, "b"}}), 0);
    arrived = 0;
    config.nsms = 7;
    std::string text = report({{0, 4, 32, meet, "a"}, {0, 4, 32, meet, "b"}}, &rc);
    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("4 blocks wait for multiprocessors: 4 of 7 are taken"), std::string::npos)
        << text;
}

} // namespace
