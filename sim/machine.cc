/* machine.cc: see machine.h. */
#include "sim/machine.h"

#include <stdlib.h>
#include <sys/single_threaded.h>

#include <iterator>
#include <map>
#include <utility>

namespace swl_sim
{

struct device {
    std::mutex lock;
    std::vector<std::weak_ptr<stream>> streams;
    std::map<uint64_t, std::shared_ptr<stream>> legacy;     /* by context */
    std::map<uint64_t, std::shared_ptr<stream>> per_thread; /* by thread_state::serial */
};

namespace
{

/* libstdc++ counts references without atomics while a process has one thread; TSan sees fibers as
 * threads and would report that. The flag may be lowered at any time. */
[[maybe_unused]] const char threads_exist = __libc_single_threaded = 0;

device *device_of(int index)
{
    static device all[max_devices];

    return &all[index];
}

struct awaited_word {
    const std::atomic<uint64_t> *word;
    uint64_t value;
};

bool word_ready(void *arg)
{
    const awaited_word *w = static_cast<const awaited_word *>(arg);

    /* acquire: pairs with the writer's release */
    return w->word->load(std::memory_order_acquire) >= w->value;
}

bool never(void *)
{
    return false;
}

/* Items start a little late under a seed, now and then much later. */
void start_delay()
{
    if (simt_config_get().seed == 0 || simt_stopping())
        return;
    uint64_t random = simt_random();
    uint64_t span = random % 16 == 0 ? 100000 : 2000;
    simt_park(SIMT_WHY("stream item starts late", 0, 0), never, nullptr,
              simt_now_ns() + (random >> 8) % span);
}

void serve(void *arg)
{
    std::unique_ptr<std::shared_ptr<stream>> held(static_cast<std::shared_ptr<stream> *>(arg));
    stream *s = held->get();

    for (;;) {
        std::unique_ptr<item> work;
        {
            std::lock_guard<std::mutex> hold(s->lock);
            if (s->queue.empty()) {
                s->served = false;
                return;
            }
            work = std::move(s->queue.front());
            s->queue.pop_front();
        }
        start_delay();
        work->run();
        work.reset();
        /* release: what the item did, before whoever waits for it (mark::done, word_ready) */
        s->completed.fetch_add(1, std::memory_order_release);
    }
}

/* Waits for places in other streams: the legacy stream against the blocking ones. */
struct order_item : item {
    std::vector<std::pair<std::shared_ptr<stream>, uint64_t>> after;

