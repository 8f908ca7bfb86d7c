/* runtime.h: everything the host code needs from the device runtime and from its threads.
 *
 * Layer: src/runtime, implemented by src/runtime/cuda/ (CUDA) and sim/gpu_sim.cc (emulator). Host
 * code of the library, tools and tests blocks, locks, sleeps, reads time and keeps per-thread state
 * only through this file, so that the host code of a rank can run on a fiber of the emulator.
 * Functions return a cudaError_t (0 = cudaSuccess); SWL_CUDA in result.h turns it into a result
 * code and a sentence. No function prints. */
#ifndef SWL_RUNTIME_H
#define SWL_RUNTIME_H

#include "src/base/thread_slot.h"
#include "src/runtime/launch.h"

#include <cuda_runtime.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Devices. The current device is per thread (per fiber in the emulator). */
struct swl_gpu_info {
    int nsms;
    int cc_major, cc_minor; /* compute capability */
    uint64_t shared_bytes;  /* dynamic shared memory a block may have */
    /* Most queues of work that a process may have; kernels of one start one after the other. 0:
     * each stream has its own. */
    uint32_t most_queues;
    uint8_t uuid[16];
    uint64_t process; /* ranks with equal values share an address space */
};
cudaError_t swl_gpu_count(int *n_p); /* 0 devices or no driver: *n_p = 0, success */
cudaError_t swl_gpu_current(int *device_p);
cudaError_t swl_gpu_use(int device); /* make current */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* C++: struct and function of one name */
cudaError_t swl_gpu_info(int device, struct swl_gpu_info *info_p);
#pragma GCC diagnostic pop
/* Its PCI address as /sys writes it, "0000:18:00.0"; cudaErrorNotSupported: emulated. */
cudaError_t swl_gpu_pci(int device, char *text, size_t bytes);
/* May kernels of `device` load and store memory of `peer`? false also where that is unknown. */
bool swl_gpu_reaches(int device, int peer);
cudaError_t swl_gpu_pending_error(void); /* sticky error of the context, not cleared */
const char *swl_gpu_error_text(cudaError_t error);

/* Memory. Plain device memory of the current device, zeroed by nobody. */
cudaError_t swl_gpu_malloc(void **ptr_p, size_t bytes);
cudaError_t swl_gpu_free(void *ptr);
/* Pinned host memory, mapped into every device at the same address. Zeroed. */
cudaError_t swl_gpu_host_malloc(void **ptr_p, size_t bytes);
cudaError_t swl_gpu_host_free(void *ptr);
cudaError_t swl_gpu_copy(void *dst, const void *src, size_t bytes, cudaStream_t stream); /* async */
cudaError_t swl_gpu_fill(void *dst, int byte, size_t bytes, cudaStream_t stream);        /* async */
enum swl_gpu_memory_kind { SWL_GPU_MEMORY_UNKNOWN, SWL_GPU_MEMORY_HOST, SWL_GPU_MEMORY_DEVICE };
/* Where an address lives and, if the runtime knows, its allocation [*base_p, *base_p +
 * *bytes_p). */
cudaError_t swl_gpu_where(const void *ptr, enum swl_gpu_memory_kind *place_p, void **base_p,
                          size_t *bytes_p);

/* Memory and a NIC. A dmabuf of the device memory at ptr, page of the host by page, for the NIC's
 * driver; the descriptor is the caller's. cudaErrorNotSupported: driver or GPU has none. */
cudaError_t swl_gpu_dmabuf(const void *ptr, size_t bytes, int *fd_p);
/* Let kernels of the current device write registers that this process has mapped at `registers`.
 * cudaErrorNotPermitted, -NotSupported: the driver does not allow it to this user. */
cudaError_t swl_gpu_registers_map(void *registers, size_t bytes, void **device_p);
cudaError_t swl_gpu_registers_unmap(void *registers);

/* Memory that peers of the node map (VMM on CUDA, plain in the emulator). Zeroed; 2 MiB
 * granules. */
