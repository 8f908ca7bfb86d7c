/* Tests of bulk copies, stages and the proxy rules: sim/simt_bulk.cc. */
#include "tests/sim/simt/simt_fixture.h"

namespace
{

constexpr uint32_t kRow = 512;

struct Stages {
    mbarrier full[2];
    alignas(128) vec16 row[2][kRow / 16];
};

/* Faults to inject into `stream`. */
enum Bug { kNone, kNoStoreFence, kReuseInFlight, kNoWaitAtEnd };

/* A look at memory that a copy may be writing. */
__attribute__((no_sanitize("thread"))) uint32_t peek(const vec16 *at)
{
    return *const_cast<const volatile uint32_t *>(at->x);
}

class SimtBulk : public SimtTest
{
  protected:
    static constexpr int kRows = 64;
    alignas(128) vec16 in[kRows * kRow / 16], out[kRows * kRow / 16];

    void fill()
    {
        for (size_t i = 0; i < kRows * kRow / 16; i++) {
            in[i] = {{static_cast<uint32_t>(i), 1, 2, 3}};
            out[i] = {};
        }
    }
    int wrong() const
    {
        int n = 0;

        for (size_t i = 0; i < kRows * kRow / 16; i++)
            n += out[i].x[0] != i + 1 || out[i].x[3] != 3;
        return n;
    }
    /* Each warp adds 1 to the words of its rows, through two stages. */
    void stream(Bug bug)
    {
        Stages *s = static_cast<Stages *>(block_shared());
        int lane = lane_id(), n = 0;

        if (lane < 2) {
            stage_init(&s->full[lane], 1);
            stage_init_done();
        }
        warp_sync();
        for (int r = block_id(); r < kRows; r += block_count(), n++) {
            vec16 *row = s->row[n & 1];

            if (lane == 0) {
                if (bug != kReuseInFlight)
                    bulk_wait_read<1>();
                stage_expect(&s->full[n & 1], kRow);
                bulk_load(row, &in[static_cast<unsigned>(r) * kRow / 16], kRow, &s->full[n & 1]);
            }
            warp_sync();
            WAIT_UNTIL(stage_test(&s->full[n & 1], n / 2 & 1), "test: stage");
            vec16 v = load_data(&row[lane]);

            v.x[0]++;
            store_data(&row[lane], v);
            if (bug != kNoStoreFence)
                order_before_bulk_store();
            warp_sync();
            if (lane == 0) {
                bulk_store(&out[static_cast<unsigned>(r) * kRow / 16], row, kRow);
                bulk_commit();
            }
        }
        if (lane == 0 && bug != kNoWaitAtEnd)
            bulk_wait<0>();
    }
};

TEST_F(SimtBulk, RowsStreamThroughStages)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        fill();
        fuzz(seed);
        ASSERT_EQ(run(3, 32, [&] { stream(kNone); }), 0) << "seed " << seed;
        EXPECT_EQ(wrong(), 0) << "seed " << seed;
        EXPECT_EQ(simt_stats().bulk_copies, 2u * kRows);
    }
}

TEST_F(SimtBulk, AStoreWithoutProxyFenceIsAFault)
{
    int rc;

    SKIP_RACE_UNDER_TSAN;
    fill();
    std::string text = report(
        3, 32, [&] { stream(kNoStoreFence); }, &rc);
    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("did not order_before_bulk_store"), std::string::npos) << text;
    EXPECT_NE(text.find("simt_bulk_test.cc:"), std::string::npos) << text;
}

TEST_F(SimtBulk, AStageUsedAgainTooEarlyGivesWrongRows)
{
    int found = 0;

    SKIP_RACE_UNDER_TSAN;
    for (uint64_t seed = 1; seed < 20; seed++) {
        fill();
        fuzz(seed);
        int rc;

        report(
            3, 32, [&] { stream(kReuseInFlight); }, &rc);
        found += rc || wrong();
    }
    EXPECT_GT(found, 10);
}

TEST_F(SimtBulk, ABlockMustNotEndWithCopiesInFlight)
{
    int rc;

    fill();
    std::string text = report(
        3, 32, [&] { stream(kNoWaitAtEnd); }, &rc);
    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("a block ended while a bulk copy used its shared memory"),
              std::string::npos)
        << text;
    EXPECT_EQ(wrong(), 0);
}

TEST_F(SimtBulk, WaitReadFreesTheSourceOnly)
{
    int late = 0, overwritten = 0;

    for (uint64_t seed = 0; seed < 30; seed++) {
        fill();
        fuzz(seed);
        ASSERT_EQ(run(1, 32,
                      [&] {
                          vec16 *row = static_cast<vec16 *>(block_shared());

                          if (lane_id())
                              return;
                          for (unsigned i = 0; i < kRow / 16; i++)
                              store_data(&row[i], vec16{{7, 7, 7, 7}});
                          order_before_bulk_store();
                          bulk_store(out, row, kRow);
                          bulk_commit();
                          bulk_wait_read<0>();
                          late += peek(&out[0]) != 7;
                          for (unsigned i = 0; i < kRow / 16; i++)
                              store_data(&row[i], vec16{{8, 8, 8, 8}});
                          bulk_wait<0>();
                          overwritten += load_data(&out[0]).x[0] != 7;
                      }),
                  0);
    }
    EXPECT_GT(late, 10) << "a store must be able to land after wait_read";
    EXPECT_EQ(overwritten, 0);
}

