/* executor_cuda.c: executor.h on CUDA: a thread, waiting in real time.
 *
 * Layer: transport/host. */
#include "transport/host/executor.h"

#include "src/base/thread.h"
#include "src/runtime/runtime.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define SPINS 4096u /* looks before the first sleep */

struct start {
    void (*main)(void *arg);
    void *arg;
    cpu_set_t cpus;
    bool pinned;
};

/* "0-3,8": false if it names no CPU. */
static bool read_cpus(const char *text, cpu_set_t *cpus_p)
{
    CPU_ZERO(cpus_p);
    while (*text >= '0' && *text <= '9') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (; first <= last && first < CPU_SETSIZE; first++)
            CPU_SET(first, cpus_p);
        text = *end == ',' ? end + 1 : end;
    }
    return CPU_COUNT(cpus_p) > 0;
}

static void *thread_main(void *arg)
{
    const struct start s = *(struct start *)arg;

    free(arg);
    if (s.pinned) /* a wish: the job may have been given other CPUs */
        (void)pthread_setaffinity_np(pthread_self(), sizeof(s.cpus), &s.cpus);
    s.main(s.arg);
    return NULL;
}

bool swl_host_executor_run(const char *what, int device, const char *cpus, void (*main)(void *),
                           void *arg)
{
    struct start *s = malloc(sizeof(*s));
    pthread_t thread;

    (void)what;
    (void)device;
    if (s == NULL)
        return false;
    s->main = main;
    s->arg = arg;
    s->pinned = read_cpus(cpus, &s->cpus);
    if (swl_thread_create(&thread, thread_main, s) != 0) {
        free(s);
        return false;
    }
    (void)pthread_detach(thread); /* whoever ends it waits for its last word */
    return true;
}

bool swl_host_wait_until(const char *what, int number, bool (*ready)(void *), void *arg,
                         uint64_t deadline_ns)
{
    (void)what;
    (void)number;
    for (uint32_t looks = 0; !ready(arg); looks++) {
        const uint64_t now = swl_gpu_now_ns();

        if (now >= deadline_ns)
            return false;
        if (looks < SPINS)
            sched_yield();
        else if (deadline_ns - now > 20000)
            swl_gpu_sleep_ns(10000);
    }
    return true;
}

void swl_host_sleep_until(const char *what, int number, bool (*ready)(void *), void *arg,
                          uint64_t ns)
{
    const uint64_t least = 5000, most = 1000000;

    (void)what;
    (void)number;
    (void)ready;
    (void)arg;
    if (ns < least)
        sched_yield();
    else
        swl_gpu_sleep_ns(ns < most ? ns : most);
}

bool swl_host_stopping(void)
{
    return false;
}

uint64_t swl_host_random(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15ull;

    return __atomic_add_fetch(&state, 0x9e3779b97f4a7c15ull, __ATOMIC_RELAXED) *
           0xbf58476d1ce4e5b9ull;
}

struct awaited {
    const uint32_t *word;
    uint32_t value;
};

static bool equal(void *arg)
{
    const struct awaited *a = arg;

    return __atomic_load_n(a->word, __ATOMIC_SEQ_CST) == a->value;
}

bool swl_host_executor_wait(const char *what, const uint32_t *word, uint32_t value,
                            uint64_t timeout_ns)
{
    struct awaited a = {word, value};

    return swl_host_wait_until(what, (int)value, equal, &a, swl_gpu_now_ns() + timeout_ns);
}
