/* handle.c: handles, their memory and their routing updates.
 *
 * Layer: src/ops, implements internal.h. Library memory and mailboxes come from pools of the group,
 * which owns them; a handle that outlives its group owns nothing but itself. Memory goes from one
 * handle to the next without a wait: all operations of a group run in call order, so that the next
 * owner's update comes after everything that the last owner enqueued. */
#include "src/group/group.h"

#include "kernels/common/kernels.h"
#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/base/util.h"
#include "src/runtime/result.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- pools ---- */

static ncclResult_t add_mailboxes(struct swl_pool *pool)
{
    struct swl_mailbox_chunk *chunk = swl_calloc(1, sizeof(*chunk), "mailboxes");
    void *words = NULL;
    ncclResult_t rc;

    if (!chunk)
        return ncclSystemError;
    rc = SWL_CUDA(swl_gpu_host_malloc(&words, SWL_MAILBOXES * sizeof(uint64_t)));
    if (rc != ncclSuccess) {
        free(chunk);
        return rc;
    }
    chunk->words = words;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    for (uint32_t i = 0; i < SWL_MAILBOXES; i++) {
        chunk->boxes[i].word = &chunk->words[i];
        chunk->boxes[i].next = pool->free_boxes;
        pool->free_boxes = &chunk->boxes[i];
    }
    return ncclSuccess;
}

ncclResult_t swl_pool_open(struct ncclEpGroup *group)
{
    return add_mailboxes(&group->pool);
}

ncclResult_t swl_pool_release(struct ncclEpGroup *group)
{
    struct swl_pool *pool = &group->pool;
    ncclResult_t rc = ncclSuccess;

    while (pool->blocks) {
        struct swl_pool_block *block = pool->blocks;

        pool->blocks = block->next;
        rc = swl_first_failure(rc, swl_device_free(&group->memory, block->ptr, block->bytes));
        free(block);
    }
    while (pool->chunks) {
        struct swl_mailbox_chunk *chunk = pool->chunks;

        pool->chunks = chunk->next;
        if (!group->memory.abandoned)
            rc = swl_first_failure(rc, SWL_CUDA(swl_gpu_host_free(chunk->words)));
        free(chunk);
    }
    pool->free_boxes = NULL;
    return rc;
}

static ncclResult_t take_block(struct ncclEpGroup *group, uint64_t bytes,
                               struct swl_pool_block **block_p)
{
    struct swl_pool_block *block;
    ncclResult_t rc;

    for (block = group->pool.blocks; block; block = block->next) {
        if (!block->used && block->bytes == bytes) {
            block->used = true;
            *block_p = block;
            return ncclSuccess;
        }
    }
    block = swl_calloc(1, sizeof(*block), "a handle");
    if (!block)
        return ncclSystemError;
    rc = swl_device_malloc(&group->memory, &block->ptr, bytes);
    if (rc != ncclSuccess) {
        free(block);
        return rc;
    }
    block->bytes = bytes;
    block->used = true;
    block->next = group->pool.blocks;
    group->pool.blocks = block;
    *block_p = block;
    return ncclSuccess;
}

static ncclResult_t take_mailbox(struct ncclEpGroup *group, struct swl_mailbox **box_p)
{
    struct swl_pool *pool = &group->pool;
    struct swl_mailbox *box;

    if (!pool->free_boxes)
        SWL_TRY(add_mailboxes(pool));
    box = pool->free_boxes;
    assert(box);
    pool->free_boxes = box->next;
    *box_p = box;
    return ncclSuccess;
}

/* ---- handles ---- */

uint64_t swl_handle_mem_bytes(const struct ncclEpGroup *group, ncclEpLayout_t layout, uint32_t topk,
                              uint32_t alignment)
{
    (void)layout; /* FLAT is the only one */
    (void)alignment;
    return swl_handle_layout_of(&group->plan.shape, topk).bytes;
}

