/* bench.c: swimlane-bench: run Update, Dispatch and Combine on ranks of its own, verify, report.
 *
 * Layer: tools; uses the public interface, src/runtime/runtime.h and tools/support only. */
#include "tools/bench.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    static struct bench_options o;
    int rc = 0;

    switch (bench_options_parse(&o, argc, argv)) {
    case BENCH_RUN:
        bench_quiet_library(&o);
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
