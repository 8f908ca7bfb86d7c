/* bench_run.c: what one rank of swimlane-bench does.
 *
 * A step: Update, Dispatch, outputs to the host, results of the experts to the device, Combine. The
 * user's work between the calls is copies and fills on the same stream, so that the library's own
 * entry and exit rules are all that protects the memory. One by one (the default) each call is
 * timed between barriers; pipelined, all steps are enqueued and nobody waits. */
#include "tools/bench.h"

#include "tools/support/comm.h"
#include "tools/support/payload.h"

#include <swimlane.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAM_DELAY = 13 };

static double host_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- group ---- */

static bool group_create(struct bench_rank *r)
{
    const struct bench_options *o = r->o;
    ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;
    ncclEpHandleConfig_t handle = NCCL_EP_HANDLE_CONFIG_INIT;

    config.algorithm = o->algorithm;
    config.num_experts = (unsigned)o->size.nexperts;
    config.max_dispatch_tokens_per_rank = (unsigned)(o->size.ntokens ? o->size.ntokens : 1);
    config.max_recv_tokens_per_rank = (unsigned)o->budget;
    config.max_token_bytes = (unsigned)bench_row_bytes(o);
    config.num_channels = (unsigned)o->nchannels;
    config.max_num_sms = (unsigned)o->nsms;
    config.timeout_ns = (uint64_t)o->timeout_ms * 1000000u;
    config.overflow_policy = o->drop ? NCCL_EP_OVERFLOW_DROP : NCCL_EP_OVERFLOW_TRAP;
    config.num_topk = (unsigned)o->size.topk;
    if (ncclEpCreateGroup(&r->group, r->comm, &config) != ncclSuccess) {
        bench_complain(r, "%s", swimlaneLastError());
        return false;
    }
    if (ncclEpInitHandle(&r->handle, r->group, o->layout, &handle, o->size.topk, NULL) !=
        ncclSuccess) {
        bench_complain(r, "%s", swimlaneLastError());
        return false;
    }
    return true;
}

/* ---- calls ---- */

/* A descriptor with its extents. */
struct view {
    ncclEpTensor_t tensor;
    size_t sizes[2];
};

static ncclEpTensor_t *view_of(struct view *v, const struct bench_slot *slot, enum bench_what what,
                               ncclDataType_t type, const size_t (*sizes)[2])
{
    v->sizes[0] = (*sizes)[0];
    v->sizes[1] = (*sizes)[1];
    v->tensor = (ncclEpTensor_t)NCCL_EP_TENSOR_INIT;
    v->tensor.ndim = v->sizes[1] ? 2 : 1;
    v->tensor.datatype = type;
    v->tensor.data = slot->device[what].data;
    v->tensor.sizes = v->sizes;
    return &v->tensor;
}

#define VIEW(v, what, type, ...) view_of(v, slot, what, type, &(const size_t[2]){__VA_ARGS__})

static ncclDataType_t row_type(const struct bench_options *o)
{
    static const ncclDataType_t types[] = {ncclBfloat16, ncclFloat16, ncclFloat32};

    return types[o->type];
}

static ncclDataType_t id_type(const struct bench_options *o)
{
    return o->id_bytes == 8 ? ncclInt64 : ncclInt32;
}

static ncclResult_t call_update(struct bench_rank *r, struct bench_slot *slot)
{
    const struct bench_options *o = r->o;
    const ncclDataType_t type = id_type(o);
    ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
    struct view ids, experts, total, sources;

    info.expert_counters = VIEW(&experts, BENCH_EXPERT_COUNTERS, type, (size_t)bench_nlocal(o), 0);
    info.recv_total_counter = VIEW(&total, BENCH_TOTAL, type, 1, 0);
    info.src_rank_counters = VIEW(&sources, BENCH_SOURCE_COUNTERS, type, (size_t)o->size.nranks, 0);
    return ncclEpUpdateHandle(
        r->handle, VIEW(&ids, BENCH_IDS, type, (size_t)slot->ntokens, (size_t)o->size.topk), &info,
        r->stream);
}

