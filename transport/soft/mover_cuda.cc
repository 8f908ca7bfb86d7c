/* mover_cuda.cc: mover.h on CUDA. Layer: transport/soft. */
#include "transport/soft/mover.h"
#include "transport/soft/staging.h"

#include <stdlib.h>

struct swl_mover {
    struct helper helper;
};

bool swl_mover_open(struct swl_mover **mover_p, int device, uint32_t rank, uint64_t timeout_ns)
{
    struct swl_mover *m = static_cast<struct swl_mover *>(malloc(sizeof(*m)));

    if (m == nullptr)
        return false;
    m->helper = {nullptr, nullptr, timeout_ns, rank, false};
    if (helper_open(&m->helper, device)) {
        *mover_p = m;
        return true;
    }
    swl_mover_close(m);
    return false;
}

void swl_mover_close(struct swl_mover *mover)
{
    if (mover)
        helper_close(&mover->helper);
    free(mover);
}

bool swl_mover_copy(struct swl_mover *mover, void *to, const void *from, uint64_t bytes)
{
    thread_memory{{}, &mover->helper}.copy(to, from, bytes);
    return !mover->helper.broken;
}

bool swl_mover_overtakes(const void *p)
{
    return on_device(p);
}

bool swl_mover_add_now(struct swl_mover *mover, uint64_t *word, uint64_t value)
{
    uint64_t old;

    return swl_mover_add(mover, word, value, &old);
}

bool swl_mover_add(struct swl_mover *mover, uint64_t *word, uint64_t value, uint64_t *old_p)
{
    *old_p = thread_memory{{}, &mover->helper}.add(word, value);
    return !mover->helper.broken;
}
