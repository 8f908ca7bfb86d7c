/* device.h for the GPU: the primitives of kernels/device/README.md as PTX.
 *
 * Layer: below everything in kernels/ and transport/qp.cuh; the emulator's twin is sim/device.h.
 * This is the only file with inline PTX. Names say the purpose; order and scope are part of the
 * contract and written next to each group. Functions whose name begins with ptx_ are private.
 * Words in global, peer and pinned host memory use .global forms; words of a block may also lie in
 * shared memory and use generic addresses. Owns no memory. */
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/device/types.h"

#define SWL_DEV  __device__ __forceinline__
#define SWL_ROLE __device__ __forceinline__
/* One block an SM, of 512 threads at most (src/group/plan.c): 128 registers for each. */
#define SWL_KERNEL extern "C" __global__ __launch_bounds__(512, 1)

/* Defines <name>_desc, which kernels/common/kernels.h declares. */
#define SWL_KERNEL_DESC(name, kernel, args)                                                        \
    extern "C" {                                                                                   \
    const struct swl_gpu_kernel name##_desc = {#kernel, reinterpret_cast<void (*)(void)>(kernel),  \
                                               nullptr, sizeof(args)};                             \
    }

/* Nothing is recorded on the GPU. */
#define SWL_PAUSE(what, a, b) (static_cast<const struct swl_pause *>(nullptr))

/* ---- position ---- */

SWL_DEV int lane_id()
{
    return static_cast<int>(threadIdx.x & 31u);
}

SWL_DEV int warp_id()
{
    return static_cast<int>(threadIdx.x >> 5);
}

SWL_DEV int warp_count()
{
    return static_cast<int>(blockDim.x >> 5);
}

SWL_DEV int block_id()
{
    return static_cast<int>(blockIdx.x);
}

SWL_DEV int block_count()
{
    return static_cast<int>(gridDim.x);
}

SWL_DEV void *block_shared()
{
    extern __shared__ __align__(128) unsigned char swl_block_shared[];

    return swl_block_shared;
}

SWL_DEV uint32_t block_shared_bytes()
{
    uint32_t bytes;

    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    return bytes;
}

/* ---- warps and blocks ---- */

SWL_DEV void warp_sync()
{
    __syncwarp();
}

SWL_DEV bool warp_any(bool v)
{
    return __any_sync(0xffffffffu, v) != 0;
}

SWL_DEV bool warp_all(bool v)
{
    return __all_sync(0xffffffffu, v) != 0;
}

SWL_DEV uint32_t warp_ballot(bool v)
{
    return __ballot_sync(0xffffffffu, v);
}

template <typename T> SWL_DEV T warp_shfl(T v, int src)
{
    return __shfl_sync(0xffffffffu, v, src);
}

template <typename T> SWL_DEV T warp_shfl_up(T v, int delta)
{
    return __shfl_up_sync(0xffffffffu, v, static_cast<unsigned>(delta));
}

template <typename T> SWL_DEV T warp_shfl_xor(T v, int mask)
{
    return __shfl_xor_sync(0xffffffffu, v, mask);
}

SWL_DEV void block_sync()
{
    __syncthreads();
}

SWL_DEV void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- words ---- */

SWL_DEV size_t ptx_global(const void *p)
{
    return __cvta_generic_to_global(p);
}

SWL_DEV size_t ptx_generic(const void *p)
{
    return reinterpret_cast<size_t>(p);
}

/* The same word operation for both widths; space is ptx_global or ptx_generic, form the PTX
 * form. */
#define PTX_LOAD(name, form, space)                                                                \
    SWL_DEV uint32_t name(const uint32_t *p)                                                       \
    {                                                                                              \
        uint32_t v;                                                                                \
                                                                                                   \
        asm volatile("ld." form ".u32 %0, [%1];" : "=r"(v) : "l"(space(p)) : "memory");            \
        return v;                                                                                  \
    }                                                                                              \
    SWL_DEV uint64_t name(const uint64_t *p)                                                       \
    {                                                                                              \
        uint64_t v;                                                                                \
                                                                                                   \
        asm volatile("ld." form ".u64 %0, [%1];" : "=l"(v) : "l"(space(p)) : "memory");            \
        return v;                                                                                  \
    }