static ncclResult_t call_dispatch(struct bench_rank *r, struct bench_slot *slot)
{
    const struct bench_options *o = r->o;
    const size_t tokens = (size_t)slot->ntokens, topk = (size_t)o->size.topk;
    const size_t rows = (size_t)o->budget, hidden = (size_t)o->hidden;
    ncclEpDispatchInputs_t in = NCCL_EP_DISPATCH_INPUTS_INIT;
    ncclEpDispatchOutputs_t out = NCCL_EP_DISPATCH_OUTPUTS_INIT;
    ncclEpDispatchConfig_t config = NCCL_EP_DISPATCH_CONFIG_INIT;
    ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
    struct view v[5];

    in.tokens = VIEW(&v[0], BENCH_TOKENS, row_type(o), tokens, hidden);
    in.topk_weights = VIEW(&v[1], BENCH_WEIGHTS, ncclFloat32, tokens, topk);
    out.tokens = VIEW(&v[2], BENCH_ROWS, row_type(o), rows, hidden);
    out.topk_weights = VIEW(&v[3], BENCH_ROW_WEIGHTS, ncclFloat32, rows, topk);
    out.topk_idx = VIEW(&v[4], BENCH_ROW_IDS, id_type(o), rows, topk);
    info.recv_topk_idx_kind = o->global_ids ? NCCL_EP_EXPERT_ID_GLOBAL : NCCL_EP_EXPERT_ID_AUTO;
    return ncclEpDispatch(r->handle, &in, &out, &info, &config, r->stream);
}

static ncclResult_t call_combine(struct bench_rank *r, struct bench_slot *slot)
{
    const struct bench_options *o = r->o;
    const size_t hidden = (size_t)o->hidden;
    ncclEpCombineInputs_t in = NCCL_EP_COMBINE_INPUTS_INIT;
    ncclEpCombineOutputs_t out = NCCL_EP_COMBINE_OUTPUTS_INIT;
    struct view v[2];

    in.tokens = VIEW(&v[0], BENCH_RESULTS, row_type(o), (size_t)o->budget, hidden);
    out.tokens = VIEW(&v[1], BENCH_COMBINED, row_type(o), (size_t)slot->ntokens, hidden);
    return ncclEpCombine(r->handle, &in, &out, NULL, r->stream);
}

/* ---- the user's work between the calls ---- */

static bool waited(struct bench_rank *r)
{
    cudaError_t error = swl_gpu_stream_wait(r->stream, UINT64_MAX);

    if (error != cudaSuccess)
        bench_complain(r, "stream failed: %s", swl_gpu_error_text(error));
    return error == cudaSuccess;
}

/* Between the device buffer and its host image. */
static bool move(struct bench_rank *r, struct bench_slot *slot, enum bench_what what, size_t bytes,
                 bool to_device)
{
    void *device = slot->device[what].data, *host = slot->host[what];
    cudaError_t error = cudaSuccess;

    if (bytes)
        error = to_device ? swl_gpu_copy(device, host, bytes, r->stream)
                          : swl_gpu_copy(host, device, bytes, r->stream);
    if (error != cudaSuccess)
        bench_complain(r, "copy failed: %s", swl_gpu_error_text(error));
    return error == cudaSuccess;
}

static bool poison(struct bench_rank *r, struct bench_slot *slot, enum bench_what what,
                   size_t bytes)
{
    cudaError_t error = cudaSuccess;

    if (bytes)
        error = swl_gpu_fill(slot->device[what].data, bench_poison(what), bytes, r->stream);
    if (error != cudaSuccess)
        bench_complain(r, "fill failed: %s", swl_gpu_error_text(error));
    return error == cudaSuccess;
}

/* Used bytes of a buffer in this step. */
static size_t used_bytes(const struct bench_rank *r, const struct bench_slot *slot,
                         enum bench_what what)
{
    const size_t row_bytes = bench_row_bytes(r->o);
    const size_t all = slot->device[what].bytes;

