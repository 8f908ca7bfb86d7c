/* memory.c: swimlaneMemAlloc and swimlaneMemFree: memory that all ranks of a node map.
 *
 * Layer: src/group, implements internal.h; memory: group.h. All ranks allocate and free in the same
 * order, so that an allocation has the same index and offset everywhere. */
#include "src/group/group.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/runtime/result.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What each rank tells about its part of an allocation. */
struct part {
    uint64_t code; /* ncclResult_t so far */
    uint64_t bytes, offset;
    struct swl_gpu_share share;
};

static void list_regions(struct ncclEpGroup *group)
{
    group->info.nregions = 0;
    for (uint32_t i = 1; i < SWL_MEMORIES; i++) {
        if (group->shared[i].map.base)
            group->regions[group->info.nregions++] = (struct swl_region){
                .base = group->shared[i].map.base,
                .bytes = group->shared[i].map.bytes,
                .offset = group->shared[i].offset,
            };
    }
}

/* Row `index` of the table of shared memories on the device; zero if it is not mapped. */
static ncclResult_t publish(struct ncclEpGroup *group, uint32_t index)
{
    const struct swl_window_map *map = &group->shared[index].map;
    const size_t bytes = group->plan.shape.nlocal * sizeof(char *);
    const cudaStream_t stream = group->boot.stream;
    void *host = NULL;
    ncclResult_t rc;

    SWL_TRY(SWL_CUDA(swl_gpu_host_malloc(&host, bytes)));
    if (map->peer)
        memcpy(host, map->peer, bytes);
    rc = SWL_CUDA(swl_gpu_copy(group->tables.shared + (size_t)index * group->plan.shape.nlocal,
                               host, bytes, stream));
    if (rc == ncclSuccess)
        rc = SWL_CUDA(swl_gpu_stream_wait(stream, group->setup_ns));
    return swl_first_failure(rc, SWL_CUDA(swl_gpu_host_free(host)));
}

static ncclResult_t compare_parts(const struct part *parts, uint32_t nranks, ncclResult_t mine)
{
    if (mine != ncclSuccess)
        return mine;
    for (uint32_t r = 0; r < nranks; r++) {
        const ncclResult_t theirs = swl_peer_result(parts[r].code);

        if (theirs != ncclSuccess)
            return swl_fail(theirs, "rank %" PRIu32 " failed (%s); its log has the reason", r,
                            swl_result_text(theirs));
    }
    for (uint32_t r = 1; r < nranks; r++) {
        if (parts[r].bytes != parts[0].bytes || parts[r].offset != parts[0].offset)
            return swl_fail(ncclInvalidArgument,
                            "rank 0 has %" PRIu64 " bytes at offset %" PRIu64 ", rank %" PRIu32
                            " has %" PRIu64 " at %" PRIu64 "; all ranks need the same calls",
                            parts[0].bytes, parts[0].offset, r, parts[r].bytes, parts[r].offset);
    }
    return ncclSuccess;
}

/* Own part, everybody's part, peers of the node, table of the kernels. */
static ncclResult_t share(struct ncclEpGroup *group, uint32_t index, uint64_t bytes,
                          ncclResult_t rc)
{
    struct swl_shared *shared = &group->shared[index];
    const uint32_t nranks = group->info.nranks;
    struct part mine, *parts = calloc(nranks, sizeof(*parts));
    struct swl_gpu_share *shares = calloc(nranks, sizeof(*shares));

    memset(&mine, 0, sizeof(mine));
    if (rc == ncclSuccess && !(parts && shares))
        rc = swl_no_memory("the shares of %" PRIu32 " ranks", nranks);
    if (rc == ncclSuccess)
        rc = swl_window_open(&shared->map, bytes);
    mine.code = (uint64_t)rc;
    mine.bytes = bytes;
    mine.offset = group->next_offset;
    mine.share = shared->map.share;
    if (parts && shares) {
        group->boot.phase = "sharing library memory";
        rc = swl_first_failure(rc,
                               swl_bootstrap_allgather(&group->boot, &mine, parts, sizeof(mine)));
        if (rc == ncclSuccess)
            rc = compare_parts(parts, nranks, rc);
        for (uint32_t r = 0; r < nranks; r++)
            shares[r] = parts[r].share;
    } else { /* the others wait for this rank */
        (void)swl_bootstrap_allgather(&group->boot, &mine, NULL, sizeof(mine));
    }
    if (rc == ncclSuccess) {
        rc = swl_window_peers(&shared->map, &group->topology, group->info.rank, shares);
        if (rc == ncclSuccess)
            rc = publish(group, index);
        rc = swl_bootstrap_agree(&group->boot, rc, "mapping its peers");
    }
    free(parts);
    free(shares);
    return rc;
}

