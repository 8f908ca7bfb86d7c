/* simt_run.cc: settings, virtual time and random numbers, and the life of a run: simt_run and the
 * other calls of simt.h that need no fiber. Layer: sim. */
#include "sim/simt_core.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace simt
{

struct simt_config config;
Gpu gpus[kMaxGpus];
uint64_t virtual_ns = 1000000; /* not 0: a deadline of 0 has passed */

namespace
{

Worker &main_worker = *new Worker; /* never destroyed: leak checkers find what it holds */
bool running;                      /* simt_run is active */

/* 0, empty and unset are the same; a malformed value is a warning. */
uint64_t env_number(const char *name, uint64_t most, uint64_t unset)
{
    const char *text = getenv(name);
    char *end = nullptr;
    uint64_t value;

    if (!text || !*text)
        return unset;
    errno = 0;
    value = strtoull(text, &end, 0);
    if (!isdigit(static_cast<unsigned char>(text[0])) || *end || errno || value > most) {
        fprintf(stderr, "swimlane: %s '%.80s' is not a number of 0 to %" PRIu64 "; ignored\n", name,
                text, most);
        return unset;
    }
    return value ? value : unset;
}

bool env_hang_report(void)
{
    const char *text = getenv("SIMT_HANG");
    const bool report = text && !strcmp(text, "report");

    if (text && *text && !report)
        fprintf(stderr, "swimlane: SIMT_HANG '%.80s' is not report; ignored\n", text);
    return report;
}

void config_from_env(void)
{
    config.seed = env_number("SIMT_SEED", UINT64_MAX, 0);
    config.preempt_per_1000 = static_cast<unsigned>(env_number("SIMT_PREEMPT", 1000, 0));
    config.hang_report = env_hang_report();
    config.nsms = static_cast<int>(env_number("SIMT_SMS", 65535, 24));
    config.shared_kib = static_cast<int>(env_number("SIMT_SHARED_KIB", 1 << 20, 227));
    config.threads = static_cast<int>(env_number("SIMT_THREADS", 256, 1));
}

struct ReadConfig {
    ReadConfig()
    {
        config_from_env();
    }
} read_config;

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
    worker_enter(k);
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

    worker_enter(k);
    fiber_of_thread(&k->fiber);
    if (background_started() && virtual_ns < background_time())
        virtual_ns = background_time();
    run_begin(k);
    running = true;
    worker_loop(k);
    faults_print(k);
    running = false;
    worker_enter(nullptr);
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
    const Worker *k = worker_self();

    return k && k->stopping;
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
    Worker *k = worker_self();

    return random_next(k ? k : &main_worker);
}
