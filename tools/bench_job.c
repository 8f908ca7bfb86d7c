/* bench_job.c: start the ranks of a run. */
#include "tools/bench.h"

#include "tools/support/ranks.h"

#include <stdio.h>
#include <stdlib.h>

static int rank_main(struct swl_rank *rank, void *arg)
{
    return bench_run(arg, rank->rank, rank->comm) ? 0 : 1;
}

/* The wire model reaches the library by its variable; without the option the variable is shown. */
static void set_link(struct bench_options *o)
{
    if (o->link) {
        setenv("SWIMLANE_SOFT_LINK", o->link, 1);
        return;
    }
    o->link = getenv("SWIMLANE_SOFT_LINK");
    if (o->link && !bench_link_take(o, o->link))
        o->link = NULL;
}

bool bench_job_run(struct bench_options *o)
{
    static const enum swl_place places[] = {SWL_PLACE_FIBERS, SWL_PLACE_THREADS,
                                            SWL_EMULATED ? SWL_PLACE_NODES : SWL_PLACE_PROCESSES,
                                            SWL_PLACE_LAUNCHED};
    struct swl_job job = {
        .nnodes = o->nnodes,
        .node_ranks = o->node_size,
        .place = places[o->place],
        .seed = (uint64_t)o->schedule_seed,
        .node_of_rank = o->node_of,
        .device_of_rank = o->device_of,
    };

    bench_routing_remarks(o);
    set_link(o);
    job.timed = o->link != NULL; /* else the network takes no time */
    if (!SWL_EMULATED)
        bench_link_measure(o);
    const bool ok = swl_ranks_run(&job, rank_main, o) == 0;

    bench_complaints_end();
    return ok;
}
