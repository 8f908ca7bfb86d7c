/* bootstrap.c: all-gather among the ranks of a communicator. Layer: src/group; memory: bootstrap.h.
 * */
#include "src/group/bootstrap.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/util.h"
#include "src/failure/host_news.h"
#include "src/runtime/result.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POLL_NS  UINT64_C(50000)
#define SLICE_NS UINT64_C(10000000) /* between two looks for news of the others */

static size_t staging_bytes(const struct swl_bootstrap *boot)
{
    return ((size_t)boot->nranks + 1) * boot->piece_bytes;
}

/* What a rank got is kept after a failure, so that it can say so: without a stream of its own it
 * uses the thread's, without device memory the pinned one, without pinned memory plain one. */
ncclResult_t swl_bootstrap_open(struct swl_bootstrap *boot)
{
    void *memory = NULL;
    ncclResult_t rc, next;

    boot->piece_bytes =
        (size_t)swl_max_u64(256, swl_min_u64(16384, (UINT64_C(1) << 20) / boot->nranks));
    boot->piece_bytes = boot->piece_bytes / 256 * 256;
    rc = SWL_CUDA(swl_gpu_stream_create(&boot->stream));
    boot->borrowed = rc != ncclSuccess;
    if (boot->borrowed)
        boot->stream = cudaStreamPerThread;
    next = SWL_CUDA(swl_gpu_host_malloc(&memory, staging_bytes(boot)));
    boot->pinned = next == ncclSuccess;
    boot->host = boot->pinned ? memory : NULL;
    rc = swl_first_failure(rc, next);
    next = swl_device_malloc(boot->memory, &memory, staging_bytes(boot));
    if (next == ncclSuccess)
        boot->device = memory;
    if (boot->device && !boot->pinned)
        boot->host = calloc(1, staging_bytes(boot));
    return swl_first_failure(rc, next);
}

ncclResult_t swl_bootstrap_close(struct swl_bootstrap *boot)
{
    ncclResult_t rc = swl_device_free(boot->memory, boot->device, staging_bytes(boot));

    boot->device = NULL;
    if (boot->pinned)
        rc = swl_first_failure(rc, SWL_CUDA(swl_gpu_host_free(boot->host)));
    else
        free(boot->host);
    boot->host = NULL;
    free(boot->processes);
    boot->processes = NULL;
    return swl_first_failure(rc, swl_bootstrap_drop_stream(boot));
}

ncclResult_t swl_bootstrap_drop_stream(struct swl_bootstrap *boot)
{
    const cudaStream_t stream = boot->stream;

    boot->stream = NULL;
    return stream && !boot->borrowed ? SWL_CUDA(swl_gpu_stream_destroy(stream)) : ncclSuccess;
}

bool swl_bootstrap_speaks(const struct swl_bootstrap *boot, uint32_t cause)
{
    const uint64_t *processes = boot->processes;

    for (uint32_t r = 0; processes && r < boot->rank; r++)
        if (processes[r] == processes[boot->rank])
            return false;
    return !processes || cause == UINT32_MAX || processes[cause] != processes[boot->rank];
}

static const char *phase_of(const struct swl_bootstrap *boot)
{
    return boot->phase ? boot->phase : "set-up";
}

/* Asked once more if the question fails. */
static ncclResult_t comm_state(const struct swl_bootstrap *boot)
{
    ncclResult_t state = ncclInternalError;

    if (ncclCommGetAsyncError(boot->comm, &state) == ncclSuccess ||
        ncclCommGetAsyncError(boot->comm, &state) == ncclSuccess)
        return state;
    return ncclInternalError;
}

/* Result of a NCCL call: waits (bounded) while it is in progress, then makes the sentence. */
static ncclResult_t nccl_done(struct swl_bootstrap *boot, ncclResult_t rc, const char *call)
{
    const uint64_t limit = swl_gpu_now_ns() + boot->timeout_ns;
    const char *last;
    char time[32];

    while (rc == ncclInProgress) {
        if (swl_gpu_now_ns() >= limit) {
            boot->stuck = true;
            swl_time_text(boot->timeout_ns, time, sizeof(time));
            return swl_fail(ncclSystemError, "%s (%s) is still in progress after %s", call,
                            phase_of(boot), time);
        }
        swl_gpu_sleep_ns(POLL_NS);
        rc = comm_state(boot);
    }
    if (rc == ncclSuccess)
        return ncclSuccess;
    last = ncclGetLastError(boot->comm);
    /* a peer has left: the exchange failed, not NCCL */
    return swl_fail(rc == ncclRemoteError ? ncclSystemError : swl_nccl_code(rc), "%s (%s): %s%s%s",
                    call, phase_of(boot), ncclGetErrorString(rc), last && *last ? ": " : "",
                    last ? last : "");
}

