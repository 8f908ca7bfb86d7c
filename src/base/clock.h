/* clock.h: real time, also in the emulator, whose swl_gpu_now_ns is virtual. Layer: src/base. */
#ifndef SWL_BASE_CLOCK_H
#define SWL_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t swl_real_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void swl_real_sleep_ns(uint64_t ns)
{
    const struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    clock_nanosleep(CLOCK_MONOTONIC, 0, &t,
                    NULL); /* a signal makes it shorter, callers look again */
}

#endif
