/* ranks_launch.c: a rank that mpirun, srun or torchrun started. Layer: tools/support. */
#include "tools/support/ranks_run.h"

#include "src/base/clock.h"
#include "tools/support/launch.h"
#include "tools/support/meeting.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define MEETING_NS UINT64_C(120000000000)
#define JOB_NS     UINT64_C(600000000000)
#define WATCH_NS   UINT64_C(20000000)

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

/* Ends the process at the deadline; a launcher then ends the others. */
static void *end_at_deadline(void *arg)
{
    const struct swl_ranks *all = arg;
    const uint64_t limit_ns = all->job->timeout_ns ? all->job->timeout_ns : JOB_NS;
    const uint64_t end = swl_real_ns() + limit_ns;

    while (!__atomic_load_n(&all->launched_ended, __ATOMIC_ACQUIRE)) {
        if (swl_real_ns() > end) {
            fprintf(stderr, "ranks: this rank has not ended in time\n");
            fflush(NULL);
            _exit(1);
        }
        swl_real_sleep_ns(WATCH_NS);
    }
    return NULL;
}

int swl_ranks_run_launched(struct swl_ranks *all)
{
    struct swl_launch launch;
    struct swl_meeting at;
    struct swl_why why = {""};
    pthread_t watcher;

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
    if (pthread_create(&watcher, NULL, end_at_deadline, all) != 0)
        return -1;
    all->ranks[launch.rank].result = swl_rank_run(all, launch.rank);
    __atomic_store_n(&all->launched_ended, 1, __ATOMIC_RELEASE);
    pthread_join(watcher, NULL);
    if (launch.rank == 0)
        swl_meeting_end(&at);
    return 0;
}
