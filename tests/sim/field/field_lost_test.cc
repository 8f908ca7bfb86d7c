// Field report 4: a message of the group's set-up is lost. The messages are NCCL's collectives;
// this program puts itself before NCCL and lets one collective of one rank hang, each of the set-up
// in turn.
#include "tests/support/group_fixture.h"

#include <atomic>
#include <dlfcn.h>
#include <string.h>

namespace
{

const int victim = 1;
std::atomic<ncclComm_t> victim_comm;
std::atomic<int> left; // collectives of the victim before the one that is lost; negative: none is
std::atomic<bool> is_lost;

template <class F> F next_of(F, const char *name)
{
    return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

} // namespace

__attribute__((visibility("default"))) ncclResult_t ncclAllGather(const void *send, void *recv,
                                                                  size_t count, ncclDataType_t type,
                                                                  ncclComm_t comm,
                                                                  cudaStream_t stream)
{
    static const auto real = next_of(&ncclAllGather, "ncclAllGather");

    if (comm == victim_comm && left >= 0 && left-- == 0) {
        is_lost = true;
        return ncclInProgress;
    }
    return real(send, recv, count, type, comm, stream);
}

__attribute__((visibility("default"))) ncclResult_t ncclCommGetAsyncError(ncclComm_t comm,
                                                                          ncclResult_t *error_p)
{
    static const auto real = next_of(&ncclCommGetAsyncError, "ncclCommGetAsyncError");

    if (comm != victim_comm || !is_lost)
        return real(comm, error_p);
    *error_p = ncclInProgress;
    return ncclSuccess;
}

namespace
{

/* One set-up without the victim's collective `n`; false: it has fewer. Its end is the end of the
 * run: the collectives of the others hang for good. */
bool create_without(int n, const std::vector<int> &nodes)
{
    const uint64_t limit_ns = 2000000000;
    const Variable limit("SWIMLANE_SETUP_TIMEOUT_MS", "2000");
    std::atomic<int> ended{0};

    is_lost = false;
    left = n;
    (void)run_ranks(nodes, SWL_PLACE_FIBERS, 1, [&](struct swl_rank *rank) {
        ncclEpGroupConfig_t config = small_config();
        ncclEpGroup_t group = nullptr;

        if (rank->rank == victim)
            victim_comm = rank->comm;
        const uint64_t begin = swl_gpu_now_ns();
        const ncclResult_t rc = ncclEpCreateGroup(&group, rank->comm, &config);
        const uint64_t took = swl_gpu_now_ns() - begin;

        ended++;
        if (!is_lost) {
            if (rank->rank == victim)
                left = -1; /* nothing of the end is lost */
            EXPECT_EQ(rc, ncclSuccess) << swimlaneLastError();
            EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
            return;
        }
        EXPECT_NE(rc, ncclSuccess) << "rank " << rank->rank << ", collective " << n;
        EXPECT_EQ(group, nullptr);
        EXPECT_LT(took, 2 * limit_ns);
        expect_sentence({"ncclEpCreateGroup", "("});
        if (rank->rank == victim)
            expect_sentence({"is still in progress after 2000 ms"});
        else if (n > 1) /* the hosts are connected: the victim tells */
            expect_sentence({"cannot end: rank 1 failed while"});
        else if (strstr(swimlaneLastError(), "a peer has left") == nullptr)
            expect_sentence({"has not finished within 2000 ms; a rank did not take part"});
    });
    EXPECT_EQ(ended, std::accumulate(nodes.begin(), nodes.end(), 0));
    victim_comm = nullptr;
    return is_lost;
}

TEST(Field, F04_LostMessageOfTheSetUp)
{
    for (const std::vector<int> &nodes :
         std::vector<std::vector<int>>{{2}, {1, 1}, {2, 1}, {2, 2}}) {
        int n = 0;

        while (create_without(n, nodes) && !HasFailure())
            n++;
        EXPECT_GE(n, 3) << "collectives of a set-up";
    }
}

} // namespace
