/* engine.cc: executor of software NICs in the emulator: one engine fiber a NIC, in virtual time; and
 * what executors of the host need of this place.
 *
 * Layer: transport/soft, above serve.h. */
#include "device.h"
#include "sim/simt.h"
#include "src/runtime/runtime.h"
#include "transport/soft/dma.h"
#include "transport/soft/serve.h"
#include "transport/soft/soft.h"

namespace
{

/* Of the test that lets peers write nonsense. */
struct {
    void (*fn)(void *arg, void *at, uint64_t bytes);
    void *arg;
} spoiler;

void spoil(void *at, uint64_t bytes)
{
    if (spoiler.fn)
        spoiler.fn(spoiler.arg, at, bytes);
}

/* core.cuh's way to memory. */
struct engine_memory : host_words {
    static uint64_t doorbell(const uint64_t *p)
    {
        return read_doorbell(p);
    }
    static void copy(void *to, const void *from, uint64_t bytes)
    {
        uint64_t word;

        /* an aligned word lands whole, as in hardware: the poison words of kernels are WRITEs */
        if (bytes == sizeof(word) && reinterpret_cast<uintptr_t>(to) % sizeof(word) == 0) {
            memcpy(&word, from, sizeof(word));
            __atomic_store_n(static_cast<uint64_t *>(to), word, __ATOMIC_RELAXED);
        } else {
            memcpy(to, from, bytes);
        }
        spoil(to, bytes);
        simt_wrote(to, bytes); /* a bulk load of them needs a proxy fence */
    }
    static uint64_t add(uint64_t *p, uint64_t v)
    {
        simt_nic_word(p, sizeof(*p));
        order_before_publish(SWL_SCOPE_SYS); /* pieces of this queue before the add */
        const uint64_t old = nic_add(p, v);

        spoil(p, sizeof(*p));
        return old;
    }
    static void publish(uint32_t *p, uint32_t v)
    {
        nic_publish(p, v);
    }
};

struct start {
    struct soft_nic *nic;
    void (*main)(struct soft_nic *nic);
};

void serve_engine(struct soft_nic *nic)
{
    serve(nic, engine_memory(), [] {});
}

void begin(void *arg)
{
    const struct start s = *static_cast<const struct start *>(arg);

    free(arg);
    s.main(s.nic);
}

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

void swl_soft_spoil(void (*fn)(void *arg, void *at, uint64_t bytes), void *arg)
{
    spoiler = {fn, arg};
}

bool swl_dma_open(struct swl_dma **dma_p, int, uint32_t, uint64_t)
{
    *dma_p = nullptr;
    return true;
}

void swl_dma_close(struct swl_dma *)
{
}

bool swl_dma_copy(struct swl_dma *, void *to, const void *from, uint64_t bytes)
{
    engine_memory::copy(to, from, bytes);
    return true;
}

bool swl_dma_add(struct swl_dma *, uint64_t *word, uint64_t value, uint64_t *old_p)
{
    *old_p = engine_memory::add(word, value);
    return true;
}

bool swl_dma_overtakes_nic(const void *p)
{
    enum swl_gpu_place place;
    size_t bytes;
    void *base;

    return swl_gpu_where(p, &place, &base, &bytes) == cudaSuccess && place == SWL_GPU_PLACE_DEVICE;
}

bool swl_dma_add_now(struct swl_dma *, uint64_t *word, uint64_t value)
{
    /* release: pairs with the acquire of whoever reads the sum */
    (void)__atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
    return true;
}

uint32_t swl_soft_executor(uint32_t wish)
{
    return wish == SWL_SOFT_AUTO ? static_cast<uint32_t>(SWL_SOFT_ENGINE) : wish;
}

const char *swl_soft_executor_missing(uint32_t executor)
{
    (void)executor;
    return nullptr;
}

bool swl_soft_executor_run(const char *what, int device, const char *cpus, void (*main)(void *),
                           void *arg)
{
    (void)cpus;
    simt_engine(what, device, main, arg);
    return true;
}

bool swl_soft_executor_start(struct soft_nic *nic)
{
    struct start *s = static_cast<struct start *>(malloc(sizeof(*s)));

    if (s == nullptr)
        return false;
    *s = {nic, nic->executor == SWL_SOFT_THREAD ? swl_soft_thread_main : serve_engine};
    simt_engine("soft nic", nic->device, begin, s);
    return true;
}

bool swl_soft_wait_until(const char *what, int number, bool (*ready)(void *), void *arg,
                         uint64_t deadline_ns)
{
    struct simt_why why = {what, number, 0, __FILE__, __LINE__};

    return simt_park(&why, ready, arg, deadline_ns);
}

/* What waits for a wire of the real world may not see time jump far. */
void swl_soft_sleep_until(const char *what, int number, bool (*ready)(void *), void *arg,
                          uint64_t ns)
{
    const uint64_t least = 2000, most = 100000;

    (void)swl_soft_wait_until(what, number, ready, arg,
                              simt_now_ns() + (ns < least  ? least
                                               : ns < most ? ns
                                                           : most));
}

bool swl_soft_stopping(void)
{
    return simt_stopping();
}

uint64_t swl_soft_random(void)
{
    return simt_random();
}

bool swl_soft_executor_wait(const char *what, const uint32_t *word, uint32_t value,
                            uint64_t timeout_ns)
{
    struct awaited a = {word, value};
    struct simt_why why = {what, static_cast<int>(value), 0, __FILE__, __LINE__};

    return equal(&a) || simt_park(&why, equal, &a, simt_now_ns() + timeout_ns);
}
