/* pool.h: device memory of tests.
 *
 * Layer: tests. On GPUs memory that was given back is kept for the next request: cudaFree waits for
 * the whole device, on which a rank that shares it may wait for this one. Emulated it goes back at
 * once, so that the emulator sees who uses it later. */
#ifndef SWL_POOL_H
#define SWL_POOL_H

#include "tests/support/ranks_here.h"

#include <map>
#include <mutex>
#include <utility>

struct Pool {
    std::mutex alone;
    std::map<std::pair<int, size_t>, std::vector<void *>> kept; /* by device and size */

    static Pool &here()
    {
        static Pool pool;

        return pool;
    }
};

inline std::pair<int, size_t> pool_key(size_t bytes)
{
    int device = -1;

    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return {device, bytes};
}

/* Memory of the current device; its contents are undefined. */
inline void *pool_take(size_t bytes)
{
    void *memory = nullptr;

    if (on_gpus) {
        const std::lock_guard<std::mutex> lock(Pool::here().alone);
        std::vector<void *> &kept = Pool::here().kept[pool_key(bytes)];

        if (!kept.empty()) {
            memory = kept.back();
            kept.pop_back();
            return memory;
        }
    }
    EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    return memory;
}

/* No work of this rank uses it any more. Same device as when it was taken. */
inline void pool_give(void *memory, size_t bytes)
{
    if (!memory)
        return;
    if (!on_gpus) {
        EXPECT_EQ(cudaFree(memory), cudaSuccess);
        return;
    }
    const std::lock_guard<std::mutex> lock(Pool::here().alone);

    Pool::here().kept[pool_key(bytes)].push_back(memory);
}

#endif
