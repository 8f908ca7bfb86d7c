/* kernels.h: the kernels of the library as the host launches them. Each takes its argument struct
 * of args.h by value. All blocks of a launch must be resident together. */
#ifndef SWL_KERNELS_H
#define SWL_KERNELS_H

#include "src/runtime/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct swl_gpu_kernel swl_route_desc;       /* struct swl_route_args */
extern const struct swl_gpu_kernel swl_ht_dispatch_desc; /* struct swl_dispatch_args */
extern const struct swl_gpu_kernel swl_ht_combine_desc;  /* struct swl_combine_args */

#ifdef __cplusplus
}
#endif
#endif
