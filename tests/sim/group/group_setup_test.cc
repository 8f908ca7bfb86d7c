// group_setup_test.cc: the limit of set-up, which is not that of the calls on data.
#include "tests/support/group_fixture.h"

#include "src/runtime/runtime.h"

namespace
{

const char *const setup_variable = "SWIMLANE_SETUP_TIMEOUT_MS";
const std::vector<std::vector<int>> shapes = {{1}, {2}, {2, 1}};

/* Nobody sleeps so long: the limits below are far apart. */
void come_late(const swl_rank *rank, uint64_t late_ns)
{
    if (rank->rank == 1)
        swl_gpu_sleep_ns(late_ns);
}

/* Far shorter than a rank is late, and than the set-up takes. */
TEST(GroupSetup, D_C3_TheLimitOfDataCallsDoesNotCutIt)
{
    for (uint64_t limit_ns : {1, 1000, 50000000})
        for (const std::vector<int> &nodes : shapes)
            on_ranks(nodes, [limit_ns](swl_rank *rank) {
                ncclEpGroupConfig_t config = small_config();
                ncclEpGroup_t group = nullptr;
                void *memory = nullptr;

                config.timeout_ns = limit_ns;
                come_late(rank, 500000000);
                EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess)
                    << swimlaneLastError();
                EXPECT_EQ(query(group, SWIMLANE_QUERY_TIMEOUT_NS), limit_ns);
                come_late(rank, 500000000);
                EXPECT_EQ(swimlaneMemAlloc(group, 4096, &memory), ncclSuccess)
                    << swimlaneLastError();
                come_late(rank, 500000000);
                EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
            });
}

#if SWL_EMULATED /* the stand-in's collectives wait on the host, longer than the group */

TEST(GroupSetup, D_C3_ItsOwnLimitCutsItOnly)
{
    const Variable limit(setup_variable, "3000");

    on_ranks({2, 1}, [](swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;

        config.timeout_ns = 60000000000;
        come_late(rank, 10000000000);
        if (rank->rank == 1) /* it would wait for the others in turn */
            return;
        EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSystemError);
        EXPECT_EQ(group, nullptr);
        expect_sentence({"3000 ms"});
    });
}

TEST(GroupSetup, D_C3_ItsBuiltInLimitIsAMinute)
{
    for (const bool in_time : {true, false})
        on_ranks({2}, [in_time](swl_rank *rank) {
            ncclEpGroupConfig_t config = small_config();
            ncclEpGroup_t group = nullptr;

            come_late(rank, (in_time ? 59 : 70) * UINT64_C(1000000000));
            if (rank->rank == 1 && !in_time)
                return;
            EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config),
                      in_time ? ncclSuccess : ncclSystemError);
            if (!in_time)
                expect_sentence({"60000 ms"});
            EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        });
}

/* Limits in which an exchange ends on every rank, on some or on none. */
TEST(GroupSetup, LimitsTooShortForItEndInCodesAndSentences)
{
    const Variable limit(setup_variable, "1");

    for (uint64_t late_us = 900; late_us <= 1100; late_us += 20)
        for (const std::vector<int> &nodes : shapes)
            on_ranks(nodes, [late_us](swl_rank *rank) {
                ncclEpGroupConfig_t config = small_config();
                ncclEpGroup_t group = nullptr;
                ncclResult_t rc;

                come_late(rank, late_us * 1000);
                rc = ncclEpCreateGroup(&group, rank->comm, &config);
                EXPECT_TRUE(rc == ncclSuccess || rc == ncclSystemError || rc == ncclInternalError)
                    << rc << " " << swimlaneLastError();
                EXPECT_EQ(group == nullptr, rc != ncclSuccess);
                (void)ncclEpGroupDestroy(group);
            });
}

#endif

} // namespace