TEST_F(SimtBulk, WaitCountsTheLatestGroups)
{
    int late = 0, wrong_first = 0;

    for (uint64_t seed = 1; seed < 40; seed++) {
        fill();
        fuzz(seed, 0);
        ASSERT_EQ(run(1, 32,
                      [&] {
                          vec16 *row = static_cast<vec16 *>(block_shared());

                          if (lane_id())
                              return;
                          store_data(&row[0], vec16{{7, 7, 7, 7}});
                          order_before_bulk_store();
                          bulk_store(&out[0], row, 16);
                          bulk_store(&out[1], row, 16);
                          bulk_commit();
                          bulk_store(&out[2], row, 16);
                          bulk_commit();
                          bulk_wait<1>();
                          wrong_first += out[0].x[0] != 7 || out[1].x[0] != 7;
                          late += peek(&out[2]) != 7;
                          bulk_wait<0>();
                          wrong_first += out[2].x[0] != 7;
                      }),
                  0);
    }
    EXPECT_GT(late, 5);
    EXPECT_EQ(wrong_first, 0);
}

/* Block 0 writes a row and publishes it, block 1 acquires it and loads it in bulk. */
TEST_F(SimtBulk, ALoadAfterAnAcquireNeedsAProxyFence)
{
    for (int fence = 0; fence < 2; fence++)
        for (int by_nic = 0; by_nic < 2; by_nic++) {
            uint32_t flag = 0;
            int rc;

            fill();
            std::string text = report(
                2, 32,
                [&] {
                    Stages *s = static_cast<Stages *>(block_shared());

                    if (lane_id())
                        return;
                    if (block_id() == 0) {
                        for (unsigned i = 0; i < kRow / 16; i++)
                            if (by_nic)
                                in[i] = {{9, 9, 9, 9}};
                            else
                                store_data(&in[i], vec16{{9, 9, 9, 9}});
                        if (by_nic)
                            simt_wrote(in, kRow);
                        publish_in_gpu(&flag, 1u);
                        return;
                    }
                    stage_init(&s->full[0], 1);
                    stage_init_done();
                    order_before_bulk_load(); /* too early to count */
                    WAIT_UNTIL(read_in_gpu(&flag), "test: flag");
                    if (fence)
                        order_before_bulk_load();
                    stage_expect(&s->full[0], kRow);
                    bulk_load(s->row[0], in, kRow, &s->full[0]);
                    WAIT_UNTIL(stage_test(&s->full[0], 0), "test: stage");
                },
                &rc);

            EXPECT_EQ(rc, !fence) << text;
            EXPECT_EQ(text.find("last order_before_bulk_load") != std::string::npos, !fence)
                << text;
        }
}

TEST_F(SimtBulk, LoadsOfOtherRowsNeedNoFence)
{
    uint32_t flag = 0;

    fill();
    EXPECT_EQ(run(2, 32,
                  [&] {
                      Stages *s = static_cast<Stages *>(block_shared());

                      if (lane_id())
                          return;
                      if (block_id() == 0) {
                          for (unsigned i = 0; i < kRow / 16; i++)
                              store_data(&in[kRow / 16 + i], vec16{{9, 9, 9, 9}});
                          publish_in_gpu(&flag, 1u);
                          return;
                      }
                      stage_init(&s->full[0], 1);
                      stage_init_done();
                      WAIT_UNTIL(read_in_gpu(&flag), "test: flag");
                      stage_expect(&s->full[0], kRow);
                      bulk_load(s->row[0], in, kRow, &s->full[0]); /* written before the kernel */
                      WAIT_UNTIL(stage_test(&s->full[0], 0), "test: stage");
                  }),
              0);
}

TEST_F(SimtBulk, CopiesOfOddSizeOrOutsideSharedMemoryAreFaults)
{
    int rc;
    std::string text;

    text = report(
        1, 32, [&] { bulk_store(out, block_shared(), 24); }, &rc);
    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("units of 16 bytes"), std::string::npos) << text;
    text = report(
        1, 32, [&] { bulk_store(out, in, 32); }, &rc);
    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("not between global memory"), std::string::npos) << text;
    text = report(
        1, 32, [&] { bulk_store(out, block_shared(), 4112); }, &rc);
    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("not between global memory"), std::string::npos) << text;
}

TEST_F(SimtBulk, AMissingExpectHangsWithTheStageNamed)
{
    int rc;
    std::string text = report(
        1, 32,
        [&] {
            Stages *s = static_cast<Stages *>(block_shared());

            if (lane_id() == 0) {
                stage_init(&s->full[0], 2);
                stage_init_done();
                stage_expect(&s->full[0], 0);
            }
            warp_sync();
            WAIT_UNTIL(stage_test(&s->full[0], 0), "test: stage");
        },
        &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("lanes ffffffff: test: stage"), std::string::npos) << text;
}

/* Lanes of one warp each tell what they wrote; the lanes of another read it. */
TEST_F(SimtBulk, LanesArriveAtAStage)
{
    static uint32_t sum;

    for (uint64_t seed = 1; seed <= 20; seed++) {
        fuzz(seed);
        sum = 0;
        EXPECT_EQ(run(1, 64,
                      [&] {
                          mbarrier *stage = static_cast<mbarrier *>(block_shared());
                          uint64_t *data = stage + 1;

                          if (warp_id() == 0 && lane_id() == 0) {
                              stage_init(stage, 32);
                              stage_init_done();
                          }
                          block_sync();
                          if (warp_id() == 0) {
                              data[lane_id()] = static_cast<uint64_t>(lane_id()) + 1;
                              stage_arrive(stage);
                          } else {
                              WAIT_UNTIL(stage_test(stage, 0), "test: stage");
                              add_relaxed_in_gpu(&sum, static_cast<uint32_t>(data[31 - lane_id()]));
                          }
                      }),
                  0)
            << seed;
        EXPECT_EQ(sum, 33u * 16) << seed;
    }
}

} // namespace
