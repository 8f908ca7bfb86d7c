/* field_sums_test.cc: the field report about the precision of combine's sums. */
#include "tests/support/field_slot.h"

#include <cmath>

namespace
{

/* One row of 256 among rows of 1/K of a small number: a sum in the payload's type would lose
 * them. */
void precision(const FieldJob &job, bool one_more_rounding)
{
    FieldStep step(job, 30, std::vector<int>((size_t)job.nranks(), 3));

    for (size_t r = 0; r < step.ids.size(); r++) /* K ranks, the first of them in turn */
        for (size_t t = 0; t < 3; t++)
            for (size_t k = 0; k < (size_t)job.topk; k++)
                step.ids[r][t * (size_t)job.topk + k] =
                    (int64_t)((r + t + k) % (size_t)job.experts);
    step.result = [&](int dst, int64_t, int src, int token, void *out) {
        for (int h = 0; h < job.hidden; h++)
            swl_oracle_store(job.type, out, h,
                             dst == (src + token) % job.nranks()
                                 ? 256.0f
                                 : (float)(1 + (dst * 7 + h) % 5) * 6.0f / (float)job.topk);
    };
    step.seal();
    field_run(job, [&](FieldRank &field) {
        FieldSlot slot(step, field.rank());

        field.run_exactly(slot);
        const std::vector<char> out = slot.out.get();
        std::vector<char> row(job.row_bytes());

        for (int t = 0; t < 3; t++)
            for (int h = 0; h < job.hidden; h++) {
                double sum = 0;
                float rounded = 0;

                for (int k = 0; k < job.topk; k++) {
                    step.result((field.rank() + t + k) % job.experts, 0, field.rank(), t,
                                row.data());
                    sum += (double)swl_oracle_load(job.type, row.data(), h);
                }
                /* half a step of BF16 between 256 and 512 is 1 */
                ASSERT_TRUE(sum >= 256 && sum < 512);
                rounded = swl_oracle_load(job.type, &out[(size_t)t * job.row_bytes()], h);
                ASSERT_LE(std::fabs((double)rounded - sum), one_more_rounding ? 2.0 : 1.0)
                    << "K " << job.topk << ", element " << h;
            }
    });
}

TEST(Field, F30_SumsAreMadeInFp32)
{
    /* counted so that CUDA has its variables first: 16 ranks of a GPU need as many queues */
    const int ngpus = on_gpus ? gpus_here() : 1;

    for (int topk : {2, 8, 16, 32}) {
        if (slow_build && topk > 16)
            break;
        if (on_gpus && topk > 16 * ngpus)
            break; /* SMs of so many ranks and their NICs: more than the GPUs have */
        FieldJob job;

        job.experts = topk;
        job.topk = topk;
        job.hidden = 16;
        job.max_tokens = 3;
        job.sms = topk > 8 ? 1 : 2;
        job.nodes = {topk};
        precision(job, false);
        job.nodes = {topk / 2, topk / 2};
        precision(job, true);
        Variable variable("SWIMLANE_COMBINE_WIRE", "fp32");

        job.wire_fp32 = true;
        precision(job, false);
    }
}

} // namespace
