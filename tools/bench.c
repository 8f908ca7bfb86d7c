/* bench.c: swimlane-bench: run Update, Dispatch and Combine on ranks of its own, verify, report.
 *
 * Layer: tools; uses the public interface, src/gpu.h and tools/support only. */
#include "tools/bench.h"

#include "tools/support/ranks.h"

#include <stdio.h>
#include <stdlib.h>

static int rank_main(struct swl_rank *rank, void *arg)
{
    return bench_run(arg, rank->rank, rank->comm) ? 0 : 1;
}

/* The link model reaches the library by its variable; without the option the variable is shown. */
static void set_link(struct bench_options *o)
{
    if (o->link) {
        setenv("SWIMLANE_SOFT_LINK", o->link, 1);
        return;
    }
    o->link = getenv("SWIMLANE_SOFT_LINK");
    if (o->link && sscanf(o->link, "%lf", &o->link_gbps) != 1)
        o->link_gbps = 0;
}

static int run_job(struct bench_options *o)
{
    static const enum swl_place places[] = {SWL_PLACE_FIBERS, SWL_PLACE_THREADS,
                                            SWL_PLACE_PROCESSES};
    const struct swl_job job = {
        .nnodes = o->nnodes,
        .node_ranks = o->node_size,
        .place = places[o->place],
        .node_of_rank = o->node_of,
    };

    return swl_ranks_run(&job, rank_main, o);
}

int main(int argc, char **argv)
{
    static struct bench_options o;
    int rc = 0;

    switch (bench_options_parse(&o, argc, argv)) {
    case BENCH_RUN:
        set_link(&o);
        rc = run_job(&o) ? 1 : 0;
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
