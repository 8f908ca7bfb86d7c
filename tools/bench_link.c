/* bench_link.c: what the link inside a node carries, measured before the ranks start.
 *
 * In a child process: the GPUs are free of it when it has ended, and this process has not used
 * them, so that it can still start processes for its ranks. */
#include "tools/bench.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUILTIN_SMS = 16, LIMIT_MS = 20000 };

/* Another GPU in the node of rank 0; -1: there is none. */
static int second_device(const struct bench_options *o)
{
    for (int r = 0; r < o->size.nranks; r++)
        if (o->node_of[r] == o->node_of[0] && o->device_of[r] != o->device_of[0])
            return o->device_of[r];
    return -1;
}

/* True: it ended by itself, with 0. */
static bool child_ended(pid_t child)
{
    int status = 0;

    for (int waited_ms = 0; waited_ms < LIMIT_MS; waited_ms++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        usleep(1000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return false;
}

void bench_link_measure(struct bench_options *o)
{
    const int second = second_device(o), sms = o->nsms ? o->nsms : BUILTIN_SMS;
    struct swl_link_figures *shared;
    pid_t child;

    if (o->quiet || second < 0 || o->launched_rank > 0)
        return;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return;
    fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(swl_link_probe(o->device_of[0], second, sms, shared) ? 0 : 1);
    if (child > 0 && child_ended(child))
        o->node_link = *shared;
    else
        fprintf(stderr, "swimlane-bench: the link between GPU %d and %d cannot be measured\n",
                o->device_of[0], second);
    munmap(shared, sizeof *shared);
}
