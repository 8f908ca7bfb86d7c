/* bench_report.c: the table a person reads, and the same as JSON.
 *
 * Time of an operation in a step = the slowest rank; bandwidths = bytes of the busiest rank over
 * the median time. The columns are explained in docs/tuning.md. */
#include "tools/bench.h"

#include "tools/support/comm.h"
#include "tools/support/json.h"
#include "tools/support/table.h"

#include <swimlane.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const operation_names[] = {"update", "dispatch", "combine"};
static const char *const type_names[] = {"bf16", "fp16", "fp32"};

struct figures {
    double min, median, max; /* us */
    double call_us;          /* median wall clock of a call, all ranks */
    double wall_ms;          /* median wall clock with all around it, slowest rank */
    double network, nvlink, shared_gpu, logical; /* bytes */
    double ring_rounds;
};

static int compare_times(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double slowest(const struct bench_options *o, const struct bench_sample *samples, int step,
                      enum bench_operation operation, bool wall)
{
    double us = 0;

    for (int r = 0; r < o->size.nranks; r++) {
        const struct bench_sample *s = &samples[r * o->iterations + step];
        const double this = wall ? s->wall_us[operation] : s->device_us[operation];

        us = this > us ? this : us;
    }
    return us;
}

/* Sorts them; 0 for none, as for steps that do without this operation. */
static double median_of(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, compare_times);
    return n ? times[n / 2] : 0;
}

/* times: room for all samples. */
static void times_of(const struct bench_options *o, const struct bench_sample *samples,
                     enum bench_operation operation, double *times, struct figures *f)
{
    const int n = o->iterations;
    int ncalls = 0;

    for (int i = 0; i < n * o->size.nranks; i++)
        if (samples[i].call_us[operation] > 0)
            times[ncalls++] = samples[i].call_us[operation];
    f->call_us = median_of(times, ncalls);
    for (int i = 0; i < n; i++)
        times[i] = slowest(o, samples, i, operation, true);
    f->wall_ms = median_of(times, n) / 1e3;
    for (int i = 0; i < n; i++)
        times[i] = slowest(o, samples, i, operation, false);
    f->median = median_of(times, n);
    f->min = times[0];
    f->max = times[n - 1];
}

static bool figures_of(const struct bench_options *o, const struct bench_sample *samples,
                       const struct bench_summary *summary, enum bench_operation operation,
                       struct figures *f)
{
    double *times = calloc((size_t)o->iterations * (size_t)o->size.nranks, sizeof *times);
    const struct bench_traffic *t = &summary->traffic;

    *f = (struct figures){0};
    if (!times)
        return false;
    times_of(o, samples, operation, times, f);
    if (operation != BENCH_UPDATE) {
        f->network = operation == BENCH_DISPATCH ? t->network_dispatch : t->network_combine;
        f->nvlink = t->nvlink;
        f->shared_gpu = t->shared_gpu;
        f->logical = t->logical;
        if (summary->ring_slots)
            f->ring_rounds = t->ring_slots / (double)summary->ring_slots;
    }
    free(times);
    return f->max > 0;
}

static double gbs(double bytes, double us)
{
    return us > 0 ? bytes / us / 1e3 : 0;
}

static void print_shape(const struct bench_options *o, const struct bench_summary *summary)
{
    printf("%s\n  ", swimlaneVersionString());
    for (int i = 0; i < o->nnodes; i++)
        printf("%s%d", i ? "+" : "", o->node_size[i]);
    printf(
        " rank%s on %d node%s, %d tokens x %d %s, top-%d of %d experts, routing %s, seed %" PRIu64
        "\n",
        o->size.nranks == 1 ? "" : "s", o->nnodes, o->nnodes == 1 ? "" : "s", o->size.ntokens,
        o->hidden, type_names[o->type], o->size.topk, o->size.nexperts, o->routing_text, o->seed);
    char comm[64];

    swl_comm_name(comm, sizeof comm);
    printf("  %d GPU%s, %s\n", summary->ngpus, summary->ngpus == 1 ? "" : "s", comm);
}

