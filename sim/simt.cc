/* simt.cc: the scheduler: settings, virtual time, the loop that picks who runs next, wakes the parked
 * and finds out that nobody can move. Layer: sim. A worker owns the units of its GPUs. */
#include "sim/simt_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

namespace simt
{

struct simt_config config;
Gpu gpus[kMaxGpus];
uint64_t virtual_ns = 1000000; /* not 0: a deadline of 0 has passed */

namespace
{

constexpr unsigned kScanSteps = 32;
constexpr uint64_t kQuietSteps = 100000;
constexpr unsigned kEngineEvents = 1000; /* of engines alone, before they are told to stop */

thread_local Worker *me __attribute__((tls_model("initial-exec")));
Worker &main_worker = *new Worker; /* never destroyed: leak checkers find what it holds */
bool running;                    /* simt_run is active */

uint64_t env_number(const char *name, uint64_t unset)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, nullptr, 0) : unset;
}

void config_from_env(void)
{
    const char *hang = getenv("SIMT_HANG");

    config.seed = env_number("SIMT_SEED", 0);
    config.preempt_per_1000 = static_cast<unsigned>(env_number("SIMT_PREEMPT", 0));
    config.hang_report = hang && !strcmp(hang, "report");
    config.nsms = static_cast<int>(env_number("SIMT_SMS", 24));
    config.shared_kib = static_cast<int>(env_number("SIMT_SHARED_KIB", 227));
    config.threads = static_cast<int>(env_number("SIMT_THREADS", 1));
}

struct ReadConfig {
    ReadConfig()
    {
        config_from_env();
    }
} read_config;

bool task_can_move(Task *t)
{
    if (!t->parked)
        return true;
    if (virtual_time() >= t->deadline)
        return true;
    if (t->engine && me->stopping)
        return true;
    if (t->polling)
        return polls_changed(&t->polls);
    if (!t->ready)
        return false;
    HostSide side(t->gpu);

    return t->ready(t->ready_arg);
}

bool scan_tasks(Worker *k)
{
    bool any = false;

    for (Task *t : k->tasks)
        if (!t->queued && !t->ended && task_can_move(t)) {
            t->parked = false;
            unit_ready(k, t);
            any = true;
        }
    return any;
}

void unlist(Worker *k, size_t i)
{
    k->parked[i]->listed = false;
    k->parked.remove_unordered(i);
}

/* Wake the warps of which a polled word changed or a deadline passed. */
void scan_warps(Worker *k, bool spurious)
{
    for (size_t i = 0; i < k->parked.size();) {
        Warp *w = k->parked[i];
        bool force = w->deadline <= virtual_time() || (spurious && !(random_next(k) & 15));

        if (!w->parked || w->queued) {
            unlist(k, i);
        } else if (w->run || warp_wake(k, w, force)) {
            unlist(k, i);
            unit_ready(k, w);
        } else {
            i++;
        }
    }
}

void scan_sleepers(Worker *k)
{
    for (size_t i = 0; i < k->sleeping.size();) {
        Unit *u = k->sleeping[i];

        if (u->asleep > k->step) {
            i++;
            continue;
        }
        k->sleeping.remove_unordered(i);
        k->ready.push_back(u);
    }
}

void find_next_deadline(Worker *k)
{
    k->next_deadline = kNever;
    for (Warp *w : k->parked)
        if (w->deadline < k->next_deadline)
            k->next_deadline = w->deadline;
    for (Task *t : k->tasks)
        if (t->parked && !t->queued && t->deadline < k->next_deadline)
            k->next_deadline = t->deadline;
}

void take_inbox(Worker *k)
{
    if (!__atomic_load_n(&k->inbox_full, __ATOMIC_ACQUIRE))
        return;
    Hold hold(k->inbox_lock);

    k->inbox_full = false;
    for (Task *t : k->inbox_tasks) {
        k->tasks.push_back(t);
        unit_ready(k, t);
    }
    k->inbox_tasks.clear();
    for (Grid *g : k->inbox_grids)
        k->waiting_grids.push_back(g);
    k->inbox_grids.clear();
}

