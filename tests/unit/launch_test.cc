// Ranks that a launcher started: its variables, where they meet, the unique id by socket and by file.
#include "tools/support/clock.h"
#include "tools/support/launch.h"
#include "tools/support/meeting.h"

#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

const uint64_t second = 1000000000;

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
                             "TORCHELASTIC_USE_AGENT_STORE"};

/* Only these variables, of all that launchers set. */
void environment(const std::map<std::string, std::string> &given)
{
    for (const char *name : names)
        unsetenv(name);
    for (const auto &one : given)
        setenv(one.first.c_str(), one.second.c_str(), 1);
}

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

/* A port nobody has now. */
uint16_t free_port()
{
    sockaddr_in at = {};
    socklen_t n = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_family = AF_INET;
    EXPECT_EQ(bind(fd, (sockaddr *)&at, n), 0);
    EXPECT_EQ(getsockname(fd, (sockaddr *)&at, &n), 0);
    close(fd);
    return ntohs(at.sin_port);
}

int connect_here(uint16_t port)
{
    sockaddr_in at = {};

    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    for (int i = 0; i < 500; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (sockaddr *)&at, sizeof(at)) == 0)
            return fd;
        close(fd);
        usleep(10000);
    }
    return -1;
}

swl_meeting socket_meeting()
{
    swl_meeting at = {};

    strcpy(at.host, "127.0.0.1");
    at.port = free_port();
    return at;
}

struct outcome {
    bool ok = false;
    char id[SWL_MEETING_ID_BYTES] = {};
    swl_why why = {""};
    double seconds = 0;
};

outcome meet(const swl_meeting &at, int rank, int nranks, uint64_t limit_ns)
{
    outcome o;
    uint64_t start = swl_real_ns();

    if (rank == 0)
        for (int i = 0; i < SWL_MEETING_ID_BYTES; i++)
            o.id[i] = (char)(i * 7 + 1);
    o.ok = swl_meeting_id(&at, rank, nranks, limit_ns, o.id, &o.why);
    o.seconds = (double)(swl_real_ns() - start) / 1e9;
    return o;
}

/* Ranks as threads; sizes[i]: what the i-th believes the job to be. */
std::vector<outcome> meet_all(const swl_meeting &at, const std::vector<int> &ranks,
                              const std::vector<int> &sizes, uint64_t limit_ns)
{
    std::vector<outcome> outcomes(ranks.size());
    std::vector<std::thread> threads;

    for (size_t i = 0; i < ranks.size(); i++)
        threads.emplace_back([&, i] {
            usleep(ranks[i] == 0 ? 60000 : 0); /* the others are there first */
            outcomes[i] = meet(at, ranks[i], sizes[i], limit_ns);
        });
    for (std::thread &t : threads)
        t.join();
    return outcomes;
}

void expect_met(const std::vector<outcome> &outcomes)
{
    for (const outcome &o : outcomes) {
        EXPECT_TRUE(o.ok) << o.why.text;
        for (int i = 0; i < SWL_MEETING_ID_BYTES; i++)
            ASSERT_EQ(o.id[i], (char)(i * 7 + 1));
    }
}

void expect_word(const outcome &o, const std::string &word)
{
    EXPECT_FALSE(o.ok);
    EXPECT_NE(std::string(o.why.text).find(word), std::string::npos) << o.why.text;
}

class FileMeeting : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        char folder[] = "/tmp/swl-launch-XXXXXX";

        ASSERT_NE(mkdtemp(folder), nullptr);
        path = folder;
        environment({{"TMPDIR", path}});
        swl_why why;
        ASSERT_TRUE(swl_meeting_choose(&at, &why));
        EXPECT_EQ(at.port, 0);
        EXPECT_EQ(std::string(at.file).rfind(path + "/swimlane-id-", 0), 0u) << at.file;
    }
    void TearDown() override
    {
        swl_meeting_end(&at);
        EXPECT_EQ(rmdir(path.c_str()), 0) << "files were left in " << path;
    }
    std::string path;
    swl_meeting at = {};
};

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

