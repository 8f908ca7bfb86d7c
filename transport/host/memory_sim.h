/* memory_sim.h: how a NIC that the emulator runs touches memory: core.cuh's Mem. C++ only.
 *
 * Layer: transport/host, for dma_sim.cc and engine.cc. */
#pragma once

#include "device.h"
#include "sim/simt.h"
#include "transport/host/words.h"

#include <string.h>

/* A NIC has written these bytes: a test may write nonsense there (probe.h). */
void swl_host_spoil_written(void *at, uint64_t bytes);

namespace
{

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
        swl_host_spoil_written(to, bytes);
        simt_wrote(to, bytes); /* a bulk load of them needs a proxy fence */
    }
    static uint64_t add(uint64_t *p, uint64_t v)
    {
        simt_nic_word(p, sizeof(*p));
        order_before_publish(SWL_SCOPE_SYS); /* pieces of this queue before the add */
        const uint64_t old = nic_add(p, v);

        swl_host_spoil_written(p, sizeof(*p));
        return old;
    }
    static void publish(uint32_t *p, uint32_t v)
    {
        nic_publish(p, v);
    }
};

} // namespace
