/* devx_memory.c: rings of the mlx5 NIC, and their registration.
 *
 * Layer: transport/mlx5, behind nic.h. One piece of memory holds what all queue pairs need; it is
 * the GPU's where the NIC gets at that, else the host's. */
#include "transport/mlx5/devx.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"
#include "transport/wqe.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define RING_PAGE    4096u  /* the device addresses rings by pages of this size */
#define GPU_PAGE     65536u /* of the GPU's memory; dmabufs and umems are made of whole ones */
#define RECORD_BYTES 64u    /* one cache line for each doorbell record */

static uint64_t round_to(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

/* ---- rings ---- */

struct devx_layout swl_devx_layout(const struct mlx5_nic *nic, uint32_t i)
{
    const uint64_t ring = round_to((uint64_t)SWL_WQE_BYTES << nic->depth_log2, RING_PAGE);
    const uint64_t records = 2 * ring * nic->max_qps;
    struct devx_layout at;

    /* completions overwrite the first entry, but the device checks that there is room for all */
    at.cq = 2 * ring * i;
    at.sq = at.cq + ring;
    at.cq_record = records + 2ull * RECORD_BYTES * i;
    at.sq_record = at.cq_record + RECORD_BYTES;
    return at;
}

static ncclResult_t copy(struct mlx5_nic *nic, void *to, const void *from, size_t bytes)
{
    if (nic->rings.way == MLX5_WAY_HOST) {
        memcpy(to, from, bytes);
        return ncclSuccess;
    }
    SWL_TRY(SWL_CUDA(swl_gpu_copy(to, from, bytes, nic->stream)));
    return SWL_CUDA(swl_gpu_stream_wait(nic->stream, nic->timeout_ns));
}

ncclResult_t swl_devx_put(struct mlx5_nic *nic, uint64_t at, const void *from, size_t bytes)
{
    return copy(nic, nic->rings.base + at, from, bytes);
}

ncclResult_t swl_devx_get(struct mlx5_nic *nic, uint64_t at, void *to, size_t bytes)
{
    return copy(nic, to, nic->rings.base + at, bytes);
}

/* Memory for the way that is tried next. */
static ncclResult_t take_memory(struct mlx5_nic *nic, enum mlx5_way way)
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
        r->base = (uint8_t *)(uintptr_t)round_to((uintptr_t)r->memory, GPU_PAGE);
        return ncclSuccess; /* is zeroed */
    }
    SWL_TRY(SWL_CUDA(swl_gpu_malloc(&r->memory, r->allocated_bytes)));
    r->base = (uint8_t *)(uintptr_t)round_to((uintptr_t)r->memory, GPU_PAGE);
    SWL_TRY(SWL_CUDA(swl_gpu_stream_create(&stream)));
    nic->stream = stream;
    SWL_TRY(SWL_CUDA(swl_gpu_fill(r->base, 0, r->bytes, stream)));
    return SWL_CUDA(swl_gpu_stream_wait(stream, nic->timeout_ns));
}

/* false: not this way; the reason is noted. */
static bool register_rings(struct mlx5_nic *nic, struct mlx5_reasons *why)
{
    struct devx_rings *r = &nic->rings;
    const uint64_t host_page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct mlx5_umem_in in = {
        .size = r->bytes,
        .access = VERBS_ACCESS_LOCAL_WRITE,
        .pgsz_bitmap = ~((host_page > RING_PAGE ? host_page : RING_PAGE) - 1),
        .comp_mask = MLX5_UMEM_DMABUF,
        .dmabuf_fd = -1,
    };
    cudaError_t error;

    errno = 0;
    if (r->way == MLX5_WAY_DMABUF) {
        error = swl_gpu_dmabuf(r->base, r->bytes, &in.dmabuf_fd);
        if (error != cudaSuccess) {
            swl_mlx5_reason(why, r->way, swl_gpu_error_text(error));
            return false;
        }
        r->umem = nic->device.verbs.mlx5dv_devx_umem_reg_ex(nic->device.context, &in);
        if (r->umem == NULL)
            swl_mlx5_reason(why, r->way, swl_mlx5_error_text(errno));
        (void)close(in.dmabuf_fd); /* the registration keeps the memory */
        return r->umem != NULL;
    }
    r->umem = nic->device.verbs.mlx5dv_devx_umem_reg(nic->device.context, r->base, r->bytes,
                                                     VERBS_ACCESS_LOCAL_WRITE);
    if (r->umem == NULL)
        swl_mlx5_reason(why, r->way, swl_mlx5_error_text(errno));
    return r->umem != NULL;
}

ncclResult_t swl_devx_open_rings(struct mlx5_nic *nic)
{
    struct mlx5_reach reach = {true, true, nic->device.verbs.mlx5dv_devx_umem_reg_ex != NULL, 0};
    const struct devx_layout end = swl_devx_layout(nic, nic->max_qps);
    struct devx_rings *r = &nic->rings;
    struct mlx5_reasons why = {""};
    enum mlx5_way way;

    /* the records end where those of one more queue pair would begin, had it no rings */
    r->sink = round_to(end.cq + 2ull * RECORD_BYTES * nic->max_qps, RING_PAGE);
    r->bytes = round_to(r->sink + 8ull * nic->max_qps, GPU_PAGE);
    while ((way = mlx5_next_way(&reach)) != MLX5_WAY_NONE) {
        SWL_TRY(take_memory(nic, way));
        if (register_rings(nic, &why))
            break;
        reach.failed |= 1u << way;
    }
    if (way == MLX5_WAY_NONE)
        return swl_fail(ncclSystemError, "rank %u nic: %s cannot reach its queues: %s",
                        nic->device.rank, nic->device.port.name, why.text);
    if (why.text[0])
        swl_log(SWL_LEVEL_INFO, "rank %u nic: %s has its queues by %s (%s)", nic->device.rank,
                nic->device.port.name, mlx5_way_text(way), why.text);
    return ncclSuccess;
}

ncclResult_t swl_devx_close_rings(struct mlx5_nic *nic)
{
    struct devx_rings *r = &nic->rings;
    ncclResult_t rc = ncclSuccess, next = ncclSuccess;
    int error = 0;

    if (r->umem)
        error = nic->device.verbs.mlx5dv_devx_umem_dereg(r->umem);
    if (error)
        rc = swl_fail(ncclSystemError, "rank %u nic: %s keeps its queues: %s", nic->device.rank,
                      nic->device.port.name, strerror(error));
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
