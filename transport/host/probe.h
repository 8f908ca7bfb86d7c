/* probe.h: what tests and tools may do to software NICs and proxies: set faults, read counters.
 * Grammar of faults: docs/testing.md. Layer: transport/host. */
#pragma once

#include "transport/host/stats.h"

#include <nccl.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SWL_HOST_ALL_RANKS 0xffffffffu

/* Replace the faults of every software NIC and proxy of this rank (or of all) from now on; "" ends
 * them. Times in the text and counts of entries and doorbells begin now. Takes effect before the
 * NIC's next work. */
ncclResult_t swl_host_set_faults(uint32_t rank, const char *text);

/* Sum over the living NICs of this rank (or all); false if there is none. */
bool swl_host_get_stats(uint32_t rank, struct swl_soft_stats *stats_p);

/* Emulator, NICs on engines: `fn` is called behind each store and add of a NIC and may change what
 * is there; NULL ends it. For tests that let a peer write nonsense. */
void swl_host_spoil(void (*fn)(void *arg, void *at, uint64_t bytes), void *arg);

#ifdef __cplusplus
}
#endif
