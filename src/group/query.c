/* query.c: what a group says of itself. Layer: src/group, implements internal.h; memory:
 * group.h. */
#include "src/group/group.h"

#include "src/base/error.h"
#include "src/base/util.h"
#include "transport/rdma.h"

#include <swimlane.h>

static uint64_t shared_bytes(const struct ncclEpGroup *group)
{
    uint64_t bytes = swl_round_up_u64(group->window.bytes, SWL_SHARED_GRANULE);

    for (uint32_t i = 0; i < SWL_MEMORIES; i++)
        bytes += swl_round_up_u64(group->shared[i].map.bytes, SWL_SHARED_GRANULE);
    return bytes;
}

ncclResult_t swl_group_query(struct ncclEpGroup *group, int key, uint64_t *value_p)
{
    switch (key) {
    case SWIMLANE_QUERY_DEVICE_BYTES:
        *value_p = shared_bytes(group) + group->memory.held_bytes +
                   (group->rdma ? swl_rdma_device_bytes(group->rdma) : 0);
        return ncclSuccess;
    case SWIMLANE_QUERY_WINDOW_BYTES:
        *value_p = shared_bytes(group);
        return ncclSuccess;
    case SWIMLANE_QUERY_TEAMS:
        *value_p = group->topology.nnodes;
        return ncclSuccess;
    case SWIMLANE_QUERY_SMS:
        *value_p = group->plan.nsms;
        return ncclSuccess;
    case SWIMLANE_QUERY_NIC_SMS:
        *value_p = group->plan.nic_blocks;
        return ncclSuccess;
    case SWIMLANE_QUERY_RINGS:
        *value_p = group->topology.nnodes > 1 ? group->plan.shape.nrings : 0;
        return ncclSuccess;
    case SWIMLANE_QUERY_RING_SLOTS:
        *value_p = group->topology.nnodes > 1 ? group->plan.shape.ring_slots : 0;
        return ncclSuccess;
    case SWIMLANE_QUERY_TIMEOUT_NS:
        *value_p = group->timeout_ns;
        return ncclSuccess;
    case SWIMLANE_QUERY_ROWS_DROPPED:
        /* pairs with the release of the last block of a kernel */
        *value_p = __atomic_load_n(&group->pinned->dropped, __ATOMIC_ACQUIRE);
        return ncclSuccess;
    case SWIMLANE_QUERY_PENDING_OPS:
        *value_p = 0;
        return ncclSuccess;
    default:
        return swl_fail(ncclInvalidArgument, "key is %d, not one of SWIMLANE_QUERY_...", key);
    }
}
