/* nccl_collective.cc: collectives of the stand-in NCCL.
 *
 * They are stream items (runtime.h) that hand in their part at the hub, park until every rank
 * has, and write the result. Parts are numbered in call order per communicator. */
#include "sim/nccl_comm.h"
#include "sim/nccl_reduce.h"

#include <string.h>

using namespace swl_sim;

namespace
{

struct collective_item : item {
    std::shared_ptr<comm_core> core;
    call_shape shape = {};
    const void *send = nullptr;
    void *recv = nullptr;
    size_t count = 0;
    uint64_t number = 0;

    void submitted(uint64_t, const std::shared_ptr<stream> &) override
    {
        number = core->next.fetch_add(1, std::memory_order_relaxed);
        core->issued.fetch_add(1, std::memory_order_relaxed);
    }
    bytes part() const
    {
        const unsigned char *from = static_cast<const unsigned char *>(send);

        if (shape.kind == call_broadcast && (int)shape.root != core->rank)
            return {};
        return bytes(from, from + shape.bytes);
    }
    void deliver(const call &c)
    {
        unsigned char *to = static_cast<unsigned char *>(recv);
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
    void run() override
    {
        if (!core->aborted.load(std::memory_order_relaxed)) {
            std::shared_ptr<call> c = core->link->arrive(number, shape, part());
            ncclResult_t rc = wait_call(core.get(), *c, UINT64_MAX);
            if (rc == ncclSuccess)
                deliver(*c);
            else if (!simt_stopping())
                core->error.store(rc, std::memory_order_release);
        }
        core->finished.fetch_add(1, std::memory_order_release);
    }
    std::unique_ptr<item> copy() const override
    {
        return std::make_unique<collective_item>(*this);
    }
};

ncclResult_t launch(ncclComm_t comm, std::unique_ptr<collective_item> work, cudaStream_t handle)
{
    comm_core *core = comm->core.get();
    ncclResult_t error = (ncclResult_t)core->error.load(std::memory_order_acquire);

    if (error != ncclSuccess)
        return error;
    work->core = comm->core;
    if (push(stream_of(handle), std::move(work)) != cudaSuccess)
        return comm_fail(core, ncclUnhandledCudaError, "the stream refused the collective");
    return ncclSuccess;
}

/* Checks that all collectives share; the item is filled when the answer is success. */
ncclResult_t make_item(ncclComm_t comm, const void *send, void *recv, size_t count,
                       ncclDataType_t type, std::unique_ptr<collective_item> *out)
{
    if (!comm)
        return ncclInvalidArgument;
    if (type_bytes(type) == 0)
        return comm_fail(comm->core.get(), ncclInvalidArgument, "unknown data type");
    if (count > 0 && (!send || !recv))
        return comm_fail(comm->core.get(), ncclInvalidArgument, "a buffer is NULL");
    *out = std::make_unique<collective_item>();
    (*out)->shape.datatype = type;
    (*out)->shape.bytes = count * type_bytes(type);
    (*out)->count = count;
    (*out)->send = send;
    (*out)->recv = recv;
    return ncclSuccess;
}

} // namespace

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    std::unique_ptr<collective_item> work;
    ncclResult_t rc = make_item(comm, sendbuff, recvbuff, sendcount, datatype, &work);

    if (rc != ncclSuccess)
        return rc;
    work->shape.kind = call_all_gather;
    return launch(comm, std::move(work), stream);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    std::unique_ptr<collective_item> work;
    ncclResult_t rc =
        make_item(comm, sendbuff ? sendbuff : recvbuff, recvbuff, count, datatype, &work);

    if (rc != ncclSuccess)
        return rc;
    if (root < 0 || root >= comm->core->nranks)
        return comm_fail(comm->core.get(), ncclInvalidArgument, "root is not a rank");
    work->shape.kind = call_broadcast;
    work->shape.root = (uint32_t)root;
    return launch(comm, std::move(work), stream);
}

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    std::unique_ptr<collective_item> work;
    ncclResult_t rc = make_item(comm, sendbuff, recvbuff, count, datatype, &work);

    if (rc != ncclSuccess)
        return rc;
    if (!can_reduce(datatype, op))
        return comm_fail(comm->core.get(), ncclInvalidArgument,
                         "no such reduction of this data type");
    work->shape.kind = call_all_reduce;
    work->shape.op = op;
    return launch(comm, std::move(work), stream);
}
