// Where ranks of a job meet: the unique id by socket and by file, and who else comes there.
#include "tests/support/attack.h"
#include "tests/unit/launch_environment.h"
#include "tools/support/clock.h"
#include "tools/support/meeting_wire.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <netdb.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

static std::atomic<bool> lookup_may_end{false};

/* Names are resolved as ever, but for two: one takes until its test lets it end, and one is what Debian
 * calls the host itself. */
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

namespace
{

const uint64_t second = 1000000000;

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
    outcome host;
    std::thread rank0([&] { host = meet(at, 0, 3, 4 * second); });

    expect_met({meet(at, 2, 3, 60 * second)});
    expect_word(meet(at, 2, 3, 60 * second), "two processes were started as rank 2");
    expect_word(meet(at, 1, 7, 60 * second),
                "rank 1 was started as one of 7 ranks, rank 0 as one of 3");
    rank0.join();
    expect_word(host, "1 of 3 ranks have not asked for the unique id at port ");
    expect_word(host,
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
    outcome host;

    strcpy(at.job, "job 2");
    strcpy(at.secret, "two");
    old = bare = thief = at;
    strcpy(old.job, "job 1");
    memset(bare.job, 0, sizeof(bare.job));
    memset(thief.secret, 0, sizeof(thief.secret));
    std::thread rank0([&] { host = meet(at, 0, 2, 60 * second); });
    for (const swl_meeting &other : {old, bare, thief})
        for (int nranks : {2, 3, 1 << 30}) {
            outcome refused = meet(other, 1, nranks, 60 * second);

            expect_word(refused, "rank 1: rank 0 of another job is at 127.0.0.1:");
            EXPECT_EQ(refused.id[1], 0);
        }
    expect_word(meet(at, 1, 7, 60 * second), "rank 1 was started as one of 7 ranks");
    outcome one = meet(at, 1, 2, 60 * second);
    rank0.join();
    expect_met({host, one});
}

/* What the versions before this one said, in 16 bytes: of a wrong size, it ended the job. */
TEST(Meeting, D_E2SixteenBytesEndNoJob)
{
    const struct {
        char magic[8];
        int32_t rank, nranks;
    } words[] = {{{'s', 'w', 'l', 'm', 'e', 'e', 't', '1'}, 1, 3},
                 {{'s', 'w', 'l', 'm', 'e', 'e', 't', '2'}, 1, 3}};
    swl_meeting at = socket_meeting();
    outcome host;
    std::thread rank0([&] { host = meet(at, 0, 2, 60 * second); });
    std::vector<int> fds;

    for (const auto &word : words) {
        fds.push_back(connect_here(at.port));
        EXPECT_EQ(send(fds.back(), &word, sizeof(word), MSG_NOSIGNAL),
                  static_cast<ssize_t>(sizeof(word)));
    }
    outcome one = meet(at, 1, 2, 60 * second);
    rank0.join();
    expect_met({host, one});
    for (int fd : fds)
        close(fd);
}

TEST(Meeting, D_E2ListensAtTheNamedAddressOnly)
{
    swl_meeting at = socket_meeting();
    sockaddr_in there = {};
    outcome host;

    there.sin_family = AF_INET;
    there.sin_port = htons(at.port);
    std::thread rank0([&] { host = meet(at, 0, 2, 60 * second); });
    int fd = connect_here(at.port); /* it listens now */
    EXPECT_GE(fd, 0);
    close(fd);
    there.sin_addr.s_addr = htonl(0x7f000002); /* another one of this host */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, (sockaddr *)&there, sizeof(there)), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    close(fd);
    outcome one = meet(at, 1, 2, 60 * second);
    rank0.join();
    expect_met({host, one});
    strcpy(at.host, "192.0.2.1"); /* of no host */
    expect_word(meet(at, 0, 2, second),
                "Cannot assign requested address; SWIMLANE_ROOT must name an address of rank 0's");
}

