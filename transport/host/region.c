/* region.c: registered memory of a software NIC or of a wire that checks keys itself.
 *
 * Layer: transport/host. The table belongs to the port. */
#include "transport/host/executor.h"
#include "transport/host/host.h"

#include "src/base/error.h"

ncclResult_t swl_host_region_add(struct soft_port *port, uint64_t serial, void *ptr, uint64_t bytes,
                                 unsigned access, struct swl_nic_region *region_p)
{
    struct soft_region *r;
    uint32_t tag, slot;

    SWL_TRY(swl_nic_check_region(port->rank, ptr, bytes, access));
    for (slot = 0; slot < SOFT_REGIONS; slot++)
        if (port->regions[slot].key == 0)
            break;
    if (slot == SOFT_REGIONS)
        return swl_fail(ncclSystemError, "rank %u nic: more than %u registered regions", port->rank,
                        SOFT_REGIONS);
    r = &port->regions[slot];
    r->uses++;
    tag = (uint32_t)soft_mix(serial << 20 ^ (uint64_t)slot << 10 ^ r->uses);
    r->access = access;
    r->pd = port->pd;
    r->address = (uint64_t)(uintptr_t)ptr;
    r->bytes = bytes;
    r->memory = ptr;
    region_p->lkey = (tag | 1u << 16) << 16 | slot << 8 | (r->uses & 0xffu);
    region_p->lkey |= 1u << 31;
    region_p->rkey = region_p->lkey;
    region_p->address = r->address;
    /* release: pairs with Mem::key in soft_reach */
    __atomic_store_n(&r->key, region_p->lkey, __ATOMIC_SEQ_CST);
    return ncclSuccess;
}

ncclResult_t swl_host_region_drop(struct soft_port *port, const struct swl_nic_region *region)
{
    struct soft_region *r = &port->regions[soft_region_slot(region->lkey)];

    if (region->lkey == 0 || r->key != region->lkey)
        return swl_fail(ncclInvalidArgument, "rank %u nic: key 0x%08x is not registered",
                        port->rank, region->lkey);
    __atomic_store_n(&r->key, 0, __ATOMIC_SEQ_CST);
    return ncclSuccess;
}

ncclResult_t swl_host_region_unused(struct soft_port *port, uint64_t timeout_ns)
{
    if (swl_host_executor_wait("soft nic: users of a region", &port->users, 0, timeout_ns))
        return ncclSuccess;
    return swl_fail(ncclSystemError, "rank %u nic: a region is still in use", port->rank);
}
