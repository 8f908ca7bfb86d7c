/* usable.c: would the mlx5 driver work here? Asked before a group chooses its driver.
 *
 * Layer: transport/mlx5. Opens the device and closes it again; keeps nothing. */
#include "transport/mlx5/devx.h"
#include "transport/site.h"

#include <string.h>

bool swl_devx_usable(const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    const struct swl_nic_ib *ib = swl_nic_ib_of(config->ib);
    const struct swl_port_want want = {ib->hca, ib->gid_index, SWL_PORT_DEVX, config->near};
    struct ibv_context *context = NULL;
    struct swl_verbs verbs;
    struct swl_port port;
    bool ok;

    if (!swl_verbs_load(&verbs, true, NULL, why, why_bytes))
        return false;
    ok = swl_port_open(&verbs, &want, &context, &port, why, why_bytes) &&
         swl_site_doorbells(config->near ? config->near->root : NULL, why, why_bytes);
    if (context)
        (void)verbs.ibv_close_device(context);
    swl_verbs_unload(&verbs);
    return ok;
}
