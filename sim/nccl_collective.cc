/* nccl_collective.cc: collectives of the stand-in NCCL: what may be asked for. How a part gets out
 * of a stream and the result into it is the place's (nccl_place.h), what the result is
 * nccl_call.cc's. */
#include "sim/nccl_comm.h"
#include "sim/nccl_reduce.h"

using namespace swl_sim;

namespace
{

ncclResult_t launch(const collective &work, cudaStream_t stream)
{
    ncclResult_t error = (ncclResult_t)work.core->error.load(std::memory_order_acquire);

    return error != ncclSuccess ? error : place_launch(work, stream);
}

/* Checks that all collectives share; the work is filled when the answer is success. */
ncclResult_t make_work(ncclComm_t comm, const void *send, void *recv, size_t count,
                       ncclDataType_t type, collective *out)
{
    if (!comm)
        return ncclInvalidArgument;
    if (type_bytes(type) == 0)
        return comm_fail(comm->core.get(), ncclInvalidArgument, "unknown data type");
    if (count > 0 && (!send || !recv))
        return comm_fail(comm->core.get(), ncclInvalidArgument, "a buffer is NULL");
    out->core = comm->core;
    out->shape.datatype = type;
    out->shape.bytes = count * type_bytes(type);
    out->count = count;
    out->send = send;
    out->recv = recv;
    return ncclSuccess;
}

} // namespace

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    collective work;
    ncclResult_t rc = make_work(comm, sendbuff, recvbuff, sendcount, datatype, &work);

    if (rc != ncclSuccess)
        return rc;
    work.shape.kind = call_all_gather;
    return launch(work, stream);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    collective work;
    ncclResult_t rc =
        make_work(comm, sendbuff ? sendbuff : recvbuff, recvbuff, count, datatype, &work);

    if (rc != ncclSuccess)
        return rc;
    if (root < 0 || root >= comm->core->nranks)
        return comm_fail(comm->core.get(), ncclInvalidArgument, "root is not a rank");
    work.shape.kind = call_broadcast;
    work.shape.root = (uint32_t)root;
    return launch(work, stream);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    collective work;
    ncclResult_t rc = make_work(comm, sendbuff, recvbuff, count, datatype, &work);

    if (rc != ncclSuccess)
        return rc;
    if (!can_reduce(datatype, op))
        return comm_fail(comm->core.get(), ncclInvalidArgument,
                         "no such reduction of this data type");
    work.shape.kind = call_all_reduce;
    work.shape.op = op;
    return launch(work, stream);
}
