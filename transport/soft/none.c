/* none.c: no executor for software NICs in this place. Layer: transport/soft. */
#include "transport/soft/executor.h"

const char *swl_soft_executor_missing(void)
{
    return "this build runs no software NIC";
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
