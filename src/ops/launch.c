/* launch.c: one kernel of a group, behind its other operations. Layer: src/ops; owns nothing. */
#include "src/group/group.h"

#include "src/base/error.h"
#include "src/runtime/result.h"

ncclResult_t swl_group_launch(struct ncclEpGroup *group, const struct swl_gpu_kernel *kernel,
                              const struct swl_plan_kernel *plan, const void *args,
                              cudaStream_t stream)
{
    const struct swl_gpu_grid grid = {
        .blocks = (int)(plan->blocks + group->plan.nic_blocks),
        .threads = (int)plan->threads,
        .shared_bytes = plan->shared_bytes,
    };
    bool capturing = false;

    SWL_TRY(swl_group_enter(group, stream, &capturing));
    SWL_TRY(SWL_CUDA(swl_gpu_launch(kernel, &grid, args, stream)));
    return swl_group_leave(group, stream, capturing);
}