    switch (what) {
    case BENCH_ROWS:
        return (size_t)bench_rows_checked(r->o, slot, r->rank) * row_bytes;
    case BENCH_RESULTS:
        return (size_t)swl_oracle_rows_of(slot->oracle, r->rank)->nrows * row_bytes;
    case BENCH_TOKENS:
    case BENCH_COMBINED:
        return (size_t)slot->ntokens * row_bytes;
    default:
        return all;
    }
}

static bool send_inputs(struct bench_rank *r, struct bench_slot *slot)
{
    for (int i = BENCH_IDS; i <= BENCH_TOKENS; i++)
        if (!move(r, slot, (enum bench_what)i, used_bytes(r, slot, (enum bench_what)i), true))
            return false;
    return true;
}

/* Take outputs [first, last] to the host and make the device copies unrecognisable. */
static bool take_outputs(struct bench_rank *r, struct bench_slot *slot, int first, int last)
{
    if (!r->o->verify)
        return true;
    for (int i = first; i <= last; i++) {
        const enum bench_what what = (enum bench_what)i;
        const size_t bytes = used_bytes(r, slot, what);

        if (!move(r, slot, what, bytes, false) || !poison(r, slot, what, bytes))
            return false;
    }
    return true;
}

static bool poison_inputs(struct bench_rank *r, struct bench_slot *slot, int first, int last)
{
    if (!r->o->poison)
        return true;
    for (int i = first; i <= last; i++)
        if (!poison(r, slot, (enum bench_what)i, used_bytes(r, slot, (enum bench_what)i)))
            return false;
    return true;
}

static void hold_back(const struct bench_rank *r, int step, int call)
{
    struct swl_random random = swl_random_of(r->o->seed + STREAM_DELAY, (uint64_t)r->rank,
                                             (uint64_t)step * 8 + (uint64_t)call);

    if (r->o->delay_us)
        swl_gpu_sleep_ns((uint64_t)(swl_random_unit(&random) * r->o->delay_us * 1000));
}

/* ---- steps ---- */

/* On the stream: what follows starts on all ranks at about the same time. The stand-in sleeps while
 * it waits long, so that a second round, which is short, brings the ranks closer together. */
static bool barrier(struct bench_rank *r)
{
    bool ok = !r->comm_failed;

    for (int i = swl_comm_is_standin() && !SWL_EMULATED ? 0 : 1; i < 2 && ok; i++)
        ok = ncclAllReduce(r->word, r->word, 1, ncclInt32, ncclSum, r->comm, r->stream) ==
             ncclSuccess;
    if (!ok && !r->comm_failed)
        bench_complain(r, "barrier failed: %s", ncclGetLastError(r->comm));
    r->comm_failed = !ok;
    r->nbarriers++;
    return ok;
}

/* All ranks at the same point: true when everything is well on all of them. */
static bool agree_all(struct bench_rank *r, bool ok)
{
    const int32_t mine = ok ? 0 : 1;
    int32_t failed = 1;

    if (r->comm_failed || !r->word ||
        swl_gpu_copy(r->word, &mine, sizeof mine, r->stream) != cudaSuccess || !barrier(r) ||
        swl_gpu_copy(&failed, r->word, sizeof failed, r->stream) != cudaSuccess || !waited(r))
        return false;
    return failed == 0;
}

/* Time between the events around the last call, which has ended. */
static bool elapsed_us(struct bench_rank *r, double *us_p)
{
    float ms = 0;
    cudaError_t error = cudaEventElapsedTime(&ms, r->begin, r->end);

    *us_p = ms * 1e3;
    if (error != cudaSuccess)
        bench_complain(r, "event failed: %s", swl_gpu_error_text(error));
    return error == cudaSuccess;
}

typedef ncclResult_t (*call_fn)(struct bench_rank *, struct bench_slot *);

