/* cuda_stream.cc: streams, events and error texts of the CUDA runtime subset. */
#include "sim/machine.h"

using namespace swl_sim;

namespace
{

struct mark_item : item {
    std::shared_ptr<mark> at;

    void submitted(uint64_t place, const std::shared_ptr<stream> &on) override
    {
        at->place = place;
        at->on = on;
    }
    void run() override
    {
        at->time_ns = simt_now_ns();
    }
    std::unique_ptr<item> copy() const override
    {
        return std::make_unique<mark_item>(*this);
    }
};

struct wait_item : item {
    std::shared_ptr<mark> until;

    void run() override
    {
        wait_word(SIMT_WHY("stream waits for an event", 0, 0), &until->on->completed, until->place);
    }
    std::unique_ptr<item> copy() const override
    {
        return std::make_unique<wait_item>(*this);
    }
};

struct host_item : item {
    cudaHostFn_t fn = nullptr;
    void *arg = nullptr;

    void run() override
    {
        fn(arg);
    }
    std::unique_ptr<item> copy() const override
    {
        return std::make_unique<host_item>(*this);
    }
};

bool is_active(const std::shared_ptr<capture> &c)
{
    std::lock_guard<std::mutex> hold(c->lock);

    return c->active;
}

/* `on` becomes part of the capture in which the event was recorded. */
cudaError_t join(const std::shared_ptr<stream> &on, const std::shared_ptr<capture> &into)
{
    if (!is_active(into))
        return cudaErrorCapturedEvent;
    std::shared_ptr<capture> now = capture_of(on);
    if (now == into)
        return cudaSuccess;
    if (now)
        return cudaErrorStreamCaptureMerge;
    if (on->legacy)
        return cudaErrorStreamCaptureImplicit;
    {
        std::lock_guard<std::mutex> hold(on->lock);
        on->into = into;
    }
    std::lock_guard<std::mutex> hold(into->lock);
    into->members.push_back(on);
    return cudaSuccess;
}

cudaError_t wait_event(const std::shared_ptr<stream> &on, cudaEvent_t event)
{
    std::shared_ptr<mark> until;
    std::shared_ptr<capture> captured;

    {
        std::lock_guard<std::mutex> hold(event->lock);
        until = event->last;
        captured = event->captured;
    }
    if (captured)
        return join(on, captured);
    if (!until)
        return cudaSuccess;
    if (capture_of(on))
        return cudaErrorStreamCaptureIsolation;
    auto work = std::make_unique<wait_item>();
    work->until = until;
    return push(on, std::move(work));
}

cudaError_t record(cudaEvent_t event, const std::shared_ptr<stream> &on)
{
    if (std::shared_ptr<capture> into = capture_of(on)) {
        std::lock_guard<std::mutex> hold(event->lock);
        event->captured = into;
        event->last = nullptr;
        return cudaSuccess;
    }
    auto work = std::make_unique<mark_item>();
    std::shared_ptr<mark> at = std::make_shared<mark>();
    work->at = at;
    cudaError_t rc = push(on, std::move(work));
    if (rc != cudaSuccess)
        return rc;
    std::lock_guard<std::mutex> hold(event->lock);
    event->last = at;
    event->captured = nullptr;
    return cudaSuccess;
}

/* The event's last record; NULL when there is none. */
cudaError_t last_mark(cudaEvent_t event, std::shared_ptr<mark> *out)
{
    if (!event)
        return cudaErrorInvalidResourceHandle;
    std::lock_guard<std::mutex> hold(event->lock);
    if (event->captured)
        return cudaErrorCapturedEvent;
    *out = event->last;
    return cudaSuccess;
}

} // namespace

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define SWL_SIM_CUDA_NAME(name, value, text)                                                       \
    case name:                                                                                     \
        return #name;
        SWL_SIM_CUDA_ERRORS(SWL_SIM_CUDA_NAME)
#undef SWL_SIM_CUDA_NAME
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define SWL_SIM_CUDA_TEXT(name, value, text)                                                       \
    case name:                                                                                     \
        return text;
        SWL_SIM_CUDA_ERRORS(SWL_SIM_CUDA_TEXT)
#undef SWL_SIM_CUDA_TEXT
    }
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t last = self()->last_error;

    self()->last_error = cudaSuccess;
    return last;
}

cudaError_t cudaPeekAtLastError(void)
{
    return self()->last_error;
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    if (!out || flags > cudaStreamNonBlocking)
        return note(cudaErrorInvalidValue);
    CUstream_st *made = new CUstream_st;
    made->on = stream_make(current_device(), flags != cudaStreamNonBlocking);
    *out = made;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int)
{
    return cudaStreamCreateWithFlags(out, flags);
}

/* Queued work still runs: the engine holds the stream. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
        return note(cudaErrorInvalidResourceHandle);
    delete handle;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    return note(stream_wait(stream_of(handle), UINT64_MAX));
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    return note(stream_wait(stream_of(handle), 0));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int flags)
{
    if (!event || flags != 0)
        return note(event ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
    return note(wait_event(stream_of(handle), event));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void *user_data)
{
    if (!fn)
        return note(cudaErrorInvalidValue);
    auto work = std::make_unique<host_item>();
    work->fn = fn;
    work->arg = user_data;
    return note(push(stream_of(handle), std::move(work)));
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    if (!event || (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)))
        return note(cudaErrorInvalidValue);
    CUevent_st *made = new CUevent_st;
    made->timing = !(flags & cudaEventDisableTiming);
    *event = made;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (!event)
        return note(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    if (!event)
        return note(cudaErrorInvalidResourceHandle);
    return note(record(event, stream_of(handle)));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    std::shared_ptr<mark> last;
    cudaError_t rc = last_mark(event, &last);

    if (rc != cudaSuccess || !last || last->done())
        return note(rc);
    simt_park(
        SIMT_WHY("host asks for an event", 0, 0), [](void *) { return false; }, nullptr,
        simt_now_ns());
    return last->done() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::shared_ptr<mark> last;
    cudaError_t rc = last_mark(event, &last);

    if (rc == cudaSuccess && last)
        wait_word(SIMT_WHY("host waits for an event", 0, 0), &last->on->completed, last->place);
    return note(rc);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    std::shared_ptr<mark> from, to;

    if (!ms)
        return note(cudaErrorInvalidValue);
    if (last_mark(start, &from) != cudaSuccess || last_mark(end, &to) != cudaSuccess || !from ||
        !to || !start->timing || !end->timing)
        return note(cudaErrorInvalidResourceHandle);
    if (!from->done() || !to->done())
        return cudaErrorNotReady;
    *ms = (float)(((double)to->time_ns - (double)from->time_ns) * 1e-6);
    return cudaSuccess;
}
