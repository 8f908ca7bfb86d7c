/* remote.c: the peers of a NIC that blocks or a thread run: their regions and ports at addresses of
 * its device. A thread uses the peer's own tables, as it is in the same process; its copies need
 * the access.
 *
 * Layer: transport/soft. A table of a peer's regions is a copy in this device's memory, made when
 * the first queue pair to that peer is connected: looking up a key must not cross the link. Regions
 * that the peer registers later are not in it. Owned by the NIC. */
#include "transport/soft/state.h"

#include "src/base/error.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"

#include <stdlib.h>
#include <string.h>

static_assert(sizeof(struct swl_gpu_share) == sizeof(((struct soft_export *)0)->share),
              "an export carries a share");

static ncclResult_t remote_free(struct soft_remote *remote)
{
    ncclResult_t rc = SWL_CUDA(swl_gpu_free(remote->table)), next;

    next = SWL_CUDA(swl_gpu_free(remote->waste));
    rc = rc != ncclSuccess ? rc : next;
    for (uint32_t i = 0; i < remote->nmaps; i++) {
        next = SWL_CUDA(swl_gpu_shared_unmap(remote->maps[i]));
        rc = rc != ncclSuccess ? rc : next;
    }
    free(remote->maps);
    free(remote);
    return rc;
}

static ncclResult_t map_share(struct soft_remote *remote, const void *share, uint64_t offset,
                              void **at_p)
{
    struct swl_gpu_share copy;
    void *base;

    memcpy(&copy, share, sizeof(copy));
    SWL_TRY(SWL_CUDA(swl_gpu_shared_map(&copy, &base)));
    remote->maps[remote->nmaps++] = base;
    *at_p = (char *)base + offset;
    return ncclSuccess;
}

/* Memory of a peer of this process; *at_p is its address for this device. */
static ncclResult_t reach_here(struct soft_nic *nic, struct soft_remote *remote, void *memory,
                               void **at_p)
{
    struct swl_gpu_share share;
    uint64_t offset;

    *at_p = memory;
    if (swl_gpu_shared_find(memory, &share, &offset) != cudaSuccess)
        return SWL_CUDA(swl_gpu_peer_access(nic->device, memory));
    return map_share(remote, &share, offset, at_p);
}

/* A region of a peer of another process. What it cannot offer, small words in host memory, gets
 * bytes that nobody reads: such words are heard only by hosts of this process. */
static ncclResult_t reach_there(struct soft_remote *remote, const struct soft_port *table,
                                uint32_t slot, void **at_p)
{
    const struct soft_export *export = &table->exports[slot];

    if (slot < SOFT_EXPORTS && export->exported)
        return map_share(remote, export->share, export->offset, at_p);
    if (table->regions[slot].bytes > sizeof(uint64_t))
        return swl_fail(ncclInvalidUsage,
                        "nic: a peer of another process has registered %llu bytes that cannot be "
                        "mapped here",
                        (unsigned long long)table->regions[slot].bytes);
    if (remote->waste == NULL)
        SWL_TRY(SWL_CUDA(swl_gpu_malloc(&remote->waste, sizeof(uint64_t))));
    *at_p = remote->waste;
    return ncclSuccess;
}

static ncclResult_t fill(struct soft_nic *nic, const struct soft_nic *peer,
                         const struct soft_address *address, struct soft_remote *remote,
                         struct soft_port *table)
{
    void *at;

    if (peer) {
        memcpy(table, peer->port, sizeof(*table));
        SWL_TRY(reach_here(nic, remote, peer->device_port, &at));
    } else {
        SWL_TRY(map_share(remote, &address->share, 0, &at));
        SWL_TRY(swl_soft_copy(nic, table, at, sizeof(*table)));
    }
    remote->live = at;
    for (uint32_t i = 0; i < SOFT_REGIONS; i++) {
        struct soft_region *r = &table->regions[i];

        if (r->key == 0)
            continue;
        if (!(r->access & ~(unsigned)SWL_NIC_LOCAL_WRITE)) {
            r->key = 0; /* nothing for peers: need not be reached */
            continue;
        }
        SWL_TRY(peer ? reach_here(nic, remote, r->memory, &at)
                     : reach_there(remote, table, i, &at));
        r->memory = at;
    }
    SWL_TRY(SWL_CUDA(swl_gpu_malloc((void **)&remote->table, sizeof(*table))));
    return swl_soft_copy(nic, remote->table, table, sizeof(*table));
}

/* For a thread: the device's copies reach the peer's regions. In one process their addresses are
 * equal. */
static ncclResult_t open_regions(struct soft_nic *nic, const struct soft_nic *peer,
                                 struct soft_remote *remote)
{
    void *at;

    for (uint32_t i = 0; i < SOFT_REGIONS; i++) {
        const struct soft_region *r = &peer->port->regions[i];

        if (r->key != 0 && (r->access & ~(unsigned)SWL_NIC_LOCAL_WRITE))
            SWL_TRY(reach_here(nic, remote, r->memory, &at));
    }
    return ncclSuccess;
}

ncclResult_t swl_soft_remote_get(struct soft_nic *nic, const struct soft_nic *peer,
                                 const struct soft_address *address, struct soft_remote **remote_p)
{
    struct soft_port *table;
    struct soft_remote *remote;
    ncclResult_t rc;

    for (remote = nic->remotes; remote; remote = remote->next)
        if (remote->process == address->process && remote->serial == address->serial) {
            *remote_p = remote;
            return ncclSuccess;
        }
    remote = calloc(1, sizeof(*remote));
    table = malloc(sizeof(*table));
    if (remote)
        remote->maps = calloc(SOFT_REGIONS + 1, sizeof(*remote->maps));
    if (remote == NULL || table == NULL || remote->maps == NULL) {
        free(remote);
        free(table);
        return swl_no_memory("the NIC of a peer");
    }
    remote->process = address->process;
    remote->serial = address->serial;
    rc = nic->executor == SWL_SOFT_BLOCKS ? fill(nic, peer, address, remote, table)
                                          : open_regions(nic, peer, remote);
    free(table);
    if (rc != ncclSuccess) {
        (void)remote_free(remote);
        return rc;
    }
    remote->next = nic->remotes;
    nic->remotes = remote;
    *remote_p = remote;
    return ncclSuccess;
}

void swl_soft_export(struct soft_nic *nic, uint32_t slot)
{
    struct soft_export *export = &nic->port->exports[slot];
    struct swl_gpu_share share;

    export->exported = swl_gpu_shared_find(nic->port->regions[slot].memory, &share,
                                           &export->offset) == cudaSuccess;
    if (export->exported)
        memcpy(export->share, &share, sizeof(share));
}

ncclResult_t swl_soft_remote_release(struct soft_nic *nic)
{
    ncclResult_t rc = ncclSuccess;

    while (nic->remotes) {
        struct soft_remote *remote = nic->remotes;
        ncclResult_t next;

        nic->remotes = remote->next;
        next = remote_free(remote);
        rc = rc != ncclSuccess ? rc : next;
    }
    return rc;
}
