/* executor_sim.cc: executor.h in the emulator: an engine fiber for each NIC, in virtual time.
 *
 * Layer: transport/host. */
#include "sim/simt.h"
#include "transport/host/executor.h"

namespace
{

struct awaited {
    const uint32_t *word;
    uint32_t value;
};

bool equal(void *arg)
{
    const struct awaited *a = static_cast<const struct awaited *>(arg);

    return __atomic_load_n(a->word, __ATOMIC_SEQ_CST) == a->value;
}

} // namespace

bool swl_host_executor_run(const char *what, int device, const char *cpus, void (*main)(void *),
                           void *arg)
{
    (void)cpus;
    simt_engine(what, device, main, arg);
    return true;
}

bool swl_host_wait_until(const char *what, int number, bool (*ready)(void *), void *arg,
                         uint64_t deadline_ns)
{
    struct simt_why why = {what, number, 0, __FILE__, __LINE__};

    return simt_park(&why, ready, arg, deadline_ns);
}

/* What waits for a wire of the real world may not see time jump remote. */
void swl_host_sleep_until(const char *what, int number, bool (*ready)(void *), void *arg,
                          uint64_t ns)
{
    const uint64_t least = 2000, most = 100000;

    (void)swl_host_wait_until(what, number, ready, arg,
                              simt_now_ns() + (ns < least  ? least
                                               : ns < most ? ns
                                                           : most));
}

bool swl_host_stopping(void)
{
    return simt_stopping();
}

uint64_t swl_host_random(void)
{
    return simt_random();
}

bool swl_host_executor_wait(const char *what, const uint32_t *word, uint32_t value,
                            uint64_t timeout_ns)
{
    struct awaited a = {word, value};
    struct simt_why why = {what, static_cast<int>(value), 0, __FILE__, __LINE__};

    return equal(&a) || simt_park(&why, equal, &a, simt_now_ns() + timeout_ns);
}
