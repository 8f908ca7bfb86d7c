/* soft.h: the software NIC: its table of operations.
 *
 * Layer: transport. All software NICs of a process know each other by a number in a process-wide
 * table, so that one rank's NIC writes directly into the memory of another's. Those that blocks of
 * kernels run also write into what peers in other processes share. */
#ifndef SWL_SOFT_H
#define SWL_SOFT_H

#include "transport/nic.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

const struct swl_nic_ops *swl_soft_ops(void);

/* Blocks of every calling kernel that run a NIC, by SWIMLANE_SOFT_EXECUTOR and _BLOCKS; 0: none do.
 * multi_process: ranks are in several processes, which "auto" connects by blocks everywhere. */
uint32_t swl_soft_blocks(const struct swl_nic_settings *settings, bool multi_process);

#ifdef __cplusplus
}
#endif
#endif
