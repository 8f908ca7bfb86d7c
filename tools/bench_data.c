/* bench_data.c: buffers of one rank, and inputs and expectations of a step.
 *
 * Device buffers lie between guard bytes. All data follows from the seed, so a rank makes the
 * inputs of all ranks for its oracle, and fills the result rows of its experts before the rows
 * arrive. */
#include "tools/bench.h"

#include "tools/support/payload.h"

#include <swimlane.h>

#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, GUARD_BYTE = 0xc3, ROWS_BEHIND = 16 };
enum { STREAM_TOKEN = 11, STREAM_RESULT = 12 };

int bench_poison(enum bench_what what)
{
    /* Huge numbers in rows of every type; ids and counters get a number that cannot be right. */
    return what == BENCH_TOKENS || what == BENCH_ROWS || what == BENCH_RESULTS ||
                   what == BENCH_COMBINED
               ? 0xee
               : 0x5a;
}

size_t bench_row_bytes(const struct bench_options *o)
{
    return swl_oracle_type_bytes(o->type) * (size_t)o->hidden;
}

int bench_nlocal(const struct bench_options *o)
{
    return (o->size.nexperts + o->size.nranks - 1) / o->size.nranks;
}

static size_t buffer_bytes(const struct bench_options *o, enum bench_what what)
{
    const size_t tokens = (size_t)o->size.ntokens, topk = (size_t)o->size.topk;
    const size_t rows = (size_t)o->budget, id = (size_t)o->id_bytes;

    switch (what) {
    case BENCH_IDS:
        return tokens * topk * id;
    case BENCH_WEIGHTS:
        return tokens * topk * sizeof(float);
    case BENCH_TOKENS:
    case BENCH_COMBINED:
        return tokens * bench_row_bytes(o);
    case BENCH_EXPERT_COUNTERS:
        return (size_t)bench_nlocal(o) * id;
    case BENCH_TOTAL:
        return id;
    case BENCH_SOURCE_COUNTERS:
        return (size_t)o->size.nranks * id;
    case BENCH_ROWS:
    case BENCH_RESULTS:
        return rows * bench_row_bytes(o);
    case BENCH_ROW_WEIGHTS:
        return rows * topk * sizeof(float);
    case BENCH_ROW_IDS:
        return rows * topk * id;
    default:
        return 0;
    }
}

/* ---- buffers ---- */

/* With a guard on either side. */
static size_t padded(size_t bytes)
{
    return bytes + 2 * (size_t)GUARD;
}

static bool buffer_create(struct bench_rank *r, enum bench_what what, struct bench_buffer *b)
{
    const enum bench_outputs outputs = r->o->outputs;
    const bool rows = what == BENCH_ROWS || what == BENCH_RESULTS;
    void *base = NULL;

    b->bytes = buffer_bytes(r->o, what);
    /* All ranks allocate library memory together, also those that use plain memory. */
    if (rows && outputs != BENCH_PLAIN) {
        ncclResult_t rc = swimlaneMemAlloc(r->group, padded(b->bytes), &base);

        if (rc != ncclSuccess) {
            bench_complain(r, "cannot allocate library memory: %s", swimlaneLastError());
            return false;
        }
        b->library = outputs == BENCH_LIBRARY || r->rank % 2 == 0;
    }
    if (!b->library) {
        cudaError_t error = swl_gpu_malloc(&base, padded(b->bytes));

        if (error != cudaSuccess) {
            bench_complain(r, "cannot allocate %zu bytes of device memory: %s", padded(b->bytes),
                           swl_gpu_error_text(error));
            return false;
        }
    }
    b->base = base;
    b->data = b->base + GUARD;
    return swl_gpu_fill(b->base, GUARD_BYTE, GUARD, r->stream) == cudaSuccess &&
           swl_gpu_fill(b->data + b->bytes, GUARD_BYTE, GUARD, r->stream) == cudaSuccess &&
           swl_gpu_fill(b->data, bench_poison(what), b->bytes, r->stream) == cudaSuccess;
}

static bool slot_create(struct bench_rank *r, struct bench_slot *slot)
{
    const struct swl_routing_size *size = &r->o->size;
    const size_t entries = (size_t)size->nranks * (size_t)size->ntokens * (size_t)size->topk;

    for (int i = 0; i < BENCH_NBUFFERS; i++) {
        void *host;

        if (!buffer_create(r, (enum bench_what)i, &slot->device[i]))
            return false;
        if (swl_gpu_host_malloc(&host, slot->device[i].bytes + 1) != cudaSuccess) {
            bench_complain(r, "cannot allocate %zu bytes of host memory", slot->device[i].bytes);
            return false;
        }
        slot->host[i] = host;
    }
    slot->ids = malloc((entries + 1) * sizeof *slot->ids);
    slot->weights = malloc((entries + 1) * sizeof *slot->weights);
    slot->sources = calloc((size_t)size->nranks, sizeof *slot->sources);
    return slot->ids && slot->weights && slot->sources;
}

bool bench_slots_create(struct bench_rank *r)
{
    const struct bench_options *o = r->o;

    r->nslots = o->pipelined ? o->warmup + o->iterations : 1;
    r->slots = calloc((size_t)r->nslots, sizeof *r->slots);
    if (!r->slots)
        return false;
    for (int i = 0; i < r->nslots; i++)
        if (!slot_create(r, &r->slots[i]))
            return false;
    return true;
}

