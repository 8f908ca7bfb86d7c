/* field_time_test.cc: field reports about ranks that are late, absent, fast or gone: time limits,
 * a rank in combine while its peer still receives, buffers that end early, repeatable results. */
#include "tests/support/field_slot.h"

namespace
{

constexpr uint64_t second = 1000000000, millisecond = 1000000;

const std::vector<std::vector<int>> pairs = {{2}, {1, 1}};

/* Seconds that pass as such on GPUs. */
constexpr uint64_t late_s = on_gpus ? 3 : 12, short_limit_s = on_gpus ? 1 : 5;

/* Rank 1 makes its first dispatch late. */
void late_start(FieldJob job, bool in_time)
{
    const std::string limit = "limit " + std::to_string(short_limit_s) + "000 ms";
    FieldStep step(job, 54);

    step.seal();
    field_run(job, [&](FieldRank &field) {
        FieldSlot slot(step, field.rank());
        ncclResult_t rc = ncclSuccess;

        ASSERT_EQ(slot.update(field.handle, field.stream), ncclSuccess);
        field.sync();
        expect_comm_works(field.self);
        const uint64_t start = swl_gpu_now_ns();

        if (field.rank() == 1)
            swl_gpu_sleep_ns(late_s * second);
        rc = slot.dispatch(field.handle, field.stream);
        rc = rc == ncclSuccess ? slot.combine(field.handle, field.stream) : rc;
        field.sync();
        if (in_time) {
            EXPECT_EQ(rc, ncclSuccess);
            EXPECT_EQ(slot.complaint(), "");
            EXPECT_EQ(field.bits(), 0);
            return;
        }
        const double waited = (double)(swl_gpu_now_ns() - start) / 1e9;

        EXPECT_EQ(field.bits() & 1, 1);
        EXPECT_EQ(slot.update(field.handle, field.stream), ncclSystemError);
        if (field.rank() == 1) { /* it came when the other had given up */
            expect_sentence({"another rank gave up before", "missing this rank"});
        } else { /* seconds, not cycles of some clock */
            expect_sentence({limit.c_str(), "dispatch", "rank 1"});
            EXPECT_GT(waited, (double)short_limit_s * 0.98);
            EXPECT_LT(waited,
                      (double)short_limit_s * 1.14 +
                          (on_gpus
                               ? 0.2
                               : 0)); /* a wait that knows no culprit leaves the others an eighth */
        }
        expect_comm_works(field.self); /* both destroy together */
    });
}

TEST(Field, F54_LateRankAtStartUp)
{
    const std::string short_ms = std::to_string(short_limit_s) + "000";

    for (const std::vector<int> &nodes : pairs) {
        FieldJob job;

        job.nodes = nodes;
        late_start(job, true); /* the built-in limit */
        job.timeout_ns = short_limit_s * second;
        late_start(job, false);
        job.timeout_ns = 60 * second;
        late_start(job, true);
        {
            Variable variable("NCCL_EP_TIMEOUT_MS", short_ms.c_str()); /* before the config */
            late_start(job, false);
            job.timeout_ns = 0;
            late_start(job, false);
        }
        job.timeout_ns = short_limit_s * second;
        {
            Variable variable("NCCL_EP_TIMEOUT_MS", "60000");
            late_start(job, true);
        }
        {
            Variable variable("NCCL_EP_TIMEOUT_MS", ""); /* empty is not set */
            late_start(job, false);
        }
    }
}

TEST(Field, F68_RankThatNeverCallsDispatch)
{
    for (const std::vector<int> &nodes : pairs) {
        FieldJob job;

        job.nodes = nodes;
        job.timeout_ns = 2 * second;
        FieldStep step(job, 68);

        step.seal();
        field_run(job, [&](FieldRank &field) {
            FieldSlot slot(step, field.rank());

            for (int i = 0; i < 2; i++)
                ASSERT_TRUE(field.run(step));
            ASSERT_EQ(slot.update(field.handle, field.stream), ncclSuccess);
            field.sync();
            if (field.rank() == 1) { /* destroys the group, to which rank 0 comes when it gave up */
                swl_gpu_sleep_ns(second);
                return;
            }
            const uint64_t start = swl_gpu_now_ns();

            ASSERT_EQ(slot.dispatch(field.handle, field.stream), ncclSuccess);
            field.sync();
            const double waited = (double)(swl_gpu_now_ns() - start) / 1e9;

            EXPECT_GT(waited, 1.95);
            EXPECT_LT(waited, 2.3);
            EXPECT_EQ(field.bits() & 1, 1);
            EXPECT_EQ(slot.combine(field.handle, field.stream), ncclSystemError);
            expect_sentence({"rank 1", "dispatch call 4", "2000 ms"});
        });
    }
}

/* Rank 1 is held back, or what it receives is: rank 0 is in combine, and in the next step, already.
 * True when rank 0's first dispatch ended before that of rank 1. */
bool fast_rank(const FieldJob &job, bool late_call)
{
    FieldStep first(job, 16), next(job, 17);
    uint64_t ended[4] = {};

    first.identity = true;
    first.seal();
    next.seal();
    field_run(job, [&](FieldRank &field) {
        FieldSlot slots[2] = {{first, field.rank()}, {next, field.rank()}};

        for (FieldSlot &slot : slots) {
            ASSERT_EQ(slot.update(field.handle, field.stream), ncclSuccess);
            if (field.rank() == 1 && late_call)
                swl_gpu_sleep_ns(2 * millisecond);
            ASSERT_EQ(slot.dispatch(field.handle, field.stream), ncclSuccess);
            if (&slot == &slots[0]) {
                field.sync();
                ended[field.rank()] = swl_gpu_now_ns();
            }
            ASSERT_EQ(slot.combine(field.handle, field.stream), ncclSuccess);
        }
        field.sync();
        for (FieldSlot &slot : slots)
            EXPECT_EQ(slot.complaint(), "");
        EXPECT_EQ(field.bits(), 0);
    });
    return ended[0] < ended[1];
}

TEST(Field, F16_FastRankCombinesWhileThePeerReceives)
{
    FieldJob job;

    job.max_tokens = 160;
    job.hidden = 2048; /* more than a ring of the node, or of the network, holds */
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {1, 1}, {2, 2}}) {
        job.nodes = nodes;
        fast_rank(job, true);
    }
    job.nodes = {1, 1};
    job.max_tokens = 100; /* all rows fit into the rings between nodes: nobody waits for credit */
    /* blocks of the kernel know no jitter and would keep it until all has landed; a thread lets it
     * end */
    Variable executor("SWIMLANE_SOFT_EXECUTOR", on_gpus ? "thread" : "");
    {
        Variable variable("SWIMLANE_SOFT_FAULTS", "rank0:jitter=2ms");

        fast_rank(job, false);
    }
    {
        Variable variable("SWIMLANE_SOFT_FAULTS", on_gpus ? "rank0:delay=20ms" : "rank0:delay=2ms");

        EXPECT_TRUE(fast_rank(job, false) || testing::Test::IsSkipped());
    }
}