struct swl_gpu_share {
    uint8_t bytes[128]; /* opaque, sent to the peers by value */
};
cudaError_t swl_gpu_shared_malloc(void **ptr_p, size_t bytes, struct swl_gpu_share *share_p);
cudaError_t swl_gpu_shared_free(void *ptr);
/* How other processes get it, and why not otherwise: a few words for a log. */
const char *swl_gpu_shared_how(const struct swl_gpu_share *share);
/* Map a peer's memory for the current device; *ptr_p is valid until unmap. On CUDA: the GPUs have
 * no access to each other: cudaErrorPeerAccessUnsupported; its process cannot be asked and there is
 * no fabric handle: cudaErrorOperatingSystem; this process may not use the fabric handle:
 * cudaErrorNotPermitted. */
cudaError_t swl_gpu_shared_map(const struct swl_gpu_share *share, void **ptr_p);
cudaError_t swl_gpu_shared_unmap(void *ptr);
/* The share of the own allocation around ptr, and ptr's offset in it; cudaErrorInvalidValue:
 * none. */
cudaError_t swl_gpu_shared_find(const void *ptr, struct swl_gpu_share *share_p, uint64_t *offset_p);
/* Let kernels of `device` reach memory of this process that is not shared (plain or pinned). */
cudaError_t swl_gpu_peer_access(int device, const void *ptr);

/* One small piece of pinned host memory that all ranks of a host reach, mapped into every device at
 * the same address, in every process at its own. Zeroed. Stays valid for whoever has it open. */
struct swl_gpu_page {
    void *ptr; /* NULL: not open */
    size_t bytes;
    uint64_t id; /* of the creator's export; 0 = joined */
    int fd;
};
cudaError_t swl_gpu_page_create(struct swl_gpu_page *page, size_t bytes,
                                struct swl_gpu_share *share_p);
/* Open a page that another rank of this host has created and not yet closed. */
cudaError_t swl_gpu_page_join(struct swl_gpu_page *page, const struct swl_gpu_share *share);
cudaError_t swl_gpu_page_close(struct swl_gpu_page *page); /* not open: no-op */

/* Streams and events. */
cudaError_t swl_gpu_stream_create(cudaStream_t *stream_p); /* non-blocking */
cudaError_t swl_gpu_stream_destroy(cudaStream_t stream);
/* Wait for the stream at most timeout_ns; cudaErrorNotReady when it takes longer. */
cudaError_t swl_gpu_stream_wait(cudaStream_t stream, uint64_t timeout_ns);
cudaError_t swl_gpu_stream_capturing(cudaStream_t stream, bool *capturing_p);
cudaError_t swl_gpu_event_create(cudaEvent_t *event_p);
cudaError_t swl_gpu_event_destroy(cudaEvent_t event);
cudaError_t swl_gpu_event_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t swl_gpu_event_done(cudaEvent_t event, bool *done_p);
cudaError_t swl_gpu_stream_wait_event(cudaStream_t stream, cudaEvent_t event);

/* Kernels. All blocks of a launch are resident together (cooperative launch on CUDA). */
/* Most threads of a block, on the current device: the registers of an SM bound them. */
cudaError_t swl_gpu_block_threads(const struct swl_gpu_kernel *kernel, uint32_t *threads_p);
cudaError_t swl_gpu_preload(const struct swl_gpu_kernel *kernel, size_t shared_bytes);
cudaError_t swl_gpu_launch(const struct swl_gpu_kernel *kernel, const struct swl_gpu_grid *grid,
                           const void *args, cudaStream_t stream);

/* Threads: time, sleep, locks, per-thread state. */
uint64_t swl_gpu_now_ns(void); /* monotonic; virtual in the emulator */
void swl_gpu_sleep_ns(uint64_t ns);
struct swl_gpu_mutex;
cudaError_t swl_gpu_mutex_create(struct swl_gpu_mutex **mutex_p);
void swl_gpu_mutex_destroy(struct swl_gpu_mutex *mutex);
void swl_gpu_mutex_lock(struct swl_gpu_mutex *mutex);
void swl_gpu_mutex_unlock(struct swl_gpu_mutex *mutex);
/* The node the rank launcher gave this thread, or -1 (then SWIMLANE_NODE, then NCCL decides). */
int swl_gpu_thread_node(void);
void swl_gpu_thread_node_set(int node); /* for the rank launcher only */

#ifdef __cplusplus
}
#endif
#endif
