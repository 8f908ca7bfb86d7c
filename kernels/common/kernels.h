/* kernels.h: the kernels of the library as the host launches them. */
#ifndef SWL_KERNELS_H
#define SWL_KERNELS_H

#include "src/runtime/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
#define KERNEL(name) extern const struct swl_gpu_kernel swl_##name##_desc;
#include "kernels/common/kernels.def"

enum swl_kernel_number { /* SWL_K_route … */
#define KERNEL(name) SWL_K_##name,
#include "kernels/common/kernels.def"
    SWL_KERNELS
};
/* clang-format on */

extern const struct swl_gpu_kernel *const swl_kernels[SWL_KERNELS]; /* src/group/agree.c */

#ifdef __cplusplus
}
#endif
#endif
