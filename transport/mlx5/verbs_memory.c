/* verbs_memory.c: memory of the rings that the library makes, and their doorbells; see verbs.h.
 *
 * Layer: transport/mlx5, behind nic.h. */
#include "transport/mlx5/verbs.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

void *swl_mlx5_verbs_take(struct mlx5_nic *nic, size_t bytes)
{
    const uintptr_t page = page_bytes();
    struct mlx5_verbs_block *b = nic->blocks;

    while (b && (b->used || b->bytes != bytes))
        b = b->next;
    if (b) {
        b->used = true;
        memset(b->start, 0, bytes);
        return b->start;
    }
    b = calloc(1, sizeof(*b));
    if (b == NULL || swl_gpu_host_malloc(&b->memory, bytes + page) != cudaSuccess) {
        free(b);
        errno = ENOMEM;
        return NULL;
    }
    /* the library finds a record's block by the page it lies in */
    b->start = (void *)(((uintptr_t)b->memory + page - 1) / page * page);
    b->bytes = bytes;
    b->used = true;
    b->next = nic->blocks;
    nic->blocks = b;
    return b->start;
}

bool swl_mlx5_verbs_owns(const struct mlx5_nic *nic, const void *ptr, size_t bytes)
{
    const uintptr_t at = (uintptr_t)ptr;

    for (const struct mlx5_verbs_block *b = nic->blocks; b; b = b->next)
        if (at >= (uintptr_t)b->start && at + bytes <= (uintptr_t)b->start + b->bytes)
            return true;
    return false;
}

static void *lend(size_t bytes, void *data)
{
    return swl_mlx5_verbs_take(data, bytes);
}

static void take_back(void *ptr, void *data)
{
    const struct mlx5_nic *nic = data;

    for (struct mlx5_verbs_block *b = nic->blocks; b; b = b->next)
        if (b->start == ptr)
            b->used = false;
}

ncclResult_t swl_mlx5_verbs_lend(struct mlx5_nic *nic)
{
    struct mlx5_device *d = &nic->device;
    struct mlx5_allocators allocators = {lend, take_back, nic};
    const int error =
        d->verbs.mlx5dv_set_context_attr(d->context, MLX5_ATTR_ALLOCATORS, &allocators);

    return error == 0 ? ncclSuccess
                      : swl_fail(ncclSystemError,
                                 "rank %u nic: %s does not take memory for its queues: %s", d->rank,
                                 d->port.name, swl_mlx5_error_text(error));
}

static ncclResult_t map_page(struct mlx5_nic *nic, uint8_t *registers, uint8_t **mapped_p)
{
    struct mlx5_verbs_page *p = calloc(1, sizeof(*p));
    void *mapped = NULL;
    ncclResult_t rc;

    if (p == NULL)
        return swl_no_memory("a page of doorbells");
    rc = swl_mlx5_map_registers(&nic->device, registers, page_bytes(), &mapped);
    if (rc != ncclSuccess) {
        free(p);
        return rc;
    }
    p->registers = registers;
    p->mapped = mapped;
    p->next = nic->pages;
    nic->pages = p;
    *mapped_p = mapped;
    return ncclSuccess;
}

ncclResult_t swl_mlx5_verbs_doorbell(struct mlx5_nic *nic, void *reg, uint64_t **doorbell_p)
{
    const uintptr_t within = (uintptr_t)reg % page_bytes();
    uint8_t *registers = (uint8_t *)reg - within;
    uint8_t *mapped = NULL;

    for (const struct mlx5_verbs_page *p = nic->pages; p; p = p->next)
        if (p->registers == registers)
            mapped = p->mapped;
    if (mapped == NULL)
        SWL_TRY(map_page(nic, registers, &mapped));
    *doorbell_p = (uint64_t *)(void *)(mapped + within);
    return ncclSuccess;
}

ncclResult_t swl_mlx5_verbs_unmap_all(struct mlx5_nic *nic)
{
    ncclResult_t rc = ncclSuccess;

    while (nic->pages) {
        struct mlx5_verbs_page *p = nic->pages;
        const ncclResult_t next = SWL_CUDA(swl_gpu_registers_unmap(p->registers));

        rc = rc != ncclSuccess ? rc : next;
        nic->pages = p->next;
        free(p);
    }
    return rc;
}

ncclResult_t swl_mlx5_verbs_free_all(struct mlx5_nic *nic)
{
    ncclResult_t rc = ncclSuccess;

    while (nic->blocks) {
        struct mlx5_verbs_block *b = nic->blocks;
        const ncclResult_t next = SWL_CUDA(swl_gpu_host_free(b->memory));

        rc = rc != ncclSuccess ? rc : next;
        nic->blocks = b->next;
        free(b);
    }
    return rc;
}
