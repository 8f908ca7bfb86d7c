/* page.c: pinned host memory that the ranks of a host share (src/runtime/runtime.h).
 *
 * Layer: device runtime. A page is an anonymous file (memfd) that each rank maps for itself, also
 * within a process, and registers with CUDA; its descriptor goes the way of fd.c. The
 * memory lives until the last mapping is gone, so that nobody can lose it to a peer.
 * Owns nothing: the mapping and the descriptor belong to the caller's struct swl_gpu_page. */
#include "src/runtime/runtime.h"

#include "src/runtime/cuda/driver.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What travels in struct swl_gpu_share. */
struct ticket {
    uint64_t process;
    uint64_t id; /* 0: no page */
    uint64_t bytes;
};
static_assert(sizeof(struct ticket) <= sizeof(struct swl_gpu_share), "a ticket fits into a share");

#define PAGE_IDS (UINT64_C(1) << 63) /* apart from the ids of share.c */

static uint64_t last_id;

/* Map and register: the device must reach it at the address of the host. */
static cudaError_t open_file(struct swl_gpu_page *page, int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *device = NULL;
    cudaError_t error;

    if (at == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    error = cudaHostRegister(at, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (error != cudaSuccess)
        goto undo_map;
    error = cudaHostGetDevicePointer(&device, at, 0);
    if (error == cudaSuccess && device != at)
        error = cudaErrorNotSupported;
    if (error != cudaSuccess)
        goto undo_register;
    page->ptr = at;
    page->bytes = bytes;
    return cudaSuccess;
undo_register:
    (void)cudaHostUnregister(at);
undo_map:
    (void)cudaGetLastError();
    munmap(at, bytes);
    return error;
}

cudaError_t swl_gpu_page_create(struct swl_gpu_page *page, size_t bytes,
                                struct swl_gpu_share *share_p)
{
    const size_t unit = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (bytes + unit - 1) / unit * unit;
    struct ticket t = {swl_gpu_process_id(), 0, whole};
    cudaError_t error;
    int fd;

    if (bytes == 0)
        return cudaErrorInvalidValue;
    fd = memfd_create("swimlane", MFD_CLOEXEC);
    if (fd < 0)
        return cudaErrorOperatingSystem;
    error = ftruncate(fd, (off_t)whole) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
    if (error != cudaSuccess)
        goto undo_file;
    error = open_file(page, fd, whole);
    if (error != cudaSuccess)
        goto undo_file;
    t.id = PAGE_IDS | __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
    error = swl_fd_export(t.id, fd);
    if (error != cudaSuccess)
        goto undo_page;
    page->id = t.id;
    page->fd = fd;
    memset(share_p, 0, sizeof(*share_p));
    memcpy(share_p->bytes, &t, sizeof(t));
    return cudaSuccess;
undo_page:
    page->id = 0;
    (void)swl_gpu_page_close(page);
undo_file:
    close(fd);
    return error;
}

cudaError_t swl_gpu_page_join(struct swl_gpu_page *page, const struct swl_gpu_share *share)
{
    struct ticket t;
    cudaError_t error;
    int fd;

    memcpy(&t, share->bytes, sizeof(t));
    if (t.id == 0)
        return cudaErrorNotSupported;
    error = swl_fd_fetch(t.process, t.id, &fd);
    if (error != cudaSuccess)
        return error;
    error = open_file(page, fd, t.bytes);
    close(fd);
    page->id = 0;
    page->fd = -1;
    return error;
}

cudaError_t swl_gpu_page_close(struct swl_gpu_page *page)
{
    cudaError_t error;

    if (!page->ptr)
        return cudaSuccess;
    if (page->id != 0) {
        swl_fd_withdraw(page->id);
        close(page->fd);
    }
    error = cudaHostUnregister(page->ptr);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    munmap(page->ptr, page->bytes);
    page->ptr = NULL;
    return error;
}
