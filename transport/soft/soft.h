/* soft.h: the software NIC: its table of operations and what tests may do to it.
 *
 * Layer: transport. All software NICs of a process know each other by a number in a process-wide
 * table, so that one rank's NIC writes directly into the memory of another's. A peer in another
 * process is refused. Grammar of faults: docs/testing.md. */
#ifndef SWL_SOFT_H
#define SWL_SOFT_H

#include "transport/nic.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

const struct swl_nic_ops *swl_soft_ops(void);

#define SWL_SOFT_ALL_RANKS 0xffffffffu

/* Replace the faults of every NIC of this rank (or of all) from now on; "" ends them. Times in the
 * text and counts of entries and doorbells begin now. Takes effect before the NIC's next work. */
ncclResult_t swl_soft_faults_set(uint32_t rank, const char *text);

/* What a NIC has done. */
struct swl_soft_stats {
    uint64_t doorbells;     /* seen, dropped ones included */
    uint64_t dropped;       /* doorbells ignored by a fault */
    uint64_t bad_doorbells; /* going back, beyond the queue, or against their record */
    uint64_t entries;       /* work requests taken from queues */
    uint64_t pieces;        /* parts of WRITEs placed */
    uint64_t reordered;     /* of these, placed after a later part of the same queue */
    uint64_t adds;
    uint64_t bytes;       /* payload placed */
    uint64_t completions; /* successful ones */
    uint64_t errors;      /* error completions, flushed ones included */
    uint64_t rewritten;   /* entries changed before their completion */
};

/* Sum over the living NICs of this rank (or all); false if there is none. */
bool swl_soft_stats_get(uint32_t rank, struct swl_soft_stats *stats_p);

#ifdef __cplusplus
}
#endif
#endif