    void run() override
    {
        for (const auto &a : after)
            wait_word(SIMT_WHY("stream waits for another stream", 0, 0), &a.first->completed,
                      a.second);
    }
    std::unique_ptr<item> copy() const override
    {
        return std::make_unique<order_item>(*this);
    }
};

/* Streams of the device that work on `on` must wait for, as the legacy stream demands. */
cudaError_t implicit_order(const std::shared_ptr<stream> &on, std::unique_ptr<item> *out)
{
    if (!on->blocking && !on->legacy)
        return cudaSuccess;
    device *d = device_of(on->device);
    auto order = std::make_unique<order_item>();
    std::lock_guard<std::mutex> hold(d->lock);

    auto add = [&order](const std::shared_ptr<stream> &s) {
        uint64_t place = s->pushed.load(std::memory_order_acquire);
        if (s->completed.load(std::memory_order_acquire) < place)
            order->after.emplace_back(s, place);
    };
    auto legacy = d->legacy.find(on->context);
    if (on->blocking && legacy != d->legacy.end())
        add(legacy->second);
    for (const auto &weak : d->streams) {
        std::shared_ptr<stream> s = weak.lock();
        if (!on->legacy || !s || !s->blocking || s->context != on->context)
            continue;
        {
            std::lock_guard<std::mutex> hold_stream(s->lock);
            if (s->into)
                return cudaErrorStreamCaptureImplicit;
        }
        add(s);
    }
    if (!order->after.empty())
        *out = std::move(order);
    return cudaSuccess;
}

/* Under the stream's lock. */
void append(const std::shared_ptr<stream> &on, std::unique_ptr<item> work)
{
    uint64_t place = on->pushed.load(std::memory_order_relaxed) + 1;

    work->submitted(place, on);
    on->queue.push_back(std::move(work));
    on->pushed.store(place, std::memory_order_release);
}

/* Streams of contexts and threads that have ended go, now and then; an idle one of a living
 * thread is made anew. */
void forget_idle(std::map<uint64_t, std::shared_ptr<stream>> *streams)
{
    if (streams->size() < 64)
        return;
    for (auto it = streams->begin(); it != streams->end();) {
        const stream &s = *it->second;
        bool idle =
            s.completed.load(std::memory_order_acquire) == s.pushed.load(std::memory_order_acquire);
        it = idle && it->second.use_count() == 1 ? streams->erase(it) : std::next(it);
    }
}

std::shared_ptr<stream> implied_stream(int index, bool legacy)
{
    device *d = device_of(index);
    uint64_t key = legacy ? current_context() : self()->serial;
    std::lock_guard<std::mutex> hold(d->lock);
    std::map<uint64_t, std::shared_ptr<stream>> *streams = legacy ? &d->legacy : &d->per_thread;
    auto found = streams->find(key);

    if (found != streams->end())
        return found->second;
    forget_idle(streams);
    auto made = std::make_shared<stream>();
    made->device = index;
    made->context = current_context();
    made->legacy = legacy;
    made->blocking = !legacy;
    d->streams.push_back(made);
    (*streams)[key] = made;
    return made;
}

} // namespace

thread_state *self()
{
    simt_thread *thread = simt_thread_self();

    if (!thread->runtime) {
        static std::atomic<uint64_t> last_serial{0};
        static thread_local thread_state spare = {}; /* no memory: better wrong than down */
        thread->runtime = calloc(1, sizeof(thread_state));
        if (!thread->runtime)
            return &spare;
        static_cast<thread_state *>(thread->runtime)->serial = ++last_serial;
    }
    return static_cast<thread_state *>(thread->runtime);
}

int current_device()
{
    return simt_thread_self()->device;
}

uint64_t current_context()
{
    return simt_thread_self()->fiber ? self()->serial : 0;
}

bool device_ok(int index)
{
    return index >= 0 && index < max_devices;
}

cudaError_t note(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        self()->last_error = error;
    return error;
}

bool wait_word(const simt_why *why, const std::atomic<uint64_t> *word, uint64_t value,
               uint64_t deadline_ns)
{
    awaited_word w = {word, value};

    if (!word_ready(&w))
        simt_park(why, word_ready, &w, deadline_ns);
    return word_ready(&w); /* the acquire of this thread, whoever looked before */
}

std::shared_ptr<stream> stream_make(int index, bool blocking)
{
    device *d = device_of(index);
    auto made = std::make_shared<stream>();

    made->device = index;
    made->blocking = blocking;
    made->context = current_context();
    std::lock_guard<std::mutex> hold(d->lock);
    for (auto &weak : d->streams)
        if (weak.expired()) {
            weak = made;
            return made;
        }
    d->streams.push_back(made);
    return made;
}

std::shared_ptr<stream> stream_of(cudaStream_t handle)
{
    if (handle == nullptr || handle == cudaStreamLegacy)
        return implied_stream(current_device(), true);
    if (handle == cudaStreamPerThread)
        return implied_stream(current_device(), false);
    return handle->on;
}

std::shared_ptr<capture> capture_of(const std::shared_ptr<stream> &on)
{
    std::lock_guard<std::mutex> hold(on->lock);

    return on->into;
}

cudaError_t push_all(const std::shared_ptr<stream> &on, items work)
{
    std::unique_ptr<item> order;
    std::shared_ptr<capture> into = capture_of(on);
    bool start = false;

    if (into) {
        std::lock_guard<std::mutex> hold(into->lock);
        if (into->invalid)
            return cudaErrorStreamCaptureInvalidated;
        for (auto &w : work)
            into->captured.push_back(std::move(w));
        return cudaSuccess;
    }
    cudaError_t rc = implicit_order(on, &order);
    if (rc != cudaSuccess)
        return rc;
    {
        std::lock_guard<std::mutex> hold(on->lock);
        if (order)
            append(on, std::move(order));
        for (auto &w : work)
            append(on, std::move(w));
        start = !on->served && !on->queue.empty();
        on->served = on->served || start;
    }
    if (start)
        simt_engine("stream", on->device, serve, new std::shared_ptr<stream>(on));
    return cudaSuccess;
}

cudaError_t push(const std::shared_ptr<stream> &on, std::unique_ptr<item> work)
{
    items one;

    one.push_back(std::move(work));
    return push_all(on, std::move(one));
}

cudaError_t stream_wait(const std::shared_ptr<stream> &on, uint64_t deadline_ns)
{
    {
        std::lock_guard<std::mutex> hold(on->lock);
        if (on->into) {
            std::lock_guard<std::mutex> hold_capture(on->into->lock);
            on->into->invalid = true;
            return cudaErrorStreamCaptureUnsupported;
        }
    }
    uint64_t place = on->pushed.load(std::memory_order_acquire);
    if (!wait_word(SIMT_WHY("host waits for a stream", on->device, 0), &on->completed, place,
                   deadline_ns))
        return cudaErrorNotReady;
    return cudaSuccess;
}

void device_wait(int index)
{
    device *d = device_of(index);
    uint64_t context = current_context();
    std::vector<std::pair<std::shared_ptr<stream>, uint64_t>> all;

    {
        std::lock_guard<std::mutex> hold(d->lock);
        for (const auto &weak : d->streams)
            if (std::shared_ptr<stream> s = weak.lock(); s && s->context == context)
                all.emplace_back(s, s->pushed.load(std::memory_order_acquire));
    }
    for (const auto &a : all)
        wait_word(SIMT_WHY("host waits for a device", index, 0), &a.first->completed, a.second);
}

} // namespace swl_sim
