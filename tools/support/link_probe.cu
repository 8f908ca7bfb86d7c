/* link_probe.cu: see link_probe.h. Layer: tools/support. */
#include "tools/support/link_probe.h"

#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>

namespace
{

const size_t bytes = (size_t)128 << 20;
const int rounds = 12, warmup = 3;
const int threads = 512, unrolled = 8;

/* Cycles and nanoseconds of one block. */
struct ticks {
    long long cycles;
    unsigned long long ns;
};

__device__ unsigned long long global_ns()
{
    unsigned long long t;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

/* Consecutive stretches of 64 KiB, dealt to the blocks. */
__global__ void push(uint4 *to, const uint4 *from, size_t n, ticks *clock)
{
    const long long cycles = clock64();
    const unsigned long long ns = global_ns();
    const size_t stretch = (size_t)threads * unrolled;

    for (size_t at = blockIdx.x * stretch; at < n; at += gridDim.x * stretch) {
        uint4 v[unrolled];
#pragma unroll
        for (int i = 0; i < unrolled; i++)
            v[i] = from[at + (size_t)i * threads + threadIdx.x];
#pragma unroll
        for (int i = 0; i < unrolled; i++)
            to[at + (size_t)i * threads + threadIdx.x] = v[i];
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        clock->cycles = clock64() - cycles;
        clock->ns = global_ns() - ns;
    }
}

struct side {
    int device;
    char *from, *to; /* `to` is what the other side stores into */
    ticks *clock;
    cudaStream_t stream;
    cudaEvent_t begin, end;
};

bool open_side(side *s, int device, int other)
{
    int can = 0;

    s->device = device;
    return cudaSetDevice(device) == cudaSuccess &&
           cudaDeviceCanAccessPeer(&can, device, other) == cudaSuccess && can &&
           cudaDeviceEnablePeerAccess(other, 0) == cudaSuccess &&
           cudaMalloc((void **)&s->from, bytes) == cudaSuccess &&
           cudaMalloc((void **)&s->to, bytes) == cudaSuccess &&
           cudaMalloc((void **)&s->clock, sizeof(ticks)) == cudaSuccess &&
           cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking) == cudaSuccess &&
           cudaEventCreate(&s->begin) == cudaSuccess && cudaEventCreate(&s->end) == cudaSuccess;
}

cudaError_t send_once(const side *s, const side *other, int push_sms)
{
    if (push_sms == 0)
        return cudaMemcpyAsync(other->to, s->from, bytes, cudaMemcpyDefault, s->stream);
    push<<<push_sms, threads, 0, s->stream>>>((uint4 *)other->to, (const uint4 *)s->from,
                                              bytes / sizeof(uint4), s->clock);
    return cudaGetLastError();
}

/* GB/s each way; 0 after a failure. push_sms 0: by the copy engines. */
double both_ways(side *sides, int push_sms)
{
    double slowest_ms = 0;

    for (int round = 0; round < warmup + rounds; round++)
        for (int i = 0; i < 2; i++) {
            side *s = &sides[i];
            if (cudaSetDevice(s->device) != cudaSuccess ||
                (round == warmup && cudaEventRecord(s->begin, s->stream) != cudaSuccess) ||
                send_once(s, &sides[1 - i], push_sms) != cudaSuccess ||
                cudaEventRecord(s->end, s->stream) != cudaSuccess)
                return 0;
        }
    for (int i = 0; i < 2; i++) {
        float ms = 0;
        if (cudaEventSynchronize(sides[i].end) != cudaSuccess ||
            cudaEventElapsedTime(&ms, sides[i].begin, sides[i].end) != cudaSuccess)
            return 0;
        slowest_ms = ms > slowest_ms ? ms : slowest_ms;
    }
    return slowest_ms > 0 ? (double)bytes * rounds / slowest_ms / 1e6 : 0;
}

} // namespace

/* Nothing is given back: the caller's process ends. */
bool swl_link_probe(int first, int second, int push_sms, struct swl_link_figures *figures)
{
    side sides[2] = {};
    cudaDeviceProp prop;
    ticks clock = {};

    if (cudaGetDeviceProperties(&prop, first) != cudaSuccess ||
        !open_side(&sides[0], first, second) || !open_side(&sides[1], second, first))
        return false;
    figures->nsms = prop.multiProcessorCount;
    figures->push_sms = push_sms < figures->nsms ? push_sms : figures->nsms;
    snprintf(figures->gpu, sizeof(figures->gpu), "%.63s", prop.name);
    figures->copy_gbs = both_ways(sides, 0);
    figures->push_gbs = both_ways(sides, figures->push_sms);
    if (cudaMemcpy(&clock, sides[0].clock, sizeof(clock), cudaMemcpyDefault) == cudaSuccess &&
        clock.ns > 0)
        figures->clock_mhz = (double)clock.cycles * 1e3 / (double)clock.ns;
    return figures->copy_gbs > 0;
}
