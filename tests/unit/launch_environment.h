/* launch_environment.h: what launchers set, for tests of the launcher and of the meeting. Layer:
 * tests. */
#pragma once

#include <cstdlib>
#include <map>
#include <string>

namespace
{

const char *const names[] = {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "OMPI_COMM_WORLD_RANK",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "SWIMLANE_ROOT",
                             "OMPI_COMM_WORLD_SIZE",
                             "TMPDIR",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_STEP_ID",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "SLURM_LOCALID",
                             "SLURM_JOB_ID",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMIX_RANK",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS",
                             "PMIX_NAMESPACE",
                             "PMIX_SIZE",
                             "PMIX_LOCAL_RANK",
                             "PMIX_LOCAL_SIZE",
                             "SLURM_STEP_NUM_TASKS",
                             "SLURM_STEP_TASKS_PER_NODE",
                             "SLURM_TASKS_PER_NODE",
                             "OMPI_MCA_ess_base_jobid",
                             "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_RESTART_COUNT",
                             "SLURM_RESTART_COUNT",
                             "SWIMLANE_JOB",
                             "SWIMLANE_JOB_SECRET",
                             "TORCHELASTIC_USE_AGENT_STORE"};

/* Only these variables, of all that launchers set. */
void environment(const std::map<std::string, std::string> &given)
{
    for (const char *name : names)
        unsetenv(name);
    for (const auto &one : given)
        setenv(one.first.c_str(), one.second.c_str(), 1);
}

} // namespace
