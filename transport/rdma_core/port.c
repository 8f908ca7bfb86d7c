/* port.c: see port.h. Layer: transport/rdma_core; no state. */
#include "transport/rdma_core/port.h"

#include "transport/rdma_core/pkey.h"
#include "transport/sysfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORTS_MAX 8
#define GIDS_MAX  256 /* an index has eight bits in an address path */

/* ---- pure ---- */

/* One name of the list, [item, end). */
static bool item_matches(const char *item, const char *end, const char *name, uint32_t port,
                         bool whole)
{
    const char *colon = memchr(item, ':', (size_t)(end - item));
    const size_t length = (size_t)((colon ? colon : end) - item);
    uint32_t number = 0;

    if (strncmp(item, name, length) != 0 || (whole && name[length] != '\0') || length == 0)
        return false;
    for (const char *c = colon ? colon + 1 : end; c < end; c++) {
        if (*c < '0' || *c > '9' || number > 255)
            return false;
        number = number * 10 + (uint32_t)(*c - '0');
    }
    return colon == NULL || colon + 1 == end || number == port;
}

bool swl_hca_matches(const char *spec, const char *name, uint32_t port)
{
    bool wanted = true, whole = false, found = false;

    if (spec == NULL || *spec == '\0')
        return true;
    if (*spec == '^') {
        wanted = false;
        spec++;
    }
    if (*spec == '=') {
        whole = true;
        spec++;
    }
    while (*spec && !found) {
        const char *end = strchr(spec, ',');

        if (end == NULL)
            end = spec + strlen(spec);
        found = item_matches(spec, end, name, port, whole);
        spec = *end ? end + 1 : end;
    }
    return found == wanted;
}

static bool all_zero(const uint8_t *bytes, int n)
{
    for (int i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

/* 0: no use; 1: IPv6; 2: IPv4. */
static int rank_of(const struct verbs_gid_entry *e)
{
    const bool v4 = all_zero(e->gid, 10) && e->gid[10] == 0xff && e->gid[11] == 0xff;

    if (e->gid_type != VERBS_GID_ROCE_V2 || all_zero(e->gid, 16))
        return 0;
    if (v4) /* 169.254 stays on the wire */
        return e->gid[12] == 169 && e->gid[13] == 254 ? 0 : 2;
    return e->gid[0] == 0xfe && (e->gid[1] & 0xc0) == 0x80 ? 0 : 1;
}

int swl_gid_choose(const struct verbs_gid_entry *entries, uint32_t n, bool ethernet)
{
    int best = -1, best_rank = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct verbs_gid_entry *e = &entries[i];
        int rank;

        if (ethernet)
            rank = rank_of(e);
        else if (e->gid_index == 1) /* bytes 4 and 5: LID of a router */
            rank = all_zero(e->gid + 4, 2) ? 0 : 2;
        else
            rank = e->gid_index == 0 && !all_zero(e->gid, 16);
        if (rank > best_rank) {
            best_rank = rank;
            best = (int)i;
        }
    }
    return best;
}

/* ---- opening ---- */

/* What the search works on, and the first reason why a wanted port is none. */
struct search {
    const struct swl_verbs *verbs;
    const struct swl_port_want *want;
    char *why;
    size_t why_bytes;
};

/* For snprintf: the first reason stays. */
static size_t room(const struct search *s)
{
    return s->why[0] ? 0 : s->why_bytes;
}

/* Entries of the port's table that exist; containers leave holes. */
static uint32_t read_gids(const struct search *s, struct ibv_context *context, uint32_t port,
                          uint32_t length, struct verbs_gid_entry *entries)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < length; i++) {
        struct verbs_gid_entry *e = &entries[n];
        int rc;

        memset(e, 0, sizeof(*e));
        if (s->verbs->_ibv_query_gid_ex)
            rc = s->verbs->_ibv_query_gid_ex(context, port, i, e, 0, sizeof(*e));
        else
            rc = s->verbs->ibv_query_gid(context, (uint8_t)port, (int)i, e->gid);
        e->gid_index = i;
        if (rc == 0 && !all_zero(e->gid, 16))
            n++;
    }
    return n;
}

static bool take_gid(const struct search *s, struct ibv_context *context, int table_length,
                     struct swl_port *port)
{
    const uint32_t length = table_length < GIDS_MAX ? (uint32_t)table_length : GIDS_MAX;
    struct verbs_gid_entry *entries = calloc(length + 1u, sizeof(*entries));
    uint32_t n;
    int at = -1;

