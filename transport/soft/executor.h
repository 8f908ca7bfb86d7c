/* executor.h: who runs a software NIC in this place. Layer: transport/soft. Implemented by engine.cc
 * (emulator) or none.c. Blocks of the calling kernel (blocks.cuh) exist everywhere. */
#pragma once

#include "transport/soft/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The executor for a wish: what SWL_SOFT_AUTO means here, else the wish itself. */
uint32_t swl_soft_executor(uint32_t wish);
/* Why this process cannot run NICs that way; NULL = it can. */
const char *swl_soft_executor_missing(uint32_t executor);
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
