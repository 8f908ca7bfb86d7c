/* info_pkey.c: swimlane-info: the partition key that connections over a port would have, by the
 * rules of the drivers, from what /sys has. Layer: tools. */
#include "tools/info.h"

#include "transport/rdma_core/pkey.h"
#include "transport/sysfs.h"

#include <stdio.h>
#include <stdlib.h>

/* The table of the port; returns the length, 0 where the device has none. */
static uint32_t read_keys(const char *root, const struct swl_port *port,
                          uint16_t keys[SWL_PKEYS_MAX])
{
    char path[SWL_SYSFS_PATH], text[32];
    uint32_t n = 0;

    for (; n < SWL_PKEYS_MAX; n++) {
        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/pkeys/%u", port->name,
                 port->number, n);
        if (!swl_sysfs_line(root, path, text, sizeof(text)))
            break;
        keys[n] = (uint16_t)strtoul(text, NULL, 16);
    }
    return n;
}

bool info_pkey(const struct info_options *o, struct swl_port *port, char *why, size_t why_bytes)
{
    uint16_t keys[SWL_PKEYS_MAX];
    const uint32_t n = read_keys(o->root, port, keys);

    return swl_pkey_take(keys, n, o->options->ib_pkey, port, why, why_bytes);
}
