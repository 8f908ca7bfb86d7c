/* engine.cc: executor of software NICs in the emulator: one engine fiber a NIC, in virtual time.
 *
 * Layer: transport/soft, above serve.h. */
#include "transport/host/memory_sim.h"
#include "transport/soft/executor.h"
#include "transport/soft/serve.h"

namespace
{

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

} // namespace

uint32_t swl_soft_executor(uint32_t wish)
{
    return wish == SWL_SOFT_AUTO ? static_cast<uint32_t>(SWL_SOFT_ENGINE) : wish;
}

const char *swl_soft_executor_missing(uint32_t executor)
{
    (void)executor;
    return nullptr;
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