    if (entries == NULL) {
        snprintf(s->why, room(s), "no memory for %u addresses", length);
        return false;
    }
    n = read_gids(s, context, port->number, length, entries);
    if (s->want->gid_index < 0)
        at = swl_gid_choose(entries, n, port->ethernet);
    for (uint32_t i = 0; i < n && s->want->gid_index >= 0; i++)
        if (entries[i].gid_index == (uint32_t)s->want->gid_index)
            at = (int)i;
    if (at >= 0) {
        port->gid_index = (uint8_t)entries[at].gid_index;
        memcpy(port->gid, entries[at].gid, sizeof(port->gid));
    }
    free(entries);
    if (at >= 0)
        return true;
    if (s->want->gid_index >= 0)
        snprintf(s->why, room(s), "%s port %u has no address at %s=%d", port->name, port->number,
                 SWL_IB_VARIABLE("GID_INDEX", ""), s->want->gid_index);
    else if (port->ethernet && s->verbs->_ibv_query_gid_ex == NULL)
        snprintf(s->why, room(s),
                 "rdma-core is too old to tell the kinds of addresses of %s port %u: set "
                 "SWIMLANE_IB_GID_INDEX",
                 port->name, port->number);
    else
        snprintf(s->why, room(s),
                 "%s port %u has no %s address (SWIMLANE_IB_GID_INDEX would name another)",
                 port->name, port->number, port->ethernet ? "routable RoCE v2" : "InfiniBand");
    return false;
}

static bool take_port(const struct search *s, struct ibv_context *context, uint32_t number,
                      struct swl_port *port)
{
    struct verbs_port_attr attr;
    uint16_t keys[SWL_PKEYS_MAX];
    uint32_t nkeys;

    memset(&attr, 0, sizeof(attr));
    if (s->verbs->ibv_query_port(context, (uint8_t)number, &attr) != 0) {
        if (number == 1)
            snprintf(s->why, room(s), "%s does not tell the state of port 1", port->name);
        return false;
    }
    port->number = (uint8_t)number;
    if (attr.state != VERBS_PORT_ACTIVE) {
        snprintf(s->why, room(s), "%s port %u is not active", port->name, number);
        return false;
    }
    port->ethernet = attr.link_layer == VERBS_LINK_ETHERNET;
    port->grh_required = (attr.flags & VERBS_PORT_GRH_REQUIRED) != 0;
    port->mtu = (uint8_t)attr.active_mtu;
    port->lid = attr.lid;
    nkeys = swl_pkey_read(s->verbs, context, port->number, attr.pkey_tbl_len, keys);
    if (!swl_pkey_take(keys, nkeys, s->want->pkey, port, s->why, room(s)))
        return false;
    return take_gid(s, context, attr.gid_tbl_len > 0 ? attr.gid_tbl_len : 0, port);
}

static bool mlx5_only(const struct swl_port_want *want)
{
    return want->kind == SWL_PORT_MLX5 || want->kind == SWL_PORT_DEVX;
}

static bool wanted(const struct search *s, struct ibv_device *device, const char *name)
{
    if (mlx5_only(s->want) && !s->verbs->mlx5dv_is_supported(device))
        return false;
    for (uint32_t number = 1; number <= PORTS_MAX; number++)
        if (swl_hca_matches(s->want->hca, name, number))
            return true;
    return false;
}

/* iWARP has neither atomics nor connections by address; what it completes is not yet placed. */
static bool is_iwarp(const struct search *s, struct ibv_context *context, const char *name)
{
    if (mlx5_only(s->want) ||
        ((const struct verbs_head *)context)->device->transport_type != VERBS_IWARP)
        return false;
    snprintf(s->why, room(s), "%s is an iWARP device; InfiniBand and RoCE devices serve", name);
    return true;
}

/* The first usable port of the wanted device; NULL: none. */
static struct ibv_context *take_device(const struct search *s, struct ibv_device *device,
                                       struct swl_port *port)
{
    const char *name = s->verbs->ibv_get_device_name(device);
    struct mlx5_context_attr attr = {.flags = MLX5_CONTEXT_DEVX};
    struct ibv_context *context;

