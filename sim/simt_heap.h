/* simt_heap.h: the memory of the emulated machine: device, pinned host and shared allocations,
 * and a table of them by address.
 *
 * Layer: sim, below gpu_sim, cuda_* and nccl_*. The memory is plain memory of the process, or a
 * file in memory (memfd) that other processes map as well and that is gone with the last of them.
 * The table must not order ranks in the eyes of TSan, so this file is compiled like the emulator
 * core: no instrumentation, no locks and containers that TSan knows. Owner of the memory: who
 * allocated it. */
#ifndef SWL_SIMT_HEAP_H
#define SWL_SIMT_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum simt_heap_kind {
    SIMT_HEAP_FREE,
    SIMT_HEAP_DEVICE, /* poisoned with 0xA5 */
    SIMT_HEAP_HOST,   /* pinned, zeroed */
    SIMT_HEAP_SHARED  /* device memory that peers map; zeroed, 2 MiB granules */
};

struct simt_heap_block {
    uintptr_t base;
    size_t bytes;
    enum simt_heap_kind kind;
    int device;
    int maps; /* peers that mapped it */
    bool
        released; /* freed by its owner, still mapped by a peer; memory of another process always */
    bool file;    /* pages of a file */
    int fd;       /* of the file, open for other processes until the owner frees the block, or -1 */
};

#define SIMT_HEAP_GRANULE (2u << 20)

/* NULL when there is no memory or no room in the table. */
void *simt_heap_alloc(enum simt_heap_kind kind, int device, size_t bytes);

/* Memory that other processes can map, in a file without a name: host or shared. Behind its pages
 * the file has one more, for whatever the caller writes there. */
void *simt_heap_alloc_file(enum simt_heap_kind kind, int device, size_t bytes);
/* Map such a file of another process, once; belongs to no device. Until simt_heap_unmap. */
void *simt_heap_import(enum simt_heap_kind kind, int fd, size_t bytes);
/* Where the extra page begins. */
size_t simt_heap_file_end(size_t bytes);

/* Give back; small blocks are poisoned, large ones unmapped. False: not the start of a live block
 * of that kind. */
bool simt_heap_free(enum simt_heap_kind kind, void *ptr);

/* The live block around ptr. */
bool simt_heap_find(const void *ptr, struct simt_heap_block *block);

/* Count a mapping of the shared or host block that starts at ptr up or down; the block goes when
 * its owner has freed it and the last mapping is gone. False: no such block, or not mapped. */
bool simt_heap_map(void *ptr, size_t bytes);
bool simt_heap_unmap(void *ptr);

/* Bytes of all live device and shared blocks of a device, to find leaks in tests. */
size_t simt_heap_bytes(int device);

#ifdef __cplusplus
}
#endif
#endif
