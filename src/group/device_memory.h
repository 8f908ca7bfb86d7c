/* device_memory.h: plain device memory of a group, from the caller's callbacks or the device
 * runtime.
 *
 * Layer: src/group. Memory that peers or the NIC reach is not plain: window.h. */
#ifndef SWL_DEVICE_MEMORY_H
#define SWL_DEVICE_MEMORY_H

#include <nccl_ep.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct swl_device_memory {
    ncclEpAllocConfig_t alloc; /* both callbacks or none */
    uint64_t held_bytes;
    bool abandoned; /* the device is stuck: nothing is freed, since that would wait for it */
};

/* At least 256-byte aligned, content undefined. */
ncclResult_t swl_device_malloc(struct swl_device_memory *memory, void **ptr_p, uint64_t bytes);
/* NULL is a no-op. `bytes` as at allocation. */
ncclResult_t swl_device_free(struct swl_device_memory *memory, void *ptr, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
