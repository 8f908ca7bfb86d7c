/* device.c: see device.h. Layer: transport/mlx5. */
#include "transport/mlx5/device.h"

#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "transport/rdma_core/tune.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *swl_mlx5_error_text(int error)
{
    return error ? strerror(error) : "no reason given";
}

void swl_mlx5_reason(struct mlx5_reasons *r, enum mlx5_way way, const char *why)
{
    const size_t at = strlen(r->text);

    snprintf(r->text + at, sizeof(r->text) - at, "%s%s: %s", at ? "; " : "", mlx5_way_text(way),
             why);
}

ncclResult_t swl_mlx5_check_config(const struct swl_nic_config *config)
{
    SWL_TRY(swl_nic_check_config(config, MLX5_QPS_MAX));
    if (config->first_index & 0xffffu)
        return swl_fail(ncclInvalidUsage,
                        "rank %u nic: queues of an mlx5 device begin at multiples of 65536, not at "
                        "%llu (SWIMLANE_START_POSITION)",
                        config->rank, (unsigned long long)config->first_index);
    return ncclSuccess;
}

static ncclResult_t open_port(struct mlx5_device *d, const struct swl_nic_ib *ib,
                              const struct swl_nic_proximity *proximity)
{
    const struct swl_port_want want = {
        ib->hca, ib->gid_index, d->devx ? SWL_PORT_DEVX : SWL_PORT_MLX5, proximity, ib->pkey};
    char text[256];

    if (!swl_port_open(&d->verbs, &want, &d->context, &d->port, text, sizeof(text)))
        return swl_fail(ncclSystemError, "rank %u nic: %s", d->rank, text);
    return swl_rc_tune(&d->tuning, d->rank, ib, &d->port);
}

static ncclResult_t open_domain(struct mlx5_device *d)
{
    struct mlx5_pd_out out = {0};
    struct mlx5_obj obj;
    int error;

    errno = 0;
    d->pd = d->verbs.ibv_alloc_pd(d->context);
    if (d->pd == NULL)
        return swl_fail(ncclSystemError, "rank %u nic: %s gives no protection domain: %s", d->rank,
                        d->port.name, swl_mlx5_error_text(errno));
    if (!d->devx)
        return ncclSuccess;
    memset(&obj, 0, sizeof(obj));
    obj.pd.in = d->pd;
    obj.pd.out = &out;
    error = d->verbs.mlx5dv_init_obj(&obj, MLX5_OBJ_PD);
    if (error)
        return swl_fail(ncclSystemError, "rank %u nic: %s does not name its protection domain: %s",
                        d->rank, d->port.name, swl_mlx5_error_text(error));
    d->pdn = out.pdn;
    return ncclSuccess;
}

ncclResult_t swl_mlx5_device_open(struct mlx5_device *d, const struct swl_nic_config *config)
{
    SWL_TRY(open_port(d, swl_nic_ib_of(config->settings.ib), config->proximity));
    return open_domain(d);
}

ncclResult_t swl_mlx5_map_registers(const struct mlx5_device *d, void *registers, size_t bytes,
                                    void **mapped_p)
{
    const cudaError_t error = swl_gpu_registers_map(registers, bytes, mapped_p);

    if (error == cudaSuccess)
        return ncclSuccess;
    return swl_fail(ncclSystemError,
                    "rank %u nic: the GPU may not write doorbells of %s (%s): load the NVIDIA "
                    "driver with NVreg_RegistryDwords=\"PeerMappingOverride=1;\", or run as root",
                    d->rank, d->port.name, swl_gpu_error_text(error));
}

static ncclResult_t device_gone(const struct mlx5_device *d, const char *what, int error)
{
    return error == 0 ? ncclSuccess
                      : swl_fail(ncclSystemError, "rank %u nic: %s keeps its %s: %s", d->rank,
                                 d->port.name, what, swl_mlx5_error_text(error));
}

ncclResult_t swl_mlx5_device_close(struct mlx5_device *d)
{
    ncclResult_t rc = ncclSuccess, next;

    if (d->pd) {
        next = device_gone(d, "protection domain", d->verbs.ibv_dealloc_pd(d->pd));
        rc = rc != ncclSuccess ? rc : next;
    }
    if (d->context) {
        next = device_gone(d, "context", d->verbs.ibv_close_device(d->context));
        rc = rc != ncclSuccess ? rc : next;
    }
    d->pd = NULL;
    d->context = NULL;
    return rc;
}