#define PTX_STORE(name, form, space)                                                               \
    SWL_DEV void name(uint32_t *p, uint32_t v)                                                     \
    {                                                                                              \
        asm volatile("st." form ".u32 [%0], %1;" ::"l"(space(p)), "r"(v) : "memory");              \
    }                                                                                              \
    SWL_DEV void name(uint64_t *p, uint64_t v)                                                     \
    {                                                                                              \
        asm volatile("st." form ".u64 [%0], %1;" ::"l"(space(p)), "l"(v) : "memory");              \
    }

#define PTX_ATOMIC(name, form, op, type, space)                                                    \
    SWL_DEV uint32_t name(uint32_t *p, uint32_t v)                                                 \
    {                                                                                              \
        uint32_t old;                                                                              \
                                                                                                   \
        asm volatile("atom." form "." op "." type "32 %0, [%1], %2;"                               \
                     : "=r"(old)                                                                   \
                     : "l"(space(p)), "r"(v)                                                       \
                     : "memory");                                                                  \
        return old;                                                                                \
    }                                                                                              \
    SWL_DEV uint64_t name(uint64_t *p, uint64_t v)                                                 \
    {                                                                                              \
        uint64_t old;                                                                              \
                                                                                                   \
        asm volatile("atom." form "." op "." type "64 %0, [%1], %2;"                               \
                     : "=l"(old)                                                                   \
                     : "l"(space(p)), "l"(v)                                                       \
                     : "memory");                                                                  \
        return old;                                                                                \
    }

#define PTX_CAS(name, form, space)                                                                 \
    SWL_DEV uint32_t name(uint32_t *p, uint32_t expect, uint32_t desired)                          \
    {                                                                                              \
        uint32_t old;                                                                              \
                                                                                                   \
        asm volatile("atom." form ".cas.b32 %0, [%1], %2, %3;"                                     \
                     : "=r"(old)                                                                   \
                     : "l"(space(p)), "r"(expect), "r"(desired)                                    \
                     : "memory");                                                                  \
        return old;                                                                                \
    }                                                                                              \
    SWL_DEV uint64_t name(uint64_t *p, uint64_t expect, uint64_t desired)                          \
    {                                                                                              \
        uint64_t old;                                                                              \
                                                                                                   \
        asm volatile("atom." form ".cas.b64 %0, [%1], %2, %3;"                                     \
                     : "=l"(old)                                                                   \
                     : "l"(space(p)), "l"(expect), "l"(desired)                                    \
                     : "memory");                                                                  \
        return old;                                                                                \
    }

/* Between warps of a block: acquire.cta, release.cta, acq_rel.cta. */
PTX_LOAD(read_in_block, "acquire.cta", ptx_generic)
PTX_STORE(publish_in_block, "release.cta", ptx_generic)
PTX_ATOMIC(add_in_block, "acq_rel.cta", "add", "u", ptx_generic)
PTX_ATOMIC(or_in_block, "acq_rel.cta", "or", "b", ptx_generic)
PTX_ATOMIC(and_in_block, "acq_rel.cta", "and", "b", ptx_generic)
PTX_CAS(cas_in_block, "acq_rel.cta", ptx_generic)

/* Between blocks of one GPU: acquire.gpu, release.gpu, acq_rel.gpu; load_relaxed and add_relaxed
 * are relaxed, for counts that say nothing about other memory. */
PTX_LOAD(read_in_gpu, "acquire.gpu.global", ptx_global)
PTX_LOAD(load_relaxed_in_gpu, "relaxed.gpu.global", ptx_global)
PTX_STORE(publish_in_gpu, "release.gpu.global", ptx_global)
PTX_ATOMIC(add_relaxed_in_gpu, "relaxed.gpu.global", "add", "u", ptx_global)
PTX_ATOMIC(add_in_gpu, "acq_rel.gpu.global", "add", "u", ptx_global)
PTX_ATOMIC(or_in_gpu, "acq_rel.gpu.global", "or", "b", ptx_global)
PTX_ATOMIC(and_in_gpu, "acq_rel.gpu.global", "and", "b", ptx_global)
PTX_CAS(cas_in_gpu, "acq_rel.gpu.global", ptx_global)

