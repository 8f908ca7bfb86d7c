/* one_gpu.c: put before a program (LD_PRELOAD), it finds one GPU, and says at each start that it
 * was there. */
#include <cuda_runtime.h>
#include <stdio.h>

__attribute__((constructor)) static void say(void)
{
    fputs("one GPU\n", stderr);
}

__attribute__((visibility("default"))) cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}