/* Everything that can make a unit ready, except what running units do. */
void scan(Worker *k, bool idle)
{
    bool moved = bulk_run(k), due = k->next_deadline <= virtual_time();

    take_inbox(k);
    grids_admit(k);
    scan_sleepers(k);
    scan_tasks(k);
    if (idle || due || moved || k->scanned_stores != k->stores || k->background) {
        k->scanned_stores = k->stores;
        scan_warps(k, !idle && k->preempt && !k->quiet);
        if (due)
            find_next_deadline(k);
    }
    /* No word written for long: stop perturbing, so that a hang shows. */
    if (k->stores != k->quiet_stores) {
        k->quiet_stores = k->stores;
        k->quiet_since = k->step;
        k->quiet = false;
    } else if (k->step - k->quiet_since > kQuietSteps) {
        k->quiet = true;
    }
}

Unit *pick(Worker *k)
{
    size_t n = k->ready.size(), i;
    Unit *u;

    if (config.seed) {
        i = random_next(k) % n;
    } else {
        if (k->turn >= n)
            k->turn = 0;
        i = k->turn++;
    }
    u = k->ready[i];
    k->ready.remove_unordered(i);
    return u; /* counts as queued while it runs */
}

void run_task(Worker *k, Task *t)
{
    k->now = t;
    k->stats.switches++;
    k->hash = (k->hash ^ static_cast<uint64_t>(t->gpu + 1)) * 0x100000001B3ull;
    if (!k->background)
        virtual_ns += kStepNs;
    fiber_switch(&k->fiber, &t->fiber);
    k->now = nullptr;
    t->queued = false;
    k->stores++; /* hosts and engines write with plain stores */
    if (t->ended) {
        for (size_t i = 0; i < k->tasks.size(); i++)
            if (k->tasks[i] == t)
                k->tasks.remove(i);
        if (!t->engine)
            k->hosts--;
        fiber_recycle(&t->fiber, true);
        order_acquire(&gpus[t->gpu].host_token); /* released at its end */
        delete t;
        return;
    }
    if (!t->parked)
        unit_ready(k, t);
}

void run_warp(Worker *k, Warp *w)
{
    warp_run(k, w);
    w->queued = false;
    if (k->stop)
        return;
    if (w->done == w->all) {
        for (size_t i = 0; w->listed; i++)
            if (k->parked[i] == w)
                unlist(k, i);
        warp_ended(k, w);
        return;
    }
    if (w->run) {
        if (w->parked && !(k->step & 15))
            warp_wake(k, w, w->deadline <= virtual_time());
        unit_ready(k, w);
    } else if (w->parked && (w->waiting & ~w->met) && !k->quiet) {
        /* A pause ends by itself on a GPU: lanes that come to a collective must not wait for parked
         * lanes whose own words stay as they are. Once for each coming, and not when no word has been
         * written for long (the warp would go round for ever), so that time can jump. */
        w->met = w->waiting;
        warp_wake(k, w, true);
        unit_ready(k, w);
    } else if (w->parked && !w->listed) {
        w->listed = true;
        k->parked.push_back(w);
    }
}

/* Nobody is ready: to the next event. False: there is none. */
bool next_event(Worker *k)
{
    uint64_t at = k->next_bulk;

    if (!k->sleeping.empty()) {
        uint64_t step = kNever;

        for (Unit *u : k->sleeping)
            if (u->asleep < step)
                step = u->asleep;
        k->step = step;
        return true;
    }
    for (Task *t : k->tasks) /* with hang_report a host's limit is no event, its sleep is one */
        if (t->deadline < at && (!config.hang_report || t->engine || !t->ready))
            at = t->deadline;
    if (!config.hang_report)
        for (Warp *w : k->parked)
            if (w->deadline < at)
                at = w->deadline;
    if (at == kNever)
        return false;
    if (at > virtual_ns)
        virtual_ns = at;
    if (k->next_deadline > at)
        k->next_deadline = at;
    return true;
}

