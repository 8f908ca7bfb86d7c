/* tcp_hosts.c: swimlane-bench with a process for each node, and each node on a host of its own as
 * far as the network is concerned. Usage: tcp_hosts NAMESPACE,NAMESPACE|- end|kill
 * OPTION-OF-THE-BENCH... Node n enters /run/netns/ of the n-th name ("-": all stay) after its
 * communicator is made, which needs one host. kill: everything runs twice, and node 1 is killed
 * behind a dispatch of the second time.
 * Layer: tests. */
#include "src/base/clock.h"
#include "tests/support/tcp_namespace.h"
#include "tools/bench.h"
#include "tools/support/ranks.h"

#include <dlfcn.h>
#include <nccl_ep.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct bench_options options;
static const char *namespaces;
static bool killing;

static __thread int calls_left; /* of this rank, before its process is killed; 0: it is not */

/* Before the library's own: in the midst of calls, however fast the host is. */
__attribute__((visibility("default"))) ncclResult_t
ncclEpDispatch(ncclEpHandle_t handle, const ncclEpDispatchInputs_t *inputs,
               const ncclEpDispatchOutputs_t *outputs, const ncclEpLayoutInfo_t *layout_info,
               const ncclEpDispatchConfig_t *config, cudaStream_t stream)
{
    void *symbol = dlsym(RTLD_NEXT, "ncclEpDispatch");
    ncclResult_t (*real)(ncclEpHandle_t, const ncclEpDispatchInputs_t *,
                         const ncclEpDispatchOutputs_t *, const ncclEpLayoutInfo_t *,
                         const ncclEpDispatchConfig_t *, cudaStream_t);
    ncclResult_t rc;

    memcpy(&real, &symbol, sizeof(real));
    rc = real(handle, inputs, outputs, layout_info, config, stream);
    if (calls_left > 0 && --calls_left == 0)
        kill(getpid(), SIGKILL);
    return rc;
}

static int rank_main(struct swl_rank *rank, void *arg)
{
    (void)arg;
    if (enter_host(namespaces, rank->node))
        return 3;
    if (killing && !bench_run(&options, rank->rank, rank->comm))
        return 4;
    if (killing && rank->rank == options.size.nranks - 1)
        calls_left = 10;
    return bench_run(&options, rank->rank, rank->comm) ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct swl_job job = {.place = SWL_PLACE_NODES, .timeout_ns = 240000000000ull};
    const uint64_t begin = swl_real_ns();
    int rc;

    if (argc < 3)
        return 2;
    namespaces = argv[1];
    killing = strcmp(argv[2], "kill") == 0;
    argv[2] = argv[0];
    if (bench_options_parse(&options, argc - 2, argv + 2) != BENCH_RUN ||
        !bench_job_place(&options, argv + 2))
        return 2;
    job.nnodes = options.nnodes;
    job.node_ranks = options.node_size;
    job.node_of_rank = options.node_of;
    job.device_of_rank = options.device_of;
    rc = swl_ranks_run(&job, rank_main, NULL);
    bench_complaints_end();
    bench_options_free(&options);
    printf("tcp_hosts: result %d after %.1f s\n", rc, (double)(swl_real_ns() - begin) / 1e9);
    return rc == 0 ? 0 : 1;
}
