/* nic.c: the mlx5 NIC behind transport/nic.h; what differs between its two ways is asked of the
 * maker. See nic.h. Layer: transport/mlx5. */
#include "transport/mlx5/nic.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "transport/wqe.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

/* Also of a creation that failed half-way. */
static ncclResult_t close_all(struct mlx5_nic *nic)
{
    ncclResult_t rc = ncclSuccess;

    for (uint32_t i = 0; i < nic->nqps; i++)
        rc = swl_first_failure(rc, nic->maker->close_qp(nic, &nic->qps[i]));
    rc = swl_first_failure(rc, swl_mlx5_drop_regions(&nic->device));
    rc = swl_first_failure(rc, nic->maker->close(nic));
    rc = swl_first_failure(rc, swl_mlx5_device_close(&nic->device));
    rc = swl_first_failure(rc, nic->maker->free_memory(nic));
    free(nic->qps);
    return rc;
}

static ncclResult_t destroy(struct swl_nic *base)
{
    struct mlx5_nic *nic = mlx5_of(base);
    ncclResult_t rc;

    if (nic == NULL)
        return ncclSuccess;
    rc = close_all(nic);
    swl_verbs_unload(&nic->device.verbs);
    free(nic);
    return rc;
}

static void caps(const struct swl_nic *base, struct swl_nic_caps *caps_p)
{
    const struct mlx5_nic *nic = (const struct mlx5_nic *)base;

    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->name = "mlx5";
    caps_p->device = nic->device.port.name;
    caps_p->max_depth = nic->max_depth;
    caps_p->max_qps = MLX5_QPS_MAX;
    caps_p->max_region_bytes = UINT64_MAX;
    caps_p->device_bytes = nic->device_bytes;
}

static ncclResult_t reg_mr(struct swl_nic *base, void *ptr, uint64_t bytes, unsigned access,
                           struct swl_nic_region *region_p)
{
    return swl_mlx5_reg(&mlx5_of(base)->device, ptr, bytes, access, region_p);
}

static ncclResult_t dereg_mr(struct swl_nic *base, const struct swl_nic_region *region)
{
    return swl_mlx5_dereg(&mlx5_of(base)->device, region);
}

/* ---- queue pairs ---- */

static ncclResult_t create_qp(struct swl_nic *base, uint32_t *qp_p)
{
    struct mlx5_nic *nic = mlx5_of(base);
    struct mlx5_qp *q = &nic->qps[nic->nqps];
    ncclResult_t rc;

    if (nic->nqps == nic->max_qps)
        return swl_fail(ncclInvalidUsage, "rank %u nic: more than %u queue pairs", nic->device.rank,
                        nic->max_qps);
    memset(q, 0, sizeof(*q));
    rc = nic->maker->open_qp(nic, q, nic->nqps);
    if (rc != ncclSuccess) {
        (void)nic->maker->close_qp(nic, q);
        return rc;
    }
    *qp_p = nic->nqps++;
    return ncclSuccess;
}

static ncclResult_t lost(const struct mlx5_nic *nic, uint32_t qp)
{
    return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair %u was lost by a failed reset",
                    nic->device.rank, qp);
}

static ncclResult_t address(struct swl_nic *base, uint32_t qp, struct swl_nic_address *address_p)
{
    const struct mlx5_nic *nic = mlx5_of(base);
    const struct mlx5_qp *q = &nic->qps[qp];
    struct mlx5_address a = {.id = MLX5_ADDRESS_ID};

    if (q->lost)
        return lost(nic, qp);
    a.end = nic->maker->end(nic, q);
    memset(address_p, 0, sizeof(*address_p));
    memcpy(address_p->bytes, &a, sizeof(a));
    return ncclSuccess;
}