/* Between GPUs of a node: acquire.sys, release.sys; post is relaxed, after a fence; load_relaxed is
 * relaxed, to see whether a read is worth its price: an acquire empties the first-level cache of
 * the SM. */
PTX_LOAD(read_from_peer, "acquire.sys.global", ptx_global)
PTX_LOAD(load_relaxed_from_peer, "relaxed.sys.global", ptx_global)
PTX_STORE(publish_to_peer, "release.sys.global", ptx_global)
PTX_STORE(post_to_peer, "relaxed.sys.global", ptx_global)
PTX_ATOMIC(add_to_peer, "release.sys.global", "add", "u", ptx_global)

/* The host reads and writes these words with acquire and release; they lie in pinned memory. */
PTX_STORE(publish_to_host, "release.sys.global", ptx_global)
PTX_LOAD(read_from_host, "acquire.sys.global", ptx_global)

/* A NIC adds to the word and writes the payload before it: acquire.sys. */
SWL_DEV uint64_t read_from_nic(const uint64_t *p)
{
    return read_from_peer(p);
}

SWL_DEV void ptx_fence(enum swl_scope scope)
{
    switch (scope) {
    case SWL_SCOPE_BLOCK:
        asm volatile("fence.acq_rel.cta;" ::: "memory");
        break;
    case SWL_SCOPE_GPU:
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        break;
    default:
        asm volatile("fence.acq_rel.sys;" ::: "memory");
        break;
    }
}

/* Many stores, then relaxed publications; pairs with the acquire of whoever reads those. */
SWL_DEV void order_before_publish(enum swl_scope scope)
{
    ptx_fence(scope);
}

/* ---- data ---- */

/* Nobody writes this memory during the kernel, so the read-only path may keep it. */
SWL_DEV struct vec16 load_input(const struct vec16 *p)
{
    struct vec16 v;

    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3])
                 : "l"(ptx_global(p)));
    return v;
}

/* A weak load like load_data, of rows that are read once: they need no place in the first-level
 * cache. Volatile, so that it stays between the acquire before and the release after it; no
 * clobber, so that what was read of lists may stay in registers. */
SWL_DEV struct vec16 load_row(const struct vec16 *p)
{
    struct vec16 v;

    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3])
                 : "l"(ptx_global(p)));
    return v;
}

/* Weak accesses, ordered by the acquire before and the release after them. A copy through the
 * 16-byte vector type: one access, and the compiler still knows what it aliases. */
SWL_DEV struct vec16 load_data(const struct vec16 *p)
{
    const uint4 v = *reinterpret_cast<const uint4 *>(p);

    return {{v.x, v.y, v.z, v.w}};
}

SWL_DEV void store_data(struct vec16 *p, struct vec16 v)
{
    *reinterpret_cast<uint4 *>(p) = make_uint4(v.x[0], v.x[1], v.x[2], v.x[3]);
}

/* ---- bulk copies and their stages ---- */

SWL_DEV uint32_t ptx_shared(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

SWL_DEV void stage_init(mbarrier *stage, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ptx_shared(stage)), "r"(arrivals)
                 : "memory");
}

/* Initialised stages are seen by the copy engine; a barrier after this tells the other lanes. */
SWL_DEV void stage_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

SWL_DEV void stage_expect(mbarrier *stage, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                     ptx_shared(stage)),
                 "r"(bytes)
                 : "memory");
}

SWL_DEV void stage_arrive(mbarrier *stage)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(ptx_shared(stage))
                 : "memory");
}

/* May sleep in hardware for a short, bounded time before it answers no. */
SWL_DEV bool stage_test(mbarrier *stage, uint32_t parity)
{
    uint32_t done;

    asm volatile("{\n\t.reg .pred p;\n\t"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(ptx_shared(stage)), "r"(parity)
                 : "memory");
    return done != 0;
}

