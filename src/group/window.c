/* window.c: memory shared inside a node. Layer: src/group; memory: window.h. */
#include "src/group/window.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ncclResult_t refused(cudaError_t error, uint64_t bytes)
{
    char text[80];

    snprintf(text, sizeof(text), "the device cannot allocate %" PRIu64 " bytes of shared memory",
             bytes);
    return swl_cuda_result(error, text);
}

ncclResult_t swl_window_open(struct swl_window_map *map, uint64_t bytes)
{
    void *base = NULL;
    cudaError_t error = swl_gpu_shared_malloc(&base, bytes, &map->share);

    if (error != cudaSuccess)
        return refused(error, bytes);
    map->base = base;
    map->bytes = bytes;
    return ncclSuccess;
}

/* What to do about it. */
static const char *hint(cudaError_t error)
{
    switch (error) {
    case cudaErrorPeerAccessUnsupported:
        return "the two GPUs have no path to each other; SWIMLANE_NODE can make them different "
               "nodes";
    case cudaErrorOperatingSystem:
        return "its process gave no file descriptor (another machine, container or user?), and the "
               "memory has no fabric handle";
    case cudaErrorNotPermitted:
        return "fabric handles need an IMEX channel on both sides";
    default:
        return "ranks of a node need peer access; emulated ones on fibers are of one process";
    }
}

ncclResult_t swl_window_peers(struct swl_window_map *map, const struct swl_topology *topology,
                              uint32_t rank, const struct swl_gpu_share *shares)
{
    const uint32_t node = topology->rank_node[rank];

    map->nlocal = swl_topology_nlocal(topology, node);
    map->local = topology->rank_local[rank];
    map->peer = swl_calloc(map->nlocal, sizeof(*map->peer), "%" PRIu32 " peers", map->nlocal);
    if (!map->peer)
        return ncclSystemError;
    for (uint32_t i = 0; i < map->nlocal; i++) {
        const uint32_t r = swl_topology_rank(topology, node, i);
        void *at = map->base;
        cudaError_t error = cudaSuccess;

        if (r != rank)
            error = swl_gpu_shared_map(&shares[r], &at);
        if (error != cudaSuccess)
            return swl_fail(ncclInvalidUsage,
                            "rank %" PRIu32 " cannot map the memory of rank %" PRIu32
                            " of its node: %s; %s",
                            rank, r, swl_gpu_error_text(error), hint(error));
        map->peer[i] = at;
    }
    return ncclSuccess;
}

ncclResult_t swl_window_unmap(struct swl_window_map *map)
{
    ncclResult_t rc = ncclSuccess;

    for (uint32_t i = 0; map->peer && i < map->nlocal; i++)
        if (i != map->local && map->peer[i])
            rc = swl_first_failure(rc, SWL_CUDA(swl_gpu_shared_unmap(map->peer[i])));
    free(map->peer);
    map->peer = NULL;
    return rc;
}

ncclResult_t swl_window_free(struct swl_window_map *map)
{
    ncclResult_t rc = map->base ? SWL_CUDA(swl_gpu_shared_free(map->base)) : ncclSuccess;

    map->base = NULL;
    map->bytes = 0;
    return rc;
}

ncclResult_t swl_window_start(const struct swl_window_map *map, const struct swl_shape *shape,
                              cudaStream_t stream, uint64_t timeout_ns)
{
    const struct swl_window at = swl_window_of(shape);
    const uint64_t out = 8ull * swl_remote_nodes(shape) * shape->nrings;
    const uint64_t in = 8ull * shape->max_served * shape->nrings;
    const uint64_t start = shape->start_low;
    const struct {
        uint64_t at, bytes;
    } words[] = {
        {at.ht.send_credit, out}, {at.ht.request_credit, out}, {at.ht.partial_tail, out},
        {at.ht.recv_tail, in},    {at.ht.request_tail, in},    {at.ht.partial_credit, in},
    };
    const uint64_t bytes = out > in ? out : in;
    void *host = NULL;
    ncclResult_t rc = ncclSuccess;

    if (start == 0 || bytes == 0)
        return ncclSuccess;
    SWL_TRY(SWL_CUDA(swl_gpu_host_malloc(&host, bytes)));
    for (uint64_t i = 0; i < bytes; i += 8)
        memcpy((char *)host + i, &start, sizeof(start));
    for (size_t i = 0; rc == ncclSuccess && i < sizeof(words) / sizeof(words[0]); i++) {
        if (words[i].bytes != 0)
            rc = SWL_CUDA(swl_gpu_copy(map->base + words[i].at, host, words[i].bytes, stream));
    }
    if (rc == ncclSuccess)
        rc = SWL_CUDA(swl_gpu_stream_wait(stream, timeout_ns));
    return swl_first_failure(rc, SWL_CUDA(swl_gpu_host_free(host)));
}
