// attack_test.cc: what another user of the host, or somebody on the network, tries against the
// ports of a group (docs/security.md). Each test runs in a network namespace of its own, the
// attacker as user nobody. What is done against it is seen by its result; limits of time only end
// what hangs.
#include "sim/simt.h"
#include "src/base/error.h"
#include "tests/support/attack.h"
#include "transport/control_internal.h"

#include <ctime>

namespace
{

using namespace attack;

const uint32_t nranks = 4;

// Ranks of one process (local sockets), or of a process each as far as the channel is told (TCP).
struct Group {
    bool tcp;
    swl_control *control[nranks] = {};
    swl_control_address address[nranks] = {};
    ncclResult_t rc[nranks] = {};
    std::string sentence[nranks];

    explicit Group(bool over_tcp, uint64_t timeout_ns = 100000000000ull) : tcp(over_tcp)
    {
        for (uint32_t r = 0; r < nranks; r++) {
            swl_control_config config = {};

            config.rank = r;
            config.nranks = nranks;
            config.process = tcp ? 100 + r : 100;
            config.timeout_ns = timeout_ns;
            config.socket_ifname = "lo";
            EXPECT_EQ(swl_control_open(&control[r], &config, &address[r]), ncclSuccess);
        }
    }
    ~Group()
    {
        for (swl_control *o : control)
            swl_control_close(o);
    }
    void connect_rank(uint32_t rank)
    {
        uint32_t peers[nranks], n = 0;

        for (uint32_t p = 0; p < nranks; p++)
            if (p != rank)
                peers[n++] = p;
        rc[rank] = swl_control_connect(control[rank], address, peers, n);
        sentence[rank] = swl_last_error();
    }
    void meet()
    {
        struct Job {
            Group *group;
            uint32_t rank;
        } jobs[nranks];

        for (uint32_t r = 0; r < nranks; r++) {
            jobs[r] = {this, r};
            simt_fiber(
                "rank", static_cast<int>(r), static_cast<int>(r),
                [](void *arg) {
                    const Job *job = static_cast<const Job *>(arg);

                    job->group->connect_rank(job->rank);
                },
                &jobs[r]);
        }
        EXPECT_EQ(simt_run(), 0);
    }
    // Every rank hears every other one, and nobody else.
    void expect_whole()
    {
        swl_control_message m = {};
        uint32_t peer = 0;

        for (uint32_t r = 0; r < nranks; r++)
            ASSERT_EQ(rc[r], ncclSuccess) << sentence[r];
        m.kind = SWL_CONTROL_USER;
        for (uint32_t r = 0; r < nranks; r++)
            for (uint32_t p = 0; p + 1 < nranks; p++) {
                m.value[0] = r * 100 + swl_control_rank(control[r], p);
                EXPECT_TRUE(swl_control_send(control[r], p, &m));
            }
        for (uint32_t r = 0; r < nranks; r++)
            for (uint32_t n = 0; n + 1 < nranks; n++) {
                bool heard = false;

                for (int i = 0; i < 20000 && !heard; i++) {
                    heard = swl_control_receive(control[r], &peer, &m);
                    if (!heard)
                        usleep(500);
                }
                ASSERT_TRUE(heard);
                EXPECT_EQ(m.kind, SWL_CONTROL_USER);
                EXPECT_EQ(m.value[0], m.from * 100u + r);
            }
    }
};

// "I am rank `from`", with 16 bytes for a secret.
swl_control_message hello_of(uint32_t from, const std::vector<uint8_t> &secret)
{
    swl_control_message m = {};

    m.magic = CONTROL_MAGIC;
    m.kind = SWL_CONTROL_HELLO;
    m.from = static_cast<uint16_t>(from);
    memcpy(m.bytes, secret.data(), 16);
    return m;
}

// All that can be read of names, said as every rank at every port. Returns the connections.
std::vector<int> take_places()
{
    const std::vector<Listener> all = listeners();
    std::vector<std::vector<uint8_t>> secrets = {std::vector<uint8_t>(16, 0)};
    std::vector<int> fds;

    for (const Listener &l : all)
        if (l.family == AF_UNIX && l.name.rfind("swimlane-", 0) == 0)
            secrets.push_back(unhex(l.name.substr(9), 16));
    for (const Listener &l : all)
        for (const auto &secret : secrets)
            for (uint32_t rank = 0; rank < nranks; rank++) {
                const swl_control_message m = hello_of(rank, secret);
                const int fd = call(l);

                if (fd < 0)
                    continue;
                (void)!send(fd, &m, sizeof(m), MSG_NOSIGNAL);
                fds.push_back(fd);
            }
    return fds;
}

// 'w': one of the connections has been answered; 'n': none.
char answered(const std::vector<int> &fds)
{
    char got = 'n', byte;

    for (int fd : fds)
        if (recv(fd, &byte, 1, MSG_DONTWAIT) > 0)
            got = 'w';
    return got;
}

void somebody_takes_places(bool tcp)
{
    on_own_host([tcp] {
        Group g(tcp);
        int go[2];
        char c;

        ASSERT_EQ(pipe(go), 0);
        Nobody nobody([&](Nobody &me) {
            const std::vector<int> fds = take_places();

            me.say(fds.size() >= nranks ? 'c' : '-');
            (void)!read(go[0], &c, 1);
            me.say(answered(fds));
        });
        EXPECT_EQ(nobody.hear(), 'c') << "the attack has found nothing";
        g.meet();
        g.expect_whole();
        EXPECT_EQ(write(go[1], "g", 1), 1);
        EXPECT_EQ(nobody.hear(), 'n') << "somebody was let in";
    });
}

size_t count_of(const std::string &text, const std::string &word)
{
    size_t n = 0;

    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        n++;
    return n;
}

// More than fit into all doors, on every port; they stay, and each has said `word`.
void many_wait(bool tcp, const std::string &word)
{
    on_own_host([tcp, word] {
        Group g(tcp);
        const time_t begin = time(nullptr);
        std::string said;

        Nobody nobody([&word](Nobody &) {
            for (const Listener &l : listeners())
                for (int i = 0; i < 200; i++) {
                    const int fd = call(l);

                    if (fd >= 0 && !word.empty())
                        (void)!send(fd, word.data(), word.size(), MSG_NOSIGNAL);
                }
        });
        EXPECT_EQ(nobody.hear(), '.');
        ::testing::internal::CaptureStderr();
        g.meet();
        said = ::testing::internal::GetCapturedStderr();
        g.expect_whole();
        EXPECT_GT(count_of(said, "stranger"), 0u);
        // a line a second and one at each end; the emulator's clock may be ahead, by its limit
        EXPECT_LE(count_of(said, "stranger"),
                  nranks * (104 + static_cast<size_t>(time(nullptr) - begin)));
    });
}

// Somebody who calls and calls while the ranks meet.
void somebody_floods(bool tcp)
{
    on_own_host([tcp] {
        Group g(tcp);
        Nobody nobody([](Nobody &me) {
            for (int i = 0; i < 20000; i++)
                for (const Listener &l : listeners()) {
                    const int fd = call(l);

                    if (fd < 0)
                        continue;
                    if (i % 2)
                        (void)!send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
                    if (i % 3)
                        close(fd);
                    if (i == 20)
                        me.say('f');
                }
        });
        EXPECT_EQ(nobody.hear(), 'f');
        g.meet();
        g.expect_whole();
    });
}

} // namespace