/* No other host finds rank 0 there, so the name is no address to listen at, unless nobody else is to. */
TEST(Meeting, F93ANameThatMeansLoopbackOnItsHostIsFoundFromOthers)
{
    for (bool one_host : {false, true}) {
        swl_meeting at = socket_meeting(), elsewhere = at;
        outcome host;

        strcpy(at.host, "debian.invalid");
        at.one_host = one_host;
        std::thread rank0([&] { host = meet(at, 0, 3, 60 * second); });
        expect_met({meet(at, 1, 3, 60 * second)});
        outcome two = meet(elsewhere, 2, 3, one_host ? second / 4 : 60 * second);
        EXPECT_EQ(two.ok, !one_host) << two.why.text;
        if (!two.ok)
            expect_met({meet(at, 2, 3, 60 * second)});
        rank0.join();
        expect_met({host});
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
    for (int i = 0; i < 400; i++) {
        int fd = connect_here(at.port);
        ASSERT_GE(fd, 0);
        if (i % 3 == 1) {
            EXPECT_GT(send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 0);
        } else if (i % 3 == 2) {
            EXPECT_GT(send(fd, "swlmee", 6, MSG_NOSIGNAL), 0);
        }
        strangers.push_back(fd);
    }
    meeting_hello hello = {{}, 1, 2, {}, {}}; /* of the rank itself, which has hung up since */
    memcpy(hello.magic, meeting_hello_magic, sizeof(hello.magic));
    EXPECT_GT(send(strangers.back(), &hello, sizeof(hello), MSG_NOSIGNAL | MSG_MORE), 0);
    close(strangers.back());
    strangers.pop_back();
    usleep(200000); /* for rank 0 to hear that first */
    outcome one = meet(at, 1, 2, 20 * second);
    rank0.join();
    expect_met({host, one});
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
    expect_word(meet(at, 0, 2, second), "rank 0 cannot listen at 127.0.0.1:");
    std::thread server([&] {
        int fd = accept(listener, nullptr, nullptr);
        EXPECT_GT(send(fd, "220 mail\r\n", 10, MSG_NOSIGNAL), 0);
        close(fd);
    });
    expect_word(meet(at, 1, 2, 5 * second), "is not rank 0 of this job");
    server.join();
    close(listener);
}

/* Servers that are no rank 0: each rank is told early, and what it met. */
TEST(Meeting, F109WhoeverElseListensIsCalledWhatItIs)
{
    swl_meeting at = socket_meeting();
    sockaddr_in here = {};
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    here.sin_family = AF_INET;
    here.sin_port = htons(at.port);
    ASSERT_EQ(bind(listener, (sockaddr *)&here, sizeof(here)), 0);
    ASSERT_EQ(listen(listener, 16), 0);
    expect_word(meet(at, 1, 2, second), "says nothing");
    for (int i = 0; i < 3; i++)
        close(accept(listener, nullptr, nullptr));
    std::thread echo([&] {
        int fd = accept(listener, nullptr, nullptr);
        char byte;

        while (recv(fd, &byte, 1, 0) == 1)
            if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
                break;
        close(fd);
    });
    expect_word(meet(at, 1, 2, 60 * second), "is not rank 0 of this job");
    echo.join();
    std::thread web([&] {
        int fd = accept(listener, nullptr, nullptr);

        EXPECT_GT(send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL), 0);
        close(fd);
    });
    expect_word(meet(at, 1, 2, 60 * second), "is not rank 0 of this job");
    web.join();
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
    EXPECT_LT(o.seconds, 60);
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

/* The name can be guessed, and TMPDIR is everybody's. */
TEST_F(FileMeeting, D_E3WhatOthersPutUnderTheNameIsNotReadAndHangsNobody)
{
    const struct {
        const char *what;
        std::function<void(const char *)> make;
    } cases[] = {
        {"it is no regular file", [](const char *f) { EXPECT_EQ(mkfifo(f, 0666), 0); }},
        {"it is no regular file", [](const char *f) { EXPECT_EQ(mkdir(f, 0777), 0); }},
        {"it is a link", [](const char *f) { EXPECT_EQ(symlink("/dev/zero", f), 0); }},
        {"others may write it",
         [](const char *f) {
             close(open(f, O_CREAT | O_WRONLY, 0600));
             EXPECT_EQ(chmod(f, 0620), 0);
         }},
    };

    for (const auto &one : cases) {
        one.make(at.file);
        outcome o = meet(at, 1, 2, second / 10);
        expect_word(o, std::string("what is there is not read as ") + one.what);
        EXPECT_EQ(remove(at.file), 0);
    }
    EXPECT_EQ(mkfifo(at.file, 0666), 0); /* in our own folder rank 0 takes its place */
    expect_met(meet_all(at, {0, 1}, {2, 2}, 60 * second));
}

TEST_F(FileMeeting, D_E3AFileOfAnotherUserIsNotRead)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "needs root";
    ASSERT_EQ(chmod(path.c_str(), 01777), 0);
    pid_t child = fork();
    int status = -1;

    if (child == 0)
        _exit(!attack::become_nobody() || close(open(at.file, O_CREAT | O_WRONLY, 0644)));
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    expect_word(meet(at, 1, 2, second / 10), "what is there is not read as it is another user's");
}
