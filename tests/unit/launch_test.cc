// Ranks that a launcher started: its variables.
#include "tests/unit/launch_environment.h"
#include "tools/support/launch.h"

#include <gtest/gtest.h>

namespace
{

swl_launch launched_by(const std::map<std::string, std::string> &given)
{
    swl_launch launch;
    swl_why why = {""};

    environment(given);
    EXPECT_TRUE(swl_launch_read(&launch, &why)) << why.text;
    return launch;
}

void expect_launch(const swl_launch &l, const std::string &by, int rank, int nranks, int local,
                   int nlocal)
{
    EXPECT_EQ(std::string(l.by ? l.by : "nobody"), by);
    EXPECT_EQ(l.rank, rank);
    EXPECT_EQ(l.nranks, nranks);
    EXPECT_EQ(l.local, local);
    EXPECT_EQ(l.nlocal, nlocal);
}

} // namespace

TEST(Launch, ReadsTheVariablesOfEveryLauncher)
{
    expect_launch(launched_by({}), "nobody", 0, 1, -1, 0);
    expect_launch(launched_by({{"OMPI_COMM_WORLD_RANK", "3"},
                               {"OMPI_COMM_WORLD_SIZE", "8"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"PMIX_RANK", "3"}}),
                  "mpirun", 3, 8, 1, 2);
    expect_launch(launched_by({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}}),
                  "mpiexec", 1, 2, 1, 0);
    expect_launch(launched_by({{"SLURM_PROCID", "5"},
                               {"SLURM_NTASKS", "6"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_LOCALID", "2"}}),
                  "srun", 5, 6, 2, 0);
    for (const char *each : {"8(x2)", "8"}) {
        expect_launch(launched_by({{"SLURM_PROCID", "9"},
                                   {"SLURM_STEP_NUM_TASKS", "16"},
                                   {"SLURM_STEP_ID", "3"},
                                   {"SLURM_LOCALID", "1"},
                                   {"SLURM_STEP_TASKS_PER_NODE", each}}),
                      "srun", 9, 16, 1, 8);
    }
    for (const char *each : {"8,4", "8(x2),1", "many"}) {
        expect_launch(launched_by({{"SLURM_PROCID", "1"},
                                   {"SLURM_STEP_NUM_TASKS", "16"},
                                   {"SLURM_STEP_ID", "3"},
                                   {"SLURM_STEP_TASKS_PER_NODE", each}}),
                      "srun", 1, 16, -1, 0);
    }
    expect_launch(launched_by({{"RANK", "1"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"SLURM_PROCID", "0"},
                               {"SLURM_NTASKS", "2"},
                               {"SLURM_STEP_ID", "0"}}),
                  "torchrun", 1, 4, 1, 2);
}

TEST(Launch, IsNotFooledByABatchScriptOrAVariableNamedRank)
{
    expect_launch(launched_by({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "6"}}), "nobody", 0, 1, -1,
                  0);
    expect_launch(launched_by({{"RANK", "captain"}}), "nobody", 0, 1, -1, 0);
}

TEST(Launch, NamesVariablesThatContradictEachOther)
{
    swl_launch launch;
    swl_why why = {""};

    environment({{"OMPI_COMM_WORLD_RANK", "8"}, {"OMPI_COMM_WORLD_SIZE", "8"}});
    EXPECT_FALSE(swl_launch_read(&launch, &why));
    EXPECT_STREQ(why.text,
                 "mpirun says OMPI_COMM_WORLD_RANK is '8' and OMPI_COMM_WORLD_SIZE is '8'");
}
