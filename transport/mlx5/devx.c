/* devx.c: life of the mlx5 NIC; see devx.h. Layer: transport/mlx5, behind nic.h. */
#include "transport/mlx5/devx.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"
#include "src/runtime/runtime.h"
#include "transport/wqe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOORBELL_BYTES 8

/* ---- creation, step by step ---- */

static ncclResult_t ask_caps(struct devx_nic *nic, uint32_t depth)
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

/* A page of doorbell registers: one of our own, uncached; write-combining as the last choice. */
static ncclResult_t open_doorbells(struct devx_nic *nic)
{
    static const uint32_t kinds[] = {MLX5_UAR_NC_DEDICATED, MLX5_UAR_NC, MLX5_UAR_BF};
    uint64_t bytes = DOORBELL_BYTES;
    void *mapped = NULL;

    errno = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && nic->uar == NULL; i++) {
        nic->uar = nic->device.verbs.mlx5dv_devx_alloc_uar(nic->device.context, kinds[i]);
        if (kinds[i] == MLX5_UAR_BF && nic->caps.log_bf_bytes > 3)
            bytes = 1ull << nic->caps.log_bf_bytes;
    }
    if (nic->uar == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: %s gives no doorbell registers: %s",
                        nic->device.rank, nic->device.port.name, swl_mlx5_error_text(errno));
    SWL_TRY(swl_mlx5_map_registers(&nic->device, nic->uar->reg_addr, bytes, &mapped));
    nic->doorbell = mapped;
    return ncclSuccess;
}

static ncclResult_t open_all(struct devx_nic *nic, const struct swl_nic_config *config)
{
    int error;

    SWL_TRY(swl_mlx5_device_open(&nic->device, config));
    SWL_TRY(ask_caps(nic, config->depth));
    SWL_TRY(open_doorbells(nic));
    error = nic->device.verbs.mlx5dv_devx_query_eqn(nic->device.context, 0, &nic->event_queue);
    if (error)
        return swl_fail(ncclSystemError, "rank %u nic: %s names no event queue: %s",
                        nic->device.rank, nic->device.port.name, swl_mlx5_error_text(error));
    SWL_TRY(swl_devx_open_rings(nic));
    return swl_mlx5_reg(&nic->device, nic->rings.base + nic->rings.sink, 8ull * nic->max_qps,
                        SWL_NIC_LOCAL_WRITE, &nic->rings.sink_region);
}

/* ---- the end, also of a creation that failed half-way ---- */

static void keep_first(ncclResult_t *rc_p, ncclResult_t next)
{
    if (*rc_p == ncclSuccess)
        *rc_p = next;
}

static ncclResult_t close_all(struct devx_nic *nic)
{
    ncclResult_t rc = ncclSuccess;

    for (uint32_t i = 0; i < nic->nqps; i++)
        keep_first(&rc, swl_devx_destroy_qp(nic, &nic->qps[i]));
    keep_first(&rc, swl_mlx5_drop_regions(&nic->device));
    keep_first(&rc, swl_devx_close_rings(nic));
    if (nic->doorbell)
        keep_first(&rc, SWL_CUDA(swl_gpu_registers_unmap(nic->uar->reg_addr)));
    if (nic->uar)
        nic->device.verbs.mlx5dv_devx_free_uar(nic->uar);
    keep_first(&rc, swl_mlx5_device_close(&nic->device));
    free(nic->qps);
    return rc;
}

static ncclResult_t devx_destroy(struct swl_nic *base)
{
    struct devx_nic *nic = devx_of(base);
    ncclResult_t rc;

    if (nic == NULL)
        return ncclSuccess;
    rc = close_all(nic);
    swl_verbs_unload(&nic->device.verbs);
    free(nic);
    return rc;
}

static void devx_caps(const struct swl_nic *base, struct swl_nic_caps *caps_p)
{
    const struct devx_nic *nic = (const struct devx_nic *)base;
    const uint32_t log_depth = nic->caps.log_max_qp_size;

    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->name = "mlx5";
    caps_p->device = nic->device.port.name;
    caps_p->max_depth = log_depth < 15 ? 1u << log_depth : SWL_WQE_DEPTH_MAX;
    caps_p->max_qps = MLX5_QPS_MAX;
    caps_p->max_region_bytes = UINT64_MAX;
    caps_p->device_bytes = nic->rings.way == MLX5_WAY_HOST ? 0 : nic->rings.allocated_bytes;
}

static ncclResult_t devx_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                                struct swl_nic_region *region_p)
{
    return swl_mlx5_reg(&devx_of(base)->device, ptr, bytes, access, region_p);
}

static ncclResult_t devx_dereg_mr(struct swl_nic *base, const struct swl_nic_region *region)
{
    return swl_mlx5_dereg(&devx_of(base)->device, region);
}

static const struct swl_nic_ops ops = {
    .name = "mlx5",
    .destroy = devx_destroy,
    .caps = devx_caps,
    .reg_mr = devx_reg_mr,
    .dereg_mr = devx_dereg_mr,
    .create_qp = swl_devx_create_qp,
    .address = swl_devx_address,
    .connect = swl_devx_connect,
    .view = swl_devx_view,
    .query = swl_devx_query,
    .to_error = swl_devx_to_error,
    .reset = swl_devx_reset,
};

ncclResult_t swl_devx_create_on(struct swl_nic **nic_p, const struct swl_nic_config *config,
                                const struct swl_verbs *verbs)
{
    struct devx_nic *nic;
    ncclResult_t rc;

    SWL_TRY(swl_mlx5_check_config(config));
    nic = calloc(1, sizeof(*nic));
    if (nic) {
        nic->max_qps = config->max_qps ? config->max_qps : 1;
        nic->qps = calloc(nic->max_qps, sizeof(*nic->qps));
    }
    if (nic == NULL || nic->qps == NULL) {
        free(nic);
        return swl_no_memory("%u queue pairs", config->max_qps);
    }
    nic->base.ops = &ops;
    nic->device.verbs = *verbs;
    nic->device.rank = config->rank;
    nic->device.devx = true;
    nic->first_index = config->first_index;
    nic->timeout_ns = config->timeout_ns;
    rc = open_all(nic, config);
    if (rc != ncclSuccess) {
        (void)close_all(nic);
        free(nic);
        return rc;
    }
    swl_log(SWL_LEVEL_INFO, "rank %u nic: mlx5 on %s port %u, rings by %s", nic->device.rank,
            nic->device.port.name, nic->device.port.number, mlx5_way_text(nic->rings.way));
    *nic_p = &nic->base;
    return ncclSuccess;
}
