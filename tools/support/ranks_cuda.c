/* ranks_cuda.c: there are no fibers on GPUs. Layer: tools/support. */
#include "tools/support/ranks_run.h"

#include <stdio.h>

int swl_ranks_run_fibers(struct swl_ranks *all)
{
    (void)all;
    fprintf(stderr, "ranks: ranks on fibers need the emulator\n");
    return -1;
}
