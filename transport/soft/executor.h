/* executor.h: who runs a software NIC in this place. Layer: transport/soft. Implemented by engine.cc
 * (emulator) or place_cuda.c. Blocks of the calling kernel (blocks.cuh) and a thread (thread.cc) exist
 * everywhere. */
#pragma once

#include "transport/soft/state.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The executor for a wish: what SWL_SOFT_AUTO means here, else the wish itself. */
uint32_t swl_soft_executor(uint32_t wish);
/* Why this process cannot run NICs that way; NULL = it can. */
const char *swl_soft_executor_missing(uint32_t executor);
/* Start serving nic; it ends after nic->stop was set and sets nic->ended. False: no memory or thread. */
bool swl_soft_executor_start(struct soft_nic *nic);
/* Run main(arg) on a thread of its own, near these CPUs (as in /sys; "" = anywhere), or on an engine
 * of the emulator. False: no memory or thread. */
bool swl_soft_executor_run(const char *what, int device, const char *cpus, void (*main)(void *),
                           void *arg);
/* What the thread does; an engine of the emulator runs it there (thread.cc). */
void swl_soft_thread_main(struct soft_nic *nic);
/* Block the calling host thread until *word == value; false after timeout_ns. */
bool swl_soft_executor_wait(const char *what, const uint32_t *word, uint32_t value,
                            uint64_t timeout_ns);
/* In an executor of the host: wait until ready(arg) or the deadline; is the process ending; a random
 * number of the run. */
bool swl_soft_wait_until(const char *what, int number, bool (*ready)(void *), void *arg,
                         uint64_t deadline_ns);
bool swl_soft_stopping(void);
/* In the same places: do nothing for about this long, at most a millisecond, or until ready(arg). */
void swl_soft_sleep_until(const char *what, int number, bool (*ready)(void *), void *arg,
                          uint64_t ns);
uint64_t swl_soft_random(void);
/* One reference less; the last one frees. */
void swl_soft_nic_drop(struct soft_nic *nic);

#ifdef __cplusplus
}
#endif
