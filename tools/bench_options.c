/* bench_options.c: command line of swimlane-bench. One row per option: name, value, help,
 * parser. */
#include "tools/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct row {
    const char *name;
    const char *value; /* NULL: a flag */
    const char *help;
    bool (*parse)(struct bench_options *, const char *text, size_t offset);
    size_t offset;
};

static bool parse_integer(const char *text, long long low, long long high, long long *value_p)
{
    char *end;

    errno = 0;
    long long value = strtoll(text, &end, 10);

    if (errno || end == text || *end || value < low || value > high)
        return false;
    *value_p = value;
    return true;
}

static void *field_at(struct bench_options *o, size_t offset)
{
    return (char *)o + offset;
}

static bool take_int(struct bench_options *o, const char *text, size_t offset)
{
    long long value;

    if (!parse_integer(text, 0, INT32_MAX, &value))
        return false;
    *(int *)field_at(o, offset) = (int)value;
    return true;
}

/* 0 stands for "not given". */
static bool take_count(struct bench_options *o, const char *text, size_t offset)
{
    return take_int(o, text, offset) && *(int *)field_at(o, offset) > 0;
}

static bool take_long(struct bench_options *o, const char *text, size_t offset)
{
    long long value;

    if (!parse_integer(text, 0, INT64_MAX, &value))
        return false;
    *(int64_t *)field_at(o, offset) = value;
    return true;
}

static bool take_share(struct bench_options *o, const char *text, size_t offset)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= 0 && value <= 1))
        return false;
    *(double *)field_at(o, offset) = value;
    return true;
}

static bool take_flag(struct bench_options *o, const char *text, size_t offset)
{
    (void)text;
    *(bool *)field_at(o, offset) = true;
    return true;
}

static bool take_text(struct bench_options *o, const char *text, size_t offset)
{
    *(const char **)field_at(o, offset) = text;
    return *text != '\0';
}

/* Index of text in a list that ends with NULL, or -1. */
static int word_of(const char *text, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strcasecmp(text, words[i]) == 0)
            return i;
    return -1;
}

static bool take_node_sizes(struct bench_options *o, const char *text, size_t offset)
{
    (void)offset;
    o->nsizes = 0;
    for (;;) {
        char *end;
        long size = strtol(text, &end, 10);

        if (end == text || size < 1 || size > BENCH_MAX_RANKS || o->nsizes == BENCH_MAX_NODES)
            return false;
        o->node_size[o->nsizes++] = (int)size;
        if (*end == '\0')
            return true;
        if (*end != ',' && *end != '+')
            return false;
        text = end + 1;
    }
}

static bool take_order(struct bench_options *o, const char *text, size_t offset)
{
    static const char *const words[] = {"contiguous", "interleaved", NULL};
    int word = word_of(text, words);

    (void)offset;
    o->interleaved = word == 1;
    return word >= 0;
}

static bool take_place(struct bench_options *o, const char *text, size_t offset)
{
    static const char *const words[] = {"fibers", "threads", "processes", "launched", NULL};
    int word = word_of(text, words);

    (void)offset;
    o->place = (enum bench_place)word;
    return word >= 0;
}

static bool take_comm(struct bench_options *o, const char *text, size_t offset)
{
    static const char *const words[] = {"auto", "nccl", "standin", NULL};
    int word = word_of(text, words);

    (void)offset;
    o->comm = (enum bench_comm)word;
    return word >= 0;
}

