/* verbs_usable.c: would the verbs wire work here? Asked before a group chooses its driver.
 *
 * Layer: transport/proxy. Opens the device and closes it again; keeps nothing. */
#include "transport/proxy/verbs_wire.h"

#include <stdio.h>
#include <string.h>

bool swl_proxy_verbs_usable(const struct swl_nic_config *config, char *why, size_t why_bytes)
{
    static const struct swl_nic_ib unset = {NULL, -1, -1, -1, 0, 0};
    const struct swl_nic_ib *ib = config->ib ? config->ib : &unset;
    const struct swl_port_want want = {ib->hca, ib->gid_index, false, config->near};
    struct ibv_context *context = NULL;
    struct swl_verbs verbs;
    struct swl_port port;
    bool ok;

    if (!swl_verbs_load(&verbs, false, NULL, why, why_bytes))
        return false;
    ok = swl_port_open(&verbs, &want, &context, &port, why, why_bytes);
    if (ok && ((struct verbs_head *)context)->device->transport_type == VERBS_IWARP) {
        snprintf(why, why_bytes, "%s is an iWARP device, which connects by librdmacm only",
                 port.name);
        ok = false;
    }
    if (context)
        (void)verbs.ibv_close_device(context);
    swl_verbs_unload(&verbs);
    return ok;
}
