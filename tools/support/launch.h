/* launch.h: what mpirun, srun or torchrun tells a process about its job.
 *
 * Layer: tools/support. Environment variables only: no MPI, no PMI library. */
#ifndef SWL_LAUNCH_H
#define SWL_LAUNCH_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why something failed: one sentence. */
struct swl_why {
    char text[512];
};
/* Returns false. */
bool swl_why_set(struct swl_why *why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct swl_launch {
    const char *by; /* "mpirun", ..; NULL: no launcher started this process */
    int rank, nranks;
    char
        job[256]; /* what the launcher calls it, the same on all ranks, zeros behind; "": nothing */
    int local, nlocal; /* among the ranks of this machine; -1 and 0: the launcher does not say */
};

/* False: the launcher's variables contradict each other. */
bool swl_launch_read(struct swl_launch *launch, struct swl_why *why);

#ifdef __cplusplus
}
#endif
#endif