bool idle(Worker *k)
{
    scan(k, true);
    if (!k->ready.empty())
        return true;
    if (k->background) {
        if (k->sleeping.empty())
            background_idle(k);
        else
            next_event(k);
        return true;
    }
    if (!k->hosts && k->grids.empty() && k->waiting_grids.empty()) {
        if (k->tasks.empty())
            return false;
        if (!k->stopping && k->idle_engine_events++ < kEngineEvents && next_event(k))
            return true; /* an engine may still start a grid */
        k->stopping = true;
        return scan_tasks(k);
    }
    k->idle_engine_events = 0;
    if (next_event(k))
        return true;
    k->stop = true;
    report_hang(k, "no lane can make progress");
    return false;
}

void worker_loop(Worker *k)
{
    unsigned since = 0;

    for (;;) {
        k->step++;
        if (++since >= kScanSteps) {
            scan(k, false);
            since = 0;
        }
        if (k->ready.empty()) {
            since = 0;
            if (!idle(k))
                return;
            continue;
        }
        Unit *u = pick(k);

        if (u->is_task)
            run_task(k, static_cast<Task *>(u));
        else
            run_warp(k, static_cast<Warp *>(u));
        if (k->nfaults != k->faults_printed)
            faults_print(k);
        if (k->stop) {
            report_hang(k, k->stop_text);
            return;
        }
    }
}

void run_begin(Worker *k)
{
    k->rng = (config.seed + 1) * 0x9E3779B97F4A7C15ull;
    k->preempt = config.preempt_per_1000;
    k->hash = 0xcbf29ce484222325ull;
    k->step = 0;
    k->stats = {};
    k->stores = k->scanned_stores = k->quiet_stores = k->quiet_since = 0;
    k->quiet = k->stop = k->stopping = false;
    k->nfaults = k->faults_printed = 0;
    k->next_deadline = k->next_bulk = kNever;
    k->turn = 0;
    k->idle_engine_events = 0;
}

/* The caller of simt_run comes after everything that ran, for TSan. */
void order_after_run(Worker *k)
{
    for (Gpu &gpu : gpus) {
        order_acquire(&gpu.host_token);
        for (void *context : gpu.copy_context)
            order_after_context(context);
    }
    for (Task *t : k->tasks) /* left only by a failed run, as grids are */
        order_after_context(t->fiber.tsan);
    for (Grid *g : k->grids)
        for (Block *b : g->block)
            for (int i = 0; b && i < b->warps; i++)
                for (Lane &l : b->warp[i].lane)
                    order_after_context(l.fiber.tsan);
}

/* Forget a failed run: no fiber of it is resumed. */
void run_abandon(Worker *k)
{
    grids_abandon(k);
    bulk_abandon(k);
    for (Task *t : k->tasks) {
        free(t->thread.slot);
        free(t->thread.runtime);
        fiber_abandon(&t->fiber);
        delete t;
    }
    k->tasks.clear();
    for (Task *t : k->inbox_tasks) {
        fiber_abandon(&t->fiber);
        delete t;
    }
    k->inbox_tasks.clear();
    for (Grid *g : k->inbox_grids)
        delete g;
    k->inbox_grids.clear();
    k->inbox_full = false;
    k->hosts = 0;
    k->ready.clear();
    k->sleeping.clear();
    k->parked.clear();
    fiber_drop_pools();
}

} // namespace

Worker *worker_self(void)
{
    return me;
}

Worker *worker_of_gpu(int gpu)
{
    if (running || !background_started())
        return &main_worker;
    return background_worker(gpu);
}

/* One of the two, for the worker of its GPU. Host fibers belong to simt_run, now or later. */
void worker_submit(Grid *grid, Task *task)
{
    bool host = task && !task->engine;

    if (!running && !host && config.threads > 1)
        background_start(&main_worker);
    Worker *k = host ? &main_worker : worker_of_gpu(grid ? grid->start.gpu : task->gpu);
    if (task && !task->engine && config.threads <= 1)
        k = &main_worker; /* for the next simt_run, also after OS threads have used the emulator */
    Hold hold(k->inbox_lock);

    if (grid)
        k->inbox_grids.push_back(grid);
    else
        k->inbox_tasks.push_back(task);
    if (host)
        k->hosts++;
    __atomic_store_n(&k->inbox_full, true, __ATOMIC_RELEASE);
}