/* Runs on a thread of CUDA's. */
static void gate_pass(void *open)
{
    const double limit = host_now_us() + 1e6;

    while (!__atomic_load_n((int *)open, __ATOMIC_ACQUIRE) && host_now_us() < limit)
        sched_yield();
}

/* The stream stops here until gate_open: what a timed call is made of has been enqueued then, and
 * the events see no time of the host. Not where the barrier or the ranks' delays are the host's
 * own. */
static bool gate_close(struct bench_rank *r)
{
    __atomic_store_n(&r->gate, 0, __ATOMIC_RELEASE);
    return SWL_EMULATED || swl_comm_is_standin() || r->o->delay_us ||
           cudaLaunchHostFunc(r->stream, gate_pass, &r->gate) == cudaSuccess;
}

static void gate_open(struct bench_rank *r)
{
    __atomic_store_n(&r->gate, 1, __ATOMIC_RELEASE);
}

/* One library call; timed between barriers unless pipelined. */
static bool call_library(struct bench_rank *r, struct bench_slot *slot,
                         enum bench_operation operation, struct bench_sample *sample)
{
    static const call_fn calls[] = {call_update, call_dispatch, call_combine};
    const bool timed = !r->o->pipelined;
    const double wall = host_now_us();
    bool ok = true, called = false;

    if (timed)
        ok = gate_close(r) && barrier(r) && cudaEventRecord(r->begin, r->stream) == cudaSuccess;
    if (ok) {
        hold_back(r, slot->step, (int)operation);
        const double begin = host_now_us();

        called = calls[operation](r, slot) == ncclSuccess;
        sample->call_us[operation] = host_now_us() - begin;
        if (!called)
            bench_complain(r, "step %d: %s", slot->step, swimlaneLastError());
    }
    if (!timed)
        return called;
    ok = called && cudaEventRecord(r->end, r->stream) == cudaSuccess;
    gate_open(r);
    if (!ok || !waited(r) || !elapsed_us(r, &sample->device_us[operation]))
        return false;
    sample->wall_us[operation] = host_now_us() - wall;
    return true;
}

static bool step_enqueue(struct bench_rank *r, struct bench_slot *slot, struct bench_sample *sample)
{
    const bool routed = !r->o->update_once || slot->step == 0;

    if (!send_inputs(r, slot))
        return false;
    if (routed && !call_library(r, slot, BENCH_UPDATE, sample))
        return false;
    if (routed && !poison_inputs(r, slot, BENCH_IDS, BENCH_IDS))
        return false;
    if (!call_library(r, slot, BENCH_DISPATCH, sample) ||
        !take_outputs(r, slot, routed ? BENCH_EXPERT_COUNTERS : BENCH_ROWS, BENCH_ROW_IDS) ||
        !poison_inputs(r, slot, BENCH_WEIGHTS, BENCH_TOKENS))
        return false;
    if (!move(r, slot, BENCH_RESULTS, used_bytes(r, slot, BENCH_RESULTS), true) ||
        !call_library(r, slot, BENCH_COMBINE, sample) ||
        !take_outputs(r, slot, BENCH_COMBINED, BENCH_COMBINED))
        return false;
    return poison_inputs(r, slot, BENCH_RESULTS, BENCH_RESULTS);
}

/* After the stream has passed a step: flags raised on the device, then the data. That of calls that
 * were given up is not compared; the refusal of the next call says why they were. False then. */
static bool step_check(struct bench_rank *r, struct bench_slot *slot, int *expected_bits)
{
    const int given_up = 1 | 8; /* time limit, handle memory */
    int bits = 0;

    if (swl_oracle_bad_id(slot->oracle, r->rank))
        *expected_bits |= 4;
    if (ncclEpGetAsyncError(r->group, &bits) != ncclSuccess)
        bench_complain(r, "%s", swimlaneLastError());
    if (bits & given_up) {
        if (call_update(r, slot) != ncclSuccess)
            bench_complain(r, "step %d or later: %s", slot->step, swimlaneLastError());
        return false;
    }
    if (bits != *expected_bits)
        bench_complain(r, "step %d: async error is %d, expected %d", slot->step, bits,
                       *expected_bits);
    if (r->o->verify)
        bench_verify_slot(r, slot);
    return true;
}