static void print_link(const struct swl_link_figures *l)
{
    if (l->copy_gbs > 0)
        printf(
            "  link between two GPUs, each way, both at once: copy engines %.1f GB/s (100 %%), %d "
            "SMs %.1f GB/s\n  %s, %d SMs, %.0f MHz\n",
            l->copy_gbs, l->push_sms, l->push_gbs, l->gpu, l->nsms, l->clock_mhz);
}

static void cell_rate(struct swl_table *table, int column, double bytes, double us)
{
    if (bytes > 0 && us > 0)
        swl_table_text(table, column, "%.1f", gbs(bytes, us));
    else
        swl_table_text(table, column, "-");
}

static void cell_of_link(struct swl_table *table, int column, const struct bench_options *o,
                         const struct figures *f)
{
    double gbs_of_link = 0, bytes = f->network;

    if (o->link_gbps > 0 && f->network > 0)
        gbs_of_link = o->link_gbps / 8;
    else if (f->network <= 0 && f->nvlink > 0) {
        gbs_of_link = o->node_link.copy_gbs;
        bytes = f->nvlink;
    }
    if (gbs_of_link > 0)
        swl_table_text(table, column, "%.0f %%", 100 * gbs(bytes, f->median) / gbs_of_link);
    else
        swl_table_text(table, column, "-");
}

/* NVLink joins GPUs, so that one GPU has none; what its ranks store for each other stays in its
 * memory. */
static bool has_nvlink(const struct bench_summary *summary)
{
    return summary->ngpus > 1;
}

static bool has_shared(const struct bench_options *o, const struct bench_summary *summary)
{
    return summary->ngpus < o->size.nranks;
}

static void table_headings(struct swl_table *table, const struct bench_options *o,
                           const struct bench_summary *summary)
{
    static const char *const times[] = {"operation", "min us", "median us", "max us", "call us"};
    const char *const sizes[] = {"network GB/s",
                                 has_nvlink(summary) ? "NVLink GB/s" : NULL,
                                 has_shared(o, summary) ? "in GPU GB/s" : NULL,
                                 "logical GB/s",
                                 "of link",
                                 "ring rounds",
                                 "wall ms"};
    int column = 0;

    swl_table_row(table);
    for (size_t c = 0; c < sizeof times / sizeof *times; c++)
        swl_table_text(table, column++, "%s", times[c]);
    for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++)
        if (sizes[c])
            swl_table_text(table, column++, "%s", sizes[c]);
}

static void table_row(struct swl_table *table, const struct bench_options *o,
                      const struct bench_summary *summary, const char *name,
                      const struct figures *f)
{
    int column = 5;

    swl_table_row(table);
    swl_table_text(table, 0, "%s", name);
    swl_table_text(table, 1, "%.1f", f->min);
    swl_table_text(table, 2, "%.1f", f->median);
    swl_table_text(table, 3, "%.1f", f->max);
    swl_table_text(table, 4, "%.1f", f->call_us);
    cell_rate(table, column++, f->network, f->median);
    if (has_nvlink(summary))
        cell_rate(table, column++, f->nvlink, f->median);
    if (has_shared(o, summary))
        cell_rate(table, column++, f->shared_gpu, f->median);
    cell_rate(table, column++, f->logical, f->median);
    cell_of_link(table, column++, o, f);
    if (f->ring_rounds > 0)
        swl_table_text(table, column++, "%.2f", f->ring_rounds);
    else
        swl_table_text(table, column++, "-");
    swl_table_text(table, column, "%.1f", f->wall_ms);
}

#if SWL_EMULATED
static void print_clock(const struct bench_options *o)
{
    if (o->place != BENCH_FIBERS)
        printf("\n  us and GB/s: the emulator's clock in real time, which models nothing;\n"
               "  use --place fibers for modelled times\n");
    else
        printf("\n  us and GB/s: modelled (virtual time: network %s, 10 ns for each turn\n"
               "  of all warps, NVLink takes no time); call us, wall ms: clock of the emulation\n",
               o->link ? o->link : "without a wire model");
}
#endif

