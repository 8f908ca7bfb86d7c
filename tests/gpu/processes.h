/* processes.h: ranks of a test as processes of their own, which may be killed or see other devices.
 *
 * Layer: tests. The children are made by fork: the program must not have used the device runtime
 * before, so such tests have a program of their own. Shared memory carries the NCCL id and counts
 * who has come how far. */
#ifndef SWL_TESTS_GPU_PROCESSES_H
#define SWL_TESTS_GPU_PROCESSES_H

#include "tools/support/ranks.h"

#include <gtest/gtest.h>

#include <cuda_runtime.h>

#include <functional>
#include <signal.h>
#include <stdlib.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

struct ProcessesShared {
    int id_ready, met;
    ncclUniqueId id;
};

/* What a child may use. The communicator is its own: destroy or abort it. */
struct ProcessRank {
    struct swl_rank rank;
    ProcessesShared *shared;
    int meetings = 0;

    /* A barrier of the processes, without the device. */
    void meet()
    {
        const int want = ++meetings * rank.nranks;

        __atomic_add_fetch(&shared->met, 1, __ATOMIC_ACQ_REL);
        while (__atomic_load_n(&shared->met, __ATOMIC_ACQUIRE) < want)
            usleep(500);
    }
};

/* Its value is the exit code of the process, unless an expectation failed: then it is 99. */
using process_body = std::function<int(ProcessRank &)>;

/* Where the ranks run, [ranks] each. */
struct ProcessesPlace {
    std::vector<std::string> devices; /* what each may see; empty: everything */
    std::vector<int> device_of;       /* which of them it uses */
    std::vector<int> node_of;         /* empty: NCCL tells nodes apart */
};

[[noreturn]] inline void process_main(ProcessRank &own, const ProcessesPlace &place,
                                      const process_body &body)
{
    ProcessesShared *shared = own.shared;
    const std::string devices = place.devices[(size_t)own.rank.rank];
    int code = 98;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!devices.empty())
        setenv("CUDA_VISIBLE_DEVICES", devices.c_str(), 1);
    if (!place.node_of.empty()) {
        const std::string node = std::to_string(place.node_of[(size_t)own.rank.rank]);

        setenv("SWIMLANE_NODE", node.c_str(), 1);
        /* NCCL has one rank of a host on a GPU */
        setenv("NCCL_HOSTID", ("swimlane-node-" + node).c_str(), 1);
    }
    if (own.rank.rank == 0) {
        EXPECT_EQ(ncclGetUniqueId(&shared->id), ncclSuccess);
        __atomic_store_n(&shared->id_ready, 1, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&shared->id_ready, __ATOMIC_ACQUIRE))
        usleep(500);
    EXPECT_EQ(cudaSetDevice(own.rank.device), cudaSuccess);
    EXPECT_EQ(ncclCommInitRank(&own.rank.comm, own.rank.nranks, shared->id, own.rank.rank),
              ncclSuccess);
    if (!testing::Test::HasFailure())
        code = body(own);
    fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 99 : code);
}

/* How the process of each rank has ended: its exit code, or -1 - N for signal N. Processes that
 * have not ended in time are killed. */
inline std::vector<int> run_processes(const ProcessesPlace &place, int limit_s,
                                      const process_body &body)
{
    const int n = (int)place.devices.size();
    auto *shared = static_cast<ProcessesShared *>(mmap(nullptr, sizeof(ProcessesShared),
                                                       PROT_READ | PROT_WRITE,
                                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::vector<pid_t> pids;
    std::vector<int> codes((size_t)n, -1);

    fflush(nullptr);
    for (int r = 0; r < n; r++) {
        const pid_t pid = fork();

        if (pid == 0) {
            ProcessRank own = {{r, n, 0, place.device_of[(size_t)r], nullptr}, shared};

            process_main(own, place, body);
        }
        pids.push_back(pid);
    }
    int left = n, status = 0;

    for (int waited_ms = 0; left; waited_ms += 10) {
        for (size_t r = 0; r < pids.size(); r++) {
            if (pids[r] <= 0)
                continue;
            if (waited_ms > limit_s * 1000) {
                ADD_FAILURE() << "rank " << r << " has not ended in " << limit_s << " s";
                kill(pids[r], SIGKILL);
                waitpid(pids[r], &status, 0);
            } else if (waitpid(pids[r], &status, WNOHANG) != pids[r]) {
                continue;
            }
            codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
            pids[r] = 0;
            left--;
        }
        usleep(10000);
    }
    munmap(shared, sizeof(ProcessesShared));
    return codes;
}

/* Counted in a child, so that this process stays without the device runtime. */
inline int gpus_seen_by_a_child()
{
    int status = 0;

    fflush(nullptr);
    const pid_t pid = fork();

    if (pid == 0) {
        int n = 0;

        _exit(cudaGetDeviceCount(&n) == cudaSuccess ? n : 0);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

#endif
