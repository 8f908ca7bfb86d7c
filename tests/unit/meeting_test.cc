// Where ranks of a job meet: the unique id by socket.
#include "tests/support/meeting_fixture.h"
#include "tests/unit/launch_environment.h"

#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <map>
#include <netdb.h>

static std::atomic<bool> lookup_may_end{false};

/* Names are resolved as ever, but for two: one takes until its test lets it end, and one is what
 * Debian calls the host itself. */
extern "C" int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                           struct addrinfo **list_p)
{
    using function = int (*)(const char *, const char *, const addrinfo *, addrinfo **);
    static const function real = reinterpret_cast<function>(dlsym(RTLD_NEXT, "getaddrinfo"));

    if (strcmp(host, "debian.invalid") == 0 && !(hints->ai_flags & AI_NUMERICHOST))
        return real("127.0.1.1", port, hints, list_p);
    if (strcmp(host, "slow.invalid") != 0 || (hints->ai_flags & AI_NUMERICHOST))
        return real(host, port, hints, list_p);
    while (!lookup_may_end.load())
        usleep(1000);
    return EAI_NONAME;
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
    environment({{"PMIX_NAMESPACE", "prterun-host-1@1"},
                 {"PMIX_RANK", "0"},
                 {"PMIX_SIZE", "2"},
                 {"TMPDIR", "/somewhere"}});
    ASSERT_TRUE(swl_meeting_choose(&at, &why));
    EXPECT_EQ(std::string(at.file),
              "/somewhere/swimlane-id-" + std::to_string(geteuid()) + "-prterun_host_1_1");
    environment({{"SWIMLANE_ROOT", "[::1]:4000"}});
    ASSERT_TRUE(swl_meeting_choose(&at, &why));
    EXPECT_STREQ(at.host, "::1");
    EXPECT_EQ(at.port, 4000);
    for (const char *root : {"node7", ":1", "node7:", "node7:0", "node7:65536", "node7:1x", "[::1]",
                             "[]:1", "[::1:1", "::1:1"}) {
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
    EXPECT_LT(all[0].seconds, 60);
    EXPECT_TRUE(all[1].ok && all[2].ok);
    swl_meeting at = socket_meeting();
    outcome alone = meet(at, 1, 2, second);
    expect_word(alone, "rank 1: no rank 0 at 127.0.0.1:" + std::to_string(at.port) +
                           " within 1000 ms: Connection refused");
    EXPECT_LT(alone.seconds, 60);
    strcpy(at.host, "no-such-host.invalid");
    expect_word(meet(at, 1, 2, second / 2), "no rank 0 at no-such-host.invalid");
}

TEST(Meeting, D_C4SizesAndRanksThatDoNotFitAreRefusedAndEndNobody)
{
    swl_meeting at = socket_meeting();
    RankZero rank0(at, 3, 4 * second);

    expect_met({meet(at, 2, 3, 60 * second)});
    expect_word(meet(at, 2, 3, 60 * second), "two processes were started as rank 2");
    expect_word(meet(at, 1, 7, 60 * second),
                "rank 1 was started as one of 7 ranks, rank 0 as one of 3");
    expect_word(rank0.ended(), "1 of 3 ranks have not asked for the unique id at port ");
    expect_word(rank0.ended(),
                "rank 1; 2 callers were refused, the last of which was started as rank 1 of 7");
}

TEST(Meeting, D_C4TheJobHasTheNameOfTheVariableOrOfTheLauncher)
{
    const std::map<std::string, std::string> torchrun = {{"RANK", "1"},
                                                         {"WORLD_SIZE", "2"},
                                                         {"LOCAL_RANK", "1"},
                                                         {"LOCAL_WORLD_SIZE", "2"},
                                                         {"SLURM_JOB_ID", "77"},
                                                         {"TORCHELASTIC_RUN_ID", "r7"},
                                                         {"TORCHELASTIC_RESTART_COUNT", "3"}};
    std::map<std::string, std::string> given = torchrun;
    swl_meeting at;
    swl_why why = {""};

    environment(given);
    ASSERT_TRUE(swl_meeting_choose(&at, &why));
    EXPECT_STREQ(at.job, "r7-3") << "a restart is another job";
    EXPECT_TRUE(at.one_host);
    given["SWIMLANE_JOB"] = "mine";
    given["SWIMLANE_JOB_SECRET"] = "open sesame";
    environment(given);
    ASSERT_TRUE(swl_meeting_choose(&at, &why));
    EXPECT_STREQ(at.job, "mine");
    EXPECT_STREQ(at.secret, "open sesame");
    environment({{"SLURM_PROCID", "1"},
                 {"SLURM_STEP_NUM_TASKS", "4"},
                 {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                 {"SLURM_JOB_ID", "77"},
                 {"SLURM_STEP_ID", "0"}});
    ASSERT_TRUE(swl_meeting_choose(&at, &why));
    EXPECT_STREQ(at.job, "77-0");
    EXPECT_FALSE(at.one_host);
    environment({{"SWIMLANE_JOB", std::string(256, 'x')}});
    EXPECT_FALSE(swl_meeting_choose(&at, &why));
    EXPECT_STREQ(why.text, "SWIMLANE_JOB has 256 letters, 255 are possible");
}

TEST(Meeting, F109AForeignJobIsNeverJoinedAndCannotEndThisOne)
{
    swl_meeting at = socket_meeting(), old, bare, thief;

    strcpy(at.job, "job 2");
    strcpy(at.secret, "two");
    old = bare = thief = at;
    strcpy(old.job, "job 1");
    memset(bare.job, 0, sizeof(bare.job));
    memset(thief.secret, 0, sizeof(thief.secret));
    RankZero rank0(at, 2, 60 * second);
    for (const swl_meeting &other : {old, bare, thief})
        for (int nranks : {2, 3, 1 << 30}) {
            outcome refused = meet(other, 1, nranks, 60 * second);

            expect_word(refused, "rank 1: rank 0 of another job is at 127.0.0.1:");
            EXPECT_EQ(refused.id[1], 0);
        }
    expect_word(meet(at, 1, 7, 60 * second), "rank 1 was started as one of 7 ranks");
    outcome one = meet(at, 1, 2, 60 * second);
    expect_met({rank0.ended(), one});
}

TEST(Meeting, D_E2ListensAtTheNamedAddressOnly)
{
    swl_meeting at = socket_meeting();
    sockaddr_in there = {};

    there.sin_family = AF_INET;
    there.sin_port = htons(at.port);
    RankZero rank0(at, 2, 60 * second);
    int fd = connect_here(at.port); /* it listens now */
    EXPECT_GE(fd, 0);
    close(fd);
    there.sin_addr.s_addr = htonl(0x7f000002); /* another one of this host */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, (sockaddr *)&there, sizeof(there)), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    close(fd);
    outcome one = meet(at, 1, 2, 60 * second);
    expect_met({rank0.ended(), one});
    strcpy(at.host, "192.0.2.1"); /* of no host */
    expect_word(meet(at, 0, 2, second),
                "Cannot assign requested address; SWIMLANE_ROOT must name an address of rank 0's");
}

/* No other host finds rank 0 there, so the name is no address to listen at, unless nobody else is
 * to. */
TEST(Meeting, F93ANameThatMeansLoopbackOnItsHostIsFoundFromOthers)
{
    for (bool one_host : {false, true}) {
        swl_meeting at = socket_meeting(), elsewhere = at;

        strcpy(at.host, "debian.invalid");
        at.one_host = one_host;
        RankZero rank0(at, 3, 60 * second);
        expect_met({meet(at, 1, 3, 60 * second)});
        outcome two = meet(elsewhere, 2, 3, one_host ? second / 4 : 60 * second);
        EXPECT_EQ(two.ok, !one_host) << two.why.text;
        if (!two.ok)
            expect_met({meet(at, 2, 3, 60 * second)});
        expect_met({rank0.ended()});
    }
}

TEST(Meeting, F109WorksAtAnAddressOfIpv6)
{
    swl_meeting at = socket_meeting();
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    sockaddr_in6 six = {};

    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    const bool here = fd >= 0 && bind(fd, (sockaddr *)&six, sizeof(six)) == 0;
    close(fd);
    if (!here)
        GTEST_SKIP() << "this host has no ::1";
    environment({{"SWIMLANE_ROOT", "[::1]:" + std::to_string(at.port)}});
    swl_why why = {""};
    ASSERT_TRUE(swl_meeting_choose(&at, &why)) << why.text;
    expect_met(meet_all(at, {0, 1, 2}, {3, 3, 3}, 60 * second));
    expect_word(meet(at, 1, 2, second / 4), "no rank 0 at [::1]:");
}

/* The resolver takes as long as it likes; see getaddrinfo below. */
TEST(Meeting, F109ASlowNameCountsAgainstTheLimit)
{
    swl_meeting at = socket_meeting();

    strcpy(at.host, "slow.invalid");
    for (int rank : {0, 1}) {
        outcome o = meet(at, rank, 2, second / 4);
        expect_word(o, "the name 'slow.invalid' has not been resolved in that time");
    }
    lookup_may_end.store(true);
}
