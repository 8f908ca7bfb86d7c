// door_test.cc: who may wait at a door (src/base/door.c), and who has to go.
#include "src/base/door.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace
{

const uint64_t ms = 1000000;
const char word[] = "hello, I am";
uint64_t now_ns = 5;
std::vector<uint64_t> told; // how many strangers, each time

bool like(const uint8_t *in, size_t bytes)
{
    return memcmp(in, word, bytes) == 0;
}

// The clock is the test's.
uint64_t now()
{
    return now_ns;
}

void tell(void *owner, uint64_t n)
{
    EXPECT_EQ(owner, &told);
    told.push_back(n);
}

class Door : public testing::Test
{
  protected:
    swl_door door;
    std::vector<int> outside;

    void SetUp() override
    {
        const struct swl_door_rules rules = {sizeof(word), like, now, tell, &told};

        told.clear();
        swl_door_open(&door, &rules);
    }
    void TearDown() override
    {
        swl_door_close(&door);
        for (int fd : outside)
            close(fd);
    }
    int knock()
    {
        int fds[2];

        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        swl_door_enter(&door, fds[0]);
        outside.push_back(fds[1]);
        return fds[1];
    }
    static bool sent_away(int fd)
    {
        char byte;

        return recv(fd, &byte, 1, 0) == 0;
    }
    static void say(int fd, const void *bytes, size_t n)
    {
        EXPECT_EQ(send(fd, bytes, n, MSG_NOSIGNAL), static_cast<ssize_t>(n));
    }
};

TEST_F(Door, OpensForAWholeHelloOnly)
{
    const int fd = knock(), other = knock();

    EXPECT_EQ(swl_door_next(&door), nullptr);
    say(fd, word, 5);
    say(other, "hullo", 5);
    EXPECT_EQ(swl_door_next(&door), nullptr);
    EXPECT_FALSE(sent_away(fd));
    EXPECT_TRUE(sent_away(other));
    say(fd, word + 5, sizeof(word) - 5);
    say(fd, "more", 4); // is the owner's
    swl_door_guest *g = swl_door_next(&door);
    ASSERT_NE(g, nullptr);
    EXPECT_EQ(memcmp(g->in, word, sizeof(word)), 0);
    const int mine = swl_door_take(&door, g);
    char rest[8];
    EXPECT_EQ(recv(mine, rest, sizeof(rest), 0), 4);
    EXPECT_EQ(door.nguests, 0u);
    close(mine);
}

TEST_F(Door, TheOldestHasToGoWhenAllPlacesAreTaken)
{
    for (uint32_t i = 0; i < SWL_DOOR_PLACES; i++)
        (void)knock();
    EXPECT_EQ(swl_door_next(&door), nullptr);
    for (int i = 0; i < 3; i++) {
        (void)knock();
        EXPECT_EQ(door.nguests, SWL_DOOR_PLACES);
        EXPECT_TRUE(sent_away(outside[static_cast<size_t>(i)]));
        EXPECT_FALSE(sent_away(outside[static_cast<size_t>(i) + 1]));
    }
}

TEST_F(Door, WhoHangsUpIsForgotten)
{
    const int fd = knock();

    shutdown(fd, SHUT_WR);
    EXPECT_EQ(swl_door_next(&door), nullptr);
    EXPECT_EQ(door.nguests, 0u);
}

TEST_F(Door, SilenceEndsAfterASecondAndHalfAHelloDoesNot)
{
    const int silent = knock(), slow = knock();

    say(slow, word, 1);
    now_ns += 999 * ms;
    EXPECT_EQ(swl_door_next(&door), nullptr);
    EXPECT_FALSE(sent_away(silent));
    now_ns += 2 * ms;
    EXPECT_EQ(swl_door_next(&door), nullptr);
    EXPECT_TRUE(sent_away(silent));
    now_ns += 8000 * ms;
    EXPECT_EQ(swl_door_next(&door), nullptr);
    EXPECT_FALSE(sent_away(slow));
    now_ns += 2000 * ms;
    EXPECT_EQ(swl_door_next(&door), nullptr);
    EXPECT_TRUE(sent_away(slow));
}

// A process that was stopped finds what came meanwhile.
TEST_F(Door, WhatIsThereIsHeardHoweverLate)
{
    const int fd = knock();

    say(fd, word, sizeof(word));
    now_ns += 3600 * 1000 * ms;
    EXPECT_NE(swl_door_next(&door), nullptr);
}

TEST_F(Door, D_E4StrangersAreToldOnceASecondAndAreAllCounted)
{
    uint64_t counted = 0;

    for (int i = 0; i < 20000; i++) {
        swl_door_count(&door);
        now_ns += ms / 4; // 5 seconds in all
    }
    swl_door_close(&door);
    for (uint64_t n : told)
        counted += n;
    EXPECT_EQ(counted, 20000u);
    EXPECT_EQ(told.size(), 6u);
}

TEST_F(Door, WatchesWhoeverWaits)
{
    struct pollfd fds[SWL_DOOR_PLACES];

    EXPECT_EQ(swl_door_watch(&door, fds), 0u);
    const int fd = knock();
    (void)knock();
    ASSERT_EQ(swl_door_watch(&door, fds), 2u);
    say(fd, word, 1);
    EXPECT_EQ(poll(fds, 2, 0), 1);
}

} // namespace