static bool take_devices(struct bench_options *o, const char *text, size_t offset)
{
    (void)offset;
    o->ndevices = 0;
    for (;;) {
        char *end;
        long device = strtol(text, &end, 10);

        if (end == text || device < 0 || device > 255 || o->ndevices == BENCH_MAX_DEVICES)
            return false;
        o->device_list[o->ndevices++] = (int)device;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
}

static bool take_type(struct bench_options *o, const char *text, size_t offset)
{
    static const char *const words[] = {"bf16", "fp16", "fp32", NULL};
    int word = word_of(text, words);

    (void)offset;
    o->type = (enum swl_oracle_type)word;
    return word >= 0;
}

static bool take_algorithm(struct bench_options *o, const char *text, size_t offset)
{
    static const char *const words[] = {"ll", "ht", NULL};
    int word = word_of(text, words);

    (void)offset;
    o->algorithm = (ncclEpAlgorithm_t)word;
    return word >= 0;
}

static bool take_layout(struct bench_options *o, const char *text, size_t offset)
{
    static const char *const words[] = {"unset", "expert-major", "rank-major", "flat", NULL};
    int word = word_of(text, words);

    (void)offset;
    o->layout = (ncclEpLayout_t)word;
    return word > 0;
}

static bool take_outputs(struct bench_options *o, const char *text, size_t offset)
{
    static const char *const words[] = {"plain", "library", "mixed", NULL};
    int word = word_of(text, words);

    (void)offset;
    o->outputs = (enum bench_outputs)word;
    return word >= 0;
}

static bool take_ids(struct bench_options *o, const char *text, size_t offset)
{
    static const char *const words[] = {"int32", "int64", NULL};
    int word = word_of(text, words);

    (void)offset;
    o->id_bytes = word == 1 ? 8 : 4;
    return word >= 0;
}

static bool take_policy(struct bench_options *o, const char *text, size_t offset)
{
    static const char *const words[] = {"trap", "drop", NULL};
    int word = word_of(text, words);

    (void)offset;
    o->drop = word == 1;
    return word >= 0;
}

/* name or name:number; anything else is a file. */
static bool take_routing(struct bench_options *o, const char *text, size_t offset)
{
    (void)offset;
    o->routing_text = text;
    if (strcmp(text, "uniform") == 0) {
        o->routing.kind = SWL_ROUTING_UNIFORM;
        return true;
    }
    static const struct {
        const char *name;
        enum swl_routing_kind kind;
        double usual, least, most;
    } shapes[] = {
        {"zipf", SWL_ROUTING_ZIPF, 1, 0, 8},
        {"hot", SWL_ROUTING_HOT, 0.5, 0, 1},
        {"blocks", SWL_ROUTING_BLOCKS, 1, 1, INT32_MAX},
        {"silent", SWL_ROUTING_SILENT, 1, 0, BENCH_MAX_RANKS},
    };
    const size_t length = strcspn(text, ":"), nshapes = sizeof shapes / sizeof *shapes;
    const char *rest = text + length;
    char *end;
    size_t i = 0;

    while (i < nshapes &&
           (strlen(shapes[i].name) != length || strncmp(text, shapes[i].name, length) != 0))
        i++;
    if (i == nshapes) {
        const char *error = swl_npy_read(text, &o->routing.file);

        o->routing.kind = SWL_ROUTING_FILE;
        return !error || swl_why_set(&o->wrong, "it names no shape, and no file of ids: %s", error);
    }
    o->routing.kind = shapes[i].kind;
    o->routing.skew = shapes[i].usual;
    if (*rest == '\0')
        return true;
    o->routing.skew = strtod(rest + 1, &end);
    return (end != rest + 1 && !*end && o->routing.skew >= shapes[i].least &&
            o->routing.skew <= shapes[i].most) ||
           swl_why_set(&o->wrong, "%s:%.0f to %s:%.0f are possible", shapes[i].name,
                       shapes[i].least, shapes[i].name, shapes[i].most);
}

/* What the library takes as SWIMLANE_SOFT_LINK. */
bool bench_link_take(struct bench_options *o, const char *text)
{
    double gbps, us;
    char end;

    if (strspn(text, "0123456789.:e+-") != strlen(text) ||
        sscanf(text, "%lf:%lf%c", &gbps, &us, &end) != 2 ||
        !(gbps >= 1e-3 && gbps <= 1e6 && us >= 0 && us <= 1e6))
        return false;
    o->link = text;
    o->link_gbps = gbps;
    return true;
}

static bool take_link(struct bench_options *o, const char *text, size_t offset)
{
    (void)offset;
    return bench_link_take(o, text);
}

static bool take_no_verify(struct bench_options *o, const char *text, size_t offset)
{
    (void)text;
    (void)offset;
    o->verify = false;
    return true;
}

#define AT(field) offsetof(struct bench_options, field)

/* clang-format off */
static const struct row rows[] = {
    {"nodes", "N", "nodes, 1 to 64, 1024 ranks in all (2; on several GPUs 1, or as the launcher says)", take_count, AT(nnodes)},
    {"ranks-per-node", "N", "ranks of a node (4; on one GPU 2, on several one a GPU, or as the launcher says)", take_count, AT(ranks_per_node)},
    {"node-sizes", "A,B,..", "nodes of different sizes, instead of the two above", take_node_sizes, 0},
    {"ranks-order", "ORDER", "contiguous (default) or interleaved over the nodes", take_order, 0},
    {"place", "PLACE", "fibers (emulator, repeatable), threads, processes (emulator: one a node), or launched (GPUs: by mpirun, srun or torchrun)", take_place, 0},
    {"ranks-per-gpu", "N", "ranks that share a GPU (as few as possible)", take_count, AT(ranks_per_gpu)},
    {"devices", "A,B,..", "GPUs for the ranks in turn", take_devices, 0},
    {"comm", "NAME", "communicator: nccl, standin or auto (default: nccl where it can)", take_comm, 0},
    {"tokens", "N", "tokens of a rank in a step (256)", take_int, AT(size.ntokens)},
    {"hidden", "N", "elements of a token (7168)", take_int, AT(hidden)},
    {"topk", "N", "experts a token chooses (8)", take_int, AT(size.topk)},
    {"experts", "N", "experts in total (256)", take_int, AT(size.nexperts)},
    {"dtype", "TYPE", "bf16 (default), fp16 or fp32", take_type, 0},
    {"algorithm", "NAME", "ht (default); ll is refused by the library so far", take_algorithm, 0},
    {"layout", "NAME", "flat (default); expert-major and rank-major are refused so far", take_layout, 0},
    {"sms", "N", "SMs the kernels may use (the library's choice)", take_int, AT(nsms)},
    {"channels", "N", "channels (the library's choice)", take_int, AT(nchannels)},
    {"iterations", "N", "measured steps (4)", take_int, AT(iterations)},
    {"warmup", "N", "steps before them (1)", take_int, AT(warmup)},
    {"seed", "N", "seed of all inputs (1)", take_long, AT(seed)},
    {"schedule-seed", "N", "seed of the emulator's schedule (SIMT_SEED, or in order)", take_long, AT(schedule_seed)},
    {"routing", "SHAPE", "uniform (default), zipf[:skew], hot[:share], blocks[:tokens], silent[:ranks], or a .npy file of ids: [tokens][topk] or [ranks][tokens][topk]", take_routing, 0},
    {"routing-layer", "N", "the file is [tokens][layers][topk], take this layer", take_int, AT(routing_layer)},
    {"ragged", NULL, "different token counts, some ranks without tokens", take_flag, AT(routing.ragged)},
    {"negative-fraction", "F", "share of the entries made -1 (0)", take_share, AT(routing.negative)},
    {"duplicates", "F", "share of the entries that repeat an earlier one (0)", take_share, AT(routing.duplicate)},
    {"beyond", "F", "share of the entries with an id that does not exist (0)", take_share, AT(routing.beyond)},
    {"budget", "N", "rows a rank can receive (all that may come)", take_long, AT(budget)},
    {"policy", "NAME", "trap (default) or drop rows beyond the budget", take_policy, 0},
    {"outputs", "KIND", "memory of rows: plain (default), library or mixed over the ranks", take_outputs, 0},
    {"ids", "TYPE", "int64 (default) or int32 ids and counters", take_ids, 0},
    {"global-ids", NULL, "ask for global expert ids", take_flag, AT(global_ids)},
    {"link", "GBPS:US", "modelled network of each NIC, e.g. 400:3 (none)", take_link, 0},
    {"timeout-ms", "N", "limit of every wait on the device (the library's choice)", take_int, AT(timeout_ms)},
    {"update-once", NULL, "route once, then dispatch and combine the same routing", take_flag, AT(update_once)},
    {"pipelined", NULL, "enqueue all steps without waiting between them; verifies, measures nothing", take_flag, AT(pipelined)},
    {"poison", NULL, "overwrite all user memory between calls, guard bytes around it are always checked", take_flag, AT(poison)},
    {"delay", "US", "hold each rank back up to this long before its calls (0)", take_int, AT(delay_us)},
    {"no-verify", NULL, "measure only; by default every step is compared with the oracle", take_no_verify, 0},
    {"json", "FILE", "write the results as JSON", take_text, AT(json)},
    {"quiet", NULL, "print the verdict only", take_flag, AT(quiet)},
};
/* clang-format on */

static void print_help(void)
{
    puts("usage: swimlane-bench [--option value]...\n"
         "Runs Update, Dispatch and Combine on its own ranks, compares every result with an\n"
         "independent model and prints times and bandwidths.\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char left[40];

        snprintf(left, sizeof left, "--%s %s", rows[i].name, rows[i].value ? rows[i].value : "");
        printf("  %-24s %s\n", left, rows[i].help);
    }
    puts("\nEnvironment: SIMT_SEED replays an emulated schedule, SWIMLANE_COMBINE_WIRE=fp32 keeps\n"
         "partial sums between nodes exact; SWIMLANE_ROOT=host:port is where launched ranks meet,\n"
         "as those of SWIMLANE_JOB;\n"
         "SWIMLANE_LOG=warn shows the library's own lines, which are left to the errors while none "
         "of its\n"
         "variables is set; docs/tuning.md lists the others.\n"
         "Exit code: 0 verified, 1 failed, 2 wrong arguments.");
}

static const struct row *row_of(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strlen(rows[i].name) == length && strncmp(rows[i].name, name, length) == 0)
            return &rows[i];
    return NULL;
}

