/* device.h (emulator): the primitives of kernels/device/README.md on fibers. Layer: kernels'
 * view of sim; owns no memory. Each primitive is a seeded scheduling point, then a C++ atomic that
 * TSan sees, then a note to the core, which parks, checks scopes and reports. */
#pragma once

#include <stdint.h>

#include "kernels/device/types.h"
#include "sim/simt_device.h"

#define SWL_DEV    static inline
#define SWL_ROLE   static
#define SWL_KERNEL extern "C"

/* A temporary that lives until the end of the full expression, i.e. of the wait call. */
#define SWL_PAUSE(what, a, b)                                                                      \
    (&static_cast<const struct swl_pause &>(                                                       \
        swl_pause{(what), static_cast<int>(a), static_cast<int>(b), __FILE__, __LINE__}))

#define SIMT_WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

#if defined(__has_feature)
#    if __has_feature(thread_sanitizer)
#        define SIMT_TSAN 1
#    endif
#endif
#ifdef __SANITIZE_THREAD__
#    define SIMT_TSAN 1
#endif
#ifdef SIMT_TSAN
extern "C" {
void __tsan_acquire(void *);
void __tsan_release(void *);
}
#    define SIMT_ACQUIRE(token) __tsan_acquire(token)
#    define SIMT_RELEASE(token) __tsan_release(token)
#else
#    define SIMT_ACQUIRE(token) ((void)0)
#    define SIMT_RELEASE(token) ((void)0)
#endif

/* A parameter that takes no part in template deduction, so that literals convert to the word's
 * type. */
template <class T> struct simt_same {
    typedef T type;
};
template <class T> using simt_value = typename simt_same<T>::type;

/* Position. */
SWL_DEV int lane_id()
{
    return simt_dev_lane();
}
SWL_DEV int warp_id()
{
    return simt_dev_warp();
}
SWL_DEV int warp_count()
{
    return simt_dev_warps();
}
SWL_DEV int block_id()
{
    return simt_dev_block();
}
SWL_DEV int block_count()
{
    return simt_dev_blocks();
}
SWL_DEV void *block_shared()
{
    return simt_dev_shared();
}
SWL_DEV uint32_t block_shared_bytes()
{
    return static_cast<uint32_t>(simt_dev_shared_bytes());
}
SWL_DEV uint64_t clock_ns()
{
    return simt_dev_clock();
}

/* Collectives of a warp; only warp_sync orders memory. */
SWL_DEV void warp_sync(SIMT_WHERE)
{
    SIMT_RELEASE(simt_dev_token(SIMT_TOKEN_WARP));
    simt_dev_collective(SIMT_OP_WARP_SYNC, 0, 0, file, line);
    SIMT_ACQUIRE(simt_dev_token(SIMT_TOKEN_WARP));
}
SWL_DEV bool warp_any(bool p, SIMT_WHERE)
{
    return simt_dev_collective(SIMT_OP_ANY, p, 0, file, line) != 0;
}
SWL_DEV bool warp_all(bool p, SIMT_WHERE)
{
    return simt_dev_collective(SIMT_OP_ALL, p, 0, file, line) != 0;
}
SWL_DEV uint32_t warp_ballot(bool p, SIMT_WHERE)
{
    return static_cast<uint32_t>(simt_dev_collective(SIMT_OP_BALLOT, p, 0, file, line));
}
template <class T> SWL_DEV T warp_shfl(T v, int src, SIMT_WHERE)
{
    return static_cast<T>(
        simt_dev_collective(SIMT_OP_SHFL, static_cast<uint64_t>(v), src, file, line));
}
template <class T> SWL_DEV T warp_shfl_up(T v, int delta, SIMT_WHERE)
{
    return static_cast<T>(
        simt_dev_collective(SIMT_OP_SHFL_UP, static_cast<uint64_t>(v), delta, file, line));
}
template <class T> SWL_DEV T warp_shfl_xor(T v, int mask, SIMT_WHERE)
{
    return static_cast<T>(
        simt_dev_collective(SIMT_OP_SHFL_XOR, static_cast<uint64_t>(v), mask, file, line));
}

/* Barriers of a block. */
SWL_DEV void block_sync(SIMT_WHERE)
{
    SIMT_RELEASE(simt_dev_token(SIMT_TOKEN_BLOCK));
    simt_dev_block_sync(file, line);
    SIMT_ACQUIRE(simt_dev_token(SIMT_TOKEN_BLOCK));
}
SWL_DEV void named_sync(int id, int threads, SIMT_WHERE)
{
    SIMT_RELEASE(simt_dev_token(SIMT_TOKEN_NAMED + id));
    simt_dev_named_sync(id, threads, file, line);
    SIMT_ACQUIRE(simt_dev_token(SIMT_TOKEN_NAMED + id));
}

