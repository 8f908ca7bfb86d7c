/* launch.h: how a kernel is described to the device runtime. C and CUDA. */
#pragma once

#include <stddef.h>

struct swl_gpu_kernel {
    const char *name;
    void (*entry)(void); /* the __global__ function, takes the argument struct by value */
    void (*call)(const void *args); /* emulator: body of one lane; NULL on CUDA */
    size_t args_bytes;
};

struct swl_gpu_grid {
    int blocks, threads; /* threads: multiple of 32 */
    size_t shared_bytes; /* dynamic shared memory of a block */
};
