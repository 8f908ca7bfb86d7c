/* usable.c: would an mlx5 driver work here? Asked before a group chooses its driver.
 *
 * Layer: transport/mlx5. Opens the device and closes it again; keeps nothing. */
#include "transport/mlx5/usable.h"

#include "transport/mlx5/commands.h"
#include "transport/site.h"

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

bool swl_mlx5_usable(const struct swl_verbs *verbs, bool devx, const struct swl_nic_config *config,
                     char *why, size_t why_bytes)
{
    const struct swl_nic_ib *ib = swl_nic_ib_of(config->settings.ib);
    const struct swl_port_want want = {ib->hca, ib->gid_index, devx ? SWL_PORT_DEVX : SWL_PORT_MLX5,
                                       config->near, ib->pkey};
    struct ibv_context *context = NULL;
    struct swl_port port;
    bool ok;

    ok = swl_port_open(verbs, &want, &context, &port, why, why_bytes) &&
         (!devx || takes_commands(verbs, context, &port, why, why_bytes)) &&
         swl_site_doorbells(config->near ? config->near->root : NULL, why, why_bytes);
    if (context)
        (void)verbs->ibv_close_device(context);
    return ok;
}

static bool usable(bool devx, const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    struct swl_verbs verbs;
    bool ok;

    if (!swl_verbs_load(&verbs, true, NULL, why, why_bytes))
        return false;
    ok = swl_mlx5_usable(&verbs, devx, config, why, why_bytes);
    swl_verbs_unload(&verbs);
    return ok;
}

bool swl_devx_usable(const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    return usable(true, config, why, why_bytes);
}

bool swl_mlv_usable(const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    return usable(false, config, why, why_bytes);
}
