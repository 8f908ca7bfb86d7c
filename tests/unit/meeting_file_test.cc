// Ranks of one machine meet in a file: who may have put it there, and what it is worth.
#include "tests/support/attack.h"
#include "tests/support/meeting_fixture.h"
#include "tests/unit/launch_environment.h"

#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

namespace
{

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
