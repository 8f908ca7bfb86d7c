/* info_site.c: swimlane-info: host, GPUs and NICs. Layer: tools. */
#include "tools/info.h"

#include "src/base/util.h"
#include "src/gpu.h"
#include "transport/site.h"
#include "transport/verbs/verbs.h"

#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

static void say_limit(struct info_out *out, const char *key, int which, uint64_t unit)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)which, &limit) != 0)
        info_text(out, key, "unknown");
    else if (limit.rlim_cur == RLIM_INFINITY)
        info_text(out, key, "unlimited");
    else
        info_text(out, key, "%llu", (unsigned long long)(limit.rlim_cur / unit));
}

void info_host(struct info_out *out, const struct info_options *o)
{
    static const char *const modules[] = {"ib_uverbs", "mlx5_core", "mlx5_ib",        "rdma_rxe",
                                          "siw",       "nvidia",    "nvidia_peermem", "gdrdrv"};
    struct swl_verbs verbs;
    struct utsname name;
    char text[512] = "";

    info_open(out, "host", '{');
    if (uname(&name) == 0)
        info_text(out, "kernel", "%s %s", name.release, name.machine);
    info_text(out, "ranks", SWL_EMULATED ? "emulated" : "on GPUs");
    if (swl_verbs_load(&verbs, true, NULL, text, sizeof(text)))
        info_text(out, "rdma_core", "loaded, %s",
                  verbs.ibv_reg_dmabuf_mr ? "takes dmabufs" : "too old for dmabufs");
    else
        info_text(out, "rdma_core", "%s", text);
    swl_verbs_unload(&verbs);
    info_flag(out, "dev_infiniband", swl_site_exists(o->root, "/dev/infiniband"));
    say_limit(out, "locked_memory_kib", RLIMIT_MEMLOCK, 1024);
    say_limit(out, "open_files", RLIMIT_NOFILE, 1);
    info_open(out, "modules", '{');
    for (size_t i = 0; i < SWL_COUNT_OF(modules); i++)
        info_flag(out, modules[i], swl_site_module(o->root, modules[i]));
    info_close(out, '}');
    if (swl_site_line(o->root, "/proc/driver/nvidia/version", text, sizeof(text)))
        info_text(out, "nvidia_driver", "%s", text);
    if (swl_site_doorbells(o->root, text, sizeof(text)))
        info_text(out, "doorbells", "the GPU may write registers of NICs, as far as is known");
    else
        info_text(out, "doorbells", "%s", text);
    info_close(out, '}');
}

static int count_gpus(void)
{
    int n = 0;

    if (swl_gpu_count(&n) != cudaSuccess || n < 0)
        return 0;
    return n < INFO_GPUS ? n : INFO_GPUS;
}

static void say_gpu(struct info_out *out, int device, int n)
{
    struct swl_gpu_info info;
    char pci[32], peers[256] = "";
    size_t at = 0;
    int nreached = 0;

    info_open(out, NULL, '{');
    info_integer(out, "gpu", device);
    if (swl_gpu_info(device, &info) == cudaSuccess)
        info_text(out, "what", "compute capability %d.%d, %d SMs", info.cc_major, info.cc_minor,
                  info.nsms);
    if (swl_gpu_pci(device, pci, sizeof(pci)) == cudaSuccess)
        info_text(out, "pci", "%s", pci);
    for (int p = 0; p < n; p++) {
        const bool reached = p != device && swl_gpu_reaches(device, p);

        nreached += reached;
        if (reached && at + 8 < sizeof(peers))
            at += (size_t)snprintf(peers + at, sizeof(peers) - at, "%s%d", at ? "," : "", p);
    }
    info_text(out, "reaches_gpus", "%s",
              nreached == 0       ? "none"
              : nreached == n - 1 ? "all others"
                                  : peers);
    info_close(out, '}');
}

void info_gpus(struct info_out *out)
{
    const int n = count_gpus();

    info_integer(out, SWL_EMULATED ? "emulated_gpus_found" : "gpus_found", n);
    info_open(out, "gpus", '[');
    for (int i = 0; i < (SWL_EMULATED && n > 1 ? 1 : n); i++) /* emulated ones are all alike */
        say_gpu(out, i, n);
    info_close(out, ']');
}

/* ---- NICs, as /sys has them ---- */

