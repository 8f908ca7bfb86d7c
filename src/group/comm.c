/* comm.c: questions about a communicator. Layer: src/group; owns nothing. */
#include "src/group/comm.h"

#include "src/base/error.h"

ncclResult_t swl_comm_ask(ncclResult_t (*question)(const ncclComm_t, int *), ncclComm_t comm,
                          int *value_p, const char *text)
{
    ncclResult_t rc = question(comm, value_p);

    if (rc != ncclSuccess)
        rc = question(comm, value_p);
    if (rc == ncclSuccess)
        return ncclSuccess;
    return swl_fail(swl_nccl_code(rc), "comm: no %s: %s", text, ncclGetErrorString(rc));
}
