/* launch.c: variables of launchers. See launch.h. Layer: tools/support. */
#include "tools/support/launch.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* The innermost first: torchrun may run under srun, mpirun inside an allocation of Slurm. */
static const struct launcher {
    const char *by;
    const char
        *mark; /* must be set as well: RANK may be anybody's, batch scripts have SLURM_PROCID */
    const char *rank, *nranks, *local, *nlocal;
    const char *job[3]; /* which together no other job has, nor an earlier start of this one */
} launchers[] = {
    {"torchrun",
     "LOCAL_RANK",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {"mpirun",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {NULL}},
    {"a PMIx launcher",
     "PMIX_RANK",
     "PMIX_RANK",
     "PMIX_SIZE",
     "PMIX_LOCAL_RANK",
     "PMIX_LOCAL_SIZE",
     {"PMIX_NAMESPACE"}},
    {"srun",
     "SLURM_STEP_ID",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     "SLURM_STEP_TASKS_PER_NODE",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
    {"srun",
     "SLURM_STEP_ID",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     "SLURM_TASKS_PER_NODE",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
};

bool swl_why_set(struct swl_why *why, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);
    return false;
}

/* A whole number of a variable; -1: unset or something else. */
static int number_of(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    char *end;

    if (!text || !*text)
        return -1;
    const long value = strtol(text, &end, 10);

    return *end || value < 0 || value > 1 << 20 ? -1 : (int)value;
}

/* Ranks of each machine: a number, with Slurm also "8(x2)"; 0: not said, or not the same on all. */
static int nlocal_of(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    int value = 0, times = 0, end = 0;

    if (number_of(name) > 0)
        return number_of(name);
    return text && sscanf(text, "%7d(x%7d)%n", &value, &times, &end) == 2 && end > 0 &&
                   text[end] == '\0' && value > 0
               ? value
               : 0;
}

/* "4711-0" */
static void name_job(const struct launcher *l, char *job, size_t bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < sizeof l->job / sizeof *l->job && l->job[i]; i++) {
        const char *text = getenv(l->job[i]);
        const int added =
            text && *text ? snprintf(job + n, bytes - n, "%s%s", n ? "-" : "", text) : 0;

        n += added < 0 ? 0 : (size_t)added;
        if (n >= bytes)
            n = bytes - 1;
    }
}

bool swl_launch_read(struct swl_launch *launch, struct swl_why *why)
{
    *launch = (struct swl_launch){.nranks = 1, .local = -1};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *l = &launchers[i];
        const int rank = number_of(l->rank), nranks = number_of(l->nranks);
        const int local = number_of(l->local);
        const char *rank_text = getenv(l->rank), *nranks_text = getenv(l->nranks);

        if (!getenv(l->mark) || !rank_text || !nranks_text)
            continue;
        if (rank < 0 || nranks < 1 || rank >= nranks)
            return swl_why_set(why, "%s says %s is '%s' and %s is '%s'", l->by, l->rank, rank_text,
                               l->nranks, nranks_text);
        *launch = (struct swl_launch){.by = l->by,
                                      .rank = rank,
                                      .nranks = nranks,
                                      .local = local,
                                      .nlocal = nlocal_of(l->nlocal)};
        name_job(l, launch->job, sizeof launch->job);
        return true;
    }
    return true;
}
