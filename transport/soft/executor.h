/* executor.h: who runs a software NIC in this place. Layer: transport/soft. Implemented by
 * engine.cc (emulator) or no_engine.c. Blocks of the calling kernel (blocks.cuh) and a thread
 * (thread.cc) exist everywhere. */
#pragma once

#include "transport/soft/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The executor for a wish: what SWL_SOFT_AUTO means here, else the wish itself. */
uint32_t swl_soft_executor(uint32_t wish);
/* Why this process cannot run NICs that way; NULL = it can. */
const char *swl_soft_executor_missing(uint32_t executor);
/* Start serving nic; it ends after nic->stop was set and sets nic->ended. False: no memory or
 * thread. */
bool swl_soft_executor_start(struct soft_nic *nic);
/* What the thread does; an engine of the emulator runs it there (thread.cc). */
void swl_soft_thread_main(struct soft_nic *nic);

#ifdef __cplusplus
}
#endif