ncclResult_t swl_handle_init(struct ncclEpHandle **handle_p, struct ncclEpGroup *group,
                             const struct swl_handle_config *config)
{
    const uint32_t topk = config->topk ? config->topk : group->info.max_topk;
    const uint32_t most = topk ? topk : (uint32_t)swl_min_u64(group->info.nexperts, SWL_MAX_TOPK);
    struct ncclEpHandle *handle = swl_object_new(SWL_OBJECT_HANDLE, sizeof(*handle), "a handle");
    ncclResult_t rc;

    if (!handle)
        return ncclSystemError;
    rc = take_mailbox(group, &handle->box);
    if (rc != ncclSuccess)
        goto undo_handle;
    assert(handle->box);
    handle->box->seq++; /* the last owner's count is not this one's, also before an eager update */
    handle->memory = config->memory;
    handle->memory_bytes = config->memory_bytes;
    if (!config->memory) {
        uint64_t bytes = swl_handle_mem_bytes(group, config->layout, most, config->alignment);

        rc = take_block(group, bytes, &handle->block);
        if (rc != ncclSuccess)
            goto undo_mailbox;
        assert(handle->block);
        handle->memory = handle->block->ptr;
        handle->memory_bytes = bytes;
    }
    handle->alignment = config->alignment;
    handle->fingerprint = swl_plan_fingerprint(&group->plan, &group->topology, config->layout);
    handle->info.alive = SWL_HANDLE_ALIVE;
    handle->info.group = group;
    handle->info.layout = config->layout;
    handle->info.topk = topk;
    handle->info.ntokens = -1;
    handle->info.own_memory = config->memory == NULL;
    handle->next = group->handles;
    if (handle->next)
        handle->next->previous = handle;
    group->handles = handle;
    *handle_p = handle;
    return ncclSuccess;

undo_mailbox:
    handle->box->next = group->pool.free_boxes;
    group->pool.free_boxes = handle->box;
undo_handle:
    swl_object_end(SWL_OBJECT_HANDLE, handle);
    return rc;
}

ncclResult_t swl_handle_destroy(struct ncclEpHandle *handle)
{
    struct ncclEpGroup *group = handle->info.group;

    if (handle->info.pending)
        return swl_fail(ncclInvalidUsage,
                        "the handle has a send phase that waits for ncclEpComplete");
    if (group) {
        if (handle->next)
            handle->next->previous = handle->previous;
        if (handle->previous)
            handle->previous->next = handle->next;
        else
            group->handles = handle->next;
        if (handle->block)
            handle->block->used = false;
        handle->box->next = group->pool.free_boxes;
        group->pool.free_boxes = handle->box;
    }
    swl_object_end(SWL_OBJECT_HANDLE, handle);
    return ncclSuccess;
}

int64_t swl_handle_recv_rows(const struct ncclEpHandle *handle)
{
    uint64_t word;

    if (!handle->info.updated)
        return -1;
    word = __atomic_load_n(handle->box->word, __ATOMIC_ACQUIRE); /* pairs with the route kernel */
    if ((uint32_t)(word >> 32) != handle->box->seq || (uint32_t)word == SWL_ROWS_UNKNOWN)
        return -1;
    return (int64_t)(uint32_t)word;
}

/* ---- update ---- */

static void *data_of(const struct swl_view *view)
{
    return view->given ? view->data : NULL;
}

ncclResult_t swl_handle_update(struct ncclEpHandle *handle, const struct swl_update_call *call)
{
    struct ncclEpGroup *group = handle->info.group;
    const struct swl_view *sources = &call->src_rank_counters;
    struct swl_route_args args = {
        .group = group->tables.group,
        .handle = handle->memory,
        .fingerprint = handle->fingerprint,
        .ids = call->topk_idx.data,
        .id_bytes = call->topk_idx.elem_bytes,
        .tokens = call->ntokens,
        .topk = call->topk,
        .alignment = handle->alignment,
        .mailbox = (uint64_t *)handle->box->word,
        .int_bytes = call->counter_bytes,
        .nic_blocks = group->plan.nic_blocks,
        .expert_counters = data_of(&call->expert_counters),
        .recv_total = data_of(&call->recv_total),
        .src_counters = sources->rows >= group->info.nranks ? data_of(sources) : NULL,
    };

    bool capturing = false;

    SWL_TRY(swl_async_gate(group));
    SWL_TRY(swl_group_repair(group, call->stream));
    SWL_TRY(SWL_CUDA(swl_gpu_stream_capturing(call->stream, &capturing)));
    args.captured = capturing;
    args.seq = handle->box->seq + (capturing ? 0 : 1);
    SWL_TRY(swl_group_launch(group, &swl_route_desc, &group->plan.route, &args, call->stream));
    handle->box->seq = args.seq;
    handle->info.topk = call->topk;
    handle->info.ntokens = call->ntokens;
    handle->info.id_bytes = call->topk_idx.elem_bytes;
    handle->info.updated = true;
    return ncclSuccess;
}