void background_start_now(void)
{
    background_start(&main_worker);
}

void worker_background(Worker *k)
{
    me = k;
    fiber_of_thread(&k->fiber);
    worker_loop(k);
    abort(); /* after a report: a lane failed and cannot be left behind */
}

uint64_t random_next(Worker *k)
{
    k->rng ^= k->rng << 13;
    k->rng ^= k->rng >> 7;
    k->rng ^= k->rng << 17;
    return k->rng * 0x2545F4914F6CDD1Dull;
}

/* Two statements: the order of evaluation within one is the compiler's choice. */
uint64_t random_tail(Worker *k, unsigned bits)
{
    uint64_t limit = 1ull << random_next(k) % (bits + 1);

    return random_next(k) % limit;
}

uint64_t virtual_time(void)
{
    return running || !background_started() ? virtual_ns : background_time();
}

void unit_ready(Worker *k, Unit *unit)
{
    if (unit->queued)
        return;
    unit->queued = true;
    if (unit->asleep > k->step)
        k->sleeping.push_back(unit);
    else
        k->ready.push_back(unit);
}

/* Wakes all parked lanes of the warp: the loop of one may hold a collective of all. */
bool warp_wake(Worker *k, Warp *w, bool force)
{
    bool hit = force;

    for (uint32_t m = w->parked; m && !hit; m &= m - 1)
        hit = polls_changed(&w->lane[__builtin_ctz(m)].polls);
    if (!hit)
        return false;
    for (uint32_t m = w->parked; m; m &= m - 1)
        polls_clear(&w->lane[__builtin_ctz(m)].polls);
    w->run |= w->parked;
    w->parked = 0;
    w->deadline = kNever;
    (void)k;
    return true;
}

HostSide::HostSide(int g) : gpu(g), back(nullptr)
{
    if (!__tsan_switch_to_fiber)
        return;
    back = __tsan_get_current_fiber();
    if (!gpus[gpu].host_context)
        gpus[gpu].host_context = context_create();
    __tsan_switch_to_fiber(gpus[gpu].host_context, 1);
    order_acquire(&gpus[gpu].host_token);
}

HostSide::~HostSide()
{
    if (!back)
        return;
    order_release(&gpus[gpu].host_token);
    __tsan_switch_to_fiber(back, 1);
}

} // namespace simt

using namespace simt;

int simt_run(void)
{
    Worker *k = &main_worker;
    uint64_t faults;

    me = k;
    fiber_of_thread(&k->fiber);
    if (background_started() && virtual_ns < background_time())
        virtual_ns = background_time();
    run_begin(k);
    running = true;
    worker_loop(k);
    faults_print(k);
    running = false;
    me = nullptr;
    faults = k->stats.faults;
    order_after_run(k);
    if (k->stop)
        run_abandon(k);
    return k->stop || faults ? 1 : 0;
}

uint64_t simt_now_ns(void)
{
    return virtual_time();
}

bool simt_stopping(void)
{
    return me && me->stopping;
}

void simt_grid_start(const struct simt_grid *start)
{
    worker_submit(grid_create(start), nullptr);
}

struct simt_config simt_config_get(void)
{
    return config;
}

void simt_config_set(const struct simt_config *wanted)
{
    config = *wanted;
}

struct simt_stats simt_stats(void)
{
    struct simt_stats s = main_worker.stats;

    s.schedule_hash = main_worker.hash;
    background_faults(&s);
    return s;
}

uint64_t simt_random(void)
{
    return random_next(me ? me : &main_worker);
}

void simt_order_release(const void *token)
{
    order_release(const_cast<void *>(token));
}

void simt_order_acquire(const void *token)
{
    order_acquire(const_cast<void *>(token));
}
