/* mlx5.c: which way a ConnectX NIC is driven, and would it work here? See mlx5.h.
 *
 * Layer: transport/mlx5. A question opens the device and closes it again; it keeps nothing. */
#include "transport/mlx5/mlx5.h"

#include "src/base/error.h"
#include "transport/mlx5/commands.h"
#include "transport/mlx5/devx.h"
#include "transport/sysfs.h"

#include <errno.h>
#include <stdio.h>

/* A device that opens for DevX may still refuse every command. */
static bool takes_commands(const struct swl_verbs *verbs, struct ibv_context *context,
                           const struct swl_port *port, char *why, size_t why_bytes)
{
    struct mlx5_command c;
    char text[160];
    int error;

    swl_mlx5_query_caps(&c);
    error = verbs->mlx5dv_devx_general_cmd(context, c.in, c.in_bytes, c.out, c.out_bytes);
    if (swl_mlx5_check(&c, error, text, sizeof(text)))
        return true;
    snprintf(why, why_bytes, "%s takes no firmware commands: %s", port->name, text);
    return false;
}

/* Firmware may take commands and refuse the page of registers, which kernels need to ring
 * doorbells. */
static bool gives_page(const struct swl_verbs *verbs, struct ibv_context *context,
                       const struct swl_port *port, char *why, size_t why_bytes)
{
    uint32_t kind;
    struct mlx5_uar *page = swl_devx_take_page(verbs, context, &kind);

    if (page == NULL) {
        snprintf(why, why_bytes, "%s gives no doorbell registers: %s", port->name,
                 swl_mlx5_error_text(errno));
        return false;
    }
    verbs->mlx5dv_devx_free_uar(page);
    return true;
}

bool swl_mlx5_way_usable(const struct swl_verbs *verbs, bool devx,
                         const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    const struct swl_nic_ib *ib = swl_nic_ib_of(config->settings.ib);
    const struct swl_port_want want = {ib->hca, ib->gid_index, devx ? SWL_PORT_DEVX : SWL_PORT_MLX5,
                                       config->proximity, ib->pkey};
    struct ibv_context *context = NULL;
    struct swl_port port;
    bool ok;

    ok = swl_port_open(verbs, &want, &context, &port, why, why_bytes) &&
         (!devx || (takes_commands(verbs, context, &port, why, why_bytes) &&
                    gives_page(verbs, context, &port, why, why_bytes))) &&
         swl_sysfs_doorbells(config->proximity ? config->proximity->root : NULL, why, why_bytes);
    if (context)
        (void)verbs->ibv_close_device(context);
    return ok;
}

bool swl_mlx5_usable_on(const struct swl_verbs *verbs, const struct swl_nic_config *config,
                        char *why, size_t why_bytes)
{
    const uint32_t rings = config->settings.rings;

    /* rings of the host need less: of auto their reason is enough */
    return (rings != SWL_MLX5_RINGS_HOST &&
            swl_mlx5_way_usable(verbs, true, config, why, why_bytes)) ||
           (rings != SWL_MLX5_RINGS_GPU &&
            swl_mlx5_way_usable(verbs, false, config, why, why_bytes));
}

bool swl_mlx5_usable(const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    struct swl_verbs verbs;
    bool ok;

    if (!swl_verbs_load(&verbs, true, NULL, why, why_bytes))
        return false;
    ok = swl_mlx5_usable_on(&verbs, config, why, why_bytes);
    swl_verbs_unload(&verbs);
    return ok;
}

ncclResult_t swl_mlx5_create_on(struct swl_nic **nic_p, const struct swl_nic_config *config,
                                const struct swl_verbs *verbs)
{
    const uint32_t rings = config->settings.rings;
    char why[256];

    if (rings == SWL_MLX5_RINGS_GPU || (rings == SWL_MLX5_RINGS_AUTO &&
                                        swl_mlx5_way_usable(verbs, true, config, why, sizeof(why))))
        return swl_mlx5_make(nic_p, config, verbs, &swl_devx_maker);
    return swl_mlx5_make(nic_p, config, verbs, &swl_mlx5_verbs_maker);
}

static ncclResult_t mlx5_create(struct swl_nic **nic_p, const struct swl_nic_config *config)
{
    struct swl_verbs verbs;
    char why[256];
    ncclResult_t rc;

    if (!swl_verbs_load(&verbs, true, NULL, why, sizeof(why)))
        return swl_fail(ncclSystemError, "rank %u nic: %s", config->rank, why);
    rc = swl_mlx5_create_on(nic_p, config, &verbs);
    if (rc != ncclSuccess)
        swl_verbs_unload(&verbs);
    return rc;
}

const struct swl_nic_ops *swl_mlx5_ops(void)
{
    static const struct swl_nic_ops ops = {.name = "mlx5", .create = mlx5_create};

    return &ops;
}
