/* hd.h: functions for host and device, and the smallest of them. C and CUDA. Layer:
 * kernels/device. */
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#    define SWL_HD static inline __host__ __device__
#else
#    define SWL_HD static inline
#endif

SWL_HD uint32_t swl_min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

SWL_HD uint32_t swl_round_up(uint32_t value, uint32_t step)
{
    return (value + step - 1) / step * step;
}

/* Advance a cursor; regions are aligned to 128 bytes, so that no two share a cache line. */
SWL_HD uint64_t swl_layout_reserve(uint64_t *at, uint64_t bytes)
{
    const uint64_t here = (*at + 127) & ~(uint64_t)127;

    *at = here + bytes;
    return here;
}
