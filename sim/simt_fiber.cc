/* simt_fiber.cc: see simt_fiber.h. */
#include "sim/simt_fiber.h"

#include "sim/simt_array.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Callee-saved registers only: a switch is a function call to the compiler. `pop; jmp` instead of
 * `ret`, which would mispredict the return stack (12 ns against 2.4). */
asm(R"(
.text
.globl simt_switch
.type simt_switch,@function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size simt_switch,.-simt_switch
)");

namespace simt
{
namespace
{

constexpr size_t kPage = 4096, kHugePage = 2 << 20, kSlabStacks = 512, kHostBytes = 1024 * 1024;
constexpr size_t kStackPad = 16; /* top of a stack that stays zero: return address of `entry` */

struct Slot {
    char *stack;
    void *tsan;
};
struct Map {
    char *at;
    size_t bytes;
};
struct Pool {
    Lock lock;
    Array<Slot> free;
    Array<Map> maps;
};
Pool *const pools = new Pool[2]; /* lanes, host fibers; never destroyed */

size_t lane_bytes(void)
{
    return fiber_sanitized() ? 64 * 1024 : 12 * 1024;
}

char *map_bytes(size_t bytes)
{
    /* Not mmap(): TSan takes that for a store by the caller to all of it. */
    void *p =
        reinterpret_cast<void *>(syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L));

    if (p == MAP_FAILED) {
        perror("simt: mmap of fiber stacks");
        abort();
    }
    if (__lsan_register_root_region) /* may hold the only pointer to something */
        __lsan_register_root_region(p, bytes);
    return static_cast<char *>(p);
}

/* Every lane touches a page of its own in turn: with pages of 4 KiB the address translation of a
 * switch costs more than the switch. Sanitizers have stacks of which most is never touched. */
char *map_huge(size_t bytes)
{
    char *p = map_bytes(bytes + kHugePage);
    size_t before = -reinterpret_cast<uintptr_t>(p) % kHugePage;

    if (before)
        munmap(p, before);
    munmap(p + before + bytes, kHugePage - before);
    madvise(p + before, bytes, MADV_HUGEPAGE);
    return p + before;
}

void pool_grow(Pool &pool, bool host)
{
    size_t each = host ? kHostBytes + kPage : lane_bytes(), n = host ? 1 : kSlabStacks;
    char *map = host || fiber_sanitized() ? map_bytes(each * n) : map_huge(each * n);

    pool.maps.push_back({map, each * n});
    if (host)
        mprotect(map, kPage, PROT_NONE);
    for (size_t i = n; i-- > 0;) /* the lowest one is taken first */
        pool.free.push_back({map + each * i + (host ? kPage : 0), nullptr});
}

} // namespace

/* A context inherits the order of the one that creates it: have all created by one that never
 * runs. */
void *context_create(void)
{
    static void *parent;
    static Lock lock;

    if (!__tsan_create_fiber)
        return nullptr;
    Hold hold(lock);
    void *self = __tsan_get_current_fiber(), *child;

    if (!parent)
        parent = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(parent, 1);
    child = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(self, 1);
    return child;
}

void fiber_of_thread(Fiber *f)
{
    pthread_attr_t attr;
    void *base;

    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &base, &f->bytes);
    pthread_attr_destroy(&attr);
    f->stack = static_cast<char *>(base);
    f->tsan = __tsan_get_current_fiber ? __tsan_get_current_fiber() : nullptr;
    f->fake = nullptr;
}

void fiber_create(Fiber *f, bool host, void (*entry)(void))
{
    Pool &pool = pools[host];
    Slot slot;

    {
        Hold hold(pool.lock);

        if (pool.free.empty())
            pool_grow(pool, host);
        slot = pool.free.pop_back();
    }
    f->stack = slot.stack;
    f->bytes = host ? kHostBytes : lane_bytes();
    f->tsan = slot.tsan;
    f->fake = nullptr;
    if (!f->tsan)
        f->tsan = context_create();
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(f->stack, f->bytes);

    /* Stacks are a power of two apart: shift the tops, or all lanes compete for a few cache
     * sets. */
    size_t colour = reinterpret_cast<uintptr_t>(f->stack) / f->bytes % 32;
    char *top = f->stack + f->bytes - kStackPad - colour * 64;
    void **sp = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));

    *--sp = nullptr; /* where `entry` would return to; keeps 16-byte alignment */
    *--sp = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    f->sp = sp;
}

