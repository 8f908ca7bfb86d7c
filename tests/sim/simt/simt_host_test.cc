/* Tests of host fibers, engines, parking and threaded mode: sim/simt_actor.cc,
 * simt_background.cc. */
#include "tests/sim/simt/simt_fixture.h"

#include <atomic>
#include <stdlib.h>
#include <thread>

namespace
{

class SimtHost : public SimtTest
{
};

struct Box {
    std::atomic<int> value{0};
    uint64_t from, to;
    bool result;
};
bool box_is_set(void *arg)
{
    return static_cast<Box *>(arg)->value.load(std::memory_order_acquire) != 0;
}
bool stopping(void *)
{
    return simt_stopping();
}

TEST_F(SimtHost, FibersHaveDeviceNodeAndSlot)
{
    Box box;
    auto main = [](void *arg) {
        struct simt_thread *self = simt_thread_self();

        EXPECT_EQ(self->node, self->device / 4);
        EXPECT_EQ(self->slot, nullptr);
        self->slot = malloc(8); /* freed by the emulator */
        self->device += 100;
        simt_park(SIMT_WHY("test: sleep", 0, 0), nullptr, nullptr, simt_now_ns() + 100);
        EXPECT_EQ(simt_thread_self(), self);
        static_cast<Box *>(arg)->value++;
    };

    for (int i = 0; i < 8; i++)
        simt_fiber("rank", i, i / 4, main, &box);
    EXPECT_EQ(simt_run(), 0);
    EXPECT_EQ(box.value, 8);
    EXPECT_EQ(simt_thread_self()->node, -1);
}

/* The settings are read when the library is loaded: the child of a threadsafe death test does
 * so. */
TEST(SimtSettings, MalformedValuesAreAWarningAndTheDefault)
{
    static const char *const values[][2] = {
        {"SIMT_SMS", "many"},        {"SIMT_SMS", "-1"},       {"SIMT_SMS", "65536"},
        {"SIMT_SHARED_KIB", "227x"}, {"SIMT_PREEMPT", "1001"}, {"SIMT_SEED", "abc"},
        {"SIMT_THREADS", " 2"},      {"SIMT_HANG", "always"},
    };

    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const auto &value : values) {
        setenv(value[0], value[1], 1);
        EXPECT_EXIT(
            {
                const struct simt_config c = simt_config_get();

                exit(c.nsms == 24 && c.shared_kib == 227 && c.preempt_per_1000 == 0 &&
                             c.seed == 0 && c.threads == 1 && !c.hang_report
                         ? 0
                         : 1);
            },
            testing::ExitedWithCode(0), std::string(value[0]) + " '" + value[1] + "' is not");
        unsetenv(value[0]);
    }
}

TEST_F(SimtHost, ParkReturnsWhenReadyOrLate)
{
    Box box, never;

    simt_fiber(
        "waits", 0, 0,
        [](void *arg) {
            Box *b = static_cast<Box *>(arg);

            b->from = simt_now_ns();
            b->result = simt_park(SIMT_WHY("test: box", 1, 2), box_is_set, b, UINT64_MAX);
            b->to = simt_now_ns();
        },
        &box);
    simt_fiber(
        "sets", 1, 0,
        [](void *arg) {
            simt_park(SIMT_WHY("test: sleep", 0, 0), nullptr, nullptr, simt_now_ns() + 5000000);
            static_cast<Box *>(arg)->value.store(1, std::memory_order_release);
        },
        &box);
    simt_fiber(
        "late", 2, 0,
        [](void *arg) {
            Box *b = static_cast<Box *>(arg);

            b->from = simt_now_ns();
            b->result = simt_park(SIMT_WHY("test: box", 1, 2), box_is_set, b, b->from + 1000000000);
            b->to = simt_now_ns();
        },
        &never);
    EXPECT_EQ(simt_run(), 0);
    EXPECT_TRUE(box.result);
    EXPECT_GE(box.to - box.from, 5000000u);
    EXPECT_LT(box.to - box.from, 6000000u);
    EXPECT_FALSE(never.result);
    EXPECT_GE(never.to - never.from, 1000000000u);
}

TEST_F(SimtHost, AHostThatWaitsForeverIsAHang)
{
    Box box;

    testing::internal::CaptureStderr();
    simt_fiber(
        "rank 3", 3, 0,
        [](void *arg) { simt_park(SIMT_WHY("test: box", 11, 12), box_is_set, arg, UINT64_MAX); },
        &box);
    simt_engine(
        "nic", 3,
        [](void *) { simt_park(SIMT_WHY("nic: idle", 0, 0), stopping, nullptr, UINT64_MAX); },
        nullptr);
    EXPECT_EQ(simt_run(), 1);
    std::string text = testing::internal::GetCapturedStderr();

    EXPECT_NE(text.find("gpu 3 host rank 3: test: box (11, 12)"), std::string::npos) << text;
    EXPECT_NE(text.find("gpu 3 engine nic: nic: idle"), std::string::npos) << text;
}

