/* types.h: types that both device.h (kernels/device/cuda/ and sim/) give to kernels. Layer:
 * kernels; owns no memory. Kernels get it by including "device.h". */
#pragma once

#include <assert.h>
#include <stdint.h>

/* Who must see an ordered store. */
enum swl_scope { SWL_SCOPE_BLOCK, SWL_SCOPE_GPU, SWL_SCOPE_SYS };

/* What a lane waits for and where; made by SWL_PAUSE(what, a, b) of each device.h. `what` is a
 * literal that names role and condition, a and b are numbers that tell instances apart (channel,
 * peer). */
struct swl_pause {
    const char *what;
    int a, b;
    const char *file;
    int line;
};

/* The unit of data copies; may stand for any 16 bytes of a record. */
struct __attribute__((may_alias, aligned(16))) vec16 {
    uint32_t x[4];
};
static_assert(sizeof(vec16) == 16, "rows are counted in units of 16 bytes");

/* Barrier of asynchronous copies, in shared memory; opaque. */
typedef uint64_t mbarrier;
