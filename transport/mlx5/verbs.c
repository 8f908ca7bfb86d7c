/* verbs.c: what public calls need of a device; see verbs.h. Layer: transport/mlx5, behind nic.h. */
#include "transport/mlx5/verbs.h"

#include "src/base/error.h"

#define DEPTH_MAX                                                                                  \
    8192u /* the library's entries take up to four blocks each, and a ring has 32768 */

static ncclResult_t check_attr(struct mlx5_nic *nic)
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

static ncclResult_t mlx5_verbs_open(struct mlx5_nic *nic, const struct swl_nic_config *config)
{
    const uint64_t bytes = 8ull * nic->max_qps;
    void *sinks;

    nic->depth = config->depth;
    nic->max_depth = DEPTH_MAX;
    SWL_TRY(check_attr(nic));
    SWL_TRY(swl_mlx5_verbs_lend(nic));
    sinks = swl_mlx5_verbs_take(nic, bytes);
    if (sinks == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: no pinned memory for %llu bytes",
                        nic->device.rank, (unsigned long long)bytes);
    return swl_mlx5_reg(&nic->device, sinks, bytes, SWL_NIC_LOCAL_WRITE, &nic->sinks);
}

const struct mlx5_maker swl_mlx5_verbs_maker = {
    .devx = false,
    .open = mlx5_verbs_open,
    .close = swl_mlx5_verbs_unmap_all,
    .free_memory = swl_mlx5_verbs_free_all,
    .open_qp = swl_mlx5_verbs_open_qp,
    .close_qp = swl_mlx5_verbs_close_qp,
    .end = swl_mlx5_verbs_end,
    .connect = swl_mlx5_verbs_connect,
    .look = swl_mlx5_verbs_look,
    .stop = swl_mlx5_verbs_stop,
    .restart = swl_mlx5_verbs_restart,
    .view = swl_mlx5_verbs_view,
};
