/* words.h: how executors on a CPU touch shared words. C++ only. Layer: transport/soft. */
#pragma once

#include <stdint.h>

namespace
{

/* The part of core.cuh's way to memory that is the same for all that run on a CPU. */
struct host_words {
    static uint32_t word(const uint32_t *p)
    {
        return __atomic_load_n(p, __ATOMIC_RELAXED);
    }
    static uint32_t key(const uint32_t *p)
    {
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);
    }
    static void enter(uint32_t *p)
    {
        __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
    }
    static void leave(uint32_t *p)
    {
        __atomic_fetch_sub(p, 1, __ATOMIC_SEQ_CST);
    }
};

} // namespace
