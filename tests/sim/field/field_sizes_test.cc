/* field_sizes_test.cc: field reports about sizes: token counts on one group, layers back to back,
 * SMs and channels, many ranks. */
#include "tests/support/ep_bench.h"
#include "tests/support/field_slot.h"

namespace
{

TEST(Field, F06_SecondLayerRightAfterTheFirst)
{
    FieldJob job;
    std::vector<std::unique_ptr<FieldStep>> steps;

    job.nodes = {2, 2};
    job.experts = 32;
    job.topk = 8;
    job.hidden = 1024;
    job.max_tokens = 300;
    for (uint64_t layer = 0; layer < 4; layer++) {
        steps.push_back(
            std::make_unique<FieldStep>(job, 6 + layer, std::vector<int>{300, 300, 1, 1}));
        steps.back()->seal();
    }
    field_run(job, [&](FieldRank &field) {
        std::vector<std::unique_ptr<FieldSlot>> slots;
        std::vector<ncclEpHandle_t> handles(steps.size());

        for (const auto &step : steps)
            slots.push_back(std::make_unique<FieldSlot>(*step, field.rank()));
        for (size_t layer = 0; layer < steps.size(); layer++) {
            ASSERT_EQ(ncclEpInitHandle(&handles[layer], field.group, NCCL_EP_LAYOUT_FLAT, nullptr,
                                       job.topk, nullptr),
                      ncclSuccess);
            field.enqueue(*slots[layer], handles[layer]);
        }
        field.sync();
        for (size_t layer = 0; layer < steps.size(); layer++) {
            EXPECT_EQ(slots[layer]->complaint(), "") << "layer " << layer;
            EXPECT_EQ(ncclEpHandleDestroy(handles[layer]), ncclSuccess);
        }
        EXPECT_EQ(field.bits(), 0);
    });
}

/* All counts on one group, for each number of SMs; all of both in the long run. */
TEST(Field, F07_NoTokenCountIsSpecial)
{
    const std::vector<int> all = {1,  2,   4,   8,   12,  16,  24,  32,   48,   64,
                                  96, 127, 128, 129, 160, 256, 512, 1024, 2048, 4096};
    const std::vector<unsigned> sms = {4, 8, 12, 16, 20, 24};

    for (size_t i = 0; i < sms.size(); i++) {
        FieldJob job;

        job.nodes = i % 2 ? std::vector<int>{1, 1} : std::vector<int>{2};
        job.experts = 16;
        job.topk = 8;
        job.hidden = field_long() ? 256 : 64;
        job.sms = sms[i];
        job.max_tokens = field_long() ? 4096 : slow_build ? 129 : 512;
        std::vector<std::unique_ptr<FieldStep>> steps;

        for (size_t k = 0; k < all.size(); k++)
            if (field_long() || (all[k] <= job.max_tokens && k % sms.size() == i)) {
                steps.push_back(
                    std::make_unique<FieldStep>(job, 7 + k, std::vector<int>(2, all[k])));
                steps.back()->seal();
            }
        field_run(job, [&](FieldRank &field) {
            for (const auto &step : steps)
                ASSERT_TRUE(field.run(*step)) << job.sms << " SMs, " << step->ntokens[0];
        });
    }
}

TEST(Field, F21_UnusualSmsAndChannels)
{
    const std::vector<unsigned> channels = {1, 3, 7, 13};
    size_t next = 0;

    for (unsigned sms : {1, 2, 3, 5, 7, 21})
        for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {1, 1}, {2, 1}}) {
            FieldJob job;

            job.nodes = nodes;
            job.experts = 16;
            job.topk = 8;
            job.hidden = 64;
            job.sms = sms;
            job.channels = channels[next++ % channels.size()];
            job.max_tokens = field_long() ? 4096 : 60;
            FieldStep step(job, 21);

            step.seal();
            field_run(job, [&](FieldRank &field) {
                EXPECT_LE(query(field.group, SWIMLANE_QUERY_SMS), sms);
                EXPECT_TRUE(field.run(step)) << sms << " SMs, " << job.channels << " channels";
            });
        }
    on_ranks({2}, [](swl_rank *rank) {
        FieldJob job;
        ncclEpGroupConfig_t config = job.config();
        ncclEpGroup_t group = nullptr;

        struct swl_gpu_info info;

        ASSERT_EQ(swl_gpu_info(rank->device, &info), cudaSuccess);
        config.max_num_sms = (unsigned)info.nsms + 9;
        EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclInvalidUsage);
        expect_sentence({"max_num_sms", std::to_string(info.nsms + 9).c_str(),
                         std::to_string(info.nsms).c_str()});
        expect_comm_works(rank);
    });
}

/* Streams of a process share 32 queues of a GPU: kernels behind one that waits for them would
 * hang. */
TEST(Field, F57_ManyRanksTakeAStep)
{
    const std::string work = "--nodes 1 --tokens 1 --hidden 8 --topk 2 --experts 65 --sms 1 "
                             "--iterations 1 --warmup 0 --ranks-per-node ";

    if (!on_gpus) {
        EXPECT_BENCH(work + "33");
        EXPECT_BENCH(work + "65");
        return;
    }
    EXPECT_BENCH(work + std::to_string(32 * std::min(gpus_here(), 2)));
    testing::internal::CaptureStderr();
    EXPECT_FALSE(ep_bench(work + std::to_string(32 * gpus_here() + 1)));
    const std::string said = testing::internal::GetCapturedStderr();

    EXPECT_NE(said.find("33 ranks of a process share the device"), std::string::npos) << said;
}

} // namespace
