/* simt_background.cc: threaded mode: host code on ordinary OS threads, grids on scheduler threads
 * that live to the end of the process. Layer: sim, internal. Time is real here: nobody can tell
 * whether an OS thread is still going to do something. */
#include "sim/simt_core.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

namespace simt
{
namespace
{

constexpr int kMaxThreads = 64;
constexpr uint64_t kQuietNs = 5000000000ull; /* a hang, when a report is asked for */
constexpr uint64_t kYieldNs = 30000;         /* of a wait */
constexpr uint64_t kNapNs = 50000, kNapMaxNs = 2000000, kSleepNs = 500000;

Lock start_lock;
Worker *workers[kMaxThreads];
int nworkers; /* atomic: set once */
uint64_t real_zero;

uint64_t monotonic_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

void sleep_ns(uint64_t ns)
{
    struct timespec t = {0, static_cast<long>(ns)};

    nanosleep(&t, nullptr);
}

/* A thread has waited since `since` and there is nothing yet. Many threads and processes may share
 * a core: a sleep that grows with the wait, an eighth of it, costs the waiter little and leaves the
 * core to who has work. A thread yields only where that is quick: a yield gives a whole turn to
 * everybody on the core, while a sleeper that wakes is soon let in. */
void give_way(uint64_t since, uint64_t least, uint64_t most)
{
    const uint64_t now = background_time(), idle = (now - since) / 8;

    if (now - since < kYieldNs)
        sched_yield();
    else
        sleep_ns(idle < least ? least : idle > most ? most : idle);
}

void *thread_main(void *arg)
{
    Worker *k = static_cast<Worker *>(arg);

    worker_background(k);
    return nullptr;
}

} // namespace

bool background_started(void)
{
    return __atomic_load_n(&nworkers, __ATOMIC_ACQUIRE) != 0;
}

uint64_t background_time(void)
{
    return real_zero + monotonic_ns();
}

Worker *background_worker(int gpu)
{
    return workers[gpu % __atomic_load_n(&nworkers, __ATOMIC_ACQUIRE)];
}

uint64_t background_faults(struct simt_stats *sum)
{
    int n = __atomic_load_n(&nworkers, __ATOMIC_ACQUIRE);
    uint64_t faults = 0;

    for (int i = 0; i < n; i++) {
        const struct simt_stats &s = workers[i]->stats;

        sum->switches += s.switches;
        sum->parks += s.parks;
        sum->bulk_copies += s.bulk_copies;
        sum->grids += s.grids;
        sum->fibers_peak += s.fibers_peak;
        if (s.stack_high_bytes > sum->stack_high_bytes)
            sum->stack_high_bytes = s.stack_high_bytes;
        faults += s.faults;
    }
    sum->faults += faults;
    return faults;
}

/* `first` holds what was submitted before: its GPUs are dealt out now. */
void background_start(Worker *first)
{
    Hold hold(start_lock);
    int n = config.threads < 1 ? 1 : config.threads > kMaxThreads ? kMaxThreads : config.threads;

    if (nworkers)
        return;
    real_zero = virtual_time() - monotonic_ns();
    for (int i = 0; i < n; i++) {
        workers[i] = new Worker();
        workers[i]->background = true;
        workers[i]->preempt = config.preempt_per_1000;
        workers[i]->rng = (config.seed + 1) * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(i);
    }
    for (Grid *g : first->inbox_grids)
        workers[g->start.gpu % n]->inbox_grids.push_back(g);
    first->inbox_grids.clear();
    for (size_t i = first->inbox_tasks.size(); i-- > 0;) {
        Task *t = first->inbox_tasks[i];

        if (!t->engine)
            continue; /* host fibers wait for simt_run */
        workers[t->gpu % n]->inbox_tasks.push_back(t);
        first->inbox_tasks.remove(i);
    }
    __atomic_store_n(&nworkers, n, __ATOMIC_RELEASE);
    for (int i = 0; i < n; i++) {
        pthread_t thread;

        workers[i]->inbox_full = true;
        if (pthread_create(&thread, nullptr, thread_main, workers[i])) {
            perror("simt: scheduler thread");
            abort();
        }
        pthread_detach(thread);
    }
}

/* Nothing is ready on this worker: wait for another thread or for time. */
void background_idle(Worker *k)
{
    uint64_t now = background_time();

    if (k->stores != k->idle_stores) {
        k->idle_stores = k->stores;
        k->idle_since = now;
    }
    if (config.hang_report && !k->grids.empty() && k->idle_since + kQuietNs < now) {
        report_hang(k, "no lane of these GPUs has moved for 5 s");
        k->idle_since = kNever - kQuietNs;
    }
    if (k->grids.empty())
        give_way(k->idle_since, kSleepNs, kSleepNs);
    else
        give_way(k->idle_since, kNapNs, kNapMaxNs);
}

bool os_thread_park(bool (*ready)(void *), void *arg, uint64_t deadline)
{
    int gpu = simt_thread_self()->device;
    void *token = &gpus[gpu >= 0 && gpu < kMaxGpus ? gpu : 0].host_token;
    const uint64_t since = background_time();
    bool yes;

    order_release(token);
    while (!(yes = ready && ready(arg)) && simt_now_ns() < deadline)
        give_way(since, kNapNs, kNapMaxNs);
    order_acquire(token);
    return yes;
}

} // namespace simt