static void print_table(const struct bench_options *o, const struct figures *figures,
                        const struct bench_summary *summary)
{
    struct swl_table *table = calloc(1, sizeof *table);

    if (!table)
        return;
    table_headings(table, o, summary);
    for (int i = 0; i < BENCH_NOPERATIONS; i++)
        if (figures[i].max > 0)
            table_row(table, o, summary, operation_names[i], &figures[i]);
    putchar('\n');
    swl_table_print(table, stdout);
    free(table);
#if SWL_EMULATED
    print_clock(o);
#endif
    if (o->size.nranks == 1)
        puts("  one rank: no row leaves it");
    printf("  %" PRIu64 " SMs, ", summary->nsms);
    if (summary->nic_sms)
        printf("beside them %" PRIu64 " NIC blocks, ", summary->nic_sms);
    if (summary->nrings)
        printf("%" PRIu64 " ring%s of %" PRIu64 " slots to a node, ", summary->nrings,
               summary->nrings == 1 ? "" : "s", summary->ring_slots);
    printf("%.1f MB of device memory per rank, %.1f MB of it reachable by peers\n",
           (double)summary->device_bytes / 1e6, (double)summary->window_bytes / 1e6);
    if (summary->dropped)
        printf("  %" PRIu64 " rows dropped beyond the budget of %" PRId64 " rows\n",
               summary->dropped, o->budget);
}

static void print_verdict(const struct bench_options *o, const struct bench_summary *summary)
{
    fputs(o->quiet ? "" : "\n  ", stdout);
    if (!o->verify)
        puts("verification: OFF");
    else if (summary->complaints)
        printf("verification: FAILED, %d differences\n", summary->complaints);
    else
        printf("verification: PASSED for dispatch and combine, %d step%s on %d rank%s, "
               "bit by bit (%.1f s)\n",
               o->warmup + o->iterations, o->warmup + o->iterations == 1 ? "" : "s", o->size.nranks,
               o->size.nranks == 1 ? "" : "s", summary->wall_s);
}

static void json_routing(struct swl_json *json, const struct bench_options *o)
{
    if (o->routing.kind != SWL_ROUTING_FILE)
        return;
    const struct swl_routing_use use =
        swl_routing_use_of(&o->routing.file, &o->size, bench_routing_steps(o));

    swl_json_open(json, "routing_file", '{');
    swl_json_flag(json, "each_rank", use.each_rank);
    swl_json_integer(json, "rows", (int64_t)use.rows);
    swl_json_integer(json, "rows_wanted", (int64_t)use.wanted);
    swl_json_integer(json, "entries", (int64_t)use.entries);
    swl_json_integer(json, "negative", (int64_t)use.negative);
    swl_json_close(json, '}');
}

static void json_shape(struct swl_json *json, const struct bench_options *o,
                       const struct bench_summary *summary)
{
    char comm[64];

    swl_json_open(json, "shape", '{');
    swl_json_open(json, "node_sizes", '[');
    for (int i = 0; i < o->nnodes; i++)
        swl_json_integer(json, NULL, o->node_size[i]);
    swl_json_close(json, ']');
    swl_json_integer(json, "tokens", o->size.ntokens);
    swl_json_integer(json, "hidden", o->hidden);
    swl_json_integer(json, "topk", o->size.topk);
    swl_json_integer(json, "experts", o->size.nexperts);
    swl_json_text(json, "dtype", type_names[o->type]);
    swl_json_text(json, "routing", o->routing_text);
    json_routing(json, o);
    swl_json_integer(json, "seed", (int64_t)o->seed);
    swl_json_integer(json, "budget", o->budget);
    swl_json_text(json, "link", o->link ? o->link : "");
    swl_json_integer(json, "gpus", summary->ngpus);
    swl_comm_name(comm, sizeof comm);
    swl_json_text(json, "communicator", comm);
    swl_json_number(json, "link_copy_gbs", o->node_link.copy_gbs);
    swl_json_number(json, "link_push_gbs", o->node_link.push_gbs);
    swl_json_number(json, "link_push_sms", o->node_link.push_sms);
    swl_json_number(json, "clock_mhz", o->node_link.clock_mhz);
    swl_json_close(json, '}');
}