static enum bench_parsed complain_option(const char *text, const char *argument)
{
    fprintf(stderr, "swimlane-bench: %s%s%s (--help lists the options)\n", text,
            *argument ? " " : "", argument);
    return BENCH_WRONG;
}

static enum bench_parsed parse_arguments(struct bench_options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];

        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            print_help();
            return BENCH_HELP;
        }
        if (strncmp(argument, "--", 2) != 0)
            return complain_option("unexpected argument", argument);
        size_t length = strcspn(argument + 2, "=");
        const struct row *row = row_of(argument + 2, length);

        if (!row)
            return complain_option("unknown option", argument);
        const char *value = argument[2 + length] == '=' ? argument + 3 + length : NULL;

        if (row->value && !value && ++i < argc)
            value = argv[i];
        if (!row->value != !value)
            return complain_option(row->value ? "value missing after" : "no value allowed in",
                                   argument);
        if (!row->parse(o, value, row->offset)) {
            fprintf(stderr, "swimlane-bench: wrong value '%s' of --%s: %s\n", value, row->name,
                    o->wrong.text[0] ? o->wrong.text : row->help);
            return BENCH_WRONG;
        }
    }
    return BENCH_RUN;
}

static enum bench_parsed check_options(struct bench_options *o)
{
    if (!bench_place_nodes(o))
        return BENCH_WRONG;
    if (o->size.topk < 1 || o->size.topk > 64 || o->size.nexperts < 1)
        return complain_option("top-k must be 1 to 64 and experts at least 1:",
                               "--topk, --experts");
    if (o->hidden < 1 || bench_row_bytes(o) % 16 != 0)
        return complain_option("a token must be a multiple of 16 bytes:", "--hidden");
    if (o->iterations < 1)
        return complain_option("nothing to do:", "--iterations 0");
    if (o->routing.negative + o->routing.duplicate + o->routing.beyond > 1)
        return complain_option("shares add up to more than 1:", "--negative-fraction and others");
    const int capacity = o->size.ntokens > 0 ? o->size.ntokens : 1;

