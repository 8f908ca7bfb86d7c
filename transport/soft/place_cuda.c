/* place_cuda.c: what executors of software NICs need on CUDA: a thread, waiting in real time.
 *
 * Layer: transport/soft. */
#include "transport/soft/executor.h"

#include "src/gpu.h"

#include <pthread.h>
#include <sched.h>

#define SPINS 4096u /* looks before the first sleep */

uint32_t swl_soft_executor(uint32_t wish)
{
    return wish == SWL_SOFT_AUTO ? SWL_SOFT_BLOCKS : wish;
}

const char *swl_soft_executor_missing(uint32_t executor)
{
    return executor == SWL_SOFT_ENGINE
               ? "SWIMLANE_SOFT_EXECUTOR is engine, which only the emulator has"
               : NULL;
}

static void *thread_main(void *arg)
{
    swl_soft_thread_main(arg);
    return NULL;
}

bool swl_soft_executor_start(struct soft_nic *nic)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, thread_main, nic) != 0)
        return false;
    (void)pthread_detach(thread); /* destroy waits for nic->ended */
    return true;
}

bool swl_soft_park(const char *what, int number, bool (*ready)(void *), void *arg,
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

bool swl_soft_stopping(void)
{
    return false;
}

uint64_t swl_soft_random(void)
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

bool swl_soft_executor_wait(const char *what, const uint32_t *word, uint32_t value,
                            uint64_t timeout_ns)
{
    struct awaited a = {word, value};

    return swl_soft_park(what, (int)value, equal, &a, swl_gpu_now_ns() + timeout_ns);
}