static bool one_gone(const struct swl_bootstrap *boot)
{
    return boot->hosts && boot->hosts->ngone > 0;
}

/* NCCL has noticed; why may be on its way, through ranks that lie between. */
static bool news_of_gone(struct swl_bootstrap *boot)
{
    const uint64_t end =
        swl_gpu_now_ns() + swl_min_u64(boot->timeout_ns / 16, UINT64_C(1000000000));

    while (boot->hosts && boot->hosts->connected && !one_gone(boot) && swl_gpu_now_ns() < end) {
        swl_gpu_sleep_ns(POLL_NS);
        swl_host_news_poll(boot->hosts);
    }
    return one_gone(boot);
}

/* The exchange ends with nobody's bytes, or never: a rank is gone. */
static ncclResult_t rank_gone(struct swl_bootstrap *boot)
{
    const struct swl_host_news *hosts = boot->hosts;
    ncclResult_t rc;

    swl_call_quiet(!swl_bootstrap_speaks(boot, hosts->first_gone));
    rc = swl_fail(ncclSystemError,
                  "an exchange among %" PRIu32 " ranks (%s) cannot end: rank %" PRIu32 " %s",
                  boot->nranks, phase_of(boot), hosts->first_gone, hosts->gone_why);
    swl_call_quiet(false);
    return rc;
}

/* The exchange will not end: its time is over, or a rank is gone. */
static ncclResult_t not_finished(struct swl_bootstrap *boot)
{
    uint32_t missing = UINT32_MAX;
    char time[32], who[32] = "a rank";
    ncclResult_t rc;

    boot->stuck = true;
    if (boot->hosts)
        missing = one_gone(boot) ? boot->hosts->missing : swl_host_news_missing(boot->hosts);
    if (one_gone(boot) && missing == UINT32_MAX)
        return rank_gone(boot);
    if (missing != UINT32_MAX)
        snprintf(who, sizeof(who), "rank %" PRIu32, missing);
    swl_time_text(boot->timeout_ns + boot->grace_ns, time, sizeof(time));
    swl_call_quiet(!swl_bootstrap_speaks(boot, UINT32_MAX));
    rc = swl_fail(ncclSystemError,
                  "an exchange among %" PRIu32
                  " ranks (%s) has not finished within %s; %s did not take part",
                  boot->nranks, phase_of(boot), time, who);
    swl_call_quiet(false);
    return rc;
}

/* cudaErrorNotReady: the limit has passed, or a rank is gone and it will never be. A wait that
 * fails is made once more: the exchange goes on without it, and only its end tells this rank what
 * the others know. */
static cudaError_t wait_stream(struct swl_bootstrap *boot)
{
    const uint64_t limit = boot->timeout_ns + boot->grace_ns;
    const uint64_t slice = swl_min_u64(limit / 64 + 1, SLICE_NS), end = swl_gpu_now_ns() + limit;
    bool failed = false;

    for (;;) {
        const cudaError_t error = swl_gpu_stream_wait(boot->stream, slice);

        if (boot->hosts)
            swl_host_news_poll(boot->hosts);
        if (error != cudaSuccess && error != cudaErrorNotReady && !failed) {
            failed = true;
            swl_log(SWL_LEVEL_WARN,
                    "group: a wait for an exchange (%s) failed and is made again: %s",
                    phase_of(boot), swl_gpu_error_text(error));
        } else if (error != cudaErrorNotReady || swl_gpu_now_ns() >= end || one_gone(boot)) {
            return error;
        }
    }
}

/* Made once more if it fails: a rank that stays away keeps the others waiting. */
static ncclResult_t start_gather(struct swl_bootstrap *boot, const char *own, char *all,
                                 size_t bytes)
{
    ncclResult_t rc = ncclAllGather(own, all, bytes, ncclUint8, boot->comm, boot->stream);

    if (rc != ncclSuccess && rc != ncclInProgress) {
        swl_log(SWL_LEVEL_WARN, "group: ncclAllGather (%s) failed and is made again: %s",
                phase_of(boot), ncclGetErrorString(rc));
        rc = ncclAllGather(own, all, bytes, ncclUint8, boot->comm, boot->stream);
    }
    return nccl_done(boot, rc, "ncclAllGather");
}

