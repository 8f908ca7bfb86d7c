/* info_machine.c: swimlane-info: host, GPUs and NICs. Layer: tools. */
#include "tools/info.h"

#include "src/base/util.h"
#include "src/runtime/runtime.h"
#include "transport/rdma_core/verbs.h"
#include "transport/sysfs.h"

#include <stdio.h>
#include <stdlib.h>
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

/* ---- verdicts ---- */

#define LEAST_LOCKED (UINT64_C(64) << 20) /* even small groups have more to lock */
#define GOOD_LOCKED  (UINT64_C(1) << 30)

/* The limit does not count for a process that may lock anything (CAP_IPC_LOCK, bit 14). */
static bool may_lock_all(void)
{
    char line[128];
    FILE *file = fopen("/proc/self/status", "re");
    unsigned long long bits = 0;

    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "CapEff:", 7) == 0)
            bits = strtoull(line + 7, NULL, 16);
    if (file)
        (void)fclose(file);
    return (bits >> 14 & 1) != 0;
}

static void judge_locked_memory(struct info_out *out)
{
    struct rlimit limit;
    const char *verdict = "enough";

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < GOOD_LOCKED) {
        if (may_lock_all())
            verdict = "small, but this process may lock any amount (CAP_IPC_LOCK)";
        else if (limit.rlim_cur < LEAST_LOCKED)
            verdict = "too small for RDMA, which locks the memory that NICs reach, often hundreds "
                      "of MB a rank: ulimit -l unlimited";
        else
            verdict = "perhaps too small for RDMA with large tokens: ulimit -l unlimited";
    }
    info_text(out, "locked_memory_verdict", "%s", verdict);
}

static void judge_dev_infiniband(struct info_out *out, const struct info_options *o)
{
    static char names[INFO_NICS][SWL_SYSFS_NAME];
    const uint32_t nnics = swl_sysfs_list(o->root, "/sys/class/infiniband", names, INFO_NICS);
    const uint32_t n = swl_sysfs_list(o->root, "/dev/infiniband", names, INFO_NICS);
    const char *but = nnics ? ", although /sys has NICs: a container must be given their devices"
                            : ": there is no RDMA device here";
    bool any = false;

    for (uint32_t i = 0; i < n && i < INFO_NICS; i++)
        any = any || strncmp(names[i], "uverbs", 6) == 0;
    if (!swl_sysfs_exists(o->root, "/dev/infiniband"))
        info_text(out, "dev_infiniband_verdict", "missing%s", but);
    else if (!any)
        info_text(out, "dev_infiniband_verdict", "a folder without a device%s", but);
    else
        info_text(out, "dev_infiniband_verdict", "has devices; which NIC can be used is below");
}

void info_host(struct info_out *out, const struct info_options *o)
{
    static const char *const modules[] = {"ib_uverbs", "mlx5_core",      "mlx5_ib", "rdma_rxe",
                                          "nvidia",    "nvidia_peermem", "gdrdrv"};
    struct swl_verbs verbs;
    struct utsname name;
    char text[512] = "";

    info_open(out, "host", '{');
    if (uname(&name) == 0)
        info_text(out, "kernel", "%s %s", name.release, name.machine);
    info_text(out, "ranks", INFO_RANKS);
    if (swl_verbs_load(&verbs, true, NULL, text, sizeof(text)))
        info_text(out, "rdma_core", "loaded, %s",
                  verbs.ibv_reg_dmabuf_mr ? "takes dmabufs" : "too old for dmabufs");
    else
        info_text(out, "rdma_core", "%s", text);
    swl_verbs_unload(&verbs);
    info_flag(out, "dev_infiniband", swl_sysfs_exists(o->root, "/dev/infiniband"));
    judge_dev_infiniband(out, o);
    say_limit(out, "locked_memory_kib", RLIMIT_MEMLOCK, 1024);
    judge_locked_memory(out);
    say_limit(out, "open_files", RLIMIT_NOFILE, 1);
    info_open(out, "modules", '{');
    for (size_t i = 0; i < SWL_COUNT_OF(modules); i++)
        info_flag(out, modules[i], swl_sysfs_module(o->root, modules[i]));
    info_close(out, '}');
    if (swl_sysfs_line(o->root, "/proc/driver/nvidia/version", text, sizeof(text)))
        info_text(out, "nvidia_driver", "%s", text);
    if (swl_sysfs_doorbells(o->root, text, sizeof(text)))
        info_text(out, "doorbells", "the GPU may write registers of NICs, as far as is known");
    else
        info_text(out, "doorbells", "%s", text);
    info_close(out, '}');
}

int info_count_gpus(void)
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
    const int n = info_count_gpus();

    info_integer(out, SWL_EMULATED ? "emulated_gpus_found" : "gpus_found", n);
    info_open(out, "gpus", '[');
    for (int i = 0; i < (SWL_EMULATED && n > 1 ? 1 : n); i++) /* emulated ones are all alike */
        say_gpu(out, i, n);
    info_close(out, ']');
}