/* A step, as far as it gets. With barriers every rank comes to all of them, also after a failure:
 * nobody may use the communicator for something else while others wait there. */
static bool run_step(struct bench_rank *r, int step, struct bench_sample *sample)
{
    const struct bench_options *o = r->o;
    struct bench_slot *slot = &r->slots[step % r->nslots];
    const int nbarriers = o->pipelined ? 0 : o->update_once && step > 0 ? 2 : 3;
    bool ok = bench_slot_prepare(r, slot, step);

    if (!ok)
        bench_complain(r, "no memory for step %d", step);
    r->nbarriers = 0;
    ok = ok && step_enqueue(r, slot, sample) && (o->pipelined || waited(r));
    while (r->nbarriers < nbarriers && barrier(r))
        continue;
    return ok;
}

/* True on all ranks or on none. */
static bool run_steps(struct bench_rank *r, struct bench_sample *samples)
{
    const struct bench_options *o = r->o;
    const int nsteps = o->warmup + o->iterations;
    struct bench_sample unused;
    int bits = 0;
    bool ok = true;

    for (int step = 0; ok && step < nsteps; step++) {
        ok = run_step(r, step, step < o->warmup ? &unused : &samples[step - o->warmup]);
        if (!o->pipelined)
            ok = agree_all(r, ok && step_check(r, &r->slots[step % r->nslots], &bits));
    }
    if (!o->pipelined)
        return ok;
    ok = ok && waited(r);
    for (int step = 0; ok && step < nsteps; step++)
        bits |= swl_oracle_bad_id(r->slots[step].oracle, r->rank) ? 4 : 0;
    for (int step = 0; ok && step < nsteps; step++)
        ok = step_check(r, &r->slots[step], &bits);
    return agree_all(r, ok);
}

/* ---- results of all ranks ---- */

/* Gather `bytes` of every rank to all[nranks]. */
static bool gather_results(struct bench_rank *r, const void *mine, void *all, size_t bytes)
{
    const size_t total = bytes * (size_t)r->o->size.nranks;
    void *in = NULL, *out = NULL;
    bool ok = swl_gpu_malloc(&in, bytes) == cudaSuccess &&
              swl_gpu_malloc(&out, total) == cudaSuccess &&
              swl_gpu_copy(in, mine, bytes, r->stream) == cudaSuccess &&
              ncclAllGather(in, out, bytes, ncclInt8, r->comm, r->stream) == ncclSuccess &&
              swl_gpu_copy(all, out, total, r->stream) == cudaSuccess && waited(r);

    swl_gpu_free(in);
    swl_gpu_free(out);
    if (!ok)
        bench_complain(r, "cannot gather the results");
    return ok;
}

enum { NQUERIES = 7 };

struct bench_closing {
    int64_t complaints;
    uint64_t queries[NQUERIES];
    uint8_t uuid[16];
};

/* Number of different GPUs; gpu_of: the first rank of the same. */
static int find_gpus(const struct bench_closing *closings, int nranks, int *gpu_of)
{
    int n = 0;

    for (int r = 0; r < nranks; r++) {
        int first = 0;

        while (memcmp(closings[first].uuid, closings[r].uuid, sizeof closings[r].uuid) != 0)
            first++;
        gpu_of[r] = first;
        n += first == r;
    }
    return n;
}

/* What this rank tells all others. */
static struct bench_closing closing_of(struct bench_rank *r)
{
    static const int keys[NQUERIES] = {SWIMLANE_QUERY_DEVICE_BYTES, SWIMLANE_QUERY_WINDOW_BYTES,
                                       SWIMLANE_QUERY_SMS,          SWIMLANE_QUERY_ROWS_DROPPED,
                                       SWIMLANE_QUERY_NIC_SMS,      SWIMLANE_QUERY_RINGS,
                                       SWIMLANE_QUERY_RING_SLOTS};
    struct bench_closing closing = {.complaints = r->complaints};
    struct swl_gpu_info gpu = {0};
    int device = 0;

