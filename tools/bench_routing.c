/* bench_routing.c: a recorded routing is refused where it cannot be meant, and what becomes of its
 * rows is said, also where only the verdict is printed: it may be why a result is not what was
 * asked for. */
#include "tools/bench.h"

#include <inttypes.h>
#include <stdio.h>

int bench_routing_steps(const struct bench_options *o)
{
    return o->update_once ? 1 : o->warmup + o->iterations;
}

bool bench_routing_check(struct bench_options *o, struct swl_why *why)
{
    struct swl_routing *r = &o->routing;

    if (o->routing_layer >= 0 && r->kind != SWL_ROUTING_FILE)
        return swl_why_set(why, "--routing-layer is for a routing file");
    if (o->routing_layer >= 0 && !swl_routing_take_layer(&r->file, o->routing_layer, why))
        return false;
    if (!swl_routing_check(r, &o->size, why))
        return false;
    if (o->id_bytes == 4 && !swl_routing_fits_int32(r))
        return swl_why_set(why, "an id of the routing file does not fit into int32: --ids int32");
    return true;
}

static void say_rows(const struct bench_options *o, const struct swl_routing_use *use)
{
    const size_t times = use->wanted / use->rows;
    const char *order = use->each_rank ? "step after step" : "step after step, rank after rank";

    fprintf(stderr, "swimlane-bench: routing file: %s%s", use->each_rank ? "of each rank " : "",
            o->routing.ragged ? "at most " : "");
    if (use->wanted <= use->rows) {
        fprintf(stderr, "%zu of %zu rows are taken, %s\n", use->wanted, use->rows, order);
        return;
    }
    fprintf(stderr, "%zu rows are wanted and %zu are there: each is taken %zu time%s", use->wanted,
            use->rows, times, times == 1 ? "" : "s");
    if (use->wanted % use->rows)
        fprintf(stderr, ", the first %zu once more", use->wanted % use->rows);
    fprintf(stderr, " (%s)\n", order);
}

void bench_routing_remarks(const struct bench_options *o)
{
    if (o->routing.kind != SWL_ROUTING_FILE || o->launched_rank > 0)
        return;
    const struct swl_routing_use use =
        swl_routing_use_of(&o->routing.file, &o->size, bench_routing_steps(o));

    if (!o->quiet || use.wanted > use.rows)
        say_rows(o, &use);
    if (use.negative > 0)
        fprintf(stderr,
                "swimlane-bench: routing file: %zu of its %zu entries are negative and name no "
                "expert\n",
                use.negative, use.entries);
    if (use.too_narrow)
        fprintf(stderr,
                "swimlane-bench: routing file: its type holds no id above %" PRId64
                ", and there are %d experts\n",
                use.largest, o->size.nexperts);
}
