/* swimlane.h: extensions of this library beyond nccl_ep.h. C11 and C++17, C linkage. */
#ifndef SWIMLANE_H
#define SWIMLANE_H

#include "nccl_ep.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One sentence for the last failing call of this thread: function, field, given value, rule. Never
 * NULL, "" if none. Valid until the thread's next failure. */
const char *swimlaneLastError(void);

/* Name, version and build toolkit. */
const char *swimlaneVersionString(void);

/* Device memory that all ranks of the node map and the NIC reaches, at the same offset on all
 * ranks, aligned to at least 256 bytes. Tensors wholly inside one allocation count as window
 * tensors. Collective, with the same bytes on all ranks; blocks the host. Freed by swimlaneMemFree,
 * or with the group. */
ncclResult_t swimlaneMemAlloc(ncclEpGroup_t ep_group, size_t bytes, void **ptr);

/* Collective, in the same order on all ranks; waits (bounded) for the group's work. NULL does
 * nothing. */
ncclResult_t swimlaneMemFree(ncclEpGroup_t ep_group, void *ptr);

#define SWIMLANE_QUERY_DEVICE_BYTES 1 /* all device memory held */
#define SWIMLANE_QUERY_WINDOW_BYTES 2 /* of it, reachable by peers or the NIC */
#define SWIMLANE_QUERY_TEAMS        3 /* nodes */
#define SWIMLANE_QUERY_SMS          4 /* SMs used */
#define SWIMLANE_QUERY_TIMEOUT_NS   5
#define SWIMLANE_QUERY_ROWS_DROPPED 6 /* since creation */
#define SWIMLANE_QUERY_PENDING_OPS  7
#define SWIMLANE_QUERY_NIC_SMS      8  /* SMs of the software NIC, not in SMS */
#define SWIMLANE_QUERY_RINGS        9  /* of a rank toward each other node, 0 without other nodes */
#define SWIMLANE_QUERY_RING_SLOTS   10 /* of one of them, a token each */

/* One number about a group; never waits. */
ncclResult_t swimlaneGroupQuery(ncclEpGroup_t ep_group, int key, uint64_t *value);

/* Rows received under the handle's current routing (HT); -1 if not visible to the host yet. Never
 * waits. An update that was captured into a graph counts when a replay runs it, however often, and
 * also with other updates in between: -1 from its start on the device to its end. A replay that was
 * launched and has not begun yet is unknown to this function, which then gives the count before it:
 * synchronise with the replay first. */
ncclResult_t swimlaneHandleRecvCount(ncclEpHandle_t handle, int64_t *rows);

#ifdef __cplusplus
}
#endif
#endif
