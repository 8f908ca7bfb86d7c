/* ranks_cuda.c: what the rank launcher does differently on GPUs. Layer: tools/support. */
#include "tools/support/ranks_run.h"

#include "src/runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static __thread int node = -1;

/* Exported by the program (tools/CMakeLists.txt): the library and the stand-in NCCL look it up. */
__attribute__((visibility("default"))) int swl_launcher_node(void);

int swl_launcher_node(void)
{
    return node;
}

void swl_ranks_place_node(int rank_node)
{
    node = rank_node;
    swl_gpu_thread_node_set(rank_node);
}

/* Read by the driver at the first use of a device. Ranks that share a GPU have several streams
 * each, whose kernels wait for each other: one queue for every stream; and code that is loaded
 * later would wait for all of them. */
void swl_ranks_environment(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

int swl_ranks_devices(void)
{
    static int found = -1; /* the launcher's thread only */
    int n = 0, status = 0;
    pid_t child;

    if (found >= 0)
        return found;
    child = fork();
    if (child == 0)
        _exit(swl_gpu_count(&n) == cudaSuccess ? n & 127 : 0);
    found = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
                ? WEXITSTATUS(status)
                : 0;
    return found;
}

int swl_ranks_run_fibers(struct swl_ranks *all)
{
    (void)all;
    fprintf(stderr, "ranks: ranks on fibers need the emulator\n");
    return -1;
}
