/* devx_memory.c: memory of the mlx5 NIC: rings, and regions that the user registers.
 *
 * Layer: transport/mlx5, behind nic.h. One piece of memory holds what all queue pairs need; it is the
 * GPU's where the NIC gets at that, else the host's. Regions stay where they are. */
#include "transport/mlx5/devx.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/gpu.h"
#include "transport/wqe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_PAGE    4096u  /* the device addresses rings by pages of this size */
#define GPU_PAGE     65536u /* of the GPU's memory; dmabufs and umems are made of whole ones */
#define RECORD_BYTES 64u    /* one cache line for each doorbell record */

static uint64_t up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

/* What failed, way by way, for one sentence. */
struct reasons {
    char text[320];
};

static void add_reason(struct reasons *r, enum mlx5_way way, const char *why)
{
    const size_t at = strlen(r->text);

    snprintf(r->text + at, sizeof(r->text) - at, "%s%s: %s", at ? "; " : "", mlx5_way_text(way),
             why);
}

static const char *errno_text(void)
{
    return errno ? strerror(errno) : "no reason given";
}

/* ---- rings ---- */

struct devx_layout swl_devx_layout(const struct devx_nic *nic, uint32_t i)
{
    const uint64_t ring = up((uint64_t)SWL_WQE_BYTES << nic->depth_log2, RING_PAGE);
    const uint64_t records = 2 * ring * nic->max_qps;
    struct devx_layout at;

    /* completions overwrite the first entry, but the device checks that there is room for all */
    at.cq = 2 * ring * i;
    at.sq = at.cq + ring;
    at.cq_record = records + 2ull * RECORD_BYTES * i;
    at.sq_record = at.cq_record + RECORD_BYTES;
    return at;
}

static ncclResult_t copy(struct devx_nic *nic, void *to, const void *from, size_t bytes)
{
    if (nic->rings.way == MLX5_WAY_HOST) {
        memcpy(to, from, bytes);
        return ncclSuccess;
    }
    SWL_TRY(SWL_CUDA(swl_gpu_copy(to, from, bytes, nic->stream)));
    return SWL_CUDA(swl_gpu_stream_wait(nic->stream, nic->timeout_ns));
}

ncclResult_t swl_devx_put(struct devx_nic *nic, uint64_t at, const void *from, size_t bytes)
{
    return copy(nic, nic->rings.base + at, from, bytes);
}

ncclResult_t swl_devx_get(struct devx_nic *nic, uint64_t at, void *to, size_t bytes)
{
    return copy(nic, to, nic->rings.base + at, bytes);
}

/* Memory for the way that is tried next. */
static ncclResult_t take_memory(struct devx_nic *nic, enum mlx5_way way)
{
    struct devx_rings *r = &nic->rings;
    cudaStream_t stream = NULL;

    if (r->memory && (r->way == MLX5_WAY_HOST) == (way == MLX5_WAY_HOST)) {
        r->way = way;
        return ncclSuccess;
    }
    SWL_TRY(swl_devx_close_rings(nic));
    r->way = way;
    r->allocated_bytes = r->bytes + GPU_PAGE;
    if (way == MLX5_WAY_HOST) {
        SWL_TRY(SWL_CUDA(swl_gpu_host_malloc(&r->memory, r->allocated_bytes)));
    } else {
        SWL_TRY(SWL_CUDA(swl_gpu_malloc(&r->memory, r->allocated_bytes)));
        SWL_TRY(SWL_CUDA(swl_gpu_stream_create(&stream)));
        nic->stream = stream;
    }
    r->base = (uint8_t *)(uintptr_t)up((uintptr_t)r->memory, GPU_PAGE);
    return ncclSuccess;
}

/* false: not this way; the reason is noted. */
static bool register_rings(struct devx_nic *nic, struct reasons *why)
{
    struct devx_rings *r = &nic->rings;
    struct mlx5_umem_in in = {
        .size = r->bytes,
        .access = VERBS_ACCESS_LOCAL_WRITE,
        .pgsz_bitmap = ~(uint64_t)(RING_PAGE - 1),
        .comp_mask = MLX5_UMEM_DMABUF,
        .dmabuf_fd = -1,
    };
    cudaError_t error;

    errno = 0;
    if (r->way == MLX5_WAY_DMABUF) {
        error = swl_gpu_dmabuf(r->base, r->bytes, &in.dmabuf_fd);
        if (error != cudaSuccess) {
            add_reason(why, r->way, swl_gpu_error_text(error));
            return false;
        }
        r->umem = nic->verbs.mlx5dv_devx_umem_reg_ex(nic->context, &in);
        if (r->umem == NULL)
            add_reason(why, r->way, errno_text());
        (void)close(in.dmabuf_fd); /* the registration keeps the memory */
        return r->umem != NULL;
    }
    r->umem =
        nic->verbs.mlx5dv_devx_umem_reg(nic->context, r->base, r->bytes, VERBS_ACCESS_LOCAL_WRITE);
    if (r->umem == NULL)
        add_reason(why, r->way, errno_text());
    return r->umem != NULL;
}