SWL_DEV void bulk_load(void *shared, const void *global, uint32_t bytes, mbarrier *stage)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(ptx_shared(shared)),
                 "l"(ptx_global(global)), "r"(bytes), "r"(ptx_shared(stage))
                 : "memory");
}

SWL_DEV void bulk_store(void *global, const void *shared, uint32_t bytes)
{
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(ptx_global(global)),
        "r"(ptx_shared(shared)), "r"(bytes)
        : "memory");
}

SWL_DEV void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* The source has been read: enough to reuse the stage, not enough to publish what was stored. */
template <int N> SWL_DEV void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* The stores are done and visible to this lane; its next release publishes them. */
template <int N> SWL_DEV void bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

/* Global memory: from the acquire of this lane (generic proxy) to its bulk copies (async proxy). */
SWL_DEV void order_before_bulk_load()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* Shared memory: from generic stores of this lane to its bulk stores. */
SWL_DEV void order_before_bulk_store()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- time ---- */

SWL_DEV uint64_t clock_ns()
{
    uint64_t t;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

SWL_DEV void pause_lane(const struct swl_pause *, uint64_t)
{
    __nanosleep(20);
}
SWL_DEV void pause_lane_until(const struct swl_pause *, uint64_t)
{
    __nanosleep(20);
}

/* ---- numbers ---- */

SWL_DEV float half_to_float(uint16_t h)
{
    float f;

    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

SWL_DEV float bf16_to_float(uint16_t b)
{
    return __uint_as_float(static_cast<uint32_t>(b) << 16);
}

SWL_DEV uint16_t float_to_half(float f)
{
    uint16_t h;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

SWL_DEV uint16_t float_to_bf16(float f)
{
    uint16_t b;

    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(f));
    return b;
}

SWL_DEV float add_rn(float a, float b)
{
    return __fadd_rn(a, b);
}

SWL_DEV float fma_rn(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}

SWL_DEV int first_bit(uint32_t v)
{
    return __ffs(static_cast<int>(v)) - 1;
}

SWL_DEV int first_bit(uint64_t v)
{
    return __ffsll(static_cast<long long>(v)) - 1;
}

SWL_DEV int count_bits(uint32_t v)
{
    return __popc(v);
}

SWL_DEV int count_bits(uint64_t v)
{
    return __popcll(v);
}

/* ---- network ---- */

/* Work request and payload stores before the doorbell, at the scope of the queue pair's view. */
SWL_DEV void order_before_doorbell(enum swl_scope scope)
{
    ptx_fence(scope);
}

SWL_DEV void store_doorbell_record(uint32_t *p, uint32_t v)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(ptx_global(p)), "r"(v) : "memory");
}

SWL_DEV void ring_doorbell(uint64_t *p, uint64_t v)
{
    asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(ptx_global(p)), "l"(v)
                 : "memory");
}

/* The rest of the completion was written before this word: acquire.sys. */
SWL_DEV uint32_t read_completion(const uint32_t *p)
{
    return read_from_peer(p);
}

/* For a software NIC. The doorbell is acquired, so that the work requests before it are seen. */
SWL_DEV uint64_t read_doorbell(const uint64_t *p)
{
    return read_from_peer(p);
}

/* Has it moved? Orders nothing: who takes the doorbell reads it again with read_doorbell. */
PTX_LOAD(load_relaxed_doorbell, "relaxed.sys.global", ptx_global)

/* Landed payload is ordered by one fence for the whole batch, hence relaxed here. */
PTX_ATOMIC(nic_add, "relaxed.sys.global", "add", "u", ptx_global)

/* The time up to which a wire is taken; orders nothing. */
PTX_ATOMIC(nic_max, "relaxed.sys.global", "max", "u", ptx_global)
PTX_ATOMIC(nic_take, "relaxed.sys.global", "add", "u", ptx_global)

/* Last word of a completion: releases the words before it. */
PTX_STORE(nic_publish, "release.sys.global", ptx_global)

#undef PTX_LOAD
#undef PTX_STORE
#undef PTX_ATOMIC
#undef PTX_CAS
