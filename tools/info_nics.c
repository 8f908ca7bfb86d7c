/* info_nics.c: swimlane-info: RDMA devices as /sys and /dev have them, whether the library can use
 * each, and which one a rank on each GPU would take. Layer: tools. */
#include "tools/info.h"

#include "src/base/util.h"
#include "src/runtime/runtime.h"
#include "transport/rdma_core/path.h"
#include "transport/rdma_core/port.h"
#include "transport/sysfs.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PORTS_MAX 8
#define GIDS_MAX  64

/* Cut paths name no file. */
static void set_path(char path[SWL_SYSFS_PATH], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void set_path(char path[SWL_SYSFS_PATH], const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(path, SWL_SYSFS_PATH, format, arguments);
    va_end(arguments);
}

/* First line of a file of a port. */
static bool port_line(const char *root, const char *port, const char *file, char *text,
                      size_t bytes)
{
    char path[SWL_SYSFS_PATH];

    set_path(path, "%s/%s", port, file);
    return swl_sysfs_line(root, path, text, bytes);
}

/* ---- addresses ---- */

struct gid {
    struct verbs_gid_entry entry;
    char text[64], type[32];
};

static bool parse_gid(const char *text, uint8_t *gid)
{
    unsigned int part[8];

    if (sscanf(text, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x", &part[0], &part[1], &part[2], &part[3],
               &part[4], &part[5], &part[6], &part[7]) != 8)
        return false;
    for (size_t i = 0; i < 8; i++) {
        gid[2 * i] = (uint8_t)(part[i] >> 8);
        gid[2 * i + 1] = (uint8_t)part[i];
    }
    return true;
}

/* Entries that are set; returns their number. */
static uint32_t read_gids(const char *root, const char *port, struct gid *gids)
{
    static const uint8_t none[16];
    char names[GIDS_MAX][SWL_SYSFS_NAME], path[SWL_SYSFS_PATH];
    uint32_t n = 0;

    set_path(path, "%s/gids", port);
    const uint32_t nnames = swl_sysfs_list(root, path, names, GIDS_MAX);

    for (uint32_t i = 0; i < nnames && i < GIDS_MAX; i++) {
        struct gid *g = &gids[n];
        uint64_t index = 0;

        memset(g, 0, sizeof(*g));
        set_path(path, "%s/gids/%s", port, names[i]);
        if (!swl_parse_u64(names[i], &index) ||
            !swl_sysfs_line(root, path, g->text, sizeof(g->text)) ||
            !parse_gid(g->text, g->entry.gid) || memcmp(g->entry.gid, none, sizeof(none)) == 0)
            continue;
        set_path(path, "%s/gid_attrs/types/%s", port, names[i]);
        if (!swl_sysfs_line(root, path, g->type, sizeof(g->type)))
            snprintf(g->type, sizeof(g->type), "type unknown");
        g->entry.gid_index = (uint32_t)index;
        if (strcmp(g->type, "RoCE v2") == 0)
            g->entry.gid_type = VERBS_GID_ROCE_V2;
        n++;
    }
    return n;
}

/* Index of the address that the library would take, or -1. */
static int choose_gid(const struct gid *gids, uint32_t n, bool ethernet, int32_t wanted)
{
    struct verbs_gid_entry entries[GIDS_MAX];
    int at;

    for (uint32_t i = 0; i < n; i++) {
        entries[i] = gids[i].entry;
        if (wanted >= 0 && entries[i].gid_index == (uint32_t)wanted)
            return wanted;
    }
    if (wanted >= 0)
        return -1;
    at = swl_gid_choose(entries, n, ethernet);
    return at < 0 ? -1 : (int)entries[at].gid_index;
}

/* ---- which one, and why not ---- */

/* What the library would make of a NIC. */
struct verdict {
    bool usable, wanted, ethernet;
    uint32_t port;
    int gid_index;             /* -1: none */
    uint16_t pkey, pkey_index; /* both 0: it has no table of partition keys */
    char node[SWL_SYSFS_NAME];
    char why[256]; /* not usable: half a sentence */
};

static bool no(struct verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool no(struct verdict *v, const char *format, ...)
{
    va_list arguments;

    if (v->why[0])
        return false; /* the first reason stays */
    va_start(arguments, format);
    vsnprintf(v->why, sizeof(v->why), format, arguments);
    va_end(arguments);
    return false;
}

/* Name of the device that programs open: the folder below /sys/class/infiniband_verbs that names
 * the NIC. */
static bool find_node(const char *root, const char *nic, char node[SWL_SYSFS_NAME])
{
    static char names[4 * INFO_NICS][SWL_SYSFS_NAME];
    const uint32_t most = SWL_COUNT_OF(names);
    const uint32_t n = swl_sysfs_list(root, "/sys/class/infiniband_verbs", names, most);
    char path[SWL_SYSFS_PATH], text[SWL_SYSFS_NAME];

    for (uint32_t i = 0; i < n && i < most; i++) {
        set_path(path, "/sys/class/infiniband_verbs/%s/ibdev", names[i]);
        if (swl_sysfs_line(root, path, text, sizeof(text)) && strcmp(text, nic) == 0) {
            memcpy(node, names[i], SWL_SYSFS_NAME);
            return true;
        }
    }
    return false;
}

static bool node_opens(const char *root, struct verdict *v, const char *nic)
{
    char path[SWL_SYSFS_PATH], full[2 * SWL_SYSFS_PATH];

    if (!find_node(root, nic, v->node))
        return no(v, "no program can open it: /sys has no uverbs device for it (module ib_uverbs)");
    set_path(path, "/dev/infiniband/%s", v->node);
    if (!swl_sysfs_exists(root, path))
        return no(v, "%s is missing; a container must be given it", path);
    snprintf(full, sizeof(full), "%s%s", strcmp(root, "/") == 0 ? "" : root, path);
    return access(full, R_OK | W_OK) == 0 || no(v, "%s may not be opened by this user", path);
}

static bool take_pkey(const struct info_options *o, struct verdict *v, const char *nic)
{
    struct swl_port port = {.number = (uint8_t)v->port};
    char why[sizeof(v->why)];

    snprintf(port.name, sizeof(port.name), "%s", nic);
    if (!info_pkey(o, &port, why, sizeof(why)))
        return no(v, "%s", why);
    v->pkey = port.pkey;
    v->pkey_index = port.pkey_index;
    return true;
}

static bool port_serves(const struct info_options *o, struct verdict *v, const char *nic,
                        uint32_t number)
{
    struct gid gids[GIDS_MAX];
    char port[SWL_SYSFS_PATH], text[64];

    set_path(port, "/sys/class/infiniband/%s/ports/%u", nic, number);
    if (!swl_sysfs_exists(o->root, port))
        return number == 1 && no(v, "it has no port 1");
    if (!port_line(o->root, port, "state", text, sizeof(text)) || text[0] != '4')
        return no(v, "port %u is not active", number);
    v->port = number;
    v->ethernet =
        port_line(o->root, port, "link_layer", text, sizeof(text)) && strcmp(text, "Ethernet") == 0;
    if (!take_pkey(o, v, nic))
        return false;
    v->gid_index =
        choose_gid(gids, read_gids(o->root, port, gids), v->ethernet, o->options->ib_gid_index);
    if (v->gid_index >= 0)
        return true;
    if (o->options->ib_gid_index >= 0)
        return no(v, "port %u has no address at index %d", number, o->options->ib_gid_index);
    return no(v, "port %u has no %s address", number,
              v->ethernet ? "routable RoCE v2" : "InfiniBand");
}

/* The same rules as swl_port_open, but from what /sys and /dev say. */
static void judge_nic(const struct info_options *o, const char *nic, struct verdict *v)
{
    char path[SWL_SYSFS_PATH], text[32];

    memset(v, 0, sizeof(*v));
    v->gid_index = -1;
    for (uint32_t p = 1; p <= PORTS_MAX && !v->wanted; p++)
        v->wanted = swl_hca_matches(o->options->ib_hca, nic, p);
    if (!v->wanted) {
        (void)no(v, "%s leaves it out", info_source_of("SWIMLANE_IB_HCA"));
        return;
    }
    set_path(path, "/sys/class/infiniband/%s/node_type", nic);
    if (swl_sysfs_line(o->root, path, text, sizeof(text)) && text[0] == '4') {
        (void)no(v, "it is an iWARP device; InfiniBand and RoCE devices serve");
        return;
    }
    if (!node_opens(o->root, v, nic))
        return;
    for (uint32_t p = 1; p <= PORTS_MAX && !v->usable; p++)
        v->usable = swl_hca_matches(o->options->ib_hca, nic, p) && port_serves(o, v, nic, p);
}

/* ---- a NIC ---- */

static void say_gids(struct info_out *out, const char *root, const char *port)
{
    struct gid gids[GIDS_MAX];
    const uint32_t n = read_gids(root, port, gids);

    info_open(out, "gids", '[');
    for (uint32_t i = 0; i < n; i++)
        info_text(out, NULL, "%u: %s, %s", gids[i].entry.gid_index, gids[i].text, gids[i].type);
    info_close(out, ']');
}

static void say_port(struct info_out *out, const char *root, const char *nic, const char *number)
{
    static const char *const keys[] = {"state", "rate", "link_layer"};
    char port[SWL_SYSFS_PATH], text[64];

    info_open(out, NULL, '{');
    info_text(out, "port", "%s", number);
    set_path(port, "/sys/class/infiniband/%s/ports/%s", nic, number);
    for (size_t i = 0; i < SWL_COUNT_OF(keys); i++)
        info_text(out, keys[i], "%s",
                  port_line(root, port, keys[i], text, sizeof(text)) ? text : "unknown");
    say_gids(out, root, port);
    info_close(out, '}');
}

static void say_interfaces(struct info_out *out, const char *root, const char *nic)
{
    char names[8][SWL_SYSFS_NAME], path[SWL_SYSFS_PATH], mtu[16], links[128];
    uint32_t n;

    set_path(path, "/sys/class/infiniband/%s/device/net", nic);
    n = swl_sysfs_list(root, path, names, 8);
    info_open(out, "interfaces", '[');
    for (uint32_t i = 0; i < n && i < 8; i++) {
        set_path(path, "/sys/class/net/%s/mtu", names[i]);
        const bool has_mtu = swl_sysfs_line(root, path, mtu, sizeof(mtu));

        set_path(path, "/sys/class/net/%s/bonding/slaves", names[i]);
        const bool bond = swl_sysfs_line(root, path, links, sizeof(links));

        info_text(out, NULL, "%s%s%s%s%s", names[i], has_mtu ? ", MTU " : "", mtu,
                  bond ? ", bond of " : "", links);
    }
    info_close(out, ']');
}

static void say_distance(struct info_out *out, const char *root, const char *gpu, const char *nic)
{
    const struct swl_pci_distance d = swl_pci_distance(root, gpu, nic);

    if (d.level <= SWL_PCI_BRIDGE)
        info_text(out, gpu, "%s, %u steps", swl_pci_level_text(d.level), d.hops);
    else
        info_text(out, gpu, "%s", swl_pci_level_text(d.level));
}

/* What connections over it would have. */
static void say_path(struct info_out *out, const struct info_options *o, const struct verdict *v)
{
    const struct swl_options *set = o->options;
    const struct swl_nic_ib ib = {.gid_index = set->ib_gid_index,
                                  .sl = set->ib_sl,
                                  .tc = set->ib_tc,
                                  .timeout = set->ib_timeout,
                                  .retry_cnt = set->ib_retry_cnt};
    struct rc_tuning tuning;
    const char *note, *why;

    info_open(out, "path", '{');
    info_integer(out, "port", v->port);
    info_integer(out, "gid_index", v->gid_index);
    if (v->pkey)
        info_text(out, "partition_key", "0x%04x (place %u)%s", v->pkey, v->pkey_index,
                  v->pkey & 0x8000 ? "" : ", a limited member");
    if (swl_rc_tuning(&tuning, &ib, v->ethernet, &note, &why)) {
        info_integer(out, "service_level", tuning.sl);
        info_integer(out, "traffic_class", tuning.tclass);
        info_text(out, "ack_timeout", "%u (%.1f ms)", tuning.timeout,
                  4.096e-3 * (double)(UINT64_C(1) << tuning.timeout));
        info_integer(out, "retries", tuning.retries);
        if (note)
            info_text(out, "note", "%s", note);
    } else {
        info_text(out, "refused", "%s", why);
    }
    info_close(out, '}');
}

static void say_nic(struct info_out *out, const struct info_options *o, const char *nic)
{
    const char *root = o->root;
    char ports[PORTS_MAX][SWL_SYSFS_NAME], path[SWL_SYSFS_PATH], pci[32];
    struct verdict v;
    uint32_t n;

    judge_nic(o, nic, &v);
    info_open(out, NULL, '{');
    info_text(out, "nic", "%s", nic);
    info_flag(out, "usable", v.usable);
    if (v.usable)
        say_path(out, o, &v);
    else
        info_text(out, "why_not", "%s", v.why);
    if (v.node[0])
        info_text(out, "device", "/dev/infiniband/%s", v.node);
    info_open(out, "from_gpus", '{');
    if (o->gpu)
        say_distance(out, root, o->gpu, nic);
    for (int g = 0; o->gpu == NULL && g < info_count_gpus(); g++)
        if (swl_gpu_pci(g, pci, sizeof(pci)) == cudaSuccess)
            say_distance(out, root, pci, nic);
    info_close(out, '}');
    say_interfaces(out, root, nic);
    set_path(path, "/sys/class/infiniband/%s/ports", nic);
    n = swl_sysfs_list(root, path, ports, PORTS_MAX);
    info_open(out, "ports", '[');
    for (uint32_t i = 0; i < n && i < PORTS_MAX; i++)
        say_port(out, root, nic, ports[i]);
    info_close(out, ']');
    info_close(out, '}');
}

/* ---- all ---- */

/* NICs of a rank on this GPU, in the order in which it takes them. */
static void say_choice(struct info_out *out, const struct info_options *o,
                       char (*names)[SWL_SYSFS_NAME], uint32_t n, const char *gpu, uint32_t device)
{
    const uint32_t wanted_nics = o->options->nics ? o->options->nics : 1;
    uint32_t scores[INFO_NICS] = {0}, order[INFO_NICS] = {0}, nic_of[INFO_NICS] = {0};
    uint32_t count = 0, found = 0;
    struct verdict v;

    for (uint32_t i = 0; i < n; i++) {
        judge_nic(o, names[i], &v);
        if (!v.wanted)
            continue;
        scores[count] = swl_pci_distance_score(swl_pci_distance(o->root, gpu, names[i]));
        nic_of[count++] = i;
    }
    swl_pci_nearest_first(scores, count, device * wanted_nics, order);
    info_open(out, gpu, '[');
    for (uint32_t i = 0; i < count && found < wanted_nics; i++) {
        const char *nic = names[nic_of[order[i]]];

        judge_nic(o, nic, &v);
        if (!v.usable)
            continue;
        found++;
        info_text(out, NULL, "%s port %u, %s", nic, v.port,
                  swl_pci_level_text(scores[order[i]] >> 16));
    }
    info_close(out, ']');
}

void info_nics(struct info_out *out, const struct info_options *o)
{
    static char names[INFO_NICS][SWL_SYSFS_NAME];
    const uint32_t found = swl_sysfs_list(o->root, "/sys/class/infiniband", names, INFO_NICS);
    const uint32_t n = found < INFO_NICS ? found : INFO_NICS;
    char pci[32];

    info_integer(out, "nics_found", found);
    if (found > INFO_NICS)
        info_text(out, "nics_cut", "only the first %d are listed", INFO_NICS);
    info_open(out, "nics", '[');
    for (uint32_t i = 0; i < n; i++)
        say_nic(out, o, names[i]);
    info_close(out, ']');
    info_open(out, "nics_of_gpus", '{');
    if (o->gpu)
        say_choice(out, o, names, n, o->gpu, 0);
    for (int g = 0; o->gpu == NULL && g < info_count_gpus(); g++)
        if (swl_gpu_pci(g, pci, sizeof(pci)) == cudaSuccess)
            say_choice(out, o, names, n, pci, (uint32_t)g);
    info_close(out, '}');
}
