/* bench.c: swimlane-bench: run Update, Dispatch and Combine on ranks of its own, verify, report.
 *
 * Layer: tools; uses the public interface, src/runtime/runtime.h and tools/support only. */
#include "tools/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* The library logs each refusal on each rank, and the bench says it once. Warnings about variables of
 * the library stay: they may be why a result is not what was asked for. */
static void quiet_library(void)
{
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "SWIMLANE_", 9) == 0 || strncmp(*e, "NCCL_EP_", 8) == 0)
            return;
    setenv("SWIMLANE_LOG", "error", 1);
}

int main(int argc, char **argv)
{
    static struct bench_options o;
    int rc = 0;

    switch (bench_options_parse(&o, argc, argv)) {
    case BENCH_RUN:
        quiet_library();
        rc = bench_report_possible(&o) && bench_job_place(&o, argv) && bench_job_run(&o) ? 0 : 1;
        if (rc)
            fprintf(stderr, "swimlane-bench: FAILED\n");
        break;
    case BENCH_HELP:
        break;
    case BENCH_WRONG:
        rc = 2;
        break;
    }
    bench_options_free(&o);
    return rc;
}
