/* exchange_field_test.cc: field reports about other collectives beside the calls, memory that no
 * peer can map or that is none of the device, and outliers in time. Runs emulated too. */
#include "tests/gpu/access_matrix.h"
#include "tests/support/field_slot.h"

#include <algorithm>

namespace
{

constexpr uint64_t second = 1000000000;

/* ---- F-12 ---- */

/* Each rank enqueues an all-gather and a dispatch on two streams, in opposite orders. */
void opposite_orders(FieldRank &field, FieldSlot &slot, cudaStream_t gathering, char *memory)
{
    const size_t part = 1 << 20;

    for (int turn = 0; turn < 2; turn++)
        if ((turn == 0) == (field.rank() == 0)) {
            EXPECT_EQ(
                ncclAllGather(memory, memory + part, part, ncclInt8, field.self->comm, gathering),
                ncclSuccess);
        } else {
            EXPECT_EQ(slot.dispatch(field.handle, field.stream), ncclSuccess);
        }
    EXPECT_EQ(cudaStreamSynchronize(gathering), cudaSuccess);
}

/* With room for both kernels they finish. Where the calls take every SM they may wait for each
 * other: then the call gives up in time on both ranks, and the all-gather comes through. */
void two_streams(unsigned sms, bool may_give_up)
{
    FieldJob job;

    job.sms = sms;
    job.timeout_ns = on_gpus ? second : 5 * second;
    FieldStep step(job, 12);

    step.seal();
    field_run(job, [&](FieldRank &field) {
        char *memory = nullptr;
        cudaStream_t gathering;
        bool gave_up = false;

        memory = static_cast<char *>(pool_take(3 << 20));
        ASSERT_EQ(cudaStreamCreateWithFlags(&gathering, cudaStreamNonBlocking), cudaSuccess);
        for (int i = 0; i < (on_gpus ? 50 : 3) && !gave_up; i++) {
            FieldSlot slot(step, field.rank());

            ASSERT_EQ(slot.update(field.handle, field.stream), ncclSuccess);
            field.sync();
            expect_comm_works(field.self);
            const uint64_t began = swl_gpu_now_ns();

            opposite_orders(field, slot, gathering, memory);
            field.sync();
            EXPECT_LT(swl_gpu_now_ns() - began, job.timeout_ns + job.timeout_ns / 2);
            expect_comm_works(field.self);
            gave_up = field.bits() & 1;
            ASSERT_TRUE(may_give_up || !gave_up) << "loop " << i;
            if (!gave_up) {
                ASSERT_EQ(slot.combine(field.handle, field.stream), ncclSuccess);
                field.sync();
                ASSERT_EQ(slot.complaint(), "") << "loop " << i;
            }
        }
        EXPECT_EQ(cudaStreamDestroy(gathering), cudaSuccess);
        pool_give(memory, 3 << 20);
    });
}

TEST(Field, F12_CallsAndAnotherCollectiveOnTwoStreams)
{
    two_streams(on_gpus ? 16 : 2, false);
}

TEST(Field, F12_CallsThatTakeEverySmEndInTime)
{
    struct swl_gpu_info info = {};

    if (!on_gpus)
        GTEST_SKIP() << "emulated collectives take no SM";
    if (gpus_here() == 0)
        GTEST_SKIP() << "no GPU on this machine";
    ASSERT_EQ(swl_gpu_info(0, &info), cudaSuccess);
    two_streams((unsigned)info.nsms, true);
}

/* ---- F-55 ---- */

TEST(Field, F55_MemoryOfTheHostIsRefusedAndPlainMemoryWorks)
{
    FieldJob job;
    FieldStep step(job, 55);

    job.sms = on_gpus ? 8 : 2;
    step.seal();
    field_run(job, [&](FieldRank &field) {
        FieldSlot slot(step, field.rank());
        std::vector<char> host(slot.rows.bytes, 0x11);
        const std::vector<char> before = host;

        ASSERT_EQ(slot.update(field.handle, field.stream), ncclSuccess);
        slot.rows_at = host.data();
        EXPECT_EQ(slot.dispatch(field.handle, field.stream), ncclInvalidArgument);
        expect_sentence({"outputs.tokens", "ordinary host memory"});
        slot.rows_at = slot.rows.data();
        ASSERT_EQ(slot.dispatch(field.handle, field.stream), ncclSuccess) << swimlaneLastError();
        ASSERT_EQ(slot.combine(field.handle, field.stream), ncclSuccess) << swimlaneLastError();
        field.sync();
        EXPECT_EQ(slot.complaint(), "");
        EXPECT_EQ(host, before);
        EXPECT_EQ(field.bits(), 0);
    });
}

/* ---- F-59 ---- */

bool is_in(int rank, const std::vector<std::pair<int, int>> &pairs)
{
    return std::any_of(pairs.begin(), pairs.end(), [rank](const std::pair<int, int> &p) {
        return p.first == rank || p.second == rank;
    });
}

/* Some ranks cannot map the memory of others: no rank gets a group, and the sentence names a
 * pair. */
void blocked(const std::vector<int> &nodes, const std::vector<std::pair<int, int>> &pairs)
{
    on_ranks(nodes, [&](swl_rank *rank) {
        const ncclEpGroupConfig_t config = FieldJob().config();
        ncclEpGroup_t group = nullptr;

        access_block(rank->rank, pairs);
        EXPECT_NE(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
        EXPECT_EQ(group, nullptr);
        expect_sentence({is_in(rank->rank, pairs) ? "cannot map the memory of rank "
                                                  : "failed while mapping its peers"});
        access_block(rank->rank, {});
        expect_comm_works(rank);
        EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess)
            << swimlaneLastError();
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    });
}

TEST(Field, F59_PeersWithoutDirectAccessAreNamedOnAllRanks)
{
    blocked({2}, {{0, 1}});
    blocked({4}, {{0, 1}});
    blocked({4}, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}});
}

