/* bootstrap.c: all-gather among the ranks of a communicator. Layer: src/; memory: bootstrap.h. */
#include "src/bootstrap.h"

#include "src/base/error.h"
#include "src/base/util.h"
#include "src/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define POLL_NS UINT64_C(50000)

static size_t staging_bytes(const struct swl_bootstrap *boot)
{
    return ((size_t)boot->nranks + 1) * boot->piece_bytes;
}

ncclResult_t swl_bootstrap_open(struct swl_bootstrap *boot)
{
    void *host = NULL, *device = NULL;

    boot->piece_bytes =
        (size_t)swl_max_u64(256, swl_min_u64(16384, (UINT64_C(1) << 20) / boot->nranks));
    boot->piece_bytes = boot->piece_bytes / 256 * 256;
    SWL_TRY(SWL_CUDA(swl_gpu_stream_create(&boot->stream)));
    SWL_TRY(SWL_CUDA(swl_gpu_host_malloc(&host, staging_bytes(boot))));
    boot->host = host;
    SWL_TRY(swl_device_malloc(boot->memory, &device, staging_bytes(boot)));
    boot->device = device;
    return ncclSuccess;
}

ncclResult_t swl_bootstrap_close(struct swl_bootstrap *boot)
{
    ncclResult_t rc = ncclSuccess, next;

    rc = swl_device_free(boot->memory, boot->device, staging_bytes(boot));
    boot->device = NULL;
    next = boot->host ? SWL_CUDA(swl_gpu_host_free(boot->host)) : ncclSuccess;
    boot->host = NULL;
    rc = rc != ncclSuccess ? rc : next;
    next = boot->stream ? SWL_CUDA(swl_gpu_stream_destroy(boot->stream)) : ncclSuccess;
    boot->stream = NULL;
    return rc != ncclSuccess ? rc : next;
}

static const char *phase_of(const struct swl_bootstrap *boot)
{
    return boot->phase ? boot->phase : "set-up";
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
        if (ncclCommGetAsyncError(boot->comm, &rc) != ncclSuccess)
            rc = ncclInternalError;
    }
    if (rc == ncclSuccess)
        return ncclSuccess;
    last = ncclGetLastError(boot->comm);
    return swl_fail(swl_nccl_code(rc), "%s (%s): %s%s%s", call, phase_of(boot),
                    ncclGetErrorString(rc), last && *last ? ": " : "", last ? last : "");
}

/* The exchange has not ended in time. */
static ncclResult_t not_finished(struct swl_bootstrap *boot)
{
    const uint32_t missing = boot->peers ? swl_peers_missing(boot->peers) : UINT32_MAX;
    char time[32], who[32] = "a rank";

    boot->stuck = true;
    if (boot->peers && boot->peers->ngone > 0)
        return swl_fail(ncclSystemError,
                        "an exchange among %" PRIu32 " ranks (%s) cannot end: rank %" PRIu32
                        " is gone, its process has ended",
                        boot->nranks, phase_of(boot), boot->peers->first_gone);
    if (missing != UINT32_MAX)
        snprintf(who, sizeof(who), "rank %" PRIu32, missing);
    swl_time_text(boot->timeout_ns, time, sizeof(time));
    return swl_fail(ncclSystemError,
                    "an exchange among %" PRIu32
                    " ranks (%s) has not finished after %s; %s did not take part",
                    boot->nranks, phase_of(boot), time, who);
}

/* cudaErrorNotReady: the limit has passed, or a rank is gone and it will never be. */
static cudaError_t wait_stream(struct swl_bootstrap *boot)
{
    const uint64_t slice = boot->timeout_ns / 64 + 1, end = swl_gpu_now_ns() + boot->timeout_ns;
    cudaError_t error;

    do {
        error = swl_gpu_stream_wait(boot->stream, slice);
        if (boot->peers)
            swl_peers_look(boot->peers);
    } while (error == cudaErrorNotReady && swl_gpu_now_ns() < end &&
             !(boot->peers && boot->peers->ngone > 0));
    return error;
}

/* One piece of every rank's bytes. */
static ncclResult_t gather_piece(struct swl_bootstrap *boot, const char *mine, size_t bytes)
{
    char *own = boot->device ? boot->device : boot->host, *all = own + boot->piece_bytes;
    ncclResult_t rc;
    cudaError_t error;

    memcpy(boot->host, mine, bytes);
    if (boot->device)
        SWL_TRY(SWL_CUDA(swl_gpu_copy(own, boot->host, bytes, boot->stream)));
    rc = ncclAllGather(own, all, bytes, ncclUint8, boot->comm, boot->stream);
    SWL_TRY(nccl_done(boot, rc, "ncclAllGather"));
    if (boot->peers)
        swl_peers_stage(boot->peers);
    if (boot->device)
        SWL_TRY(SWL_CUDA(
            swl_gpu_copy(boot->host + boot->piece_bytes, all, bytes * boot->nranks, boot->stream)));
    error = wait_stream(boot);
    if (error == cudaErrorNotReady)
        return not_finished(boot);
    SWL_TRY(SWL_CUDA(error));
    /* one that failed, as a peer has left, ends as well, and with bytes of nobody */
    if (ncclCommGetAsyncError(boot->comm, &rc) != ncclSuccess)
        rc = ncclInternalError;
    return nccl_done(boot, rc, "ncclAllGather");
}

ncclResult_t swl_bootstrap_allgather(void *context, const void *mine, void *all, size_t bytes_each)
{
    struct swl_bootstrap *boot = context;

    if (boot->stuck)
        return swl_fail(ncclSystemError, "an earlier exchange among the ranks never finished");
    if (boot->nranks == 1) {
        if (all)
            memcpy(all, mine, bytes_each);
        return ncclSuccess;
    }
    for (size_t at = 0; at < bytes_each; at += boot->piece_bytes) {
        size_t bytes = (size_t)swl_min_u64(boot->piece_bytes, bytes_each - at);

        SWL_TRY(gather_piece(boot, (const char *)mine + at, bytes));
        for (uint32_t r = 0; all && r < boot->nranks; r++)
            memcpy((char *)all + r * bytes_each + at, boot->host + boot->piece_bytes + r * bytes,
                   bytes);
    }
    return ncclSuccess;
}

/* Needs no memory, so that no rank stays away for want of it: the codes are read where they arrive. */
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
        return mine != ncclSuccess ? mine : rc;
    for (; first < boot->nranks && seen == ncclSuccess; first++)
        memcpy(&seen, boot->host + boot->piece_bytes + first * sizeof(code), sizeof(code));
    if (seen == ncclSuccess)
        return ncclSuccess;
    return swl_fail(swl_peer_result(seen), "rank %" PRIu32 " failed while %s (%s)", first - 1,
                    doing, ncclGetErrorString(swl_peer_result(seen)));
}
