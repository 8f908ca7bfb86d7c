/* ranks.c: the rank launcher: job arithmetic, threads, processes. Layer: tools/support. */
#include "tools/support/ranks.h"

#include "src/base/clock.h"
#include "tools/support/comm.h"
#include "tools/support/ranks_run.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_NS 600000000000ull

static uint64_t job_deadline(const struct swl_job *job)
{
    return swl_real_ns() + (job->timeout_ns ? job->timeout_ns : DEFAULT_TIMEOUT_NS);
}

int swl_ranks_count(const struct swl_job *job)
{
    int n = 0;

    for (int node = 0; node < job->nnodes; node++)
        n += job->node_ranks[node];
    return n;
}

/* A rank that was given up must not find its job gone: then `all` is never freed. */
static void *thread_main(void *arg)
{
    struct swl_rank_state *state = arg;

    state->result = swl_rank_run(state->all, state->rank);
    __atomic_store_n(&state->ended, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* False: the time is over. */
static bool threads_ended(struct swl_ranks *all, uint64_t deadline)
{
    for (int r = 0; r < all->nranks; r++)
        while (!__atomic_load_n(&all->ranks[r].ended, __ATOMIC_ACQUIRE)) {
            if (swl_real_ns() > deadline) {
                fprintf(stderr, "ranks: rank %d has not ended in time\n", r);
                return false;
            }
            usleep(200);
        }
    return true;
}

static int run_threads(struct swl_ranks *all)
{
    pthread_t *threads = calloc((size_t)all->nranks + 1, sizeof(*threads)); /* never 0 bytes */
    uint64_t deadline = job_deadline(all->job);
    int started = 0;

    if (!threads || ncclGetUniqueId(&all->id) != ncclSuccess) {
        free(threads);
        return -1;
    }
    while (started < all->nranks &&
           pthread_create(&threads[started], NULL, thread_main, &all->ranks[started]) == 0)
        started++;
    /* A job with missing ranks, or one out of time, cannot be unwound: end the process. */
    if (started < all->nranks || !threads_ended(all, deadline)) {
        fprintf(stderr, "ranks: ending the process, %d of %d ranks had started\n", started,
                all->nranks);
        fflush(NULL);
        _exit(1);
    }
    for (int r = 0; r < all->nranks; r++)
        pthread_join(threads[r], NULL);
    free(threads);
    return 0;
}

/* Is this rank in the process whose first rank is `first`? */
static bool in_process(const struct swl_job *job, int first, int rank)
{
    return rank == first || (job->place == SWL_PLACE_NODES && rank > first &&
                             swl_ranks_node_of(job, rank) == swl_ranks_node_of(job, first));
}

static bool is_first(const struct swl_job *job, int rank)
{
    for (int r = 0; r < rank; r++)
        if (in_process(job, r, rank))
            return false;
    return true;
}

/* The ranks of this process, on threads if there are several. */
static void run_own(struct swl_ranks *all, int first, uint64_t deadline)
{
    pthread_t thread;

    for (int r = all->nranks - 1; r > first; r--) {
        if (!in_process(all->job, first, r))
            continue;
        if (pthread_create(&thread, NULL, thread_main, &all->ranks[r]) != 0)
            return; /* the process ends early, as its parent will notice */
        pthread_detach(thread);
    }
    thread_main(&all->ranks[first]);
    for (int r = first + 1; r < all->nranks; r++)
        while (in_process(all->job, first, r) &&
               !__atomic_load_n(&all->ranks[r].ended, __ATOMIC_ACQUIRE) && swl_real_ns() < deadline)
            usleep(200);
}

/* Rank 0 makes the id; its process also serves the others, so it stays until all have ended. */
static int child_main(struct swl_ranks *all, int rank, uint64_t deadline)
{
    int result = 0;

    swl_ranks_host_of(all->job, rank);
    if (rank == 0) {
        int ready = ncclGetUniqueId(&all->id) == ncclSuccess ? 1 : -1;
        __atomic_store_n(&all->id_ready, ready, __ATOMIC_RELEASE);
    }
    while (!__atomic_load_n(&all->id_ready, __ATOMIC_ACQUIRE) && swl_real_ns() < deadline)
        usleep(200);
    if (__atomic_load_n(&all->id_ready, __ATOMIC_ACQUIRE) != 1)
        return -1;
    run_own(all, rank, deadline);
    for (int r = 0; rank == 0 && r < all->nranks; r++)
        while (!__atomic_load_n(&all->ranks[r].ended, __ATOMIC_ACQUIRE) && swl_real_ns() < deadline)
            usleep(200);
    for (int r = rank; r < all->nranks; r++)
        if (in_process(all->job, rank, r) && all->ranks[r].result)
            result = all->ranks[r].result;
    return result;
}

/* Note how the child of a rank has ended. */
static void child_ended(struct swl_ranks *all, int first, bool normally)
{
    for (int r = first; r < all->nranks; r++) {
        if (!in_process(all->job, first, r) ||
            (normally && __atomic_load_n(&all->ranks[r].ended, __ATOMIC_ACQUIRE)))
            continue;
        fprintf(stderr, "ranks: the process of rank %d ended early\n", r);
        all->ranks[r].result = -1;
        __atomic_store_n(&all->ranks[r].ended, 1, __ATOMIC_RELEASE);
    }
}

/* In the order in which they end; those that do not end in time are killed. */
static int collect_children(struct swl_ranks *all, pid_t *pids, int started, uint64_t deadline)
{
    int left = 0, rc = 0, status;

    for (int r = 0; r < started; r++)
        left += pids[r] != 0;

    while (left > 0) {
        bool late = swl_real_ns() > deadline;
        for (int r = 0; r < started; r++) {
            if (pids[r] == 0)
                continue;
            if (late) {
                fprintf(stderr, "ranks: rank %d has not ended in time\n", r);
                kill(pids[r], SIGKILL);
                rc = -1;
            }
            pid_t done = waitpid(pids[r], &status, late ? 0 : WNOHANG);
            if (done == 0)
                continue;
            child_ended(all, r, done == pids[r] && WIFEXITED(status));
            pids[r] = 0;
            left--;
        }
        if (!late)
            usleep(500);
    }
    return rc;
}

/* `all` lies in memory that the children share. */
static int run_processes(struct swl_ranks *all)
{
    uint64_t deadline = job_deadline(all->job);
    pid_t *pids = calloc((size_t)all->nranks + 1, sizeof(*pids)), parent = getpid();
    int started = 0, rc;

    if (!pids)
        return -1;
    fflush(NULL);
    for (; started < all->nranks; started++) {
        if (!is_first(all->job, started))
            continue;
        pids[started] = fork();
        if (pids[started] < 0)
            break;
        if (pids[started] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            int result = getppid() == parent ? child_main(all, started, deadline) : -1;
            fflush(NULL);
            _exit(result == 0 ? 0 : 1);
        }
    }
    if (started < all->nranks) {
        fprintf(stderr, "ranks: cannot start the process of rank %d\n", started);
        deadline = 0;
    }
    rc = collect_children(all, pids, started, deadline);
    free(pids);
    return started < all->nranks ? -1 : rc;
}

static bool job_ok(const struct swl_job *job)
{
    for (int node = 0; node < job->nnodes; node++)
        if (job->node_ranks[node] < 0)
            return false;
    return swl_ranks_count(job) >= 1;
}

static int run_in_place(struct swl_ranks *all)
{
    switch (all->job->place) {
    case SWL_PLACE_FIBERS:
        return swl_ranks_run_fibers(all);
    case SWL_PLACE_THREADS:
        return run_threads(all);
    case SWL_PLACE_PROCESSES:
    case SWL_PLACE_NODES:
        return run_processes(all);
    case SWL_PLACE_LAUNCHED:
        return swl_ranks_run_launched(all);
    }
    return -1;
}

int swl_ranks_run(const struct swl_job *job, int (*rank_main)(struct swl_rank *, void *), void *arg)
{
    struct swl_ranks *all;
    size_t bytes;
    int rc;

    if (!job_ok(job)) {
        fprintf(stderr, "ranks: a job has at least one rank\n");
        return -1;
    }
    if (job->place != SWL_PLACE_FIBERS && job->place != SWL_PLACE_THREADS &&
        !swl_comm_reaches_processes())
        return -1;
    bytes = sizeof(*all) + (size_t)swl_ranks_count(job) * sizeof(struct swl_rank_state);
    all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return -1;
    swl_ranks_environment();
    all->job = job;
    all->rank_main = rank_main;
    all->arg = arg;
    all->nranks = swl_ranks_count(job);
    all->ranks = (struct swl_rank_state *)(all + 1);
    for (int r = 0; r < all->nranks; r++) {
        all->ranks[r].all = all;
        all->ranks[r].rank = r;
    }
    rc = run_in_place(all);
    for (int r = 0; r < all->nranks && rc == 0; r++)
        rc = all->ranks[r].result;
    munmap(all, bytes);
    return rc;
}
