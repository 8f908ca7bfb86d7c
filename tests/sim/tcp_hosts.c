/* tcp_hosts.c: swimlane-bench with a process for each node, and each node on a host of its own as far as
 * the network is concerned. Usage: tcp_hosts NAMESPACE,NAMESPACE|- end|kill OPTION-OF-THE-BENCH...
 * Node n enters /run/netns/ of the n-th name ("-": all stay) after its communicator is made, which
 * needs one host. kill: everything runs twice, and node 1 is killed within the second time.
 * Layer: tests. */
#include "tests/sim/tcp_namespace.h"
#include "tools/bench.h"
#include "tools/support/clock.h"
#include "tools/support/ranks.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct bench_options options;
static const char *namespaces;
static bool killing;

static void *kill_later(void *arg)
{
    usleep((useconds_t)(*(const uint64_t *)arg / 1000));
    kill(getpid(), SIGKILL);
    return NULL;
}

static int rank_main(struct swl_rank *rank, void *arg)
{
    static uint64_t part_ns;
    const uint64_t begin = swl_real_ns();
    pthread_t thread;

    (void)arg;
    if (enter_host(namespaces, rank->node))
        return 3;
    if (killing && !bench_run(&options, rank->rank, rank->comm))
        return 4;
    if (killing && rank->rank == options.size.nranks - 1) {
        part_ns = (swl_real_ns() - begin) / 4; /* the second run may be faster */
        if (pthread_create(&thread, NULL, kill_later, &part_ns))
            return 3;
    }
    return bench_run(&options, rank->rank, rank->comm) ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct swl_job job = {.place = SWL_PLACE_NODES, .timeout_ns = 100000000000ull};
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