/* ---- F-79 ---- */

/* Median and 99th of 100 after some to warm up, us. */
std::pair<double, double> spread_of(std::vector<float> ms)
{
    std::sort(ms.begin(), ms.end());
    return {ms[ms.size() / 2] * 1e3, ms[ms.size() * 99 / 100 - 1] * 1e3};
}

TEST(Field, F79_NoOutliersInTime)
{
    FieldJob job;
    const int loops = 110, warm = 10;

    if (!on_gpus)
        GTEST_SKIP() << "emulated times are no times";
    job.sms = 24;
    job.max_tokens = 4096;
    job.hidden = 7168;
    job.topk = 8;
    job.experts = 256;
    FieldStep step(job, 79);

    step.seal();
    field_run(job, [&](FieldRank &field) {
        FieldSlot slot(step, field.rank());
        cudaEvent_t at[3];
        std::vector<float> times[2];

        for (cudaEvent_t &event : at)
            ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
        for (int i = 0; i < loops; i++) {
            ASSERT_EQ(slot.update(field.handle, field.stream), ncclSuccess);
            ASSERT_EQ(cudaEventRecord(at[0], field.stream), cudaSuccess);
            ASSERT_EQ(slot.dispatch(field.handle, field.stream), ncclSuccess);
            ASSERT_EQ(cudaEventRecord(at[1], field.stream), cudaSuccess);
            ASSERT_EQ(slot.combine(field.handle, field.stream), ncclSuccess);
            ASSERT_EQ(cudaEventRecord(at[2], field.stream), cudaSuccess);
            field.sync();
            for (int op = 0; op < 2 && i >= warm; op++) {
                float ms = 0;

                EXPECT_EQ(cudaEventElapsedTime(&ms, at[op], at[op + 1]), cudaSuccess);
                times[op].push_back(ms);
            }
        }
        for (int op = 0; op < 2; op++) {
            const auto [median, late] = spread_of(times[op]);

            printf("    rank %d %s: median %.0f us, 99th of 100 %.0f us\n", field.rank(),
                   op ? "combine" : "dispatch", median, late);
            EXPECT_LT(late, 3 * median) << (op ? "combine" : "dispatch");
        }
        for (cudaEvent_t event : at)
            EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    });
}

} // namespace
