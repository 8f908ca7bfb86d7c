/* serve_cuda.cc: the server of a proxy NIC on CUDA: a thread that polls pinned host memory.
 * Layer: transport/proxy. */
#include "transport/proxy/serve.h"
#include "transport/soft/words.h"

namespace
{

/* core.cuh's way to memory. */
struct pinned_memory : host_words {
    static uint64_t doorbell(const uint64_t *p)
    {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }
    static void copy(void *to, const void *from, uint64_t bytes)
    {
        memcpy(to, from, bytes);
    }
    static void publish(uint32_t *p, uint32_t v)
    {
        __atomic_store_n(p, v, __ATOMIC_RELEASE); /* pairs with read_completion */
    }
};

} // namespace

void swl_proxy_serve(void *nic)
{
    struct proxy_nic *n = static_cast<struct proxy_nic *>(nic);

    (void)swl_gpu_use(n->device); /* a wire may copy memory of the device */
    proxy_serve(n, pinned_memory());
}
