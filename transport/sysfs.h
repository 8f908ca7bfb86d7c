/* sysfs.h: what /sys, /proc and /dev say of this machine: how near a NIC is to a GPU, which kernel
 * modules are loaded, which host this is.
 *
 * Layer: transport; no state. `root` is the folder under which /sys, /proc and /dev are looked up:
 * "/" (or NULL) outside of tests. Nothing here logs or fails: what cannot be read is unknown. */
#ifndef SWL_SYSFS_H
#define SWL_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_SYSFS_PATH 512 /* most bytes of a path; longer ones count as missing */
#define SWL_SYSFS_NAME 64  /* of a device, with its end */

/* First line of a file, cut at `bytes`, without the newline; false: unreadable, text is "". */
bool swl_sysfs_line(const char *root, const char *path, char *text, size_t bytes);
bool swl_sysfs_exists(const char *root, const char *path);
/* The module is loaded or built in. */
bool swl_sysfs_module(const char *root, const char *name);
/* Names in a folder, ascending, numbers by value (mlx5_2 before mlx5_10); at most `most` are
 * stored; returns how many there are. Names that are too long are left out and not counted. */
uint32_t swl_sysfs_list(const char *root, const char *path, char (*names)[SWL_SYSFS_NAME],
                        uint32_t most);

/* How near two devices are; smaller is nearer. */
enum swl_pci_level {
    SWL_PCI_SWITCH, /* below one PCIe switch or port */
    SWL_PCI_BRIDGE, /* below one host bridge */
    SWL_PCI_NUMA,   /* on one NUMA node */
    SWL_PCI_OTHER   /* elsewhere, or unknown */
};
struct swl_pci_distance {
    uint32_t level; /* enum swl_pci_level */
    uint32_t hops;  /* PCIe devices between them, of the first two levels */
};
/* From the GPU with this PCI address ("0000:18:00.0") to the RDMA device of this name. */
struct swl_pci_distance swl_pci_distance(const char *root, const char *gpu, const char *nic);
/* One number to sort by. */
static inline uint32_t swl_pci_distance_score(struct swl_pci_distance d)
{
    return d.level << 16 | (d.hops < 0xffff ? d.hops : 0xffff);
}
const char *swl_pci_level_text(uint32_t level);
/* order[n]: devices by their scores, nearest first; of equally near ones first the turn-th, modulo
 * their number, so that ranks share them. */
void swl_pci_nearest_first(const uint32_t *scores, uint32_t n, uint32_t turn, uint32_t *order);

/* CPUs near this RDMA device, as in /sys ("0-7,16-23"); "" = unknown. */
void swl_sysfs_cpus(const char *root, const char *nic, char *cpus, size_t bytes);

/* Equal for processes that reach each other by names of the kernel: one boot, one network
 * namespace. */
uint64_t swl_sysfs_host(const char *root);

/* May kernels of a GPU write registers of a NIC? false: `why` names the driver's option. */
bool swl_sysfs_doorbells(const char *root, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
