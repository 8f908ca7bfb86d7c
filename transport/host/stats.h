/* stats.h: what a software NIC counts. C and CUDA. Layer: transport/host. */
#pragma once

#include <stdint.h>

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
    uint64_t retries;     /* messages sent again because a fault lost them */
};