/* Cut paths name no file. */
static void set_path(char path[SWL_SITE_PATH], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void set_path(char path[SWL_SITE_PATH], const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(path, SWL_SITE_PATH, format, arguments);
    va_end(arguments);
}

static bool is_zero(const char *gid)
{
    return strspn(gid, "0:") == strlen(gid);
}

static void say_gids(struct info_out *out, const char *root, const char *port)
{
    char names[64][SWL_SITE_NAME];
    char path[SWL_SITE_PATH], gid[64], type[32];
    uint32_t n;

    set_path(path, "%s/gids", port);
    n = swl_site_list(root, path, names, 64);
    info_open(out, "gids", '[');
    for (uint32_t i = 0; i < n && i < 64; i++) {
        set_path(path, "%s/gids/%s", port, names[i]);
        if (!swl_site_line(root, path, gid, sizeof(gid)) || is_zero(gid))
            continue;
        set_path(path, "%s/gid_attrs/types/%s", port, names[i]);
        if (!swl_site_line(root, path, type, sizeof(type)))
            snprintf(type, sizeof(type), "type unknown");
        info_text(out, NULL, "%s: %s, %s", names[i], gid, type);
    }
    info_close(out, ']');
}

static void say_port(struct info_out *out, const char *root, const char *nic, const char *number)
{
    static const char *const keys[] = {"state", "rate", "link_layer"};
    char port[SWL_SITE_PATH], path[SWL_SITE_PATH], text[64];

    info_open(out, NULL, '{');
    info_text(out, "port", "%s", number);
    set_path(port, "/sys/class/infiniband/%s/ports/%s", nic, number);
    for (size_t i = 0; i < SWL_COUNT_OF(keys); i++) {
        set_path(path, "%s/%s", port, keys[i]);
        info_text(out, keys[i], "%s",
                  swl_site_line(root, path, text, sizeof(text)) ? text : "unknown");
    }
    say_gids(out, root, port);
    info_close(out, '}');
}

static void say_interfaces(struct info_out *out, const char *root, const char *nic)
{
    char names[8][SWL_SITE_NAME], path[SWL_SITE_PATH], text[16];
    uint32_t n;

    set_path(path, "/sys/class/infiniband/%s/device/net", nic);
    n = swl_site_list(root, path, names, 8);
    info_open(out, "interfaces", '[');
    for (uint32_t i = 0; i < n && i < 8; i++) {
        set_path(path, "/sys/class/net/%s/mtu", names[i]);
        if (swl_site_line(root, path, text, sizeof(text)))
            info_text(out, NULL, "%s, MTU %s", names[i], text);
        else
            info_text(out, NULL, "%s", names[i]);
    }
    info_close(out, ']');
}

static void say_distance(struct info_out *out, const char *root, const char *gpu, const char *nic)
{
    const struct swl_site_distance d = swl_site_distance(root, gpu, nic);

    if (d.level <= SWL_SITE_BRIDGE)
        info_text(out, gpu, "%s, %u steps", swl_site_level_text(d.level), d.hops);
    else
        info_text(out, gpu, "%s", swl_site_level_text(d.level));
}

static void say_nic(struct info_out *out, const struct info_options *o, const char *nic)
{
    const char *root = o->root;
    char ports[8][SWL_SITE_NAME], path[SWL_SITE_PATH], pci[32];
    uint32_t n;

    info_open(out, NULL, '{');
    info_text(out, "nic", "%s", nic);
    info_open(out, "from_gpus", '{');
    if (o->gpu)
        say_distance(out, root, o->gpu, nic);
    for (int g = 0; o->gpu == NULL && g < count_gpus(); g++)
        if (swl_gpu_pci(g, pci, sizeof(pci)) == cudaSuccess)
            say_distance(out, root, pci, nic);
    info_close(out, '}');
    say_interfaces(out, root, nic);
    set_path(path, "/sys/class/infiniband/%s/ports", nic);
    n = swl_site_list(root, path, ports, 8);
    info_open(out, "ports", '[');
    for (uint32_t i = 0; i < n && i < 8; i++)
        say_port(out, root, nic, ports[i]);
    info_close(out, ']');
    info_close(out, '}');
}

void info_nics(struct info_out *out, const struct info_options *o)
{
    static char names[INFO_NICS][SWL_SITE_NAME];
    const uint32_t n = swl_site_list(o->root, "/sys/class/infiniband", names, INFO_NICS);

    info_integer(out, "nics_found", n);
    if (n > INFO_NICS)
        info_text(out, "nics_cut", "only the first %d are listed", INFO_NICS);
    info_open(out, "nics", '[');
    for (uint32_t i = 0; i < n && i < INFO_NICS; i++)
        say_nic(out, o, names[i]);
    info_close(out, ']');
}
