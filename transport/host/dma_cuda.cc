/* dma_cuda.cc: dma.h on CUDA. Layer: transport/host. */
#include "transport/host/dma.h"
#include "transport/host/staging.h"

#include <stdlib.h>

struct swl_dma {
    struct helper helper;
};

bool swl_dma_open(struct swl_dma **dma_p, int device, uint32_t rank, uint64_t timeout_ns)
{
    struct swl_dma *m = static_cast<struct swl_dma *>(malloc(sizeof(*m)));

    if (m == nullptr)
        return false;
    m->helper = {nullptr, nullptr, timeout_ns, rank, false};
    if (helper_open(&m->helper, device)) {
        *dma_p = m;
        return true;
    }
    swl_dma_close(m);
    return false;
}

void swl_dma_close(struct swl_dma *dma)
{
    if (dma)
        helper_close(&dma->helper);
    free(dma);
}

bool swl_dma_copy(struct swl_dma *dma, void *to, const void *from, uint64_t bytes)
{
    thread_memory{{}, &dma->helper}.copy(to, from, bytes);
    return !dma->helper.broken;
}

bool swl_dma_overtakes_nic(const void *p)
{
    return on_device(p);
}

bool swl_dma_add_now(struct swl_dma *dma, uint64_t *word, uint64_t value)
{
    uint64_t old;

    return swl_dma_add(dma, word, value, &old);
}

bool swl_dma_add(struct swl_dma *dma, uint64_t *word, uint64_t value, uint64_t *old_p)
{
    *old_p = thread_memory{{}, &dma->helper}.add(word, value);
    return !dma->helper.broken;
}
