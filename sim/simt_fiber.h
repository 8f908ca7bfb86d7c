/* simt_fiber.h: stackful fibers of the emulator: switch, stacks, sanitizer contexts. Layer: sim,
 * internal. Stacks belong to the pools here and are reused with their TSan context, so that a stack
 * word is always touched by the same context. What runs on a lane's fiber calls nothing that TSan
 * intercepts (malloc, memcpy, locks): it would order lanes that the kernel does not order. */
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {
void simt_switch(void **save, void *to);
void *__tsan_create_fiber(unsigned) __attribute__((weak));
void __tsan_destroy_fiber(void *) __attribute__((weak));
void __tsan_switch_to_fiber(void *, unsigned) __attribute__((weak));
void *__tsan_get_current_fiber(void) __attribute__((weak));
void __tsan_acquire(void *) __attribute__((weak));
void __tsan_release(void *) __attribute__((weak));
void __sanitizer_start_switch_fiber(void **, const void *, size_t) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) __attribute__((weak));
void __lsan_register_root_region(const void *, size_t) __attribute__((weak));
void __lsan_unregister_root_region(const void *, size_t) __attribute__((weak));
void __asan_poison_memory_region(const volatile void *, size_t) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *, size_t) __attribute__((weak));
}

namespace simt
{

struct Fiber {
    void *sp;
    char *stack; /* lowest address */
    size_t bytes;
    void *tsan; /* context, NULL without TSan */
    void *fake; /* ASan's fake stack while switched out */
};

/* Whether a sanitizer watches this process. */
static inline bool fiber_sanitized(void)
{
    return __tsan_create_fiber || __sanitizer_start_switch_fiber;
}

/* The calling OS thread as a fiber. */
void fiber_of_thread(Fiber *f);

/* A stack for a lane (recycled, no guard page) or a host fiber (guard page); entry never
 * returns. */
void fiber_create(Fiber *f, bool host, void (*entry)(void));
void fiber_recycle(Fiber *f, bool host);
/* The fibers alive now will never run again: forget all stacks and contexts. Only when nobody has
 * one. */
void fiber_drop_pools(void);
void fiber_abandon(Fiber *f);
/* Bytes of the stack that were ever written. */
size_t fiber_high_water(const Fiber *f);
bool fiber_overflowed(const Fiber *f);

/* dying: `from` is never resumed. */
static inline void fiber_switch(Fiber *from, Fiber *to, bool dying = false)
{
    if (__tsan_switch_to_fiber)
        __tsan_switch_to_fiber(to->tsan, 1); /* 1: the switch itself orders nothing */
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(dying ? nullptr : &from->fake, to->stack, to->bytes);
    simt_switch(&from->sp, to->sp);
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
}

/* First statement on a new fiber. */
static inline void fiber_arrived(void)
{
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
}

static inline void order_acquire(void *token)
{
    if (__tsan_acquire)
        __tsan_acquire(token);
}

static inline void order_release(void *token)
{
    if (__tsan_release)
        __tsan_release(token);
}

/* A new TSan context that comes after nothing that has been ordered since the process began; NULL
 * without TSan. */
void *context_create(void);

/* The caller comes after everything that the context has done. */
static inline void order_after_context(void *context)
{
    char token;

    if (!context || !__tsan_switch_to_fiber)
        return;
    void *self = __tsan_get_current_fiber();

    __tsan_switch_to_fiber(context, 1);
    __tsan_release(&token);
    __tsan_switch_to_fiber(self, 1);
    __tsan_acquire(&token);
}

/* Neither memcpy nor memset: TSan would take them for accesses of whoever runs. */
static inline void copy_unseen(void *to, const void *from, size_t bytes)
{
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
static inline void fill_unseen(void *at, int byte, size_t bytes)
{
    asm volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(byte) : "memory");
}

/* Memory for structures that are made while a lane runs; given back by size. Thread safe. */
void *arena_take(size_t bytes, bool zero);
static inline void *arena_get(size_t bytes)
{
    return arena_take(bytes, true);
}
void arena_put(void *ptr, size_t bytes);

/* Lock of the core: a spin flag, because TSan must not see it. */
struct Lock {
    char taken = 0;
    void lock()
    {
        while (__atomic_test_and_set(&taken, __ATOMIC_ACQUIRE))
            __builtin_ia32_pause();
    }
    void unlock()
    {
        __atomic_clear(&taken, __ATOMIC_RELEASE);
    }
};
struct Hold {
    Lock &lock;
    explicit Hold(Lock &l) : lock(l)
    {
        lock.lock();
    }
    ~Hold()
    {
        lock.unlock();
    }
};

} // namespace simt
