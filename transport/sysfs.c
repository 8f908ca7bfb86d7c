/* sysfs.c: see sysfs.h. Layer: transport; no state, no memory. */
#include "transport/sysfs.h"

#include "src/base/util.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- files ---- */

/* False for a path that does not fit. */
static bool full_path(const char *root, const char *path, char *full)
{
    const char *base = root && strcmp(root, "/") != 0 ? root : "";
    const int n = snprintf(full, SWL_SYSFS_PATH, "%s%s", base, path);

    return n > 0 && n < SWL_SYSFS_PATH;
}

bool swl_sysfs_line(const char *root, const char *path, char *text, size_t bytes)
{
    char full[SWL_SYSFS_PATH];
    FILE *file;
    bool ok;

    text[0] = '\0';
    if (!full_path(root, path, full))
        return false;
    file = fopen(full, "re");
    if (file == NULL)
        return false;
    ok = fgets(text, (int)bytes, file) != NULL; /* some files of /sys open and do not read */
    if (!ok)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    (void)fclose(file);
    return ok;
}

bool swl_sysfs_exists(const char *root, const char *path)
{
    char full[SWL_SYSFS_PATH];

    return full_path(root, path, full) && access(full, F_OK) == 0;
}

bool swl_sysfs_module(const char *root, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "/sys/module/%s", name);
    return swl_sysfs_exists(root, path);
}

/* As strcmp, but runs of digits by their value. */
static int compare_names(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            char *a_end, *b_end;
            const unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);

            if (x != y)
                return x < y ? -1 : 1;
            a = a_end - 1;
            b = b_end - 1;
        } else if (*a != *b) {
            return *a < *b ? -1 : 1;
        }
    }
    return *a ? 1 : *b ? -1 : 0;
}

/* Keeps the first `most` in order. The name fits. */
static void insert(char (*names)[SWL_SYSFS_NAME], uint32_t most, uint32_t n, const char *name)
{
    uint32_t at = n < most ? n : most;

    while (at > 0 && compare_names(names[at - 1], name) > 0) {
        if (at < most)
            memcpy(names[at], names[at - 1], SWL_SYSFS_NAME);
        at--;
    }
    if (at < most)
        memcpy(names[at], name, strlen(name) + 1);
}

uint32_t swl_sysfs_list(const char *root, const char *path, char (*names)[SWL_SYSFS_NAME],
                        uint32_t most)
{
    char full[SWL_SYSFS_PATH];
    const struct dirent *entry;
    uint32_t n = 0;
    DIR *folder;

    if (!full_path(root, path, full))
        return 0;
    folder = opendir(full);
    if (folder == NULL)
        return 0;
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= SWL_SYSFS_NAME)
            continue;
        insert(names, most, n, entry->d_name);
        n++;
    }
    (void)closedir(folder);
    return n;
}

/* ---- distance ---- */

/* The place of a device in the tree of /sys, from "devices/" on; "" = unknown. */
static void find_place(const char *root, const char *link, char *place, size_t bytes)
{
    char full[SWL_SYSFS_PATH], real[PATH_MAX];
    const char *at = NULL;

    place[0] = '\0';
    if (full_path(root, link, full) && realpath(full, real) != NULL)
        at = strstr(real, "/sys/devices/");
    if (at != NULL && strlen(at) < bytes)
        memcpy(place, at, strlen(at) + 1);
}

static int numa_of(const char *root, const char *place)
{
    char path[SWL_SYSFS_PATH + 16], text[16];

    snprintf(path, sizeof(path), "%s/numa_node", place);
    return place[0] && swl_sysfs_line(root, path, text, sizeof(text)) ? atoi(text) : -1;
}

/* Length of the folders that both begin with. */
static size_t common_folders(const char *a, const char *b)
{
    size_t i = 0, end = 0;

    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == '/')
            end = i;
    if ((a[i] == '\0' || a[i] == '/') && (b[i] == '\0' || b[i] == '/'))
        end = i;
    return end;
}

static uint32_t count_slashes(const char *text)
{
    uint32_t n = 0;

    for (; *text; text++)
        n += *text == '/';
    return n;
}

