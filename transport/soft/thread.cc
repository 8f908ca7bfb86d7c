/* thread.cc: executor of a software NIC on a thread of the process: queues in pinned host memory,
 * payload by the CPU where it reaches it, else by copies on a stream of its own. Slow and exact:
 * the path that sanitizers of device code run against.
 *
 * Layer: transport/soft, above serve.h and staging.h. Owns stream and staging memory while it
 * runs. */
#include "transport/host/staging.h"
#include "transport/soft/executor.h"
#include "transport/soft/serve.h"

void swl_soft_thread_main(struct soft_nic *nic)
{
    struct helper h = {nullptr, nullptr, nic->timeout_ns, nic->rank, false};

    /* without them nothing is placed, and all that waits runs into its limit */
    if (!helper_open(&h, nic->device))
        __atomic_store_n(&nic->port->dead, 1, __ATOMIC_RELEASE);
    serve(nic, thread_memory{{}, &h}, [&h] { helper_close(&h); });
}
