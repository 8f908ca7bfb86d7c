/* fault.h: what a kernel can report, shared by kernels (writers) and host (reader).
 *
 * A kernel that gives up a wait, or sees a word that must not be, fills one record in pinned host
 * memory; the first writer of a call wins. src/failure/async.c turns it into a code and a sentence.
 * Owner of the memory: the group. */
#pragma once

#include "kernels/device/hd.h"

#include <assert.h>
#include <stdint.h>

/* kind, text with what was waited for */
#define SWL_FAULTS(X)                                                                              \
    X(NONE, "no fault")                                                                            \
    X(ENTRY, "has not entered the call")                                                           \
    X(EXIT, "has not finished reading this rank's input")                                          \
    X(COUNTS, "has not sent its token counts")                                                     \
    X(FORWARDED, "has not passed on the token counts")                                             \
    X(BASES, "has not sent its row numbers")                                                       \
    X(FIX, "has not sent the expert counts of its surviving tokens")                               \
    X(SEND_CREDIT, "has not freed slots of its receive ring")                                      \
    X(ARRIVAL, "has not sent all its slots")                                                       \
    X(LINK_CREDIT, "has not freed slots of its link ring")                                         \
    X(LINK_ARRIVAL, "has not delivered all rows")                                                  \
    X(REQUEST, "has not sent all its row requests")                                                \
    X(FETCH, "has not served a requested row")                                                     \
    X(SERVE, "has not requested all rows")                                                         \
    X(PARTIAL, "has not returned a partial sum")                                                   \
    X(STAGE, "a bulk copy has not completed")                                                      \
    X(GRID, "another block of this kernel has not reached the barrier")                            \
    X(QUEUE, "a queue pair has no free entry")                                                     \
    X(COMPLETION, "a queue pair reported an error completion")                                     \
    X(RESYNC, "has not come back in step after the last failure")                                  \
    X(WRONG_CALL, "is in another call")                                                            \
    X(WRONG_ROWS, "has rows of another size")                                                      \
    X(WRONG_TYPE, "has rows of another type")                                                      \
    X(WRONG_TOPK, "has another top-k")                                                             \
    X(BOUNDS, "has sent a number that is out of bounds")                                           \
    X(HANDLE, "the handle's memory is not of this group, layout or routing")                       \
    X(POISON, "gave up and told its peers")                                                        \
    X(ABORT, "the host asked to stop")

enum swl_fault_kind {
#define SWL_FAULT_ENUM(name, text) SWL_FAULT_##name,
    SWL_FAULTS(SWL_FAULT_ENUM)
#undef SWL_FAULT_ENUM
        SWL_FAULT_KINDS
};

/* role, name in messages */
#define SWL_WARP_ROLES(X)                                                                          \
    X(NONE, "none")                                                                                \
    X(ROUTE, "route")                                                                              \
    X(PROLOGUE, "prologue")                                                                        \
    X(SENDER, "dispatch sender")                                                                   \
    X(SEND_COORDINATOR, "dispatch send coordinator")                                               \
    X(FORWARDER, "dispatch forwarder")                                                             \
    X(FORWARD_COORDINATOR, "dispatch forward coordinator")                                         \
    X(WRITER, "dispatch local writer")                                                             \
    X(RECEIVER, "dispatch receiver")                                                               \
    X(REQUESTER, "combine requester")                                                              \
    X(SOURCE_COORDINATOR, "combine source coordinator")                                            \
    X(SUMMER, "combine summer")                                                                    \
    X(GATEWAY, "combine gateway")                                                                  \
    X(GATEWAY_COORDINATOR, "combine gateway coordinator")                                          \
    X(SERVER, "combine server")                                                                    \
    X(EPILOGUE, "epilogue")

enum swl_warp_role {
#define SWL_ROLE_ENUM(name, text) SWL_WARP_##name,
    SWL_WARP_ROLES(SWL_ROLE_ENUM)
#undef SWL_ROLE_ENUM
        SWL_WARP_ROLE_KINDS
};

/* Operation names in entry records and fault records. */
enum swl_op { SWL_OP_NONE, SWL_OP_UPDATE, SWL_OP_DISPATCH, SWL_OP_COMBINE };

#define SWL_NO_PEER 0xffffffffu

/* One record, in pinned host memory. `valid` is released last; the reader acquires it first. */
struct swl_fault_record {
    uint32_t valid; /* 1 when the record is complete */
    uint32_t kind;  /* enum swl_fault_kind */
    uint32_t role;  /* enum swl_warp_role */
    uint32_t channel;
    uint32_t peer; /* rank, or SWL_NO_PEER */
    uint32_t op;   /* enum swl_op */
    uint64_t expected, seen;
    uint64_t call;       /* call or route epoch of this rank */
    uint64_t peer_entry; /* last entry word seen from that peer, if it is of this node */
    uint64_t waited_ns;
    uint64_t spare;
};
static_assert(sizeof(struct swl_fault_record) == 72, "host and device read the same fault record");

/* Asynchronous error bits (ncclEpGetAsyncError). */
#define SWL_ASYNC_TIMEOUT    1u
#define SWL_ASYNC_OVERFLOW   2u
#define SWL_ASYNC_BAD_ID     4u
#define SWL_ASYNC_BAD_HANDLE 8u

/* Given-up generation and rank that is missing there: of the poison and the alarm words. */
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

/* "The first kernel after this many ErrorClear calls has run, in generation gen." */
SWL_HD uint64_t swl_settled_word(uint64_t clears, uint64_t gen)
{
    return clears << 32 | (gen & 0xffffffffu);
}
