// Who else comes to the port where ranks meet, or is there already.
#include "tests/support/meeting_fixture.h"
#include "tools/support/meeting_wire.h"

/* What the versions before this one said, in 16 bytes: of a wrong size, it ended the job. */
TEST(Meeting, D_E2SixteenBytesEndNoJob)
{
    const struct {
        char magic[8];
        int32_t rank, nranks;
    } words[] = {{{'s', 'w', 'l', 'm', 'e', 'e', 't', '1'}, 1, 3},
                 {{'s', 'w', 'l', 'm', 'e', 'e', 't', '2'}, 1, 3}};
    swl_meeting at = socket_meeting();
    RankZero rank0(at, 2, 60 * second);
    std::vector<int> fds;

    for (const auto &word : words) {
        fds.push_back(connect_here(at.port));
        EXPECT_EQ(send(fds.back(), &word, sizeof(word), MSG_NOSIGNAL),
                  static_cast<ssize_t>(sizeof(word)));
    }
    outcome one = meet(at, 1, 2, 60 * second);
    expect_met({rank0.ended(), one});
    for (int fd : fds)
        close(fd);
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
    RankZero rank0(at, 2, 20 * second);
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
    expect_met({rank0.ended(), one});
    for (int fd : strangers)
        close(fd);
}

TEST(Meeting, AStrangerInPlaceOfRankZeroIsNamed)
{
    const swl_meeting at = socket_meeting();
    Foreign mail(at.port);

    expect_word(meet(at, 0, 2, second), "rank 0 cannot listen at 127.0.0.1:");
    mail.serve([](int fd) { EXPECT_GT(send(fd, "220 mail\r\n", 10, MSG_NOSIGNAL), 0); },
               [&] { expect_word(meet(at, 1, 2, 5 * second), "is not rank 0 of this job"); });
}

/* Servers that are no rank 0: each rank is told early, and what it met. */
TEST(Meeting, F109WhoeverElseListensIsCalledWhatItIs)
{
    const swl_meeting at = socket_meeting();
    const auto refused = [&] {
        expect_word(meet(at, 1, 2, 60 * second), "is not rank 0 of this job");
    };
    Foreign other(at.port);

    expect_word(meet(at, 1, 2, second), "says nothing");
    for (int i = 0; i < 3; i++)
        other.refuse();
    other.serve(
        [](int fd) { // an echo
            char byte;

            while (recv(fd, &byte, 1, 0) == 1)
                if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
                    break;
        },
        refused);
    other.serve(
        [](int fd) {
            EXPECT_GT(send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL), 0);
        },
        refused);
}
