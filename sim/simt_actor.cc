/* simt_actor.cc: what runs on a fiber calls to leave it: preemption, pauses, parking, failure; and
 * the fibers of hosts and engines. Layer: sim. */
#include "sim/simt_core.h"

#include <stdlib.h>

namespace simt
{
namespace
{

constexpr int kParksAfterStop = 100000;

/* Thread-local data of ordinary OS threads; frees the slot at the thread's end. */
struct OsThread {
    struct simt_thread thread = {0, -1, nullptr, nullptr, false};
    ~OsThread()
    {
        free(thread.slot);
        free(thread.runtime);
    }
};
thread_local OsThread os_thread;

Task *task_self(void)
{
    Worker *k = worker_self();

    return k && k->now && !k->now->warp ? static_cast<Task *>(k->now) : nullptr;
}

Lane *next_lane(Worker *k, Warp *w)
{
    uint32_t m = w->run & ~k->pass;

    if (!m)
        return nullptr;
    if (config.seed) {
        uint32_t from = m & ~0u << (random_next(k) & 31);

        return &w->lane[__builtin_ctz(from ? from : m)];
    }
    return &w->lane[__builtin_ctz(m)];
}

void enter(Worker *k, Lane *l)
{
    Block *b = l->warp->block;
    uint64_t name = static_cast<uint64_t>(((l->gpu * 256 + b->id) * 64 + l->warp->id) * 32 + l->id);

    k->pass |= 1u << l->id;
    k->now = l;
    k->stats.switches++;
    time_step(k, 32);
    k->hash = (k->hash ^ name) * 0x100000001B3ull;
    if (l->id < 31) { /* most likely the next one */
        const Lane *n = l + 1;

        __builtin_prefetch(n->fiber.sp);
        __builtin_prefetch(static_cast<const char *>(n->fiber.sp) + 64);
        __builtin_prefetch(&n->value);
        if (l->id < 30)
            __builtin_prefetch(n + 1);
    }
}

void task_main(void)
{
    fiber_arrived();
    Task *t = task_self();

    order_acquire(t);
    order_acquire(&gpus[t->gpu].host_token);
    t->fn(t->arg);
    free(t->thread.slot);
    free(t->thread.runtime);
    order_release(&gpus[t->gpu].host_token);
    t->ended = true;
    for (;;)
        actor_leave(t);
}

void task_start(const char *name, int gpu, int node, void (*fn)(void *), void *arg, bool engine)
{
    Task *t = new Task();

    t->is_task = true;
    t->name = name;
    t->fn = fn;
    t->arg = arg;
    t->engine = engine;
    t->gpu = gpu;
    t->ordered = -1;
    t->deadline = kNever;
    t->thread = {gpu, node, nullptr, nullptr, true};
    fiber_create(&t->fiber, true, task_main);
    order_release(t);
    worker_submit(nullptr, t);
}

/* Fuzz: hold a host fiber or engine back, now and then for long. */
void task_delay(Worker *k, Task *t)
{
    if (!config.seed || k->quiet || random_next(k) & 3)
        return;
    t->asleep = k->step + random_tail(k, 13);
    t->parked = false;
    actor_leave(t);
}

bool task_park(Task *t, const struct simt_why *why, bool (*ready)(void *), void *arg,
               uint64_t deadline)
{
    Worker *k = worker_self();

    k->stats.parks++;
    t->activity++; /* what an engine has read before is no raw spin */
    polls_clear(&t->polls);
    task_delay(k, t);
    for (;;) {
        if (ready && ready(arg))
            return true;
        if (simt_now_ns() >= deadline)
            return false;
        if (t->engine && simt_stopping()) {
            if (++t->parks_after_stop > kParksAfterStop)
                worker_fail("an engine does not end although simt_stopping() is true");
            return false;
        }
        t->why = {why->what, why->a, why->b, why->file, why->line};
        t->ready = ready;
        t->ready_arg = arg;
        t->deadline = deadline;
        t->parked = true;
        if (deadline < k->next_deadline)
            k->next_deadline = deadline;
        order_release(&gpus[t->gpu].host_token);
        actor_leave(t);
        order_acquire(&gpus[t->gpu].host_token);
    }
}

} // namespace

/* The first lane of a warp gets the processor from the scheduler; the others hand it on. */
void warp_run(Worker *k, Warp *w)
{
    k->pass = 0;
    Lane *l = next_lane(k, w);

    if (!l)
        return;
    enter(k, l);
    fiber_switch(&k->fiber, &l->fiber);
    k->now = nullptr;
}

void actor_leave(Actor *a)
{
    Worker *k = worker_self();
    Fiber *to = &k->fiber;

    if (a->warp && !k->stop) {
        Lane *next = next_lane(k, a->warp);

        if (next == a) {
            enter(k, next);
            return;
        }
        if (next) {
            enter(k, next);
            to = &next->fiber;
        }
    }
    bool dying =
        a->warp ? a->warp->done >> static_cast<Lane *>(a)->id & 1 : static_cast<Task *>(a)->ended;

    fiber_switch(&a->fiber, to, dying);
}

void worker_fail(const char *text)
{
    Worker *k = worker_self();

    k->stop = true;
    k->stop_text = text;
    for (;;)
        fiber_switch(&k->now->fiber, &k->fiber);
}

} // namespace simt