TEST(Meeting, IsAtTheRootThenAtTheMasterThenInAFile)
{
    swl_meeting at;
    swl_why why = {""};

    environment({{"SWIMLANE_ROOT", "node7:4000"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "29500"}});
    ASSERT_TRUE(swl_meeting_choose(&at, &why));
    EXPECT_STREQ(at.host, "node7");
    EXPECT_EQ(at.port, 4000);
    environment({{"MASTER_ADDR", "m"}, {"MASTER_PORT", "29500"}});
    ASSERT_TRUE(swl_meeting_choose(&at, &why));
    EXPECT_STREQ(at.host, "m");
    EXPECT_EQ(at.port, 29500);
    for (const char *variable : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"}) {
        environment({{"MASTER_ADDR", "m"}, {"MASTER_PORT", "29500"}, {variable, "True"}});
        ASSERT_TRUE(swl_meeting_choose(&at, &why));
        EXPECT_EQ(at.port, 29501);
    }
    environment({{"PMIX_NAMESPACE", "prterun-host-1@1"}, {"TMPDIR", "/somewhere"}});
    ASSERT_TRUE(swl_meeting_choose(&at, &why));
    EXPECT_EQ(std::string(at.file),
              "/somewhere/swimlane-id-" + std::to_string(geteuid()) + "-prterun_host_1_1");
    for (const char *root : {"node7", ":1", "node7:", "node7:0", "node7:65536", "node7:1x"}) {
        environment({{"SWIMLANE_ROOT", root}});
        EXPECT_FALSE(swl_meeting_choose(&at, &why)) << root;
        EXPECT_NE(std::string(why.text).find(root), std::string::npos) << why.text;
    }
    environment({{"MASTER_ADDR", "m"}, {"MASTER_PORT", "none"}});
    EXPECT_FALSE(swl_meeting_choose(&at, &why));
}

TEST(Meeting, OneRankMeetsNobody)
{
    expect_met({meet(socket_meeting(), 0, 1, second)});
}

TEST(Meeting, HandsTheIdToEveryRank)
{
    std::vector<int> ranks;

    for (int r = 0; r < 90; r++) /* more than are heard at once */
        ranks.push_back(r);
    expect_met(meet_all(socket_meeting(), ranks, std::vector<int>(90, 90), 20 * second));
}

TEST(Meeting, AMissingRankEndsAllInTime)
{
    std::vector<outcome> all = meet_all(socket_meeting(), {0, 1, 3}, {5, 5, 5}, second);

    expect_word(all[0], "2 of 5 ranks have not asked for the unique id at port ");
    expect_word(all[0], "within 1000 ms: rank 2, 4");
    EXPECT_LT(all[0].seconds, 4);
    EXPECT_TRUE(all[1].ok && all[2].ok);
    swl_meeting at = socket_meeting();
    outcome alone = meet(at, 1, 2, second);
    expect_word(alone, "rank 1: no rank 0 at 127.0.0.1:" + std::to_string(at.port) +
                           " within 1000 ms: Connection refused");
    EXPECT_LT(alone.seconds, 4);
    strcpy(at.host, "no-such-host.invalid");
    expect_word(meet(at, 1, 2, second / 2), "no rank 0 at no-such-host.invalid");
}

TEST(Meeting, SizesAndRanksMustFit)
{
    std::vector<outcome> all = meet_all(socket_meeting(), {0, 1}, {2, 3}, 5 * second);
    for (const outcome &o : all)
        expect_word(o, "rank 1 was started as one of 3 ranks, rank 0 as one of 2");
    all = meet_all(socket_meeting(), {0, 2, 2}, {3, 3, 3}, 5 * second);
    expect_word(all[0], "two processes were started as rank 2");
}

