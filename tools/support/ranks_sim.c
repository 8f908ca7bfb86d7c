/* ranks_sim.c: what the rank launcher does differently in the emulator. Layer: tools/support. */
#include "tools/support/ranks_run.h"

#include "src/runtime/runtime.h"

void swl_ranks_place_node(int node)
{
    swl_gpu_thread_node_set(node);
}

void swl_ranks_environment(void)
{
}

int swl_ranks_devices(void)
{
    int n = 0;

    return swl_gpu_count(&n) == cudaSuccess ? n : 0;
}
