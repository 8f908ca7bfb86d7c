/* simt_device.h: what sim/device.h calls in the emulator core. Layer: sim, internal to device.h.
 * `file`, `line` are the caller's; places of collectives are compared and shown in reports. */
#pragma once

#include <stdint.h>

#include "kernels/device/types.h"

enum simt_op {
    SIMT_OP_NONE,
    SIMT_OP_WARP_SYNC,
    SIMT_OP_SHFL,
    SIMT_OP_SHFL_UP,
    SIMT_OP_SHFL_XOR,
    SIMT_OP_BALLOT,
    SIMT_OP_ALL,
    SIMT_OP_ANY,
    SIMT_OP_BLOCK_SYNC,
    SIMT_OP_NAMED_SYNC
};

/* What TSan's order between lanes and copy engines hangs on. */
enum simt_token {
    SIMT_TOKEN_WARP,
    SIMT_TOKEN_SHARED_PROXY, /* of the block: shared memory as the copy engine sees it */
    SIMT_TOKEN_LANE_PROXY,   /* of the lane: global memory as its copies see it */
    SIMT_TOKEN_BLOCK,
    SIMT_TOKEN_NAMED = SIMT_TOKEN_BLOCK
};

/* Word of an mbarrier after `arrivals` arrivals and a change of the expected bytes. */
static inline uint64_t simt_stage_next(uint64_t word, uint32_t arrivals, uint32_t more_bytes)
{
    uint64_t phase = word >> 63, count = word >> 48 & 0x7fff;
    uint64_t pending = (word >> 32 & 0xffff) - arrivals;
    uint32_t bytes = static_cast<uint32_t>(word) + more_bytes;

    if (!pending && !bytes) {
        phase ^= 1;
        pending = count;
    }
    return phase << 63 | count << 48 | pending << 32 | bytes;
}

/* How a word is written. */
enum simt_store {
    SIMT_STORE_PUBLISH,  /* with its own order */
    SIMT_STORE_POST,     /* relaxed, needs an earlier order_before_publish of that scope */
    SIMT_STORE_DOORBELL, /* relaxed, needs an earlier order_before_doorbell */
    SIMT_STORE_NIC       /* by a soft NIC: may touch NIC words */
};

extern "C" {
int simt_dev_lane(void);
int simt_dev_warp(void);
int simt_dev_warps(void);
int simt_dev_block(void);
int simt_dev_blocks(void);
void *simt_dev_shared(void);
uint64_t simt_dev_shared_bytes(void);
uint64_t simt_dev_clock(void);

uint64_t simt_dev_collective(int op, uint64_t value, int src, const char *file, int line);
void simt_dev_block_sync(const char *file, int line);
void simt_dev_named_sync(int id, int threads, const char *file, int line);

/* Seeded scheduling point, before each primitive. */
void simt_dev_point(void);
/* A word was read: note it as polled, check scopes and raw spins. */
void simt_dev_read(const volatile void *word, uint64_t value, int bytes, int scope,
                   const char *file, int line);
/* A word is about to be written. Returns whether the store has to act as a release (for TSan). */
bool simt_dev_write(const volatile void *word, int scope, int how, const char *file, int line);
void simt_dev_order(int scope);
/* Plain 16-byte store: ends what order_before_publish covers, notes the line for bulk checks. */
void simt_dev_stored(const volatile void *at);
void simt_dev_pause(const struct swl_pause *why, uint64_t deadline_ns);
/* The same, for something that happens at that time by itself: no hang. */
void simt_dev_pause_until(const struct swl_pause *why, uint64_t time_ns);

void simt_dev_bulk(void *dst, const void *src, uint32_t bytes, mbarrier *barrier, const char *file,
                   int line); /* barrier: load, NULL: store */
void simt_dev_bulk_commit(void);
void simt_dev_bulk_wait(int left, bool reads_only, const char *file, int line);
void simt_dev_bulk_fence(bool shared);
void *simt_dev_token(int token);
}