struct swl_pci_distance swl_pci_distance(const char *root, const char *gpu, const char *nic)
{
    struct swl_pci_distance d = {SWL_PCI_OTHER, 0};
    const size_t above = sizeof("/sys/devices/") - 1;
    char link[SWL_SYSFS_PATH], a[SWL_SYSFS_PATH], b[SWL_SYSFS_PATH];
    size_t common;

    if (gpu == NULL || nic == NULL)
        return d;
    snprintf(link, sizeof(link), "/sys/bus/pci/devices/%s", gpu);
    find_place(root, link, a, sizeof(a));
    snprintf(link, sizeof(link), "/sys/class/infiniband/%s/device", nic);
    find_place(root, link, b, sizeof(b));
    if (!a[0] || !b[0])
        return d;
    common = common_folders(a, b);
    if (common > above && strncmp(a + above, "pci", 3) == 0) {
        d.hops = count_slashes(a + common) + count_slashes(b + common);
        /* the host bridge itself, or something below it */
        d.level = memchr(a + above, '/', common - above) ? SWL_PCI_SWITCH : SWL_PCI_BRIDGE;
        return d;
    }
    if (numa_of(root, a) >= 0 && numa_of(root, a) == numa_of(root, b))
        d.level = SWL_PCI_NUMA;
    return d;
}

const char *swl_pci_level_text(uint32_t level)
{
    static const char *const texts[] = {"one PCIe switch or port", "one host bridge",
                                        "one NUMA node", "far or unknown"};

    return texts[level < SWL_COUNT_OF(texts) ? level : SWL_PCI_OTHER];
}

void swl_pci_nearest_first(const uint32_t *scores, uint32_t n, uint32_t turn, uint32_t *order)
{
    uint32_t equal = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;

        for (; at > 0 && scores[order[at - 1]] > scores[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    while (equal < n && scores[order[equal]] == scores[order[0]])
        equal++;
    for (uint32_t k = equal ? turn % equal : 0; k > 0; k--) {
        const uint32_t first = order[0];

        memmove(order, order + 1, (equal - 1) * sizeof(*order));
        order[equal - 1] = first;
    }
}

/* ---- host, driver ---- */

void swl_sysfs_cpus(const char *root, const char *nic, char *cpus, size_t bytes)
{
    char path[SWL_SYSFS_PATH], place[SWL_SYSFS_PATH];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/local_cpulist", nic);
    if (swl_sysfs_line(root, path, cpus, bytes) && cpus[0])
        return;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", nic);
    find_place(root, path, place, sizeof(place));
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", numa_of(root, place));
    (void)swl_sysfs_line(root, path, cpus, bytes);
}

uint64_t swl_sysfs_host(const char *root)
{
    char text[128], full[SWL_SYSFS_PATH], link[128];
    uint64_t hash = SWL_HASH_START;
    ssize_t n = -1;

    (void)swl_sysfs_line(root, "/proc/sys/kernel/random/boot_id", text, sizeof(text));
    hash = swl_hash(hash, text, strlen(text));
    if (full_path(root, "/proc/thread-self/ns/net", full)) /* a thread may be elsewhere */
        n = readlink(full, link, sizeof(link));
    if (n <= 0 && full_path(root, "/proc/self/ns/net", full))
        n = readlink(full, link, sizeof(link));
    return n > 0 ? swl_hash(hash, link, (size_t)n) : hash;
}

bool swl_sysfs_doorbells(const char *root, char *why, size_t why_bytes)
{
    char full[SWL_SYSFS_PATH], line[512];
    bool found = false;
    FILE *file = NULL;

    if (geteuid() == 0)
        return true;
    if (full_path(root, "/proc/driver/nvidia/params", full))
        file = fopen(full, "re");
    if (file == NULL)
        return true; /* unknown: the attempt will tell */
    while (!found && fgets(line, sizeof(line), file) != NULL)
        found = strstr(line, "PeerMappingOverride=1") != NULL;
    (void)fclose(file);
    if (!found)
        snprintf(why, why_bytes,
                 "the GPU may not write doorbells: NVIDIA driver without PeerMappingOverride=1");
    return found;
}
