/* cuda_graph.cc: capture and graphs of the CUDA runtime subset.
 *
 * A capture collects the items of all streams that joined it in call order; a graph replays them in
 * that order, one after the other. */
#include "sim/machine.h"

using namespace swl_sim;

namespace
{

items copies(const items &work)
{
    items made;

    for (const auto &w : work)
        made.push_back(w->copy());
    return made;
}

} // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    std::shared_ptr<stream> on = stream_of(handle);

    if (on->legacy)
        return note(cudaErrorStreamCaptureUnsupported);
    if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
        return note(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> hold(on->lock);
    if (on->into)
        return note(cudaErrorIllegalState);
    on->into = std::make_shared<capture>();
    on->into->origin = on.get();
    on->into->mode = mode;
    on->into->members.push_back(on);
    if (mode != cudaStreamCaptureModeRelaxed)
        self()->captures++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    std::shared_ptr<stream> on = stream_of(handle);
    std::shared_ptr<capture> done = capture_of(on);
    std::vector<std::shared_ptr<stream>> members;
    items work;
    bool invalid;

    if (!graph || !done)
        return note(graph ? cudaErrorIllegalState : cudaErrorInvalidValue);
    if (done->origin != on.get())
        return note(cudaErrorStreamCaptureUnmatched);
    {
        std::lock_guard<std::mutex> hold(done->lock);
        done->active = false;
        invalid = done->invalid;
        members.swap(done->members);
        work.swap(done->captured);
    }
    for (const auto &member : members) {
        std::lock_guard<std::mutex> hold(member->lock);
        member->into = nullptr;
    }
    if (done->mode != cudaStreamCaptureModeRelaxed && self()->captures > 0)
        self()->captures--;
    *graph = nullptr;
    if (invalid)
        return note(cudaErrorStreamCaptureInvalidated);
    CUgraph_st *made = new CUgraph_st;
    made->work = std::move(work);
    *graph = made;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    if (!status)
        return note(cudaErrorInvalidValue);
    std::shared_ptr<capture> into = capture_of(stream_of(handle));
    *status = cudaStreamCaptureStatusNone;
    if (into) {
        std::lock_guard<std::mutex> hold(into->lock);
        *status =
            into->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    }
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    if (!exec || !graph || flags != 0)
        return note(cudaErrorInvalidValue);
    CUgraphExec_st *made = new CUgraphExec_st;
    made->work = copies(graph->work);
    *exec = made;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    if (!exec)
        return note(cudaErrorInvalidValue);
    return note(push_all(stream_of(handle), copies(exec->work)));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (!graph)
        return note(cudaErrorInvalidValue);
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    if (!exec)
        return note(cudaErrorInvalidValue);
    delete exec;
    return cudaSuccess;
}
