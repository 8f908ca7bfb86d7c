/* executor.h: who runs a software NIC. One implementation is linked: engine.cc (emulator) or
 * none.c (places without an executor). Layer: transport/soft. */
#pragma once

#include "transport/soft/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why this process cannot run software NICs; NULL = it can. */
const char *swl_soft_executor_missing(void);
/* Start serving nic; it ends after nic->stop was set and sets nic->ended. */
void swl_soft_executor_start(struct soft_nic *nic);
/* Block the calling host thread until *word == value; false after timeout_ns. */
bool swl_soft_executor_wait(const char *what, const uint32_t *word, uint32_t value,
                            uint64_t timeout_ns);
/* One reference less; the last one frees. */
void swl_soft_nic_drop(struct soft_nic *nic);

#ifdef __cplusplus
}
#endif
