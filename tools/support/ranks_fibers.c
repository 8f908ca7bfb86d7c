/* ranks_fibers.c: ranks on fibers of the emulator, one deterministic schedule. Layer:
 * tools/support. */
#include "tools/support/ranks_run.h"

#include "sim/simt.h"

#include <stdio.h>

static bool id_ready(void *arg)
{
    const struct swl_ranks *all = arg;

    return __atomic_load_n(&all->id_ready, __ATOMIC_ACQUIRE) != 0;
}

static void fiber_main(void *arg)
{
    struct swl_rank_state *state = arg;
    struct swl_ranks *all = state->all;

    if (state->rank == 0) {
        int ready = ncclGetUniqueId(&all->id) == ncclSuccess ? 1 : -1;
        __atomic_store_n(&all->id_ready, ready, __ATOMIC_RELEASE);
    } else {
        simt_park(SIMT_WHY("rank waits for the unique id", state->rank, 0), id_ready, all,
                  UINT64_MAX);
    }
    state->result = all->id_ready == 1 ? swl_rank_run(all, state->rank) : -1;
    state->ended = 1;
}

int swl_ranks_run_fibers(struct swl_ranks *all)
{
    struct simt_config before = simt_config_get(), config = before;
    int rc;

    if (all->job->seed)
        config.seed = all->job->seed;
    config.timed = all->job->timed && config.seed == 0; /* a seed is for schedules, not for times */
    simt_config_set(&config);
    for (int r = 0; r < all->nranks; r++) {
        int device = all->job->device_of_rank ? all->job->device_of_rank[r] : r;
        all->ranks[r].result = -1; /* until the rank has ended */
        simt_fiber("rank", device, -1, fiber_main, &all->ranks[r]);
    }
    rc = simt_run();
    if (rc != 0)
        fprintf(stderr, "ranks: the emulator found a fault (SIMT_SEED=%llu, schedule %016llx)\n",
                (unsigned long long)config.seed, (unsigned long long)simt_stats().schedule_hash);
    simt_config_set(&before);
    return rc == 0 ? 0 : -1;
}
