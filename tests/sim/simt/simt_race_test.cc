/* What TSan says to kernels: correct hand-overs are silent, wrong ones are races. Runs only in the
 * sim-tsan build; each kernel in a process of its own, whose exit code tells. */
#include "tests/sim/simt/simt_fixture.h"

namespace
{

class SimtRace : public SimtTest
{
  protected:
    static constexpr int kRaceExit = 66;

    /* Exit code of a process that runs the kernel. */
    void expect(int code, int blocks, int threads, std::function<void()> body)
    {
        EXPECT_EXIT(
            {
                int rc = run(blocks, threads, body);

                exit(rc ? 3 : 0);
            },
            testing::ExitedWithCode(code), code == kRaceExit ? "data race" : "");
    }
};
uint32_t flag, data[32];
vec16 row[32];

TEST_F(SimtRace, ReleaseAndAcquireOrder)
{
    expect(0, 2, 32, [] {
        if (block_id() == 0) {
            data[lane_id()] = 1;
            warp_sync();
            if (lane_id() == 0)
                publish_in_gpu(&flag, 1u);
            return;
        }
        if (lane_id() == 0)
            WAIT_UNTIL(read_in_gpu(&flag), "test: flag");
        warp_sync();
        data[lane_id()]++;
    });
}

TEST_F(SimtRace, AReleaseWithoutWarpSyncIsARace)
{
    expect(kRaceExit, 2, 32, [] {
        if (block_id() == 0) {
            data[lane_id()] = 1;
            if (lane_id() == 0)
                publish_in_gpu(&flag, 1u);
            return;
        }
        if (lane_id() == 0)
            WAIT_UNTIL(read_in_gpu(&flag), "test: flag");
        warp_sync();
        data[lane_id()]++;
    });
}

TEST_F(SimtRace, AShuffleAfterTheAcquireIsARace)
{
    expect(kRaceExit, 2, 32, [] {
        if (block_id() == 0) {
            data[lane_id()] = 1;
            warp_sync();
            if (lane_id() == 0)
                publish_in_gpu(&flag, 1u);
            return;
        }
        if (lane_id() == 0)
            WAIT_UNTIL(read_in_gpu(&flag), "test: flag");
        warp_shfl(1, 0);
        data[lane_id()]++;
    });
}

TEST_F(SimtRace, OneFenceOrdersManyPosts)
{
    expect(0, 2, 32, [] {
        static uint32_t words[2];

        if (lane_id())
            return;
        if (block_id() == 0) {
            store_data(&row[0], vec16{{1, 1, 1, 1}});
            order_before_publish(SWL_SCOPE_SYS);
            post_to_peer(&words[0], 1u);
            post_to_peer(&words[1], 1u);
            return;
        }
        WAIT_UNTIL(read_from_peer(&words[1]), "test: second word");
        store_data(&row[0], load_data(&row[0]));
    });
}

TEST_F(SimtRace, APostBeforeTheFenceIsARace)
{
    expect(kRaceExit, 2, 32, [] {
        static uint32_t word;

        if (lane_id())
            return;
        if (block_id() == 0) {
            order_before_publish(SWL_SCOPE_SYS);
            store_data(&row[0], vec16{{1, 1, 1, 1}});
            post_to_peer(&word, 1u);
            return;
        }
        WAIT_UNTIL(read_from_peer(&word), "test: word");
        store_data(&row[0], load_data(&row[0]));
    });
}

/* A row edited in shared memory goes out in bulk. */
void edit_and_store(bool fence)
{
    vec16 *mine = static_cast<vec16 *>(block_shared());

    mine[lane_id()] = {{1, 2, 3, 4}}; /* plain: only TSan sees it */
    if (fence)
        order_before_bulk_store();
    warp_sync();
    if (lane_id() == 0) {
        bulk_store(row, mine, sizeof(row));
        bulk_commit();
        bulk_wait<0>();
    }
    warp_sync();
    row[lane_id()].x[0]++;
}

TEST_F(SimtRace, ProxyFenceOrdersEditsBeforeABulkStore)
{
    expect(0, 1, 32, [] { edit_and_store(true); });
}

TEST_F(SimtRace, ABulkStoreWithoutProxyFenceIsARace)
{
    expect(kRaceExit, 1, 32, [] { edit_and_store(false); });
}

/* Only some lanes wait for the stage that all read. */
void load_and_read(bool all)
{
    struct {
        mbarrier full;
        alignas(128) vec16 row[32];
    } * s;

    s = static_cast<decltype(s)>(block_shared());
    if (lane_id() == 0) {
        stage_init(&s->full, 1);
        stage_init_done();
        stage_expect(&s->full, sizeof(row));
        bulk_load(s->row, row, sizeof(row), &s->full);
    }
    warp_sync();
    if (all || lane_id() == 0)
        WAIT_UNTIL(stage_test(&s->full, 0), "test: stage");
    warp_ballot(true);
    volatile uint32_t x = s->row[lane_id()].x[0];

    (void)x;
}

TEST_F(SimtRace, EveryLaneThatTestsTheStageMayReadIt)
{
    expect(0, 1, 32, [] { load_and_read(true); });
}

TEST_F(SimtRace, ALaneThatDidNotTestTheStageRaces)
{
    expect(kRaceExit, 1, 32, [] { load_and_read(false); });
}

TEST_F(SimtRace, AGridComesAfterTheOneItsHostWaitedFor)
{
    EXPECT_EXIT(
        {
            int rc = 0;

            for (int i = 0; i < 3; i++)
                rc |= run(1, 32, [i] { row[(lane_id() + i) & 31].x[0]++; });
            exit(rc);
        },
        testing::ExitedWithCode(0), "");
}

TEST_F(SimtRace, GridsOfTwoGpusAreUnordered)
{
    EXPECT_EXIT(
        {
            auto body = [] { row[lane_id()].x[0]++; };

            exit(run({{0, 1, 32, body, "a"}, {1, 1, 32, body, "b"}}));
        },
        testing::ExitedWithCode(kRaceExit), "data race");
}

} // namespace