TEST_F(SimtHost, EnginesServeLanesAndAreStopped)
{
    for (uint64_t seed = 0; seed < 10; seed++) {
        static uint64_t doorbell, answer;
        static int ended;

        doorbell = answer = 0;
        ended = 0;
        simt_forget_memory(&doorbell, 8);
        simt_forget_memory(&answer, 8);
        fuzz(seed);
        simt_engine(
            "nic", 0,
            [](void *) {
                uint64_t served = 0;

                while (!simt_stopping()) {
                    if (read_doorbell(&doorbell) == served) {
                        pause_lane(SWL_PAUSE("nic: idle", 0, 0), UINT64_MAX);
                        continue;
                    }
                    served++;
                    simt_park(SIMT_WHY("nic: wire", 0, 0), nullptr, nullptr, simt_now_ns() + 700);
                    order_before_publish(SWL_SCOPE_SYS);
                    nic_add(&answer, 1);
                }
                ended++;
            },
            nullptr);
        simt_nic_word(&answer, 8);
        EXPECT_EQ(run(1, 32,
                      [&] {
                          for (uint64_t i = 1; i <= 5; i++) {
                              if (lane_id() == 0) {
                                  order_before_doorbell(SWL_SCOPE_GPU);
                                  ring_doorbell(&doorbell, i);
                              }
                              WAIT_UNTIL(read_from_nic(&answer) >= i, "test: answer");
                              warp_sync();
                          }
                      }),
                  0)
            << seed;
        EXPECT_EQ(ended, 1);
        EXPECT_EQ(answer, 5u);
        simt_forget_memory(&answer, 8);
    }
}

TEST_F(SimtHost, ADoorbellNeedsItsFence)
{
    static uint64_t doorbell;
    int rc;
    std::string text = report(
        1, 32, [&] { ring_doorbell(&doorbell, 1); }, &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("doorbell without order_before_doorbell"), std::string::npos) << text;
}

TEST_F(SimtHost, ADoorbellNeedsAFenceBehindItsRecord)
{
    static uint64_t doorbell;
    static uint32_t record;
    int rc;
    std::string text = report(
        1, 32,
        [&] {
            order_before_doorbell(SWL_SCOPE_GPU);
            store_doorbell_record(&record, 1u);
            ring_doorbell(&doorbell, 1);
        },
        &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("doorbell without order_before_doorbell"), std::string::npos) << text;
}

/* Kernel of the threaded tests: all blocks of two GPUs meet. */
struct Meeting {
    uint32_t *arrived, wanted;
    std::atomic<int> *done;
};
void meet(const void *args)
{
    const Meeting *m = static_cast<const Meeting *>(args);

    if (lane_id() == 0)
        add_to_peer(m->arrived, 1u);
    WAIT_UNTIL(read_from_peer(m->arrived) >= m->wanted, "test: meeting");
    warp_sync();
}
bool all_done(void *arg)
{
    return static_cast<std::atomic<int> *>(arg)->load(std::memory_order_acquire) == 1;
}

TEST_F(SimtHost, OsThreadsRunGridsInTheBackground)
{
    for (int round = 0; round < 3; round++) {
        uint32_t arrived = 0;
        std::vector<std::thread> ranks;
        std::atomic<int> good{0};

        simt_forget_memory(&arrived, sizeof(arrived));
        for (int gpu = 0; gpu < 2; gpu++)
            ranks.emplace_back([&, gpu] {
                std::atomic<int> done{0};
                Meeting m = {&arrived, 2 * 4 * 2, &done};
                struct simt_grid grid = {"meet",
                                         gpu,
                                         4,
                                         64,
                                         1024,
                                         meet,
                                         &m,
                                         sizeof(m),
                                         [](void *arg) {
                                             static_cast<std::atomic<int> *>(arg)->store(
                                                 1, std::memory_order_release);
                                         },
                                         &done};

                simt_thread_self()->device = gpu;
                simt_grid_start(&grid);
                good += simt_park(SIMT_WHY("host: grid", gpu, 0), all_done, &done, UINT64_MAX);
            });
        for (std::thread &rank : ranks)
            rank.join();
        EXPECT_EQ(good, 2);
    }
    uint64_t from = simt_now_ns();

    EXPECT_FALSE(simt_park(SIMT_WHY("test: sleep", 0, 0), nullptr, nullptr, from + 2000000));
    EXPECT_GE(simt_now_ns(), from + 2000000);
}

// A thread that waits leaves the core to who has work: ranks of many processes may share it. Only
// looks are counted: a slow machine looks less often.
TEST_F(SimtHost, AThreadThatWaitsLongLooksSeldom)
{
    long looks = 0;

    std::thread([&looks] {
        const auto look = [](void *arg) {
            ++*static_cast<long *>(arg);
            return false;
        };

        EXPECT_FALSE(simt_park(SIMT_WHY("nothing", 0, 0), look, &looks, simt_now_ns() + 400000000));
    }).join();
    EXPECT_GT(looks, 1);
    EXPECT_LT(looks, 1500) << "in 0.4 s";
}

} // namespace
