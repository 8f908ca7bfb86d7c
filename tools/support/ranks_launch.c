/* ranks_launch.c: a rank that mpirun, srun or torchrun started. Layer: tools/support. */
#include "tools/support/ranks_run.h"

#include "tools/support/launch.h"
#include "tools/support/meeting.h"

#include <stdio.h>
#include <string.h>

#define MEETING_NS UINT64_C(120000000000)

_Static_assert(sizeof(ncclUniqueId) == SWL_MEETING_ID_BYTES, "an id travels whole");

static bool exchange_id(struct swl_ranks *all, const struct swl_launch *launch,
                        const struct swl_meeting *at, struct swl_why *why)
{
    const uint64_t limit_ns = all->job->timeout_ns ? all->job->timeout_ns : MEETING_NS;

    if (launch->rank == 0 && ncclGetUniqueId(&all->id) != ncclSuccess)
        return swl_why_set(why, "rank 0 cannot make a unique id");
    return swl_meeting_id(at, launch->rank, launch->nranks,
                          limit_ns < MEETING_NS ? limit_ns : MEETING_NS, all->id.internal, why);
}

int swl_ranks_run_launched(struct swl_ranks *all)
{
    struct swl_launch launch;
    struct swl_meeting at;
    struct swl_why why = {""};

    if (!swl_launch_read(&launch, &why) || !swl_meeting_choose(&at, &why)) {
        fprintf(stderr, "ranks: %s\n", why.text);
        return -1;
    }
    if (launch.nranks != all->nranks) {
        fprintf(stderr, "ranks: the job has %d ranks, %s started %d\n", all->nranks,
                launch.by ? launch.by : "nobody", launch.nranks);
        return -1;
    }
    /* Nodes of a job on one machine: NCCL must take them for hosts. */
    if (launch.nlocal == launch.nranks)
        swl_ranks_host_of(all->job, launch.rank);
    if (!exchange_id(all, &launch, &at, &why)) {
        fprintf(stderr, "ranks: %s\n", why.text);
        return -1;
    }
    if (!all->job->device_of_rank) {
        const int ndevices = swl_ranks_devices();

        all->launched_device =
            (launch.local >= 0 ? launch.local : launch.rank) % (ndevices > 0 ? ndevices : 1);
    }
    all->ranks[launch.rank].result = swl_rank_run(all, launch.rank);
    if (launch.rank == 0)
        swl_meeting_end(&at);
    return 0;
}