static ncclResult_t connect_qp(struct swl_nic *base, uint32_t qp,
                               const struct swl_nic_address *peer)
{
    struct mlx5_nic *nic = mlx5_of(base);
    struct mlx5_qp *q = &nic->qps[qp];
    const char *why = "the peer's NIC is of another kind or version";
    struct mlx5_address a;
    struct rc_path path;
    struct rc_end mine;

    memcpy(&a, peer->bytes, sizeof(a));
    if (q->state != SWL_NIC_QP_INIT)
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair 0x%06x is %s", nic->device.rank,
                        q->qpn,
                        q->state == SWL_NIC_QP_READY ? "already connected" : "in error: reset it");
    mine = nic->maker->end(nic, q);
    if (a.id != MLX5_ADDRESS_ID || !swl_rc_path(&path, &mine, &a.end, &nic->device.tuning, &why))
        return swl_fail(ncclInvalidUsage, "rank %u nic: queue pair 0x%06x of %s port %u: %s",
                        nic->device.rank, q->qpn, nic->device.port.name, nic->device.port.number,
                        why);
    return nic->maker->connect(nic, q, &path);
}

static ncclResult_t view(struct swl_nic *base, uint32_t qp, struct swl_qp *view_p)
{
    const struct mlx5_nic *nic = mlx5_of(base);
    const struct mlx5_qp *q = &nic->qps[qp];

    if (q->lost)
        return lost(nic, qp);
    memset(view_p, 0, sizeof(*view_p));
    nic->maker->view(nic, q, view_p);
    view_p->sink = nic->sinks.address + 8ull * qp;
    view_p->sink_lkey = nic->sinks.lkey;
    view_p->qpn = q->qpn;
    view_p->reserved = view_p->ready = view_p->rung = view_p->done = nic->first_index;
    return ncclSuccess;
}

static ncclResult_t query(struct swl_nic *base, uint32_t qp, struct swl_nic_qp_status *status_p)
{
    struct mlx5_nic *nic = mlx5_of(base);
    struct mlx5_qp *q = &nic->qps[qp];
    bool sends = true;

    if (q->state == SWL_NIC_QP_READY) { /* one that is not connected may look as if it had failed */
        SWL_TRY(nic->maker->look(nic, q, &sends));
        if (!sends)
            q->state = SWL_NIC_QP_ERROR;
    }
    status_p->state = q->state;
    status_p->qpn = q->qpn;
    status_p->syndrome = q->syndrome;
    status_p->index = q->bad_index;
    return ncclSuccess;
}

static ncclResult_t to_error(struct swl_nic *base, uint32_t qp)
{
    struct mlx5_nic *nic = mlx5_of(base);
    struct mlx5_qp *q = &nic->qps[qp];

    if (q->state == SWL_NIC_QP_ERROR)
        return ncclSuccess;
    SWL_TRY(nic->maker->stop(nic, q));
    q->state = SWL_NIC_QP_ERROR;
    q->syndrome = SWL_SYNDROME_FLUSHED;
    return ncclSuccess;
}

static ncclResult_t reset(struct swl_nic *base, uint32_t qp)
{
    struct mlx5_nic *nic = mlx5_of(base);

    return nic->maker->restart(nic, &nic->qps[qp]);
}

static const struct swl_nic_ops ops = {
    .name = "mlx5",
    .destroy = destroy,
    .caps = caps,
    .reg_mr = reg_mr,
    .dereg_mr = dereg_mr,
    .create_qp = create_qp,
    .address = address,
    .connect = connect_qp,
    .view = view,
    .query = query,
    .to_error = to_error,
    .reset = reset,
};

ncclResult_t swl_mlx5_make(struct swl_nic **nic_p, const struct swl_nic_config *config,
                           const struct swl_verbs *verbs, const struct mlx5_maker *maker)
{
    struct mlx5_nic *nic;
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
    nic->maker = maker;
    nic->device.verbs = *verbs;
    nic->device.rank = config->rank;
    nic->device.devx = maker->devx;
    nic->first_index = config->first_index;
    nic->timeout_ns = config->timeout_ns;
    rc = swl_mlx5_device_open(&nic->device, config);
    if (rc == ncclSuccess)
        rc = maker->open(nic, config);
    if (rc != ncclSuccess) {
        (void)close_all(nic);
        free(nic);
        return rc;
    }
    swl_log(SWL_LEVEL_INFO, "rank %u nic: mlx5 on %s port %u, rings %s%s", config->rank,
            nic->device.port.name, nic->device.port.number, maker->devx ? "by " : "in host memory",
            maker->devx ? mlx5_way_text(nic->rings.way) : "");
    *nic_p = &nic->base;
    return ncclSuccess;
}