    memset(port, 0, sizeof(*port));
    snprintf(port->name, sizeof(port->name), "%s", name);
    errno = 0;
    if (s->want->kind == SWL_PORT_DEVX)
        context = s->verbs->mlx5dv_open_device(device, &attr);
    else
        context = s->verbs->ibv_open_device(device);
    if (context == NULL) {
        snprintf(s->why, room(s), "%s cannot be opened%s: %s", name,
                 s->want->kind == SWL_PORT_DEVX ? " for DevX" : "",
                 errno ? strerror(errno) : "no reason given");
        return NULL;
    }
    if (!is_iwarp(s, context, name))
        for (uint32_t number = 1; number <= PORTS_MAX; number++)
            if (swl_hca_matches(s->want->hca, name, number) && take_port(s, context, number, port))
                return context;
    (void)s->verbs->ibv_close_device(context);
    return NULL;
}

/* order[]: the wanted devices of n by distance; scratch: room for 2 n numbers. Returns their
 * number. */
static uint32_t sort_devices(const struct search *s, struct ibv_device **list, uint32_t n,
                             uint32_t *order, uint32_t *scratch)
{
    const struct swl_nic_proximity *proximity = s->want->proximity;
    uint32_t *scores = scratch, *device = scratch + n, count = 0;

    for (uint32_t i = 0; i < n; i++) {
        const char *name = s->verbs->ibv_get_device_name(list[i]);

        if (name == NULL || !wanted(s, list[i], name))
            continue;
        scores[count] = 0;
        if (proximity)
            scores[count] =
                swl_pci_distance_score(swl_pci_distance(proximity->root, proximity->gpu, name));
        device[count++] = i;
    }
    swl_pci_nearest_first(scores, count, proximity ? proximity->turn : 0, order);
    for (uint32_t i = 0; i < count; i++)
        order[i] = device[order[i]];
    return count;
}

/* The usable device that was found, unless *nth_p of them are to be left out before it. */
static struct ibv_context *skip_ports(const struct search *s, struct ibv_context *context,
                                      uint32_t *nth_p)
{
    if (context == NULL || *nth_p == 0)
        return context;
    (*nth_p)--;
    (void)s->verbs->ibv_close_device(context);
    return NULL;
}

/* NULL: no device of the list, or no memory for their order. */
static struct ibv_context *take_nearest(const struct search *s, struct ibv_device **list,
                                        uint32_t n, struct swl_port *port)
{
    uint32_t *order = calloc(3 * (size_t)n, sizeof(*order));
    uint32_t nth = s->want->proximity ? s->want->proximity->nth : 0;
    struct ibv_context *context = NULL;
    uint32_t count;

    if (order == NULL) {
        snprintf(s->why, room(s), "no memory for the order of %u devices", n);
        return NULL;
    }
    count = sort_devices(s, list, n, order, order + n);
    for (uint32_t i = 0; i < count && context == NULL; i++)
        context = skip_ports(s, take_device(s, list[order[i]], port), &nth);
    free(order);
    if (context == NULL && s->want->proximity && nth < s->want->proximity->nth)
        snprintf(s->why, s->why_bytes,
                 "%u of the RDMA devices can be used, not the %u that SWIMLANE_NICS asks for",
                 s->want->proximity->nth - nth, s->want->proximity->nth + 1);
    return context;
}

bool swl_port_open(const struct swl_verbs *verbs, const struct swl_port_want *want,
                   struct ibv_context **context_p, struct swl_port *port_p, char *why,
                   size_t why_bytes)
{
    struct search s = {verbs, want, why, why_bytes};
    struct ibv_context *context = NULL;
    struct swl_port port;
    int n = 0;
    /* NULL where the kernel has no RDMA, also with success */
    struct ibv_device **list = verbs->ibv_get_device_list(&n);

    why[0] = '\0';
    if (list && n > 0)
        context = take_nearest(&s, list, (uint32_t)n, &port);
    if (list)
        verbs->ibv_free_device_list(list);
    if (context == NULL) {
        if (list == NULL || n <= 0)
            snprintf(s.why, room(&s), "this machine has no RDMA device (/dev/infiniband)");
        else
            snprintf(s.why, room(&s), "none of %d RDMA devices is %s%s%s%s%s", n,
                     mlx5_only(want) ? "an mlx5 device" : "one",
                     want->hca && *want->hca ? " that " : "",
                     want->hca && *want->hca ? SWL_IB_VARIABLE("HCA", "") : "",
                     want->hca && *want->hca ? " allows: " : "", want->hca ? want->hca : "");
        return false;
    }
    *port_p = port;
    *context_p = context;
    return true;
}
