/* serve_sim.cc: the server of a proxy NIC in the emulator: a fiber. Layer: transport/proxy. */
#include "device.h"
#include "transport/host/words.h"
#include "transport/proxy/serve.h"

namespace
{

/* core.cuh's way to memory. */
struct fiber_memory : host_words {
    static uint64_t doorbell(const uint64_t *p)
    {
        return read_doorbell(p);
    }
    static void copy(void *to, const void *from, uint64_t bytes)
    {
        memcpy(to, from, bytes);
    }
    static void publish(uint32_t *p, uint32_t v)
    {
        nic_publish(p, v);
    }
};

} // namespace

void swl_proxy_serve(void *nic)
{
    proxy_serve(static_cast<struct proxy_nic *>(nic), fiber_memory());
}