    if (o->budget == 0)
        o->budget = (int64_t)capacity * o->size.nranks;
    if (o->budget < capacity)
        return complain_option("the budget must cover one rank's tokens:", "--budget");
    if (o->budget > INT32_MAX)
        return complain_option("a rank would have to receive 2^31 rows or more:",
                               "--tokens, --budget");
    struct swl_why why = {""};

    return bench_routing_check(o, &why) ? BENCH_RUN : complain_option(why.text, "");
}

enum bench_parsed bench_options_parse(struct bench_options *o, int argc, char **argv)
{
    *o = (struct bench_options){
        .size = {.ntokens = 256, .topk = 8, .nexperts = 256},
        .hidden = 7168,
        .algorithm = NCCL_EP_ALGO_HIGH_THROUGHPUT,
        .layout = NCCL_EP_LAYOUT_FLAT,
        .iterations = 4,
        .warmup = 1,
        .seed = 1,
        .routing_text = "uniform",
        .routing_layer = -1,
        .verify = true,
        .id_bytes = 8,
        .place = BENCH_PLACE_AUTO,
    };
    enum bench_parsed parsed = parse_arguments(o, argc, argv);

    if (parsed != BENCH_RUN)
        return parsed;
    const char *wire = getenv("SWIMLANE_COMBINE_WIRE");

    const char *transports = getenv("SWIMLANE_TRANSPORT");

    o->wire_fp32 = wire && strcasecmp(wire, "fp32") == 0;
    o->no_peer = transports && *transports && strcasecmp(transports, "auto") != 0 &&
                 strcasestr(transports, "peer") == NULL;
    o->routing.seed = o->seed;
    return check_options(o);
}

void bench_options_free(struct bench_options *o)
{
    swl_npy_free(&o->routing.file);
}
