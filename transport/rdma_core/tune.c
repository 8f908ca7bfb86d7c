/* tune.c: the user's settings on an open port. Layer: transport/rdma_core. */
#include "transport/rdma_core/tune.h"

#include "src/base/error.h"
#include "src/base/log.h"

ncclResult_t swl_rc_tune(struct rc_tuning *tuning, uint32_t rank, const struct swl_nic_ib *ib,
                         const struct swl_port *port)
{
    const char *note, *why;

    if (!swl_rc_tuning(tuning, ib, port->ethernet, &note, &why))
        return swl_fail(ncclInvalidArgument, "rank %u nic: %s port %u: %s", rank, port->name,
                        port->number, why);
    if (note)
        swl_log(SWL_LEVEL_INFO, "rank %u nic: %s port %u: %s", rank, port->name, port->number,
                note);
    tuning->port = port->number;
    tuning->gid_index = port->gid_index;
    return ncclSuccess;
}