/* Words. */
template <class T> SWL_DEV T simt_read(const T *p, enum swl_scope scope, const char *file, int line)
{
    T v;

    simt_dev_point();
    v = __atomic_load_n(p, __ATOMIC_ACQUIRE);
    simt_dev_read(p, v, sizeof(T), scope, file, line);
    return v;
}
/* Relaxed: orders nothing. */
template <class T> SWL_DEV T simt_load_relaxed(const T *p, const char *file, int line)
{
    T v;

    simt_dev_point();
    v = __atomic_load_n(p, __ATOMIC_RELAXED);
    simt_dev_read(p, v, sizeof(T), SWL_SCOPE_SYS, file, line);
    return v;
}
template <class T>
SWL_DEV void simt_publish(T *p, T v, enum swl_scope scope, enum simt_store how, const char *file,
                          int line)
{
    simt_dev_point();
    if (simt_dev_write(p, scope, how, file, line))
        __atomic_store_n(p, v, __ATOMIC_RELEASE);
    else
        __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
template <class T>
SWL_DEV T simt_cas(T *p, T expect, T desired, enum swl_scope scope, const char *file, int line)
{
    T seen = expect;

    simt_dev_point();
    simt_dev_write(p, scope, SIMT_STORE_PUBLISH, file, line);
    __atomic_compare_exchange_n(p, &seen, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    simt_dev_read(p, seen == expect ? desired : seen, sizeof(T), scope, file, line);
    return seen;
}

#define SIMT_RMW(name, op, scope)                                                                  \
    template <class T> SWL_DEV T name(T *p, simt_value<T> v, SIMT_WHERE)                           \
    {                                                                                              \
        simt_dev_point();                                                                          \
        simt_dev_write(p, scope, SIMT_STORE_PUBLISH, file, line);                                  \
        return __atomic_fetch_##op(p, v, __ATOMIC_ACQ_REL);                                        \
    }
#define SIMT_WORDS(where, scope)                                                                   \
    template <class T> SWL_DEV T read_in_##where(const T *p, SIMT_WHERE)                           \
    {                                                                                              \
        return simt_read(p, scope, file, line);                                                    \
    }                                                                                              \
    template <class T> SWL_DEV void publish_in_##where(T *p, simt_value<T> v, SIMT_WHERE)          \
    {                                                                                              \
        simt_publish(p, v, scope, SIMT_STORE_PUBLISH, file, line);                                 \
    }                                                                                              \
    template <class T>                                                                             \
    SWL_DEV T cas_in_##where(T *p, simt_value<T> expect, simt_value<T> desired, SIMT_WHERE)        \
    {                                                                                              \
        return simt_cas<T>(p, expect, desired, scope, file, line);                                 \
    }                                                                                              \
    SIMT_RMW(add_in_##where, add, scope)                                                           \
    SIMT_RMW(or_in_##where, or, scope)                                                             \
    SIMT_RMW(and_in_##where, and, scope)

SIMT_WORDS(block, SWL_SCOPE_BLOCK)
SIMT_WORDS(gpu, SWL_SCOPE_GPU)

template <class T> SWL_DEV T load_relaxed_in_gpu(const T *p, SIMT_WHERE)
{
    return simt_load_relaxed(p, file, line);
}
template <class T> SWL_DEV T add_relaxed_in_gpu(T *p, simt_value<T> v, SIMT_WHERE)
{
    simt_dev_point();
    simt_dev_write(p, SWL_SCOPE_GPU, SIMT_STORE_PUBLISH, file, line);
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

template <class T> SWL_DEV T read_from_peer(const T *p, SIMT_WHERE)
{
    return simt_read(p, SWL_SCOPE_SYS, file, line);
}
template <class T> SWL_DEV T load_relaxed_from_peer(const T *p, SIMT_WHERE)
{
    return simt_load_relaxed(p, file, line);
}
template <class T> SWL_DEV void publish_to_peer(T *p, simt_value<T> v, SIMT_WHERE)
{
    simt_publish(p, v, SWL_SCOPE_SYS, SIMT_STORE_PUBLISH, file, line);
}
template <class T> SWL_DEV void post_to_peer(T *p, simt_value<T> v, SIMT_WHERE)
{
    simt_publish(p, v, SWL_SCOPE_SYS, SIMT_STORE_POST, file, line);
}
template <class T> SWL_DEV T add_to_peer(T *p, simt_value<T> v, SIMT_WHERE)
{
    simt_dev_point();
    simt_dev_write(p, SWL_SCOPE_SYS, SIMT_STORE_PUBLISH, file, line);
    return __atomic_fetch_add(p, v, __ATOMIC_RELEASE);
}
SWL_DEV void order_before_publish(enum swl_scope scope)
{
    simt_dev_point();
    simt_dev_order(scope);
}
SWL_DEV uint64_t read_from_nic(const uint64_t *p, SIMT_WHERE)
{
    return simt_read(p, SWL_SCOPE_SYS, file, line);
}
template <class T> SWL_DEV T read_from_host(const T *p, SIMT_WHERE)
{
    return simt_read(p, SWL_SCOPE_SYS, file, line);
}
template <class T> SWL_DEV void publish_to_host(T *p, simt_value<T> v, SIMT_WHERE)
{
    simt_publish(p, v, SWL_SCOPE_SYS, SIMT_STORE_PUBLISH, file, line);
}

/* NIC words, GPU side. */
SWL_DEV void order_before_doorbell(enum swl_scope scope)
{
    (void)scope; /* the emulated NIC reads all memory alike */
    simt_dev_point();
    simt_dev_order(SWL_SCOPE_SYS);
}
SWL_DEV void store_doorbell_record(uint32_t *p, uint32_t v, SIMT_WHERE)
{
    simt_publish(p, v, SWL_SCOPE_SYS, SIMT_STORE_DOORBELL, file, line);
    simt_dev_stored(p); /* nothing orders it before the doorbell by itself */
}
SWL_DEV void ring_doorbell(uint64_t *p, uint64_t v, SIMT_WHERE)
{
    simt_publish(p, v, SWL_SCOPE_SYS, SIMT_STORE_DOORBELL, file, line);
}
SWL_DEV uint32_t read_completion(const uint32_t *p, SIMT_WHERE)
{
    return simt_read(p, SWL_SCOPE_SYS, file, line);
}

/* NIC words, soft NIC side. */
SWL_DEV uint64_t read_doorbell(const uint64_t *p, SIMT_WHERE)
{
    return simt_read(p, SWL_SCOPE_SYS, file, line);
}
template <class T> SWL_DEV T load_relaxed_doorbell(const T *p, SIMT_WHERE)
{
    return simt_load_relaxed(p, file, line);
}
SWL_DEV uint64_t nic_add(uint64_t *p, uint64_t v, SIMT_WHERE)
{
    simt_dev_point();
    if (simt_dev_write(p, SWL_SCOPE_SYS, SIMT_STORE_NIC, file, line))
        return __atomic_fetch_add(p, v, __ATOMIC_RELEASE);
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
SWL_DEV uint64_t nic_max(uint64_t *p, uint64_t v)
{
    uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED);

    simt_dev_point();
    while (old < v &&
           !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return old;
}
SWL_DEV uint64_t nic_take(uint64_t *p, uint64_t v)
{
    simt_dev_point();
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <class T> SWL_DEV void nic_publish(T *p, simt_value<T> v, SIMT_WHERE)
{
    simt_publish(p, v, SWL_SCOPE_SYS, SIMT_STORE_NIC, file, line);
}

/* Data. */
SWL_DEV vec16 load_input(const vec16 *p)
{
    return *p;
}
SWL_DEV vec16 load_row(const vec16 *p)
{
    return *p;
}
SWL_DEV vec16 load_data(const vec16 *p)
{
    return *p;
}
SWL_DEV void store_data(vec16 *p, vec16 v)
{
    simt_dev_stored(p);
    *p = v;
}

/* Stages: phase:1 | arrivals:15 | pending:16 | bytes:32. */
SWL_DEV void stage_init(mbarrier *b, uint32_t arrivals, SIMT_WHERE)
{
    uint64_t n = arrivals;

    simt_publish<mbarrier>(b, n << 48 | n << 32, SWL_SCOPE_BLOCK, SIMT_STORE_PUBLISH, file, line);
}
SWL_DEV void stage_init_done()
{
    SIMT_RELEASE(simt_dev_token(SIMT_TOKEN_SHARED_PROXY));
}
SWL_DEV void stage_expect(mbarrier *b, uint32_t bytes, SIMT_WHERE)
{
    uint64_t seen, next;

    simt_dev_point();
    simt_dev_write(b, SWL_SCOPE_BLOCK, SIMT_STORE_PUBLISH, file, line);
    seen = __atomic_load_n(b, __ATOMIC_RELAXED);
    do
        next = simt_stage_next(seen, 1, bytes);
    while (!__atomic_compare_exchange_n(b, &seen, next, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
}
SWL_DEV void stage_arrive(mbarrier *b, SIMT_WHERE)
{
    stage_expect(b, 0, file, line);
}
SWL_DEV bool stage_test(mbarrier *b, uint32_t parity, SIMT_WHERE)
{
    uint64_t v;
    bool done;

    simt_dev_point();
    v = __atomic_load_n(b, __ATOMIC_ACQUIRE);
    done = v >> 63 != (parity & 1);
    if (done) /* a copy that has landed is ordered before later copies */
        SIMT_RELEASE(simt_dev_token(SIMT_TOKEN_SHARED_PROXY));
    else /* a word that the lane may wait for */
        simt_dev_read(b, v, sizeof(v), SWL_SCOPE_BLOCK, file, line);
    return done;
}

/* Bulk copies. */
SWL_DEV void bulk_load(void *shared, const void *global, uint32_t bytes, mbarrier *b, SIMT_WHERE)
{
    simt_dev_point();
    simt_dev_bulk(shared, global, bytes, b, file, line);
}
SWL_DEV void bulk_store(void *global, const void *shared, uint32_t bytes, SIMT_WHERE)
{
    simt_dev_point();
    simt_dev_bulk(global, shared, bytes, nullptr, file, line);
}
SWL_DEV void bulk_commit()
{
    simt_dev_bulk_commit();
}
template <int N> SWL_DEV void bulk_wait_read(SIMT_WHERE)
{
    simt_dev_bulk_wait(N, true, file, line);
}
template <int N> SWL_DEV void bulk_wait(SIMT_WHERE)
{
    simt_dev_bulk_wait(N, false, file, line);
}
SWL_DEV void order_before_bulk_load()
{
    SIMT_RELEASE(simt_dev_token(SIMT_TOKEN_LANE_PROXY));
    simt_dev_bulk_fence(false);
}
SWL_DEV void order_before_bulk_store()
{
    SIMT_RELEASE(simt_dev_token(SIMT_TOKEN_SHARED_PROXY));
    simt_dev_bulk_fence(true);
}

SWL_DEV void pause_lane(const struct swl_pause *why, uint64_t deadline_ns)
{
    simt_dev_pause(why, deadline_ns);
}
SWL_DEV void pause_lane_until(const struct swl_pause *why, uint64_t time_ns)
{
    simt_dev_pause_until(why, time_ns);
}

/* Numbers. */
SWL_DEV uint32_t simt_float_bits(float v)
{
    uint32_t bits;

    __builtin_memcpy(&bits, &v, sizeof(bits));
    return bits;
}
SWL_DEV float simt_bits_float(uint32_t bits)
{
    float v;

    __builtin_memcpy(&v, &bits, sizeof(v));
    return v;
}
SWL_DEV float bf16_to_float(uint16_t v)
{
    return simt_bits_float(static_cast<uint32_t>(v) << 16);
}
SWL_DEV uint16_t float_to_bf16(float v)
{
    uint32_t bits = simt_float_bits(v);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
SWL_DEV float half_to_float(uint16_t v)
{
    uint32_t sign = static_cast<uint32_t>(v & 0x8000) << 16, exponent = v >> 10 & 31;
    uint32_t fraction = v & 0x3ff;

    if (exponent == 31)
        return simt_bits_float(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return simt_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    float small = static_cast<float>(fraction) * 0x1p-24f; /* subnormal or zero, exact */

    return sign ? -small : small;
}
SWL_DEV uint16_t float_to_half(float v)
{
    uint32_t bits = simt_float_bits(v), magnitude = bits & 0x7fffffff;
    uint32_t sign = bits >> 16 & 0x8000;

    if (magnitude > 0x7f800000)
        return 0x7fff;
    if (magnitude >= 0x477ff000) /* 65520: rounds to infinity */
        return static_cast<uint16_t>(sign | 0x7c00);
    if (magnitude <
        0x38800000) /* subnormal: adding 0.5 leaves multiples of 2^-24, rounded to even */
        return static_cast<uint16_t>(
            sign | (simt_float_bits(simt_bits_float(magnitude) + 0.5f) - 0x3f000000));
    return static_cast<uint16_t>(sign |
                                 (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
}
SWL_DEV float add_rn(float a, float b)
{
    return a + b; /* -ffp-contract=off */
}
SWL_DEV float fma_rn(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
SWL_DEV int first_bit(uint32_t v)
{
    return __builtin_ffs(static_cast<int>(v)) - 1;
}
SWL_DEV int first_bit(uint64_t v)
{
    return __builtin_ffsll(static_cast<long long>(v)) - 1;
}
SWL_DEV int count_bits(uint32_t v)
{
    return __builtin_popcount(v);
}
SWL_DEV int count_bits(uint64_t v)
{
    return __builtin_popcountll(v);
}

/* Description `prefix`_desc of a kernel for the device runtime (kernels/common/kernels.h). */
#define SWL_KERNEL_DESC(prefix, kernel, type)                                                      \
    static void kernel##_call(const void *args)                                                    \
    {                                                                                              \
        kernel(*static_cast<const type *>(args));                                                  \
    }                                                                                              \
    const struct swl_gpu_kernel prefix##_desc = {                                                  \
        #kernel, reinterpret_cast<void (*)(void)>(kernel), kernel##_call, sizeof(type)};
