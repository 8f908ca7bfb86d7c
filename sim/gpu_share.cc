/* gpu_share.cc: emulated memory that ranks share, of one process or of several on this host.
 *
 * Layer: sim, above simt_heap. Ranks on fibers are all in one process, and a share is an address.
 * Other ranks may be in several: their memory is a file without a name, which the others open under
 * /proc while its owner lives. Nothing is left when all have ended, in whatever way. */
#include "src/runtime/runtime.h"

#include "sim/machine.h"
#include "sim/simt_heap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

using namespace swl_sim;

namespace
{

/* What a share means, on the wire between ranks. */
struct share_text {
    uint64_t magic, process;
    void *ptr;
    uint64_t bytes;
    int32_t pid, fd; /* file of the memory, or -1: for this process only */
};
static_assert(sizeof(share_text) <= sizeof(swl_gpu_share), "a share travels in 128 bytes");
const uint64_t share_magic = 0x657261687361646dull;

struct swl_gpu_share share_of(const share_text &text)
{
    struct swl_gpu_share share = {};

    memcpy(share.bytes, &text, sizeof(text));
    return share;
}

share_text text_of(const simt_heap_block &block)
{
    return {share_magic,
            process_token(),
            reinterpret_cast<void *>(block.base),
            block.bytes,
            static_cast<int32_t>(getpid()),
            block.fd};
}

/* Memory of `kind` that other ranks map, and its share. A file has its share behind
 * the memory, so that whoever opens it knows that it is the right one. */
cudaError_t make_shared(simt_heap_kind kind, void **ptr_p, size_t bytes,
                        struct swl_gpu_share *share_p)
{
    simt_heap_block block = {};
    void *made;

    if (!ptr_p || !share_p || bytes == 0)
        return note(cudaErrorInvalidValue);
    if (self()->captures > 0)
        return note(cudaErrorStreamCaptureUnsupported);
    made = simt_thread_self()->fiber ? simt_heap_alloc(kind, current_device(), bytes)
                                     : simt_heap_alloc_file(kind, current_device(), bytes);
    if (!made || !simt_heap_find(made, &block))
        return note(errno == EMFILE || errno == ENFILE ? cudaErrorOperatingSystem
                                                       : cudaErrorMemoryAllocation);
    *share_p = share_of(text_of(block));
    if (block.file && pwrite(block.fd, share_p, sizeof(*share_p),
                             static_cast<off_t>(simt_heap_file_end(bytes))) != sizeof(*share_p)) {
        simt_heap_free(kind, made);
        return note(cudaErrorOperatingSystem);
    }
    *ptr_p = made;
    return cudaSuccess;
}

/* Memory of another process of this host and user, which still has it open. */
cudaError_t map_alien(simt_heap_kind kind, const struct swl_gpu_share *share,
                      const share_text &text, void **ptr_p)
{
    struct swl_gpu_share found = {};
    cudaError_t error = cudaErrorOperatingSystem;
    struct stat status;
    char path[64];
    int fd;

    if (text.fd < 0)
        return cudaErrorNotSupported;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", text.pid, text.fd);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return error;
    /* root may open what belongs to the next process of that number, whatever it is */
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
        pread(fd, &found, sizeof(found), static_cast<off_t>(simt_heap_file_end(text.bytes))) ==
            sizeof(found) &&
        memcmp(&found, share, sizeof(found)) == 0) {
        *ptr_p = simt_heap_import(kind, fd, text.bytes);
        error = *ptr_p ? cudaSuccess : cudaErrorMemoryAllocation;
    }
    close(fd);
    return error;
}

cudaError_t map_shared(simt_heap_kind kind, const struct swl_gpu_share *share, void **ptr_p,
                       uint64_t *bytes_p)
{
    share_text text;

    if (!share || !ptr_p)
        return note(cudaErrorInvalidValue);
    memcpy(&text, share->bytes, sizeof(text));
    if (text.magic != share_magic)
        return note(cudaErrorInvalidValue);
    *bytes_p = text.bytes;
    if (text.process != process_token())
        return note(map_alien(kind, share, text, ptr_p));
    if (!simt_heap_map(text.ptr, text.bytes))
        return note(cudaErrorInvalidValue);
    *ptr_p = text.ptr;
    return cudaSuccess;
}

} // namespace

uint64_t swl_sim::process_token()
{
    static std::atomic<uint64_t> token{0};
    uint64_t pid = (uint64_t)getpid(), now = token.load(std::memory_order_relaxed);

    if (now >> 40 != (pid & 0xffffff)) {
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        now = pid << 40 | ((uint64_t)t.tv_nsec << 8 & 0xffffffff00ull) | 1;
        token.store(now, std::memory_order_relaxed);
    }
    return now;
}

cudaError_t swl_gpu_shared_malloc(void **ptr_p, size_t bytes, struct swl_gpu_share *share_p)
{
    return make_shared(SIMT_HEAP_SHARED, ptr_p, bytes, share_p);
}

cudaError_t swl_gpu_shared_free(void *ptr)
{
    if (!ptr)
        return cudaSuccess;
    return note(simt_heap_free(SIMT_HEAP_SHARED, ptr) ? cudaSuccess : cudaErrorInvalidValue);
}

const char *swl_gpu_shared_how(const struct swl_gpu_share *share)
{
    share_text text;

    memcpy(&text, share->bytes, sizeof(text));
    return text.fd < 0 ? "memory of one process" : "a file in memory";
}

cudaError_t swl_gpu_shared_map(const struct swl_gpu_share *share, void **ptr_p)
{
    uint64_t bytes;

    return map_shared(SIMT_HEAP_SHARED, share, ptr_p, &bytes);
}

cudaError_t swl_gpu_shared_unmap(void *ptr)
{
    if (!ptr)
        return cudaSuccess;
    return note(simt_heap_unmap(ptr) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t swl_gpu_page_create(struct swl_gpu_page *page, size_t bytes,
                                struct swl_gpu_share *share_p)
{
    cudaError_t error = make_shared(SIMT_HEAP_HOST, &page->ptr, bytes, share_p);

    if (error == cudaSuccess) {
        page->bytes = bytes;
        page->id = 1;
        page->fd = -1;
    }
    return error;
}

cudaError_t swl_gpu_page_join(struct swl_gpu_page *page, const struct swl_gpu_share *share)
{
    uint64_t bytes = 0;
    cudaError_t error = map_shared(SIMT_HEAP_HOST, share, &page->ptr, &bytes);

    if (error == cudaSuccess) {
        page->bytes = bytes;
        page->id = 0;
        page->fd = -1;
    }
    return error;
}

cudaError_t swl_gpu_page_close(struct swl_gpu_page *page)
{
    bool known = true;

    if (page->ptr)
        known = page->id ? simt_heap_free(SIMT_HEAP_HOST, page->ptr) : simt_heap_unmap(page->ptr);
    page->ptr = nullptr;
    return note(known ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t swl_gpu_shared_find(const void *ptr, struct swl_gpu_share *share_p, uint64_t *offset_p)
{
    simt_heap_block block = {};

    if (!simt_heap_find(ptr, &block) || block.kind != SIMT_HEAP_SHARED || block.released)
        return cudaErrorInvalidValue;
    *share_p = share_of(text_of(block));
    *offset_p = reinterpret_cast<uintptr_t>(ptr) - block.base;
    return cudaSuccess;
}