ncclResult_t swl_devx_open_rings(struct devx_nic *nic)
{
    struct mlx5_reach reach = {true, true, nic->verbs.mlx5dv_devx_umem_reg_ex != NULL, 0};
    const struct devx_layout end = swl_devx_layout(nic, nic->max_qps);
    struct devx_rings *r = &nic->rings;
    struct reasons why = {""};
    enum mlx5_way way;

    /* the records end where those of one more queue pair would begin, had it no rings */
    r->sink = up(end.cq + 2ull * RECORD_BYTES * nic->max_qps, RING_PAGE);
    r->bytes = up(r->sink + 8ull * nic->max_qps, GPU_PAGE);
    while ((way = mlx5_next_way(&reach)) != MLX5_WAY_NONE) {
        SWL_TRY(take_memory(nic, way));
        if (register_rings(nic, &why))
            break;
        reach.failed |= 1u << way;
    }
    if (way == MLX5_WAY_NONE)
        return swl_fail(ncclSystemError, "rank %u nic: %s cannot reach its queues: %s", nic->rank,
                        nic->port.name, why.text);
    if (why.text[0])
        swl_log(SWL_LEVEL_INFO, "rank %u nic: %s has its queues by %s (%s)", nic->rank,
                nic->port.name, mlx5_way_text(way), why.text);
    return ncclSuccess;
}

ncclResult_t swl_devx_close_rings(struct devx_nic *nic)
{
    struct devx_rings *r = &nic->rings;
    ncclResult_t rc = ncclSuccess, next = ncclSuccess;
    int error = 0;

    if (r->umem)
        error = nic->verbs.mlx5dv_devx_umem_dereg(r->umem);
    if (error)
        rc = swl_fail(ncclSystemError, "rank %u nic: %s keeps its queues: %s", nic->rank,
                      nic->port.name, strerror(error));
    if (nic->stream)
        next = SWL_CUDA(swl_gpu_stream_destroy(nic->stream));
    rc = rc != ncclSuccess ? rc : next;
    if (r->memory && r->way == MLX5_WAY_HOST)
        next = SWL_CUDA(swl_gpu_host_free(r->memory));
    else if (r->memory)
        next = SWL_CUDA(swl_gpu_free(r->memory));
    nic->stream = NULL;
    r->umem = NULL;
    r->memory = NULL;
    return rc != ncclSuccess ? rc : next;
}

/* ---- regions ---- */

static int verbs_access(unsigned access)
{
    static const struct {
        unsigned ours;
        int theirs;
    } table[] = {
        {SWL_NIC_LOCAL_WRITE, VERBS_ACCESS_LOCAL_WRITE},
        {SWL_NIC_REMOTE_WRITE, VERBS_ACCESS_REMOTE_WRITE},
        {SWL_NIC_REMOTE_READ, VERBS_ACCESS_REMOTE_READ},
        {SWL_NIC_REMOTE_ADD, VERBS_ACCESS_REMOTE_ATOMIC},
        {SWL_NIC_RELAXED, VERBS_ACCESS_RELAXED},
    };
    int flags = 0;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (access & table[i].ours)
            flags |= table[i].theirs;
    return flags;
}

/* By the address, of whatever memory the kernel can pin. */
static struct verbs_mr *register_address(struct devx_nic *nic, void *ptr, uint64_t bytes, int flags)
{
    if (nic->verbs.ibv_reg_mr_iova2)
        return nic->verbs.ibv_reg_mr_iova2(nic->pd, ptr, bytes, (uintptr_t)ptr, (unsigned)flags);
    /* an older library does not know the order of writes, which is a permission only */
    return nic->verbs.ibv_reg_mr(nic->pd, ptr, bytes, flags & ~VERBS_ACCESS_RELAXED);
}

