/* field_nodes_test.cc: field reports about numbers of nodes, a group as the first use of
 * a communicator. */
#include "tests/support/ep_bench.h"
#include "tests/support/field_slot.h"

namespace
{

TEST(Field, F46_DefaultsWorkAtManyNodes)
{
    for (int nodes : {2, 3, 4, 6, 8, 12, 16, 18}) {
        if (slow_build && nodes > 6)
            break;
        EXPECT_BENCH("--ranks-per-node 1 --tokens 32 --hidden 64 --topk 4 --experts 36 "
                     "--iterations 1 --warmup 0 --nodes " +
                     std::to_string(nodes));
    }
}

TEST(Field, F58_FewerThanEightRanksPerNode)
{
    for (const char *nodes : {"1,1", "2,2", "4,4", "2,2,2,2", "3,1", "8,4"})
        EXPECT_BENCH("--tokens 32 --hidden 64 --topk 4 --experts 24 --sms 2 --iterations 2 "
                     "--warmup 0 --node-sizes " +
                     std::string(nodes));
}

/* Nothing has used the communicator before the group, neither the job's nor one split from it. */
TEST(Field, F64_GroupIsTheFirstUseOfACommunicator)
{
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{2}, {1, 1}, {2, 2}}) {
        FieldJob job;

        job.nodes = nodes;
        FieldStep step(job, 64);

        step.seal();
        on_ranks(nodes, [&](swl_rank *rank) {
            ncclComm_t comm = nullptr;

            for (bool split : {false, true}) {
                if (split) {
                    ASSERT_EQ(ncclCommSplit(rank->comm, 0, rank->rank, &comm, nullptr),
                              ncclSuccess);
                }
                {
                    FieldRank field(job, rank, comm);
                    FieldSlot slot(step, rank->rank);
                    void *memory = nullptr;

                    ASSERT_EQ(swimlaneMemAlloc(field.group, slot.rows.bytes, &memory), ncclSuccess)
                        << swimlaneLastError();
                    ASSERT_EQ(cudaMemset(memory, slot.rows.fill, slot.rows.bytes), cudaSuccess);
                    settle();
                    slot.rows_at = memory; /* a window reaches it */
                    field.run_exactly(slot);
                    EXPECT_TRUE(slot.rows.holds_only(slot.rows.fill));
                    EXPECT_EQ(swimlaneMemFree(field.group, memory), ncclSuccess);
                }
                if (split) {
                    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
                }
            }
        });
    }
}

} // namespace