static void json_operation(struct swl_json *json, const char *name, const struct figures *f)
{
    swl_json_open(json, name, '{');
    swl_json_number(json, "min_us", f->min);
    swl_json_number(json, "median_us", f->median);
    swl_json_number(json, "max_us", f->max);
    swl_json_number(json, "call_us", f->call_us);
    swl_json_number(json, "wall_ms", f->wall_ms);
    swl_json_number(json, "network_bytes", f->network);
    swl_json_number(json, "nvlink_bytes", f->nvlink);
    swl_json_number(json, "shared_gpu_bytes", f->shared_gpu);
    swl_json_number(json, "logical_bytes", f->logical);
    swl_json_number(json, "ring_rounds", f->ring_rounds);
    swl_json_close(json, '}');
}

bool bench_report_possible(const struct bench_options *o)
{
    FILE *file = o->json ? fopen(o->json, "a") : NULL;

    if (o->json && !file)
        fprintf(stderr, "swimlane-bench: cannot write %s: %s\n", o->json, strerror(errno));
    if (file)
        fclose(file);
    return !o->json || file;
}

static bool write_json(const struct bench_options *o, const struct figures *figures,
                       const struct bench_summary *summary)
{
    FILE *file = fopen(o->json, "w");
    struct swl_json json = {.file = file};

    if (!file) {
        fprintf(stderr, "swimlane-bench: cannot write %s\n", o->json);
        return false;
    }
    swl_json_open(&json, NULL, '{');
    swl_json_text(&json, "version", swimlaneVersionString());
    swl_json_flag(&json, "emulated", SWL_EMULATED);
    json_shape(&json, o, summary);
    swl_json_flag(&json, "verified", o->verify && summary->complaints == 0);
    swl_json_integer(&json, "differences", summary->complaints);
    swl_json_integer(&json, "sms", (int64_t)summary->nsms);
    swl_json_integer(&json, "nic_sms", (int64_t)summary->nic_sms);
    swl_json_integer(&json, "rings", (int64_t)summary->nrings);
    swl_json_integer(&json, "ring_slots", (int64_t)summary->ring_slots);
    swl_json_integer(&json, "device_bytes", (int64_t)summary->device_bytes);
    swl_json_integer(&json, "window_bytes", (int64_t)summary->window_bytes);
    swl_json_integer(&json, "rows_dropped", (int64_t)summary->dropped);
    swl_json_number(&json, "wall_s", summary->wall_s);
    swl_json_open(&json, "operations", '{');
    for (int i = 0; i < BENCH_NOPERATIONS; i++)
        json_operation(&json, operation_names[i], &figures[i]);
    swl_json_close(&json, '}');
    swl_json_close(&json, '}');
    bool ok = !ferror(file);

    ok = fclose(file) == 0 && ok;
    if (!ok)
        fprintf(stderr, "swimlane-bench: cannot write %s\n", o->json);
    return ok;
}

bool bench_report(const struct bench_options *o, const struct bench_sample *samples,
                  const struct bench_summary *summary)
{
    struct figures figures[BENCH_NOPERATIONS];
    bool measured = false;

    for (int i = 0; i < BENCH_NOPERATIONS; i++)
        measured |= figures_of(o, samples, summary, (enum bench_operation)i, &figures[i]);
    if (!o->quiet) {
        print_shape(o, summary);
        print_link(&o->node_link);
        if (measured)
            print_table(o, figures, summary);
    }
    print_verdict(o, summary);
    fflush(stdout);
    return !o->json || write_json(o, figures, summary);
}
