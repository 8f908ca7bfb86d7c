/* simt_heap.cc: see simt_heap.h. The table is an array sorted by address, under a spin lock. */
#include "sim/simt_heap.h"

#include "sim/simt.h"
#include "sim/simt_fiber.h"

#include <sys/mman.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace
{

const size_t max_blocks = 1u << 16;
const size_t guard_bytes = 64u << 10;
const size_t large_bytes = 1u << 20; /* in pages of its own, except where ASan watches malloc */
const unsigned char poison = 0xA5;

simt_heap_block blocks[max_blocks];
size_t nblocks;
bool locked;

struct guard {
    guard()
    {
        while (__atomic_test_and_set(&locked, __ATOMIC_ACQUIRE))
            ;
    }
    ~guard()
    {
        __atomic_clear(&locked, __ATOMIC_RELEASE); /* pairs with the acquire of the next holder */
    }
    guard(const guard &) = delete;
    guard &operator=(const guard &) = delete;
};

/* Index of the first block that starts above `at`. */
size_t above(uintptr_t at)
{
    size_t low = 0, high = nblocks;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (blocks[middle].base <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The block around `at`, or NULL. A block of 0 bytes contains its own start. */
simt_heap_block *around(uintptr_t at)
{
    size_t i = above(at);

    if (i == 0)
        return nullptr;
    simt_heap_block *b = &blocks[i - 1];
    return at - b->base < b->bytes || at == b->base ? b : nullptr;
}

size_t reserved_bytes(size_t bytes)
{
    size_t granules = (bytes + SIMT_HEAP_GRANULE - 1) / SIMT_HEAP_GRANULE;

    return (granules ? granules : 1) * SIMT_HEAP_GRANULE;
}

bool in_own_pages(simt_heap_kind kind, size_t bytes)
{
    return kind == SIMT_HEAP_SHARED || (bytes >= large_bytes && !__asan_poison_memory_region);
}

void unmap_pages(uintptr_t base, size_t bytes)
{
    munmap((void *)(base - guard_bytes), reserved_bytes(bytes) + 2 * guard_bytes);
}

/* Pages that are zero until touched, on a granule, between guard pages; of a file unless fd is
 * -1. */
void *map_pages(size_t bytes, int fd)
{
    const int read_write = PROT_READ | PROT_WRITE;
    size_t span = reserved_bytes(bytes) + SIMT_HEAP_GRANULE + 2 * guard_bytes;
    void *at = mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return nullptr;
    uintptr_t first = (uintptr_t)at;
    uintptr_t base =
        (first + guard_bytes + SIMT_HEAP_GRANULE - 1) & ~(uintptr_t)(SIMT_HEAP_GRANULE - 1);
    uintptr_t end = base + reserved_bytes(bytes) + guard_bytes;
    if (base - guard_bytes > first)
        munmap(at, base - guard_bytes - first);
    if (end < first + span)
        munmap((void *)end, first + span - end);
    if (fd < 0 ? mprotect((void *)base, reserved_bytes(bytes), read_write) == 0
               : mmap((void *)base, reserved_bytes(bytes), read_write, MAP_SHARED | MAP_FIXED, fd,
                      0) != MAP_FAILED)
        return (void *)base;
    unmap_pages(base, bytes);
    return nullptr;
}

void *take_memory(simt_heap_kind kind, size_t bytes)
{
    void *ptr = nullptr;

    if (in_own_pages(kind, bytes)) {
        ptr = map_pages(bytes, -1);
        if (ptr && kind == SIMT_HEAP_DEVICE) {
            madvise(ptr, bytes, MADV_POPULATE_WRITE); /* in one go; if that fails, page by page */
            memset(ptr, poison, bytes);
        }
        return ptr;
    }
    if (posix_memalign(&ptr, kind == SIMT_HEAP_HOST ? 4096 : 512, bytes ? bytes : 1) != 0)
        return nullptr;
    memset(ptr, kind == SIMT_HEAP_HOST ? 0 : poison, bytes);
    return ptr;
}

void give_memory(const simt_heap_block *block)
{
    simt_forget_memory((void *)block->base, block->bytes);
    if (block->fd >= 0)
        close(block->fd);
    if (block->file || in_own_pages(block->kind, block->bytes)) {
        unmap_pages(block->base, block->bytes); /* late accesses are found by the hardware */
        return;
    }
    memset((void *)block->base, poison, block->bytes);
    free((void *)block->base);
}

/* The compiler must not make a memmove of a loop: TSan would look into it. */
void copy_block(simt_heap_block *to, const simt_heap_block *from)
{
    *to = *from;
    __asm__ volatile("" ::: "memory");
}

/* Under the lock: remove from the table, put into it. */
void drop(simt_heap_block *block)
{
    nblocks--;
    for (simt_heap_block *b = block; b < blocks + nblocks; b++)
        copy_block(b, b + 1);
}

void insert(const simt_heap_block *block)
{
    simt_heap_block *place = blocks + above(block->base);

    for (simt_heap_block *b = blocks + nblocks; b > place; b--)
        copy_block(b, b - 1);
    copy_block(place, block);
    nblocks++;
}

/* The start of the block, or NULL: there is no room in the table, and its memory is given back. */
void *list(const simt_heap_block &block)
{
    {
        guard hold;
        if (nblocks < max_blocks) {
            insert(&block);
            return (void *)block.base;
        }
    }
    give_memory(&block);
    return nullptr;
}

} // namespace

void *simt_heap_alloc(enum simt_heap_kind kind, int device, size_t bytes)
{
    if (bytes > (size_t)1 << 46)
        return nullptr;
    void *ptr = take_memory(kind, bytes);
    return ptr ? list({(uintptr_t)ptr, bytes, kind, device, 0, false, false, -1}) : nullptr;
}

void *simt_heap_alloc_file(enum simt_heap_kind kind, int device, size_t bytes)
{
    int fd = bytes > (size_t)1 << 46 ? -1 : memfd_create("swimlane-sim", MFD_CLOEXEC);
    void *ptr = nullptr;

    if (fd < 0)
        return nullptr;
    if (ftruncate(fd, (off_t)(simt_heap_file_end(bytes) + 4096)) == 0)
        ptr = map_pages(bytes, fd);
    if (ptr)
        return list({(uintptr_t)ptr, bytes, kind, device, 0, false, true, fd});
    close(fd);
    return nullptr;
}

void *simt_heap_import(enum simt_heap_kind kind, int fd, size_t bytes)
{
    void *ptr = map_pages(bytes, fd);

    return ptr ? list({(uintptr_t)ptr, bytes, kind, -1, 1, true, true, -1}) : nullptr;
}

size_t simt_heap_file_end(size_t bytes)
{
    return reserved_bytes(bytes);
}

bool simt_heap_free(enum simt_heap_kind kind, void *ptr)
{
    simt_heap_block block;

    {
        guard hold;
        simt_heap_block *b = around((uintptr_t)ptr);
        if (!b || b->base != (uintptr_t)ptr || b->kind != kind || b->released)
            return false;
        if (b->maps > 0) {
            b->released = true;
            if (b->fd >= 0)
                close(b->fd);
            b->fd = -1;
            return true;
        }
        block = *b;
        drop(b);
    }
    give_memory(&block);
    return true;
}

bool simt_heap_find(const void *ptr, struct simt_heap_block *block)
{
    guard hold;
    simt_heap_block *b = around((uintptr_t)ptr);

    if (!b)
        return false;
    *block = *b;
    return true;
}

bool simt_heap_map(void *ptr, size_t bytes)
{
    guard hold;
    simt_heap_block *b = around((uintptr_t)ptr);

    if (!b || b->base != (uintptr_t)ptr || b->kind == SIMT_HEAP_DEVICE || b->released ||
        b->bytes != bytes)
        return false;
    b->maps++;
    return true;
}

bool simt_heap_unmap(void *ptr)
{
    simt_heap_block block;

    {
        guard hold;
        simt_heap_block *b = around((uintptr_t)ptr);
        if (!b || b->base != (uintptr_t)ptr || b->maps == 0)
            return false;
        b->maps--;
        if (b->maps > 0 || !b->released)
            return true;
        block = *b;
        drop(b);
    }
    give_memory(&block);
    return true;
}

size_t simt_heap_bytes(int device)
{
    guard hold;
    size_t sum = 0;

    for (size_t i = 0; i < nblocks; i++)
        if (blocks[i].device == device &&
            (blocks[i].kind == SIMT_HEAP_DEVICE || blocks[i].kind == SIMT_HEAP_SHARED))
            sum += blocks[i].bytes;
    return sum;
}
