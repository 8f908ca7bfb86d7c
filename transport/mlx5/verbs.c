/* verbs.c: life of the mlx5 NIC over verbs; see verbs.h. Layer: transport/mlx5, behind nic.h. */
#include "transport/mlx5/verbs.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/runtime/runtime.h"
#include "transport/wqe.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX                                                                                  \
    8192u /* the library's entries take up to four blocks each, and a ring has 32768 */

static ncclResult_t check_attr(struct mlv_nic *nic)
{
    struct mlx5_device *d = &nic->device;
    const int error = d->verbs.ibv_query_device(d->context, &nic->attr);

    if (error)
        return swl_fail(ncclSystemError, "rank %u nic: %s does not tell its limits: %s", d->rank,
                        d->port.name, swl_mlx5_error_text(error));
    if (nic->attr.atomic_cap == VERBS_ATOMIC_NONE)
        return swl_fail(ncclSystemError, "rank %u nic: %s has no remote adds", d->rank,
                        d->port.name);
    nic->depth =
        swl_nic_depth(d->rank, d->port.name, nic->depth,
                      nic->attr.max_qp_wr < 0                     ? 0
                      : (uint32_t)nic->attr.max_qp_wr < DEPTH_MAX ? (uint32_t)nic->attr.max_qp_wr
                                                                  : DEPTH_MAX);
    return nic->depth ? ncclSuccess : ncclInvalidUsage;
}

static ncclResult_t open_all(struct mlv_nic *nic, const struct swl_nic_config *config)
{
    const uint64_t bytes = 8ull * nic->max_qps;
    void *sinks;

    SWL_TRY(swl_mlx5_device_open(&nic->device, config));
    SWL_TRY(check_attr(nic));
    SWL_TRY(swl_mlv_lend(nic));
    sinks = swl_mlv_take(nic, bytes);
    if (sinks == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: no pinned memory for %llu bytes",
                        nic->device.rank, (unsigned long long)bytes);
    return swl_mlx5_reg(&nic->device, sinks, bytes, SWL_NIC_LOCAL_WRITE, &nic->sinks);
}

static void keep_first(ncclResult_t *rc_p, ncclResult_t next)
{
    if (*rc_p == ncclSuccess)
        *rc_p = next;
}

/* Also of a creation that failed half-way. */
static ncclResult_t close_all(struct mlv_nic *nic)
{
    ncclResult_t rc = ncclSuccess;

    for (uint32_t i = 0; i < nic->nqps; i++)
        keep_first(&rc, swl_mlv_close_qp(nic, &nic->qps[i]));
    keep_first(&rc, swl_mlv_unmap_all(nic));
    keep_first(&rc, swl_mlx5_device_close(&nic->device));
    keep_first(&rc, swl_mlv_free_all(nic));
    free(nic->qps);
    return rc;
}

static ncclResult_t mlv_destroy(struct swl_nic *base)
{
    struct mlv_nic *nic = mlv_of(base);
    ncclResult_t rc;

    if (nic == NULL)
        return ncclSuccess;
    rc = close_all(nic);
    swl_verbs_unload(&nic->device.verbs);
    free(nic);
    return rc;
}

static void mlv_caps(const struct swl_nic *base, struct swl_nic_caps *caps_p)
{
    const struct mlv_nic *nic = (const struct mlv_nic *)base;

    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->name = "mlx5";
    caps_p->device = nic->device.port.name;
    caps_p->max_depth = DEPTH_MAX;
    caps_p->max_qps = MLX5_QPS_MAX;
    caps_p->max_region_bytes = UINT64_MAX;
}

static ncclResult_t mlv_reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                               struct swl_nic_region *region_p)
{
    return swl_mlx5_reg(&mlv_of(base)->device, ptr, bytes, access, region_p);
}

static ncclResult_t mlv_dereg_mr(struct swl_nic *base, const struct swl_nic_region *region)
{
    return swl_mlx5_dereg(&mlv_of(base)->device, region);
}

static const struct swl_nic_ops ops = {
    .name = "mlx5",
    .destroy = mlv_destroy,
    .caps = mlv_caps,
    .reg_mr = mlv_reg_mr,
    .dereg_mr = mlv_dereg_mr,
    .create_qp = swl_mlv_create_qp,
    .address = swl_mlv_address,
    .connect = swl_mlv_connect,
    .view = swl_mlv_view,
    .query = swl_mlv_query,
    .to_error = swl_mlv_to_error,
    .reset = swl_mlv_reset,
};

ncclResult_t swl_mlv_create_on(struct swl_nic **nic_p, const struct swl_nic_config *config,
                               const struct swl_verbs *verbs)
{
    struct mlv_nic *nic;
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
    nic->depth = config->depth;
    nic->first_index = config->first_index;
    rc = open_all(nic, config);
    if (rc != ncclSuccess) {
        (void)close_all(nic);
        free(nic);
        return rc;
    }
    swl_log(SWL_LEVEL_INFO, "rank %u nic: mlx5 on %s port %u, rings in host memory", config->rank,
            nic->device.port.name, nic->device.port.number);
    *nic_p = &nic->base;
    return ncclSuccess;
}
