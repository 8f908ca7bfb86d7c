/* fault.h: what a kernel can report, shared by its writers on the device and the host that reads
 * it.
 *
 * A kernel that gives up a wait, or sees a word that must not be, fills one record in pinned host
 * memory; the first writer of a call wins. src/failure turns it into a code and a sentence.
 * Layer: kernels/device; owner of the memory: the group. What calls wait for is a second table, of
 * kernels/common/faults.h. */
#pragma once

#include "kernels/device/hd.h"

#include <assert.h>
#include <stdint.h>

/* kind, tier, text with what was waited for. The tier of a wait is how far it is from the rank that
 * is missing: what that rank itself owes (0), what a peer can only do when others have done theirs
 * (1), what depends on many (2). A wait that names no peer is of tier 3. */
#define SWL_DEVICE_FAULTS(X)                                                                       \
    X(NONE, 0, "no fault")                                                                         \
    X(STAGE, 1, "a bulk copy has not completed")                                                   \
    X(GRID, 1, "another block of this kernel has not reached the barrier")                         \
    X(QUEUE, 1, "a queue pair has no free entry")                                                  \
    X(COMPLETION, 1, "a queue pair reported an error completion")                                  \
    X(BOUNDS, 1, "has sent a number that is out of bounds")                                        \
    X(POISON, 1, "gave up and told its peers")                                                     \
    X(ABORT, 1, "the host asked to stop")

/* A kind has its tier in the lower two bits, and its place in the tables above them. */
#define SWL_FAULT_PLACE(name, tier, text) SWL_FAULT_PLACE_##name,
#define SWL_FAULT_KIND(name, tier, text)  SWL_FAULT_##name = SWL_FAULT_PLACE_##name << 2 | (tier),

enum swl_device_fault_place { SWL_DEVICE_FAULTS(SWL_FAULT_PLACE) SWL_DEVICE_FAULT_KINDS };
enum swl_device_fault_kind { SWL_DEVICE_FAULTS(SWL_FAULT_KIND) };

SWL_HD uint32_t swl_fault_tier(uint32_t kind)
{
    return kind & 3u;
}
SWL_HD uint32_t swl_fault_place(uint32_t kind)
{
    return kind >> 2;
}

#define SWL_NO_PEER 0xffffffffu

/* One record, in pinned host memory. `valid` is released last; the reader acquires it first. */
struct swl_fault_record {
    uint32_t valid; /* 1 when the record is complete */
    uint32_t kind;  /* SWL_FAULT_… */
    uint32_t role;  /* of the warp, as its kernel numbers them */
    uint32_t channel;
    uint32_t peer; /* rank, or SWL_NO_PEER */
    uint32_t op;   /* the kernel, likewise */
    uint64_t expected, seen;
    uint64_t call;       /* call or route epoch of this rank */
    uint64_t peer_entry; /* last open record seen from that peer, if it is of this node */
    uint64_t waited_ns;
    uint64_t spare;
};
static_assert(sizeof(struct swl_fault_record) == 72, "host and device read the same fault record");

/* Asynchronous error bits (ncclEpGetAsyncError); the others are of kernels/common/faults.h. */
#define SWL_ASYNC_TIMEOUT 1u

/* Given-up generation and rank that is missing there: of the poison and the error word. */
SWL_HD uint64_t swl_poison_word(uint64_t gen, uint32_t missing)
{
    return gen << 16 | (missing == SWL_NO_PEER ? 0 : missing + 1);
}
SWL_HD uint64_t swl_poison_gen(uint64_t word)
{
    return word >> 16;
}
SWL_HD uint32_t swl_poison_missing(uint64_t word)
{
    const uint32_t missing = (uint32_t)word & 0xffffu;

    return missing == 0 ? SWL_NO_PEER : missing - 1;
}