    if (swl_gpu_current(&device) == cudaSuccess && swl_gpu_info(device, &gpu) == cudaSuccess)
        memcpy(closing.uuid, gpu.uuid, sizeof closing.uuid);
    for (int i = 0; i < NQUERIES; i++)
        swimlaneGroupQuery(r->group, keys[i], &closing.queries[i]);
    return closing;
}

static void sum_up(const struct bench_rank *r, const struct bench_closing *closings,
                   struct bench_summary *summary)
{
    const struct bench_slot *last = &r->slots[r->nslots - 1];
    const uint64_t *queries = closings[r->rank].queries;
    int gpu_of[BENCH_MAX_RANKS];

    for (int i = 0; i < r->o->size.nranks; i++) {
        summary->complaints += (int)closings[i].complaints;
        summary->dropped += closings[i].queries[3];
    }
    summary->ngpus = find_gpus(closings, r->o->size.nranks, gpu_of);
    summary->device_bytes = queries[0];
    summary->window_bytes = queries[1];
    summary->nsms = queries[2];
    summary->nic_sms = queries[4];
    summary->nrings = queries[5];
    summary->ring_slots = queries[6];
    if (r->rank == 0)
        summary->traffic = bench_traffic_of(&(struct bench_work){
            r->o, last->oracle, last->sources, gpu_of, summary->nrings ? summary->nrings : 1});
}

static bool close_run(struct bench_rank *r, const struct bench_sample *mine, double wall_s)
{
    const size_t nranks = (size_t)r->o->size.nranks, nsamples = (size_t)r->o->iterations;
    const struct bench_closing closing = closing_of(r);
    struct bench_closing *closings = calloc(nranks, sizeof *closings);
    struct bench_sample *samples = calloc(nranks * nsamples, sizeof *samples);
    struct bench_summary summary = {.wall_s = wall_s};
    bool ok = closings && samples && gather_results(r, &closing, closings, sizeof closing) &&
              gather_results(r, mine, samples, nsamples * sizeof *samples);

    if (ok)
        sum_up(r, closings, &summary);
    if (ok && r->rank == 0)
        ok = bench_report(r->o, samples, &summary);
    free(closings);
    free(samples);
    return ok && summary.complaints == 0;
}

bool bench_run(const struct bench_options *o, int rank, ncclComm_t comm)
{
    struct bench_rank r = {.o = o, .rank = rank, .comm = comm};
    struct bench_sample *samples = calloc((size_t)o->iterations, sizeof *samples);
    const double start = host_now_us();
    bool ok = samples && swl_gpu_stream_create(&r.stream) == cudaSuccess &&
              cudaEventCreate(&r.begin) == cudaSuccess && cudaEventCreate(&r.end) == cudaSuccess &&
              swl_gpu_malloc(&r.word, sizeof(int32_t)) == cudaSuccess &&
              swl_gpu_fill(r.word, 0, sizeof(int32_t), r.stream) == cudaSuccess &&
              group_create(&r) && bench_slots_create(&r);

    /* together to the steps, and together to the end: destroying a group is an exchange, too */
    ok = agree_all(&r, ok) && run_steps(&r, samples);
    if (ok) {
        bench_verify_guards(&r);
        ok = close_run(&r, samples, (host_now_us() - start) / 1e6);
    }
    ncclEpHandleDestroy(r.handle);
    if (ncclEpGroupDestroy(r.group) != ncclSuccess) {
        bench_complain(&r, "%s", swimlaneLastError());
        ok = false;
    }
    bench_slots_destroy(&r);
    swl_gpu_free(r.word);
    if (r.begin)
        cudaEventDestroy(r.begin);
    if (r.end)
        cudaEventDestroy(r.end);
    if (r.stream)
        swl_gpu_stream_destroy(r.stream);
    free(samples);
    return ok && r.complaints == 0;
}
