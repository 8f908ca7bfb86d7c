/* serve_cuda.cc: the server of a proxy NIC on CUDA: a thread that polls pinned host memory.
 * Layer: transport/proxy. */
#include "transport/host/words.h"
#include "transport/proxy/serve.h"

namespace
{

/* core.cuh's way to memory. */
struct pinned_memory : thread_words {
    static void copy(void *to, const void *from, uint64_t bytes)
    {
        memcpy(to, from, bytes);
    }
};

} // namespace

void swl_proxy_serve(void *nic)
{
    struct proxy_nic *n = static_cast<struct proxy_nic *>(nic);

    (void)swl_gpu_use(n->device); /* a wire may copy memory of the device */
    proxy_serve(n, pinned_memory());
}
