/* nccl_call.cc: what came of a call of all ranks of the stand-in NCCL, once it is settled: its
 * code, and the bytes of a collective. */
#include "sim/nccl_comm.h"
#include "sim/nccl_reduce.h"

#include <stdio.h>
#include <string.h>

using namespace swl_sim;

ncclResult_t swl_sim::comm_fail(comm_core *core, ncclResult_t code, const char *text)
{
    if (core)
        snprintf(core->text, sizeof(core->text), "rank %d: %s", core->rank, text);
    return code;
}

ncclResult_t swl_sim::call_result(comm_core *core, const call &c)
{
    if (core->aborted.load(std::memory_order_relaxed))
        return comm_fail(core, ncclInvalidUsage, "the communicator was aborted");
    switch (c.state.load(std::memory_order_acquire)) {
    case call_complete:
        return ncclSuccess;
    case call_mismatch:
        return comm_fail(core, ncclInvalidUsage, "ranks called different operations or sizes");
    case call_peer_gone:
        return comm_fail(core, ncclRemoteError, "a peer has left the communicator");
    default:
        return comm_fail(core, ncclSystemError, "a peer did not come in time");
    }
}

bool collective::sends() const
{
    return shape.kind != call_broadcast || (int)shape.root == core->rank;
}

size_t collective::result_bytes() const
{
    return shape.kind == call_all_gather ? shape.bytes * (size_t)core->nranks : shape.bytes;
}

void collective::result(const call &c, unsigned char *to) const
{
    ncclDataType_t type = (ncclDataType_t)shape.datatype;
    ncclRedOp_t op = (ncclRedOp_t)shape.op;

    if (shape.bytes == 0)
        return;
    if (shape.kind == call_broadcast) {
        memcpy(to, c.parts[shape.root].data(), shape.bytes);
    } else if (shape.kind == call_all_gather) {
        for (size_t r = 0; r < c.parts.size(); r++)
            memcpy(to + r * shape.bytes, c.parts[r].data(), shape.bytes);
    } else {
        bytes sum = c.parts[0];
        for (size_t r = 1; r < c.parts.size(); r++)
            reduce(sum.data(), c.parts[r].data(), count, type, op);
        reduce_end(sum.data(), count, type, op, core->nranks);
        memcpy(to, sum.data(), shape.bytes);
    }
}
