/* devx.c: what firmware commands need of a device; see devx.h. Layer: transport/mlx5, behind
 * nic.h. */
#include "transport/mlx5/devx.h"

#include "src/base/error.h"
#include "src/base/util.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"

#include <errno.h>

#define DOORBELL_BYTES 8

/* ---- creation, step by step ---- */

static ncclResult_t ask_caps(struct mlx5_nic *nic, uint32_t depth)
{
    struct mlx5_command c;
    char text[160];
    int error;

    swl_mlx5_query_caps(&c);
    error = nic->device.verbs.mlx5dv_devx_general_cmd(nic->device.context, c.in, c.in_bytes, c.out,
                                                      c.out_bytes);
    if (!swl_mlx5_check(&c, error, text, sizeof(text)))
        return swl_fail(ncclSystemError, "rank %u nic: %s: %s", nic->device.rank,
                        nic->device.port.name, text);
    swl_mlx5_caps_read(&c, &nic->caps);
    if (nic->caps.cqe_version != 1)
        return swl_fail(ncclSystemError,
                        "rank %u nic: %s writes completions of version %u, version 1 is needed",
                        nic->device.rank, nic->device.port.name, nic->caps.cqe_version);
    if (!nic->caps.atomic)
        return swl_fail(ncclSystemError, "rank %u nic: %s has no remote adds", nic->device.rank,
                        nic->device.port.name);
    depth =
        swl_nic_depth(nic->device.rank, nic->device.port.name, depth,
                      1ull << (nic->caps.log_max_qp_size < 31 ? nic->caps.log_max_qp_size : 31));
    if (depth == 0)
        return ncclInvalidUsage;
    nic->depth_log2 = (uint32_t)__builtin_ctz(depth);
    return ncclSuccess;
}

struct mlx5_uar *swl_devx_take_page(const struct swl_verbs *verbs, struct ibv_context *context,
                                    uint32_t *kind_p)
{
    static const uint32_t kinds[] = {MLX5_UAR_NC_DEDICATED, MLX5_UAR_NC, MLX5_UAR_BF};
    struct mlx5_uar *page = NULL;

    errno = 0;
    for (size_t i = 0; i < SWL_COUNT_OF(kinds) && page == NULL; i++) {
        *kind_p = kinds[i];
        page = verbs->mlx5dv_devx_alloc_uar(context, kinds[i]);
    }
    return page;
}

static ncclResult_t open_doorbells(struct mlx5_nic *nic)
{
    uint64_t bytes = DOORBELL_BYTES;
    void *mapped = NULL;
    uint32_t kind;

    nic->uar = swl_devx_take_page(&nic->device.verbs, nic->device.context, &kind);
    if (nic->uar == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: %s gives no doorbell registers: %s",
                        nic->device.rank, nic->device.port.name, swl_mlx5_error_text(errno));
    if (kind == MLX5_UAR_BF && nic->caps.log_bf_bytes > 3)
        bytes = 1ull << nic->caps.log_bf_bytes;
    SWL_TRY(swl_mlx5_map_registers(&nic->device, nic->uar->reg_addr, bytes, &mapped));
    nic->doorbell = mapped;
    return ncclSuccess;
}

static ncclResult_t devx_open(struct mlx5_nic *nic, const struct swl_nic_config *config)
{
    const uint32_t log_most = 15;
    int error;

    SWL_TRY(ask_caps(nic, config->depth));
    nic->max_depth =
        1u << (nic->caps.log_max_qp_size < log_most ? nic->caps.log_max_qp_size : log_most);
    SWL_TRY(open_doorbells(nic));
    error = nic->device.verbs.mlx5dv_devx_query_eqn(nic->device.context, 0, &nic->event_queue);
    if (error)
        return swl_fail(ncclSystemError, "rank %u nic: %s names no event queue: %s",
                        nic->device.rank, nic->device.port.name, swl_mlx5_error_text(error));
    SWL_TRY(swl_devx_open_rings(nic));
    nic->device_bytes = nic->rings.way == MLX5_WAY_HOST ? 0 : nic->rings.allocated_bytes;
    return swl_mlx5_reg(&nic->device, nic->rings.base + nic->rings.sink, 8ull * nic->max_qps,
                        SWL_NIC_LOCAL_WRITE, &nic->sinks);
}

static ncclResult_t devx_close(struct mlx5_nic *nic)
{
    ncclResult_t rc = swl_devx_close_rings(nic), next = ncclSuccess;

    if (nic->doorbell)
        next = SWL_CUDA(swl_gpu_registers_unmap(nic->uar->reg_addr));
    if (nic->uar)
        nic->device.verbs.mlx5dv_devx_free_uar(nic->uar);
    return swl_first_failure(rc, next);
}

static ncclResult_t nothing(struct mlx5_nic *nic)
{
    (void)nic;
    return ncclSuccess;
}

const struct mlx5_maker swl_devx_maker = {
    .devx = true,
    .open = devx_open,
    .close = devx_close,
    .free_memory = nothing,
    .open_qp = swl_devx_open_qp,
    .close_qp = swl_devx_close_qp,
    .end = swl_devx_end,
    .connect = swl_devx_connect,
    .look = swl_devx_look,
    .stop = swl_devx_stop,
    .restart = swl_devx_restart,
    .view = swl_devx_view,
};