/* A dmabuf has whole pages; offset and address of the region agree within them. */
static struct verbs_mr *register_dmabuf(struct devx_nic *nic, void *ptr, uint64_t bytes, int flags,
                                        struct reasons *why)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t at = (uintptr_t)ptr, start = at / page * page;
    struct verbs_mr *mr;
    int fd = -1;
    cudaError_t error =
        swl_gpu_dmabuf((const void *)(uintptr_t)start, up(at + bytes, page) - start, &fd);

    if (error != cudaSuccess) {
        add_reason(why, MLX5_WAY_DMABUF, swl_gpu_error_text(error));
        return NULL;
    }
    mr = nic->verbs.ibv_reg_dmabuf_mr(nic->pd, at - start, bytes, at, fd, flags);
    if (mr == NULL)
        add_reason(why, MLX5_WAY_DMABUF, errno_text());
    (void)close(fd); /* the registration keeps the memory */
    return mr;
}

static struct verbs_mr *register_any(struct devx_nic *nic, void *ptr, uint64_t bytes, int flags,
                                     struct reasons *why)
{
    struct mlx5_reach reach = {.dmabuf_call = nic->verbs.ibv_reg_dmabuf_mr != NULL};
    enum swl_gpu_place place = SWL_GPU_PLACE_UNKNOWN;
    struct verbs_mr *mr = NULL;
    enum mlx5_way way;
    size_t around;
    void *base;

    if (swl_gpu_where(ptr, &place, &base, &around) != cudaSuccess)
        place = SWL_GPU_PLACE_UNKNOWN;
    reach.device_memory = place == SWL_GPU_PLACE_DEVICE;
    reach.host_memory = !reach.device_memory;
    while (mr == NULL && (way = mlx5_next_way(&reach)) != MLX5_WAY_NONE) {
        errno = 0;
        if (way == MLX5_WAY_DMABUF) {
            mr = register_dmabuf(nic, ptr, bytes, flags, why);
        } else {
            mr = register_address(nic, ptr, bytes, flags);
            if (mr == NULL)
                add_reason(why, way, errno_text());
        }
        reach.failed |= 1u << way;
    }
    return mr;
}

ncclResult_t swl_devx_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                             struct swl_nic_region *region_p)
{
    struct devx_nic *nic = devx_of(base);
    struct reasons why = {""};
    struct devx_region *r;

    if (ptr == NULL || bytes == 0)
        return swl_fail(ncclInvalidArgument, "rank %u nic: cannot register %llu bytes at %p",
                        nic->rank, (unsigned long long)bytes, ptr);
    if ((access & SWL_NIC_RELAXED) && (access & SWL_NIC_REMOTE_ADD))
        return swl_fail(ncclInvalidArgument, "rank %u nic: a relaxed region cannot take adds",
                        nic->rank);
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: no memory for a region", nic->rank);
    r->mr = register_any(nic, ptr, bytes, verbs_access(access), &why);
    if (r->mr == NULL) {
        free(r);
        return swl_fail(ncclSystemError, "rank %u nic: %s cannot register %llu bytes at %p: %s",
                        nic->rank, nic->port.name, (unsigned long long)bytes, ptr, why.text);
    }
    r->next = nic->regions;
    nic->regions = r;
    region_p->lkey = r->mr->lkey;
    region_p->rkey = r->mr->rkey;
    region_p->address = (uintptr_t)ptr;
    return ncclSuccess;
}

static ncclResult_t drop(struct devx_nic *nic, struct devx_region **at)
{
    struct devx_region *r = *at;
    const uint32_t key = r->mr->lkey;
    const int error = nic->verbs.ibv_dereg_mr(r->mr);

    *at = r->next;
    free(r);
    return error == 0 ? ncclSuccess
                      : swl_fail(ncclSystemError,
                                 "rank %u nic: %s keeps the region with key "
                                 "0x%08x: %s",
                                 nic->rank, nic->port.name, key, strerror(error));
}

ncclResult_t swl_devx_dereg_mr(struct swl_nic *base, const struct swl_nic_region *region)
{
    struct devx_nic *nic = devx_of(base);

    for (struct devx_region **at = &nic->regions; *at; at = &(*at)->next)
        if ((*at)->mr->lkey == region->lkey && (*at)->mr->rkey == region->rkey)
            return drop(nic, at);
    return swl_fail(ncclInvalidArgument, "rank %u nic: key 0x%08x is not registered", nic->rank,
                    region->lkey);
}

ncclResult_t swl_devx_drop_regions(struct devx_nic *nic)
{
    ncclResult_t rc = ncclSuccess;

    while (nic->regions) {
        const ncclResult_t next = drop(nic, &nic->regions);

        rc = rc != ncclSuccess ? rc : next;
    }
    return rc;
}