void bench_slots_destroy(struct bench_rank *r)
{
    for (int s = 0; r->slots && s < r->nslots; s++) {
        struct bench_slot *slot = &r->slots[s];

        for (int i = 0; i < BENCH_NBUFFERS; i++) {
            /* Library memory ends with the group. */
            if (!slot->device[i].library)
                swl_gpu_free(slot->device[i].base);
            swl_gpu_host_free(slot->host[i]);
        }
        swl_oracle_destroy(slot->oracle);
        free(slot->ids);
        free(slot->weights);
        free(slot->sources);
    }
    free(r->slots);
    r->slots = NULL;
}

void bench_verify_guards(struct bench_rank *r)
{
    unsigned char guard[2][GUARD];

    for (int s = 0; s < r->nslots; s++)
        for (int i = 0; i < BENCH_NBUFFERS; i++) {
            const struct bench_buffer *b = &r->slots[s].device[i];
            bool intact = true;

            if (swl_gpu_copy(guard[0], b->base, GUARD, r->stream) != cudaSuccess ||
                swl_gpu_copy(guard[1], b->data + b->bytes, GUARD, r->stream) != cudaSuccess ||
                swl_gpu_stream_wait(r->stream, UINT64_MAX) != cudaSuccess) {
                bench_complain(r, "cannot read guard bytes");
                return;
            }
            for (int j = 0; j < 2 * GUARD; j++)
                intact = intact && guard[j / GUARD][j % GUARD] == GUARD_BYTE;
            if (!intact)
                bench_complain(r, "guard bytes around buffer %d of step %d are overwritten", i,
                               r->slots[s].step);
        }
}

/* ---- inputs and expectations ---- */

void bench_payload(const struct bench_options *o, int step, int src, int token, void *row)
{
    const uint64_t who = (uint64_t)step << 32 | (uint32_t)src;

    swl_payload_row(o->type, o->hidden, swl_random_of(o->seed + STREAM_TOKEN, who, (uint64_t)token),
                    row);
}

void bench_result(const struct bench_options *o, int step, int dst, int64_t row, void *out)
{
    const uint64_t who = (uint64_t)step << 32 | (uint32_t)dst;

    swl_payload_row(o->type, o->hidden, swl_random_of(o->seed + STREAM_RESULT, who, (uint64_t)row),
                    out);
}

static bool make_routing(struct bench_rank *r, struct bench_slot *slot)
{
    const struct swl_routing_size *size = &r->o->size;
    const int step = r->o->update_once ? 0 : slot->step;
    const size_t per_rank = (size_t)size->ntokens * (size_t)size->topk;

    for (int rank = 0; rank < size->nranks; rank++) {
        int64_t *ids = slot->ids + (size_t)rank * per_rank;
        float *weights = slot->weights + (size_t)rank * per_rank;

        if (!swl_routing_make(&r->o->routing, size, rank, step, ids, weights))
            return false;
        slot->sources[rank] = (struct swl_oracle_source){
            .ntokens = swl_routing_tokens(&r->o->routing, size, rank, step),
            .id_bytes = 8,
            .ids = ids,
            .weights = weights,
        };
    }
    slot->ntokens = slot->sources[r->rank].ntokens;
    return true;
}

static void fill_inputs(struct bench_rank *r, struct bench_slot *slot)
{
    const struct bench_options *o = r->o;
    const size_t per_rank = (size_t)o->size.ntokens * (size_t)o->size.topk;
    const size_t n = (size_t)slot->ntokens * (size_t)o->size.topk;
    const int64_t *ids = slot->ids + (size_t)r->rank * per_rank;
    const size_t row_bytes = bench_row_bytes(o);

    for (size_t i = 0; i < n; i++) {
        if (o->id_bytes == 8)
            ((int64_t *)(void *)slot->host[BENCH_IDS])[i] = ids[i];
        else
            ((int32_t *)(void *)slot->host[BENCH_IDS])[i] = (int32_t)ids[i];
    }
    memcpy(slot->host[BENCH_WEIGHTS], slot->weights + (size_t)r->rank * per_rank,
           n * sizeof(float));
    if (!o->verify)
        return;
    for (int t = 0; t < slot->ntokens; t++)
        bench_payload(o, slot->step, r->rank, t, slot->host[BENCH_TOKENS] + (size_t)t * row_bytes);
    const int64_t nrows = swl_oracle_rows_of(slot->oracle, r->rank)->nrows;

    for (int64_t row = 0; row < nrows; row++)
        bench_result(o, slot->step, r->rank, row,
                     slot->host[BENCH_RESULTS] + (size_t)row * row_bytes);
}

bool bench_slot_prepare(struct bench_rank *r, struct bench_slot *slot, int step)
{
    const struct bench_options *o = r->o;
    const struct swl_oracle_shape shape = {
        .nranks = o->size.nranks,
        .node_of = o->team_of,
        .nexperts = o->size.nexperts,
        .topk = o->size.topk,
        .hidden = o->hidden,
        .type = o->type,
        .budget = o->budget,
        .global_ids = o->global_ids,
        .wire_fp32 = o->wire_fp32,
    };

    slot->step = step;
    swl_oracle_destroy(slot->oracle);
    slot->oracle = NULL;
    if (!make_routing(r, slot))
        return false;
    slot->oracle = swl_oracle_create(&shape, slot->sources);
    if (!slot->oracle)
        return false;
    fill_inputs(r, slot);
    return true;
}

int64_t bench_rows_checked(const struct bench_options *o, const struct bench_slot *slot, int rank)
{
    int64_t n = swl_oracle_rows_of(slot->oracle, rank)->nrows + ROWS_BEHIND;

    return n < o->budget ? n : o->budget;
}
