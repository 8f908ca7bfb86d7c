/* no_engine.c: executor.h where there is no emulator. Layer: transport/soft. */
#include "transport/soft/executor.h"

#include "transport/host/executor.h"

uint32_t swl_soft_executor(uint32_t wish)
{
    return wish == SWL_SOFT_AUTO ? SWL_SOFT_BLOCKS : wish;
}

const char *swl_soft_executor_missing(uint32_t executor)
{
    return executor == SWL_SOFT_ENGINE
               ? "SWIMLANE_SOFT_EXECUTOR is engine, which only the emulator has"
               : NULL;
}

static void soft_main(void *nic)
{
    swl_soft_thread_main(nic);
}

bool swl_soft_executor_start(struct soft_nic *nic)
{
    return swl_host_executor_run("soft nic", nic->device, "", soft_main, nic);
}