/* Everything of a step is poisoned and given back as soon as the stream has passed it. */
TEST(Field, F18_BuffersMayGoAfterLocalCompletion)
{
    const int loops = field_long() ? 500 : slow_build ? 3 : 12;

    for (const std::vector<int> &nodes : pairs) {
        FieldJob job;

        job.nodes = nodes;
        job.max_tokens = 128;
        job.hidden = 64;
        FieldStep step(job, 18);

        step.seal();
        field_run(job, [&](FieldRank &field) {
            const std::vector<const StepBuffer *> none;
            std::unique_ptr<FieldSlot> gone;

            for (int i = 0; i < loops; i++) {
                auto slot = std::make_unique<FieldSlot>(step, field.rank());
                ncclEpHandle_t handle = nullptr;

                ASSERT_EQ(ncclEpInitHandle(&handle, field.group, NCCL_EP_LAYOUT_FLAT, nullptr,
                                           job.topk, nullptr),
                          ncclSuccess);
                for (int loop = 0; loop < 2; loop++)
                    field.enqueue(*slot, handle);
                field.sync();
                if (i % 2)
                    expect_comm_works(field.self); /* a barrier */
                ASSERT_EQ(slot->complaint(), "");
                EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
                for (const StepBuffer *buffer : slot->buffers())
                    buffer->poison(0xdd);
                for (const StepBuffer *buffer : gone ? gone->buffers() : none)
                    ASSERT_TRUE(buffer->holds_only(0xdd)) << "a whole step after loop " << i - 1;
                gone = std::move(slot);
            }
        });
    }
}

TEST(Field, F25_SameInputGivesTheSameBits)
{
    const int times = field_long() ? 50 : slow_build ? 4 : 12;

    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{4}, {2, 2}}) {
        FieldJob job;

        job.nodes = nodes;
        job.experts = 16;
        job.topk = 4;
        job.hidden = 64;
        FieldStep step(job, 25);

        step.seal();
        field_run(job, [&](FieldRank &field) {
            std::vector<char> rows, out;

            for (int i = 0; i < times; i++) {
                FieldSlot slot(step, field.rank());

                field_hold_back(field.rank(), (uint64_t)i, 50000);
                ASSERT_EQ(slot.update(field.handle, field.stream), ncclSuccess);
                field_hold_back(field.rank(), 1000 + (uint64_t)i, 50000);
                ASSERT_EQ(slot.dispatch(field.handle, field.stream), ncclSuccess);
                field_hold_back(field.rank(), 2000 + (uint64_t)i, 50000);
                ASSERT_EQ(slot.combine(field.handle, field.stream), ncclSuccess);
                field.sync();
                ASSERT_EQ(slot.complaint(), ""); /* rows in their order, sums as documented */
                if (i == 0) {
                    rows = slot.rows.get();
                    out = slot.out.get();
                }
                ASSERT_EQ(slot.rows.get(), rows);
                ASSERT_EQ(slot.out.get(), out);
            }
        });
    }
}

} // namespace
