/* dma_sim.cc: dma.h in the emulator, and what tests do to memory that a NIC has written.
 *
 * Layer: transport/host. */
#include "src/runtime/runtime.h"
#include "transport/host/dma.h"
#include "transport/host/memory_sim.h"
#include "transport/host/probe.h"

namespace
{

struct {
    void (*fn)(void *arg, void *at, uint64_t bytes);
    void *arg;
} spoiler;

} // namespace

void swl_host_spoil(void (*fn)(void *arg, void *at, uint64_t bytes), void *arg)
{
    spoiler = {fn, arg};
}

void swl_host_spoil_written(void *at, uint64_t bytes)
{
    if (spoiler.fn)
        spoiler.fn(spoiler.arg, at, bytes);
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
    enum swl_gpu_memory_kind place;
    size_t bytes;
    void *base;

    return swl_gpu_where(p, &place, &base, &bytes) == cudaSuccess && place == SWL_GPU_MEMORY_DEVICE;
}

bool swl_dma_add_now(struct swl_dma *, uint64_t *word, uint64_t value)
{
    /* release: pairs with the acquire of whoever reads the sum */
    (void)__atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
    return true;
}
