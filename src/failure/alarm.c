/* alarm.c: the alarm page of a node as one rank sees it. Layer: src/failure; memory: alarm.h. */
#include "src/failure/alarm.h"

#include "kernels/common/faults.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/runtime/result.h"

#include <inttypes.h>
#include <string.h>

void swl_alarm_open(struct swl_alarm *alarm, const struct swl_topology *topology, uint32_t rank)
{
    const uint32_t node = topology->rank_node[rank];
    const size_t bytes = sizeof(uint64_t) * swl_topology_nlocal(topology, node);
    cudaError_t error;

    if (topology->rank_local[rank] != 0)
        return;
    error = swl_gpu_page_create(&alarm->page, bytes, &alarm->share);
    if (error != cudaSuccess)
        swl_log(SWL_LEVEL_WARN, "alarm: rank %" PRIu32 " cannot share host memory: %s", rank,
                swl_gpu_error_text(error));
}

ncclResult_t swl_alarm_join(struct swl_alarm *alarm, const struct swl_topology *topology,
                            uint32_t rank, const struct swl_gpu_share *shares)
{
    const uint32_t node = topology->rank_node[rank], local = topology->rank_local[rank];
    cudaError_t error = cudaSuccess;

    if (!alarm->page.ptr)
        error = swl_gpu_page_join(&alarm->page, &shares[swl_topology_rank(topology, node, 0)]);
    if (error == cudaSuccess) {
        alarm->nwords = swl_topology_nlocal(topology, node);
        alarm->own = (uint64_t *)alarm->page.ptr + local;
        return ncclSuccess;
    }
    swl_log(SWL_LEVEL_INFO, "alarm: rank %" PRIu32 " reads its own word only: %s", rank,
            swl_gpu_error_text(error));
    SWL_TRY(SWL_CUDA(swl_gpu_page_create(&alarm->page, sizeof(uint64_t), &alarm->share)));
    alarm->nwords = 1;
    alarm->own = alarm->page.ptr;
    return ncclSuccess;
}

ncclResult_t swl_alarm_close(struct swl_alarm *alarm)
{
    alarm->own = NULL;
    alarm->nwords = 0;
    return SWL_CUDA(swl_gpu_page_close(&alarm->page));
}

void swl_alarm_hear(struct swl_alarm *alarm, uint64_t word)
{
    if (swl_poison_gen(word) > swl_poison_gen(alarm->heard))
        alarm->heard = word;
}

uint64_t swl_alarm_own(const struct swl_alarm *alarm)
{
    /* pairs with the release of tell_everybody in call.cuh: of a failure of this rank's own the
     * record is complete */
    return alarm->own ? __atomic_load_n(alarm->own, __ATOMIC_ACQUIRE) : 0;
}

static void listen(struct swl_alarm *alarm)
{
    const uint64_t *words = alarm->page.ptr;

    for (uint32_t i = 0; i < alarm->nwords; i++)
        /* pairs with the release of tell_everybody in call.cuh; nothing else is read */
        swl_alarm_hear(alarm, __atomic_load_n(&words[i], __ATOMIC_ACQUIRE));
}

/* Behind the first kernel after ErrorClear the generation of the kernels decides. Before it only what
 * is newer than everything that this rank knew at the clear: peers may be ahead already, and alarms
 * of the old generation may still be on their way. */
bool swl_alarm_rings(struct swl_alarm *alarm, uint64_t clears, uint64_t settled)
{
    listen(alarm);
    if (settled >> 32 == (clears & UINT32_MAX))
        return swl_poison_gen(alarm->heard) >= (settled & UINT32_MAX);
    return swl_poison_gen(alarm->heard) > alarm->floor;
}

void swl_alarm_clear(struct swl_alarm *alarm, uint64_t settled)
{
    const uint64_t gen = settled & UINT32_MAX;

    listen(alarm);
    alarm->floor = swl_poison_gen(alarm->heard);
    if (alarm->floor < gen)
        alarm->floor = gen;
}
