/* faults.h: what dispatch, combine and updates can report, beside what any kernel can (fault.h). C
 * and CUDA. Layer: kernels/common. */
#pragma once

#include "kernels/device/fault.h"

/* kind, tier, text with what was waited for, as in fault.h */
#define SWL_CALL_FAULTS(X)                                                                         \
    X(ENTRY, 0, "has not entered the call")                                                        \
    X(EXIT, 2, "has not finished reading this rank's input")                                       \
    X(COUNTS, 0, "has not sent its token counts")                                                  \
    X(FORWARDED, 1, "has not passed on the token counts")                                          \
    X(BASES, 1, "has not sent its row numbers")                                                    \
    X(OVERFLOW_COUNTS, 1, "has not sent the expert counts of its surviving tokens")                \
    X(SEND_CREDIT, 1, "has not freed slots of its receive ring")                                   \
    X(ARRIVAL, 2, "has not sent all its slots")                                                    \
    X(LOCAL_CREDIT, 1, "has not freed slots of its local ring")                                    \
    X(LINK_ARRIVAL, 1, "has not delivered all rows")                                               \
    X(REQUEST, 2, "has not sent all its row requests")                                             \
    X(FETCH, 1, "has not served a requested row")                                                  \
    X(SERVE, 1, "has not requested all rows")                                                      \
    X(PARTIAL, 1, "has not returned a partial sum")                                                \
    X(RESYNC, 0, "has not come back in step after the last failure")                               \
    X(WRONG_CALL, 1, "is in another call")                                                         \
    X(WRONG_ROWS, 1, "has rows of another size")                                                   \
    X(WRONG_TYPE, 1, "has rows of another type")                                                   \
    X(WRONG_TOPK, 1, "has another top-k")                                                          \
    X(HANDLE, 1, "the handle's memory is not of this group, layout or routing")

enum swl_call_fault_place {
    SWL_CALL_FAULT_BEFORE = SWL_DEVICE_FAULT_KINDS - 1,
    SWL_CALL_FAULTS(SWL_FAULT_PLACE) SWL_FAULT_KINDS
};
enum swl_call_fault_kind { SWL_CALL_FAULTS(SWL_FAULT_KIND) };

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

/* Those of a kernel stand in the order of its enum in args.h. */
enum swl_warp_role {
#define SWL_ROLE_ENUM(name, text) SWL_WARP_##name,
    SWL_WARP_ROLES(SWL_ROLE_ENUM)
#undef SWL_ROLE_ENUM
        SWL_WARP_ROLE_KINDS
};

/* Operation names in entry records and fault records. */
enum swl_op { SWL_OP_NONE, SWL_OP_UPDATE, SWL_OP_DISPATCH, SWL_OP_COMBINE };

/* Asynchronous error bits, beside SWL_ASYNC_TIMEOUT. */
#define SWL_ASYNC_OVERFLOW   2u
#define SWL_ASYNC_BAD_ID     4u
#define SWL_ASYNC_BAD_HANDLE 8u

/* "The first kernel after this many ErrorClear calls has run, in generation gen." */
SWL_HD uint64_t swl_settled_word(uint64_t clears, uint64_t gen)
{
    return clears << 32 | (gen & 0xffffffffu);
}