/* Local. The table must not name the memory any more. */
static ncclResult_t discard_shared(struct swl_shared *shared)
{
    ncclResult_t rc = swl_window_unmap(&shared->map);

    return swl_first_failure(rc, swl_window_free(&shared->map));
}

ncclResult_t swl_mem_alloc(struct ncclEpGroup *group, uint64_t bytes, ncclResult_t refused,
                           void **ptr_p)
{
    uint32_t index = 1;
    ncclResult_t rc = refused;

    while (index < SWL_MEMORIES && group->shared[index].map.base)
        index++;
    if (rc == ncclSuccess && index == SWL_MEMORIES)
        rc = swl_fail(ncclInvalidUsage, "the group already holds %u allocations", SWL_MEMORIES - 1);
    if (index == SWL_MEMORIES)
        index = 0; /* stays empty: the rank only joins the exchange */
    rc = share(group, index, bytes, rc);
    if (rc != ncclSuccess && group->boot.stuck) /* giving it back would wait for the exchange */
        return rc;
    if (rc != ncclSuccess) {
        (void)swl_window_unmap(&group->shared[index].map);
        (void)publish(group, index);
        (void)discard_shared(&group->shared[index]);
        return rc;
    }
    group->shared[index].offset = group->next_offset;
    group->next_offset += swl_round_up_u64(bytes, SWL_SHARED_GRANULE);
    list_regions(group);
    *ptr_p = group->shared[index].map.base;
    return ncclSuccess;
}

ncclResult_t swl_mem_free(struct ncclEpGroup *group, void *ptr, ncclResult_t refused)
{
    uint32_t index = 1;
    ncclResult_t rc, next;

    if (!ptr)
        return ncclSuccess;
    while (index < SWL_MEMORIES && group->shared[index].map.base != ptr)
        index++;
    if (index == SWL_MEMORIES)
        return swl_fail(ncclInvalidArgument, "%p is not the start of an allocation of this group",
                        ptr);
    rc = refused;
    if (rc == ncclSuccess)
        rc = swl_group_drain(group);
    rc = swl_bootstrap_agree(&group->boot, rc, "ending its work");
    if (rc != ncclSuccess)
        return rc;
    rc = swl_window_unmap(&group->shared[index].map);
    rc = swl_first_failure(rc, publish(group, index));
    rc = swl_bootstrap_agree(&group->boot, rc, "unmapping its peers");
    if (group->boot.stuck)
        return rc;
    next = swl_window_free(&group->shared[index].map);
    list_regions(group);
    return swl_first_failure(rc, next);
}

ncclResult_t swl_memory_release(struct ncclEpGroup *group)
{
    ncclResult_t rc = ncclSuccess;

    for (uint32_t i = 0; i < SWL_MEMORIES; i++)
        rc = swl_first_failure(rc, discard_shared(&group->shared[i]));
    group->info.nregions = 0;
    return rc;
}

struct swl_open_record swl_memory_entry(const struct ncclEpHandle *handle,
                                        const struct swl_view *view, uint32_t op)
{
    const struct ncclEpGroup *group = handle->info.group;
    struct swl_open_record entry = {
        .op = op,
        .rows = (uint32_t)swl_min_u64(view->rows, UINT32_MAX),
        .row_bytes = (uint32_t)view->row_bytes,
        .dtype = (uint16_t)view->dtype,
        .topk = (uint16_t)handle->info.topk,
    };

    for (uint32_t i = 1; view->shared && i < SWL_MEMORIES; i++) {
        const struct swl_shared *s = &group->shared[i];

        if (s->map.base && view->offset >= s->offset && view->offset - s->offset < s->map.bytes) {
            entry.direct = 1;
            entry.memory = i;
            entry.offset = view->offset - s->offset;
        }
    }
    return entry;
}