void fiber_recycle(Fiber *f, bool host)
{
    Pool &pool = pools[host];
    Hold hold(pool.lock);

    pool.free.push_back({f->stack, f->tsan});
    f->stack = nullptr;
}

void fiber_abandon(Fiber *f)
{
    if (f->tsan && __tsan_destroy_fiber)
        __tsan_destroy_fiber(f->tsan);
    f->stack = nullptr;
}

void fiber_drop_pools(void)
{
    for (Pool *p = pools; p < pools + 2; p++) {
        Pool &pool = *p;
        Hold hold(pool.lock);

        for (Slot &slot : pool.free)
            if (slot.tsan && __tsan_destroy_fiber)
                __tsan_destroy_fiber(slot.tsan);
        pool.free.clear();
        for (Map &map : pool.maps) {
            if (__asan_unpoison_memory_region)
                __asan_unpoison_memory_region(map.at, map.bytes);
            if (!__lsan_register_root_region) /* else kept: what abandoned fibers own is no leak */
                munmap(map.at, map.bytes);    /* clears TSan's memory of these addresses, too */
        }
        pool.maps.clear();
    }
}

__attribute__((no_sanitize("address"))) size_t fiber_high_water(const Fiber *f)
{
    const uint64_t *word = reinterpret_cast<const uint64_t *>(f->stack);
    size_t n = f->bytes / sizeof(*word), i = 0;

    while (i < n && !word[i])
        i++;
    return (n - i) * sizeof(*word);
}

__attribute__((no_sanitize("address"))) bool fiber_overflowed(const Fiber *f)
{
    const uint64_t *word = reinterpret_cast<const uint64_t *>(f->stack);

    return word[0] || word[1] || word[2] || word[3];
}

namespace
{

struct FreeBlock {
    FreeBlock *next;
};
constexpr size_t kUnit = 256, kBigUnit = 4096, kClasses = 64;
Lock arena_lock;
FreeBlock *arena_free[kClasses]; /* by size in units, the first one unused */
FreeBlock *arena_big[kClasses];  /* by size in big units, of blocks too large for the units */
char *arena_at, *arena_end;

/* The list of free blocks of that size, NULL where each has a mapping of its own; *bytes_p is
 * rounded up. Sanitizers are to forget what large blocks held, so these are unmapped. */
FreeBlock **arena_list(size_t *bytes_p)
{
    size_t units = (*bytes_p + kUnit - 1) / kUnit, big = (*bytes_p + kBigUnit - 1) / kBigUnit;

    *bytes_p = units * kUnit;
    if (units < kClasses)
        return &arena_free[units];
    if (big >= kClasses || fiber_sanitized())
        return nullptr;
    *bytes_p = big * kBigUnit;
    return &arena_big[big];
}

/* Fresh and zero. Under the lock. */
char *arena_cut(size_t bytes)
{
    if (bytes >= kClasses * kUnit)
        return map_bytes(bytes);
    if (arena_at + bytes > arena_end) {
        arena_at = map_bytes(1 << 20);
        arena_end = arena_at + (1 << 20);
    }
    char *p = arena_at;

    arena_at += bytes;
    return p;
}

} // namespace

void *arena_take(size_t bytes, bool zero)
{
    FreeBlock **list = arena_list(&bytes);

    if (!list)
        return map_bytes(bytes);
    Hold hold(arena_lock);
    FreeBlock *block = *list;

    if (!block)
        return arena_cut(bytes);
    *list = block->next;
    if (zero)
        fill_unseen(block, 0, bytes);
    return block;
}

void arena_put(void *ptr, size_t bytes)
{
    FreeBlock **list = arena_list(&bytes);

    if (!list) {
        if (__lsan_unregister_root_region)
            __lsan_unregister_root_region(ptr, bytes);
        munmap(ptr, bytes);
        return;
    }
    Hold hold(arena_lock);
    FreeBlock *block = static_cast<FreeBlock *>(ptr);

    block->next = *list;
    *list = block;
}

} // namespace simt