using namespace simt;

void simt_dev_point(void)
{
    Worker *k = worker_self();
    Actor *a = k->now;

    if (++a->burst >= kBurst) {
        a->burst = 0;
        k->pass = ~0u; /* other warps, too */
        k->give_way = true;
        actor_leave(a);
        return;
    }
    if (!k->preempt || k->quiet)
        return;
    uint64_t r = random_next(k);

    if (r % 1000 >= k->preempt)
        return;

    r >>= 32;
    if (!a->warp) {
        actor_leave(a);
        return;
    }
    if (r & 1) { /* the whole warp stops here */
        k->pass = ~0u;
        k->give_way = true;
        if (r & 2) /* sometimes for long */
            a->warp->asleep = k->step + random_tail(k, 13);
    }
    actor_leave(a);
}

/* due: what the lane waits for happens then by itself. */
static void pause(const struct swl_pause *why, uint64_t deadline_ns, bool due)
{
    Worker *k = worker_self();
    Actor *a = k->now;

    a->why = *why;
    a->deadline = deadline_ns;
    a->activity++;
    a->burst = 0;
    k->stats.parks++;
    if (deadline_ns < k->next_deadline)
        k->next_deadline = deadline_ns;
    if (!a->warp) {
        Task *t = static_cast<Task *>(a);

        if (k->stopping && ++t->parks_after_stop > kParksAfterStop)
            worker_fail("an engine does not end although simt_stopping() is true");
        t->parked = t->polling = true;
        actor_leave(t);
        t->polling = false;
        polls_clear(&t->polls);
        return;
    }
    Lane *l = static_cast<Lane *>(a);

    if (l->wakes !=
        l->warp->wakes) { /* the others may already wait in a collective for this lane */
        l->wakes = l->warp->wakes;
        polls_clear(&l->polls);
        return;
    }
    l->warp->run &= ~(1u << l->id);
    l->warp->parked |= 1u << l->id;
    if (deadline_ns < l->warp->deadline)
        l->warp->deadline = deadline_ns;
    if (due && deadline_ns < l->warp->due)
        l->warp->due = deadline_ns;
    actor_leave(l);
}

void simt_dev_pause(const struct swl_pause *why, uint64_t deadline_ns)
{
    pause(why, deadline_ns, false);
}

void simt_dev_pause_until(const struct swl_pause *why, uint64_t time_ns)
{
    pause(why, time_ns, true);
}

bool simt_park(const struct simt_why *why, bool (*ready)(void *), void *arg, uint64_t deadline_ns)
{
    Task *t = task_self();

    if (t)
        return task_park(t, why, ready, arg, deadline_ns);
    background_start_now();
    return os_thread_park(ready, arg, deadline_ns);
}

void simt_fiber(const char *name, int gpu, int node, void (*fn)(void *), void *arg)
{
    task_start(name, gpu, node, fn, arg, false);
}

void simt_engine(const char *name, int gpu, void (*fn)(void *), void *arg)
{
    task_start(name, gpu, -1, fn, arg, true);
}

struct simt_thread *simt_thread_self(void)
{
    Task *t = task_self();

    return t ? &t->thread : &os_thread.thread;
}
