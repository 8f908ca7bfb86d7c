/* executor.h: how this place runs what serves a NIC on the CPU. Layer: transport/host. Implemented
 * by executor_sim.cc (emulator) or executor_cuda.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Run main(arg) on a thread of its own, near these CPUs (as in /sys; "" = anywhere), or on an
 * engine of the emulator. False: no memory or thread. */
bool swl_host_executor_run(const char *what, int device, const char *cpus, void (*main)(void *),
                           void *arg);
/* Block the calling host thread until *word == value; false after timeout_ns. */
bool swl_host_executor_wait(const char *what, const uint32_t *word, uint32_t value,
                            uint64_t timeout_ns);
/* In an executor: wait until ready(arg) or the deadline; is the process ending; a random number of
 * the run. */
bool swl_host_wait_until(const char *what, int number, bool (*ready)(void *), void *arg,
                         uint64_t deadline_ns);
bool swl_host_stopping(void);
/* In the same places: do nothing for about this long, at most a millisecond, or until
 * ready(arg). */
void swl_host_sleep_until(const char *what, int number, bool (*ready)(void *), void *arg,
                          uint64_t ns);
uint64_t swl_host_random(void);

#ifdef __cplusplus
}
#endif
