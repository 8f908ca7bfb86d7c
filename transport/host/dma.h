/* dma.h: copies and adds for wires of the host (C): what executors do with payload, as functions.
 *
 * Layer: transport/host. Implemented by engine.cc (emulator) or dma_cuda.cc, where memory of a
 * device is reached by copies through a piece of pinned memory. A copier serves one thread at a
 * time. While another thread waits for the whole device inside CUDA (cudaFree), copies wait for it:
 * docs/tuning.md. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_dma;

/* False: no stream or memory. */
bool swl_dma_open(struct swl_dma **dma_p, int device, uint32_t rank, uint64_t timeout_ns);
void swl_dma_close(struct swl_dma *dma);
/* Returns when the bytes have landed; an aligned word lands whole. False: a copy has failed. */
bool swl_dma_copy(struct swl_dma *dma, void *to, const void *from, uint64_t bytes);
/* Ordered after everything copied before. */
bool swl_dma_add(struct swl_dma *dma, uint64_t *word, uint64_t value, uint64_t *old_p);
/* The same in one go, for callers that hold a lock: the emulator does not pass to another fiber. */
bool swl_dma_add_now(struct swl_dma *dma, uint64_t *word, uint64_t value);

/* May an add to or behind this memory be seen before what a NIC has placed there, although that is
 * complete for the host? True for memory of a device: it is reached by two ways. Who lets a NIC
 * place payload and adds with a dma flushes first; what the dma has copied itself needs nothing. */
bool swl_dma_overtakes_nic(const void *p);

#ifdef __cplusplus
}
#endif