/* What start_gather began, with its result in `all`, ends: bring that to the host. */
static ncclResult_t end_gather(struct swl_bootstrap *boot, const char *all, size_t bytes)
{
    char *to = boot->host + boot->piece_bytes;
    cudaError_t error = cudaSuccess;
    ncclResult_t rc;

    if (all != to) {
        error = swl_gpu_copy(to, all, bytes * boot->nranks, boot->stream);
        if (error != cudaSuccess) /* as for the wait: only the result tells what the others know */
            error = swl_gpu_copy(to, all, bytes * boot->nranks, boot->stream);
    }
    if (error == cudaSuccess)
        error = wait_stream(boot);
    if (error == cudaErrorNotReady)
        return not_finished(boot);
    if (error != cudaSuccess) {
        boot->stuck = true; /* nobody knows when it ends */
        return swl_cuda_result(error, "the wait for an exchange among the ranks");
    }
    /* one that failed, as a peer has left, ends as well, and with bytes of nobody */
    rc = comm_state(boot);
    return rc != ncclSuccess && rc != ncclInProgress && news_of_gone(boot)
               ? rank_gone(boot)
               : nccl_done(boot, rc, "ncclAllGather");
}

/* One piece of every rank's bytes. */
static ncclResult_t gather_piece(struct swl_bootstrap *boot, const char *mine, size_t bytes)
{
    char *own = boot->device ? boot->device : boot->host;
    cudaError_t error = cudaSuccess;

    memcpy(boot->host, mine, bytes);
    if (boot->device)
        error = swl_gpu_copy(own, boot->host, bytes, boot->stream);
    if (error != cudaSuccess && boot->pinned) { /* which the device reaches as well */
        swl_log(SWL_LEVEL_WARN, "group: an exchange (%s) goes without device memory: %s",
                phase_of(boot), swl_gpu_error_text(error));
        own = boot->host;
        error = cudaSuccess;
    }
    SWL_TRY(swl_cuda_result(error, "the copy for an exchange among the ranks"));
    SWL_TRY(start_gather(boot, own, own + boot->piece_bytes, bytes));
    if (boot->hosts)
        swl_host_news_step(boot->hosts);
    return end_gather(boot, own + boot->piece_bytes, bytes);
}

static ncclResult_t gather_parts(struct swl_bootstrap *boot, const void *mine, void *all,
                                 size_t bytes_each)
{
    for (size_t at = 0; at < bytes_each; at += boot->piece_bytes) {
        size_t bytes = (size_t)swl_min_u64(boot->piece_bytes, bytes_each - at);

        SWL_TRY(gather_piece(boot, (const char *)mine + at, bytes));
        for (uint32_t r = 0; all && r < boot->nranks; r++)
            memcpy((char *)all + r * bytes_each + at, boot->host + boot->piece_bytes + r * bytes,
                   bytes);
    }
    return ncclSuccess;
}

/* Who fails here comes to no later exchange, which would not be that of the others: it tells
 * them. */
ncclResult_t swl_bootstrap_allgather(void *context, const void *mine, void *all, size_t bytes_each)
{
    struct swl_bootstrap *boot = context;
    ncclResult_t rc;

    if (boot->diverged)
        return swl_fail(ncclSystemError, "an earlier exchange among the ranks failed");
    if (boot->nranks == 1) {
        if (all)
            memcpy(all, mine, bytes_each);
        return ncclSuccess;
    }
    rc = gather_parts(boot, mine, all, bytes_each);
    boot->diverged = rc != ncclSuccess;
    if (boot->diverged && boot->hosts)
        swl_host_news_fail(boot->hosts, rc, phase_of(boot));
    return rc;
}

/* Needs no memory, so that no rank stays away for want of it: the codes are read where they
 * arrive. */
ncclResult_t swl_bootstrap_agree(struct swl_bootstrap *boot, ncclResult_t mine, const char *doing)
{
    const uint32_t code = (uint32_t)mine;
    uint32_t seen = ncclSuccess, first = 0;
    ncclResult_t rc;

    if (boot->nranks == 1)
        return mine;
    boot->phase = doing;
    rc = swl_bootstrap_allgather(boot, &code, NULL, sizeof(code));
    if (mine != ncclSuccess || rc != ncclSuccess)
        return swl_first_failure(mine, rc);
    for (; first < boot->nranks && seen == ncclSuccess; first++)
        memcpy(&seen, boot->host + boot->piece_bytes + first * sizeof(code), sizeof(code));
    if (seen == ncclSuccess)
        return ncclSuccess;
    swl_call_quiet(!swl_bootstrap_speaks(boot, first - 1));
    rc = swl_fail(swl_peer_result(seen), "rank %" PRIu32 " failed while %s (%s)", first - 1, doing,
                  swl_result_text(swl_peer_result(seen)));
    swl_call_quiet(false);
    return rc;
}
