/* far.c: the peers of a NIC that blocks or a thread run: their regions and ports at addresses of its
 * device. A thread uses the peer's own tables, as it is in the same process; its copies need the access.
 *
 * Layer: transport/soft. A table of a peer's regions is a copy in this device's memory, made when the
 * first queue pair to that peer is connected: looking up a key must not cross the link. Regions that
 * the peer registers later are not in it. Owned by the NIC. */
#include "transport/soft/state.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"

#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct swl_gpu_share) == sizeof(((struct soft_offer *)0)->share),
              "an offer carries a share");

static ncclResult_t far_free(struct soft_far *far)
{
    ncclResult_t rc = SWL_CUDA(swl_gpu_free(far->table)), next;

    next = SWL_CUDA(swl_gpu_free(far->waste));
    rc = rc != ncclSuccess ? rc : next;
    for (uint32_t i = 0; i < far->nmaps; i++) {
        next = SWL_CUDA(swl_gpu_shared_unmap(far->maps[i]));
        rc = rc != ncclSuccess ? rc : next;
    }
    free(far->maps);
    free(far);
    return rc;
}

static ncclResult_t map_share(struct soft_far *far, const void *share, uint64_t offset, void **at_p)
{
    struct swl_gpu_share copy;
    void *base;

    memcpy(&copy, share, sizeof(copy));
    SWL_TRY(SWL_CUDA(swl_gpu_shared_map(&copy, &base)));
    far->maps[far->nmaps++] = base;
    *at_p = (char *)base + offset;
    return ncclSuccess;
}

/* Memory of a peer of this process; *at_p is its address for this device. */
static ncclResult_t reach_here(struct soft_nic *nic, struct soft_far *far, void *memory,
                               void **at_p)
{
    struct swl_gpu_share share;
    uint64_t offset;

    *at_p = memory;
    if (swl_gpu_shared_find(memory, &share, &offset) != cudaSuccess)
        return SWL_CUDA(swl_gpu_peer_access(nic->device, memory));
    return map_share(far, &share, offset, at_p);
}

/* A region of a peer of another process. What it cannot offer, small words in host memory, gets bytes
 * that nobody reads: such words are heard only by hosts of this process. */
static ncclResult_t reach_there(struct soft_far *far, const struct soft_port *table, uint32_t slot,
                                void **at_p)
{
    const struct soft_offer *offer = &table->offers[slot];

    if (slot < SOFT_OFFERS && offer->offered)
        return map_share(far, offer->share, offer->offset, at_p);
    if (table->regions[slot].bytes > sizeof(uint64_t))
        return swl_fail(ncclInvalidUsage,
                        "nic: a peer of another process has registered %llu bytes that cannot be "
                        "mapped here",
                        (unsigned long long)table->regions[slot].bytes);
    if (far->waste == NULL)
        SWL_TRY(SWL_CUDA(swl_gpu_malloc(&far->waste, sizeof(uint64_t))));
    *at_p = far->waste;
    return ncclSuccess;
}

static ncclResult_t fill(struct soft_nic *nic, const struct soft_nic *peer,
                         const struct soft_address *address, struct soft_far *far,
                         struct soft_port *table)
{
    void *at;

    if (peer) {
        memcpy(table, peer->port, sizeof(*table));
        SWL_TRY(reach_here(nic, far, peer->device_port, &at));
    } else {
        SWL_TRY(map_share(far, &address->share, 0, &at));
        SWL_TRY(swl_soft_copy(nic, table, at, sizeof(*table)));
    }
    far->live = at;
    for (uint32_t i = 0; i < SOFT_REGIONS; i++) {
        struct soft_region *r = &table->regions[i];

        if (r->key == 0)
            continue;
        if (!(r->access & ~(unsigned)SWL_NIC_LOCAL_WRITE)) {
            r->key = 0; /* nothing for peers: need not be reached */
            continue;
        }
        SWL_TRY(peer ? reach_here(nic, far, r->memory, &at) : reach_there(far, table, i, &at));
        r->memory = at;
    }
    SWL_TRY(SWL_CUDA(swl_gpu_malloc((void **)&far->table, sizeof(*table))));
    return swl_soft_copy(nic, far->table, table, sizeof(*table));
}

/* For a thread: the device's copies reach the peer's regions. In one process their addresses are equal. */
static ncclResult_t open_regions(struct soft_nic *nic, const struct soft_nic *peer,
                                 struct soft_far *far)
{
    void *at;

    for (uint32_t i = 0; i < SOFT_REGIONS; i++) {
        const struct soft_region *r = &peer->port->regions[i];

        if (r->key != 0 && (r->access & ~(unsigned)SWL_NIC_LOCAL_WRITE))
            SWL_TRY(reach_here(nic, far, r->memory, &at));
    }
    return ncclSuccess;
}

ncclResult_t swl_soft_far_get(struct soft_nic *nic, const struct soft_nic *peer,
                              const struct soft_address *address, struct soft_far **far_p)
{
    struct soft_port *table;
    struct soft_far *far;
    ncclResult_t rc;

    for (far = nic->fars; far; far = far->next)
        if (far->process == address->process && far->serial == address->serial) {
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
        return swl_no_memory("the NIC of a peer");
    }
    far->process = address->process;
    far->serial = address->serial;
    rc = nic->executor == SWL_SOFT_BLOCKS ? fill(nic, peer, address, far, table)
                                          : open_regions(nic, peer, far);
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

void swl_soft_far_offer(struct soft_nic *nic, uint32_t slot)
{
    struct soft_offer *offer = &nic->port->offers[slot];
    struct swl_gpu_share share;

    offer->offered =
        swl_gpu_shared_find(nic->port->regions[slot].memory, &share, &offer->offset) == cudaSuccess;
    if (offer->offered)
        memcpy(offer->share, &share, sizeof(share));
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
