/* meeting_fixture.h: ranks of a job that meet, and whoever else is at the port, for tests of the
 * meeting. */
#ifndef SWL_MEETING_FIXTURE_H
#define SWL_MEETING_FIXTURE_H

#include "src/base/clock.h"
#include "tools/support/meeting.h"

#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

const uint64_t second = 1000000000;

/* A port nobody has now. */
inline uint16_t free_port()
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

inline int connect_here(uint16_t port)
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

inline swl_meeting socket_meeting()
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

inline outcome meet(const swl_meeting &at, int rank, int nranks, uint64_t limit_ns)
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
inline std::vector<outcome> meet_all(const swl_meeting &at, const std::vector<int> &ranks,
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

inline void expect_met(const std::vector<outcome> &outcomes)
{
    for (const outcome &o : outcomes) {
        EXPECT_TRUE(o.ok) << o.why.text;
        for (int i = 0; i < SWL_MEETING_ID_BYTES; i++)
            ASSERT_EQ(o.id[i], (char)(i * 7 + 1));
    }
}

inline void expect_word(const outcome &o, const std::string &word)
{
    EXPECT_FALSE(o.ok);
    EXPECT_NE(std::string(o.why.text).find(word), std::string::npos) << o.why.text;
}

/* Rank 0, which serves the others while the test goes on. */
class RankZero
{
  public:
    RankZero(const swl_meeting &at, int nranks, uint64_t limit_ns)
        : thread([this, at, nranks, limit_ns] { end = meet(at, 0, nranks, limit_ns); })
    {
    }
    ~RankZero()
    {
        (void)ended();
    }
    RankZero(const RankZero &) = delete;
    RankZero &operator=(const RankZero &) = delete;

    const outcome &ended()
    {
        if (thread.joinable())
            thread.join();
        return end;
    }

  private:
    outcome end;
    std::thread thread; /* last: it uses the rest */
};

/* A server of somebody else at the port of the meeting. */
class Foreign
{
  public:
    explicit Foreign(uint16_t port) : listener(socket(AF_INET, SOCK_STREAM, 0))
    {
        sockaddr_in here = {};

        here.sin_family = AF_INET;
        here.sin_port = htons(port);
        EXPECT_EQ(bind(listener, (sockaddr *)&here, sizeof(here)), 0);
        EXPECT_EQ(listen(listener, 16), 0);
    }
    ~Foreign()
    {
        close(listener);
    }
    Foreign(const Foreign &) = delete;
    Foreign &operator=(const Foreign &) = delete;

    /* Hang up on the next caller. */
    void refuse()
    {
        close(accept(listener, nullptr, nullptr));
    }
    /* Serve the next caller so, while `others` go on. */
    void serve(const std::function<void(int fd)> &so, const std::function<void()> &others)
    {
        std::thread server([&] {
            const int fd = accept(listener, nullptr, nullptr);

            so(fd);
            close(fd);
        });

        others();
        server.join();
    }

  private:
    int listener;
};

#endif
