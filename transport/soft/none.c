/* none.c: no executor for software NICs in this place. Layer: transport/soft. */
#include "transport/soft/executor.h"

uint32_t swl_soft_executor(uint32_t wish)
{
    return wish == SWL_SOFT_AUTO ? SWL_SOFT_BLOCKS : wish;
}

const char *swl_soft_executor_missing(uint32_t executor)
{
    return executor == SWL_SOFT_BLOCKS ? NULL : "SWIMLANE_SOFT_EXECUTOR: only blocks run here";
}

void swl_soft_executor_start(struct soft_nic *nic)
{
    (void)nic;
}

bool swl_soft_executor_wait(const char *what, const uint32_t *word, uint32_t value,
                            uint64_t timeout_ns)
{
    (void)what;
    (void)timeout_ns;
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value;
}