TEST(Attack, D_E1TheNameOfALocalSocketLetsNobodyIn)
{
    somebody_takes_places(false);
}

TEST(Attack, D_E1TheNameOfALocalSocketIsNoSecretOfThePort)
{
    somebody_takes_places(true);
}

TEST(Attack, D_E4SilentConnectionsKeepNobodyOut)
{
    many_wait(false, "");
    many_wait(true, "");
}

TEST(Attack, D_E4HalfAHelloKeepsNobodyOut)
{
    const swl_control_message m = hello_of(2, std::vector<uint8_t>(16, 0));

    many_wait(true, std::string(reinterpret_cast<const char *>(&m), 100));
}

TEST(Attack, D_E4GarbageKeepsNobodyOut)
{
    many_wait(false, "GET / HTTP/1.0\r\n\r\n");
    many_wait(true, "GET / HTTP/1.0\r\n\r\n");
}

TEST(Attack, D_E4AFloodKeepsNobodyOut)
{
    somebody_floods(false);
    somebody_floods(true);
}

// Whoever has the port of a rank that is gone is not taken for it, whatever it answers.
TEST(Attack, D_E1AnImpostorAtTheAddressOfARankIsNotBelieved)
{
    on_own_host([] {
        Group g(true, 300000000ull);
        int here[2];

        ASSERT_EQ(pipe(here), 0);
        Nobody nobody([&](Nobody &) {
            const int listener = socket(AF_INET, SOCK_STREAM, 0);
            sockaddr_in at = {};
            socklen_t n = sizeof(at);

            at.sin_family = AF_INET;
            at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            if (bind(listener, reinterpret_cast<sockaddr *>(&at), n) || listen(listener, 100) ||
                getsockname(listener, reinterpret_cast<sockaddr *>(&at), &n))
                _exit(1);
            (void)!write(here[1], &at, sizeof(at));
            for (;;) {
                const int fd = accept(listener, nullptr, nullptr);
                swl_control_message m;

                if (recv(fd, &m, sizeof(m), MSG_WAITALL) == static_cast<ssize_t>(sizeof(m))) {
                    m.kind = SWL_CONTROL_WELCOME; // with the secret it was given
                    m.from = 0;
                    (void)!send(fd, &m, sizeof(m), MSG_NOSIGNAL);
                }
            }
        });
        control_endpoint place;
        sockaddr_in at;

        ASSERT_EQ(read(here[0], &at, sizeof(at)), static_cast<ssize_t>(sizeof(at)));
        memcpy(&place, g.address[0].bytes, sizeof(place));
        place.at.at.v4 = at;
        memcpy(g.address[0].bytes, &place, sizeof(place));
        g.meet();
        for (uint32_t r = 1; r < nranks; r++) {
            EXPECT_EQ(g.rc[r], ncclSystemError);
            EXPECT_NE(g.sentence[r].find("rank 0 has not connected"), std::string::npos)
                << g.sentence[r];
        }
    });
}
