/* soft.h: the software NIC: its table of operations and what tests may do to it.
 *
 * Layer: transport. All software NICs of a process know each other by a number in a process-wide
 * table, so that one rank's NIC writes directly into the memory of another's. Those that blocks of
 * kernels run also write into what peers in other processes share. Grammar of faults: docs/testing.md. */
#ifndef SWL_SOFT_H
#define SWL_SOFT_H

#include "transport/nic.h"
#include "transport/soft/stats.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

const struct swl_nic_ops *swl_soft_ops(void);

/* Blocks of every calling kernel that run a NIC, by SWIMLANE_SOFT_EXECUTOR and _BLOCKS; 0: none do.
 * multi_process: ranks are in several processes, which "auto" connects by blocks everywhere. */
uint32_t swl_soft_blocks(const struct swl_nic_settings *settings, bool multi_process);

#define SWL_SOFT_ALL_RANKS 0xffffffffu

/* Replace the faults of every software NIC and proxy of this rank (or of all) from now on; "" ends them. Times in the
 * text and counts of entries and doorbells begin now. Takes effect before the NIC's next work. */
ncclResult_t swl_soft_faults_set(uint32_t rank, const char *text);

/* Sum over the living NICs of this rank (or all); false if there is none. */
bool swl_soft_stats_get(uint32_t rank, struct swl_soft_stats *stats_p);

/* Emulator, NICs on engines: `fn` is called behind each store and add of a NIC and may change what is there;
 * NULL ends it. For tests that let a peer write nonsense. */
void swl_soft_spoil(void (*fn)(void *arg, void *at, uint64_t bytes), void *arg);

#ifdef __cplusplus
}
#endif
#endif