TEST(Meeting, StrangersAtThePortDoNoHarm)
{
    swl_meeting at = socket_meeting();
    std::vector<outcome> all;
    std::thread ranks([&] { all = meet_all(at, {0, 1}, {2, 2}, 20 * second); });
    std::vector<int> strangers;

    ranks.join(); /* first without, so that the port is known to work */
    expect_met(all);
    at = socket_meeting();
    outcome host;
    std::thread rank0([&] { host = meet(at, 0, 2, 20 * second); });
    for (int i = 0; i < 80; i++) {
        int fd = connect_here(at.port);
        ASSERT_GE(fd, 0);
        if (i % 3 == 1) {
            EXPECT_GT(send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 0);
        } else if (i % 3 == 2) {
            EXPECT_GT(send(fd, "swlmee", 6, MSG_NOSIGNAL), 0);
        }
        strangers.push_back(fd);
    }
    outcome one = meet(at, 1, 2, 20 * second);
    rank0.join();
    expect_met({host, one});
    EXPECT_LT(one.seconds, 3);
    for (int fd : strangers)
        close(fd);
}

TEST(Meeting, AStrangerInPlaceOfRankZeroIsNamed)
{
    swl_meeting at = socket_meeting();
    sockaddr_in here = {};
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    here.sin_family = AF_INET;
    here.sin_port = htons(at.port);
    ASSERT_EQ(bind(listener, (sockaddr *)&here, sizeof(here)), 0);
    ASSERT_EQ(listen(listener, 4), 0);
    expect_word(meet(at, 0, 2, second), "rank 0 cannot listen at port ");
    std::thread server([&] {
        int fd = accept(listener, nullptr, nullptr);
        EXPECT_GT(send(fd, "220 mail\r\n", 10, MSG_NOSIGNAL), 0);
        close(fd);
    });
    expect_word(meet(at, 1, 2, 5 * second), "is not rank 0 of this job");
    server.join();
    /* one that says nothing */
    outcome silent = meet(at, 1, 2, second / 2);
    expect_word(silent, "rank 1: no rank 0 at");
    EXPECT_LT(silent.seconds, 4);
    close(listener);
}

TEST_F(FileMeeting, HandsTheIdToEveryRank)
{
    expect_met(meet_all(at, {0, 1, 2}, {3, 3, 3}, 5 * second));
}

TEST_F(FileMeeting, AMissingRankZeroEndsTheOthersInTime)
{
    outcome o = meet(at, 1, 2, second / 2);

    expect_word(o, "rank 1: rank 0 has not written " + std::string(at.file) + " within 500 ms");
    EXPECT_LT(o.seconds, 3);
}

TEST_F(FileMeeting, ForgetsWhatADeadJobLeft)
{
    pid_t child = fork();

    if (child == 0)
        _exit(meet(at, 0, 2, second).ok ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    EXPECT_EQ(access(at.file, R_OK), 0);
    expect_word(meet(at, 1, 2, second / 2), "has not written");
    FILE *file = fopen(at.file, "w"); /* and what is no id at all */
    ASSERT_NE(file, nullptr);
    fputs("garbage", file);
    fclose(file);
    expect_word(meet(at, 1, 2, second / 2), "has not written");
    expect_met(meet_all(at, {0, 1}, {2, 2}, 5 * second));
}

TEST_F(FileMeeting, SizesMustFit)
{
    std::vector<outcome> all = meet_all(at, {0, 1}, {2, 3}, 5 * second);

    EXPECT_TRUE(all[0].ok);
    expect_word(all[1], "rank 1 was started as one of 3 ranks, rank 0 as one of 2");
}

TEST_F(FileMeeting, SaysWhenItCannotWrite)
{
    swl_meeting nowhere = at;

    strcpy(nowhere.file, "/no-such-folder/id");
    expect_word(meet(nowhere, 0, 2, second), "rank 0 cannot write /no-such-folder/id");
}
