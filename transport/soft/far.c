/* far.c: the peers of a NIC that blocks run: their regions and ports at addresses of its device.
 *
 * Layer: transport/soft. A table of a peer's regions is a copy in this device's memory, made when the
 * first queue pair to that peer is connected: looking up a key must not cross the link. Regions that
 * the peer registers later are not in it. Owned by the NIC. */
#include "transport/soft/host.h"

#include "src/base/error.h"

#include <stdlib.h>
#include <string.h>

static ncclResult_t far_free(struct soft_far *far)
{
    ncclResult_t rc = SWL_CUDA(swl_gpu_free(far->table)), next;

    for (uint32_t i = 0; i < far->nmaps; i++) {
        next = SWL_CUDA(swl_gpu_shared_unmap(far->maps[i]));
        rc = rc != ncclSuccess ? rc : next;
    }
    free(far->maps);
    free(far);
    return rc;
}

/* Memory of a peer of this process; *at_p is its address for this device. */
static ncclResult_t reach(struct soft_nic *nic, struct soft_far *far, void *memory, void **at_p)
{
    struct swl_gpu_share share;
    uint64_t offset;
    void *base;

    *at_p = memory;
    if (swl_gpu_shared_find(memory, &share, &offset) != cudaSuccess)
        return SWL_CUDA(swl_gpu_peer_access(nic->device, memory));
    SWL_TRY(SWL_CUDA(swl_gpu_shared_map(&share, &base)));
    far->maps[far->nmaps++] = base;
    *at_p = (char *)base + offset;
    return ncclSuccess;
}

static ncclResult_t fill(struct soft_nic *nic, const struct soft_nic *peer, struct soft_far *far,
                         struct soft_port *table)
{
    void *at;

    memcpy(table, peer->port, sizeof(*table));
    SWL_TRY(reach(nic, far, peer->device_port, &at));
    far->live = at;
    for (uint32_t i = 0; i < SOFT_REGIONS; i++) {
        if (table->regions[i].key == 0)
            continue;
        SWL_TRY(reach(nic, far, table->regions[i].memory, &at));
        table->regions[i].memory = at;
    }
    SWL_TRY(SWL_CUDA(swl_gpu_malloc((void **)&far->table, sizeof(*table))));
    return swl_soft_copy(nic, far->table, table, sizeof(*table));
}

ncclResult_t swl_soft_far_get(struct soft_nic *nic, const struct soft_nic *peer,
                              struct soft_far **far_p)
{
    struct soft_port *table;
    struct soft_far *far;
    ncclResult_t rc;

    for (far = nic->fars; far; far = far->next)
        if (far->serial == peer->serial) {
            *far_p = far;
            return ncclSuccess;
        }
    far = calloc(1, sizeof(*far));
    table = malloc(sizeof(*table));
    if (far)
        far->maps = calloc(SOFT_REGIONS + 1, sizeof(*far->maps));
    if (far == NULL || table == NULL || far->maps == NULL) {
        free(far);
        free(table);
        return swl_fail(ncclSystemError, "rank %u nic: no memory for a peer", nic->rank);
    }
    far->serial = peer->serial;
    rc = fill(nic, peer, far, table);
    free(table);
    if (rc != ncclSuccess) {
        (void)far_free(far);
        return rc;
    }
    far->next = nic->fars;
    nic->fars = far;
    *far_p = far;
    return ncclSuccess;
}

ncclResult_t swl_soft_far_release(struct soft_nic *nic)
{
    ncclResult_t rc = ncclSuccess;

    while (nic->fars) {
        struct soft_far *far = nic->fars;
        ncclResult_t next;

        nic->fars = far->next;
        next = far_free(far);
        rc = rc != ncclSuccess ? rc : next;
    }
    return rc;
}
