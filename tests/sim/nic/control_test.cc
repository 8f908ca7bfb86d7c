// control_test.cc: the control connections (transport/control.c): who connects with whom, what
// travels, what the end of a process looks like. Over local sockets (ranks of a process) and over
// TCP.
#include "sim/simt.h"
#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "tests/support/folder.h"
#include "transport/control_internal.h"

#include <gtest/gtest.h>

#include <functional>
#include <signal.h>
#include <string.h>
#include <string>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace
{

const uint64_t ms = 1000000;
const uint32_t most = 6;

struct Channels {
    bool tcp = false;
    uint32_t nranks = 0;
    struct swl_control *control[most] = {};
    struct swl_control_address address[most] = {};
    ncclResult_t connected[most] = {};
    std::string sentence[most];
    uint64_t timeout_ns = 2000 * ms;
};

struct Job {
    std::function<void(uint32_t)> body;
    uint32_t rank;
};

void run_job(void *arg)
{
    const Job *job = static_cast<const Job *>(arg);

    job->body(job->rank);
}

// `body` on a fiber for each rank.
void on_fibers(uint32_t n, const std::function<void(uint32_t)> &body)
{
    std::vector<Job> jobs;

    for (uint32_t r = 0; r < n; r++)
        jobs.push_back({body, r});
    for (uint32_t r = 0; r < n; r++)
        simt_fiber("channel test", static_cast<int>(r), static_cast<int>(r), run_job, &jobs[r]);
    EXPECT_EQ(simt_run(), 0);
}

void open_rank(Channels *c, uint32_t rank)
{
    swl_control_config config = {};

    config.rank = rank;
    config.nranks = c->nranks;
    config.process = c->tcp ? 100 + rank : 100;
    config.timeout_ns = config.silence_ns = c->timeout_ns;
    config.socket_ifname = "lo";
    EXPECT_EQ(swl_control_open(&c->control[rank], &config, &c->address[rank]), ncclSuccess);
}

void connect_rank(Channels *c, uint32_t rank, const struct swl_control_address *all)
{
    std::vector<uint32_t> peers;

    for (uint32_t p = 0; p < c->nranks; p++)
        if (p != rank)
            peers.push_back(p);
    c->connected[rank] = swl_control_connect(c->control[rank], all, peers.data(),
                                             static_cast<uint32_t>(peers.size()));
    c->sentence[rank] = swl_last_error();
}

void open_all(Channels *c, uint32_t n, bool tcp)
{
    c->nranks = n;
    c->tcp = tcp;
    for (uint32_t r = 0; r < n; r++)
        open_rank(c, r);
}

void meet(Channels *c, uint32_t n, bool tcp)
{
    open_all(c, n, tcp);
    on_fibers(n, [c](uint32_t r) { connect_rank(c, r, c->address); });
    for (uint32_t r = 0; r < n; r++)
        EXPECT_EQ(c->connected[r], ncclSuccess) << c->sentence[r];
}

void close_all(Channels *c)
{
    for (uint32_t r = 0; r < most; r++) {
        swl_control_close(c->control[r]);
        c->control[r] = nullptr;
    }
}

swl_control_message message(uint64_t number)
{
    swl_control_message m = {};

    m.kind = SWL_CONTROL_USER;
    m.value[0] = number;
    m.value[SWL_CONTROL_VALUES - 1] = ~number;
    m.bytes[SWL_CONTROL_BYTES - 1] = static_cast<uint8_t>(number);
    return m;
}

// TCP delivers a little later: look again for a while.
bool receive(struct swl_control *control, uint32_t *peer_p, swl_control_message *m)
{
    for (int i = 0; i < 200000; i++) {
        if (swl_control_receive(control, peer_p, m))
            return true;
        usleep(500);
    }
    return false;
}

class Control : public testing::TestWithParam<bool>
{
  protected:
    int before = open_files();

    void TearDown() override
    {
        EXPECT_EQ(open_files(), before) << "descriptors left open";
    }
};

TEST_P(Control, EverybodyHearsEverybodyInOrder)
{
    const uint32_t n = 5;
    const uint64_t count = 12;
    Channels c;

    meet(&c, n, GetParam());
    for (uint64_t i = 0; i < count; i++)
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t p = 0; p < swl_control_peers(c.control[r]); p++) {
                const swl_control_message m = message(i);

                EXPECT_TRUE(swl_control_send(c.control[r], p, &m));
            }
    for (uint32_t r = 0; r < n; r++) {
        std::vector<uint64_t> next(n, 0);

        for (uint64_t i = 0; i < count * (n - 1); i++) {
            swl_control_message m;
            uint32_t peer;

            ASSERT_TRUE(receive(c.control[r], &peer, &m));
            EXPECT_EQ(swl_control_rank(c.control[r], peer), m.from);
            EXPECT_EQ(swl_control_peer(c.control[r], m.from), peer);
            EXPECT_EQ(m.value[0], next[m.from]++);
            EXPECT_EQ(m.value[SWL_CONTROL_VALUES - 1], ~m.value[0]);
            EXPECT_EQ(m.bytes[SWL_CONTROL_BYTES - 1], static_cast<uint8_t>(m.value[0]));
        }
    }
    close_all(&c);
}

TEST_P(Control, WhoDoesNotConnectIsNamed)
{
    Channels c;

    c.timeout_ns = 300 * ms;
    open_all(&c, 3, GetParam());
    on_fibers(2, [&c](uint32_t r) { connect_rank(&c, r, c.address); });
    for (uint32_t r = 0; r < 2; r++) {
        EXPECT_EQ(c.connected[r], ncclSystemError);
        EXPECT_NE(c.sentence[r].find("rank 2 has not connected within 300 ms"), std::string::npos)
            << c.sentence[r];
    }
    close_all(&c);
}

// Rank 1 calls rank 0, where nobody listens any more; rank 2 was to call rank 0.
TEST_P(Control, D_C2_AFailedConnectionNamesAddressInterfaceAndError)
{
    const bool tcp = GetParam();
    Channels c;

    c.timeout_ns = 300 * ms;
    open_all(&c, 3, tcp);
    swl_control_close(c.control[0]);
    c.control[0] = nullptr;
    on_fibers(2, [&c](uint32_t r) {
        if (r == 1)
            connect_rank(&c, 1, c.address);
    });
    EXPECT_EQ(c.connected[1], ncclSystemError);
    for (const char *words : {"rank 1 control connection: rank 0 has not connected within 300 ms",
                              tcp ? "it listens at 127.0.0.1:" : "it listens at a local socket",
                              tcp ? " (lo), this rank calls from 127.0.0.1 (lo)"
                                  : "this rank calls from a local socket",
                              "Connection refused"})
        EXPECT_NE(c.sentence[1].find(words), std::string::npos) << words << ": " << c.sentence[1];
    open_rank(&c, 0);
    on_fibers(1, [&c](uint32_t) { connect_rank(&c, 0, c.address); });
    for (const char *words :
         {"rank 0 control connection: rank 1 has not connected within 300 ms",
          tcp ? "it would come from 127.0.0.1 (lo), this rank listens at 127.0.0.1:"
              : "this rank listens at a local socket",
          "no call came"})
        EXPECT_NE(c.sentence[0].find(words), std::string::npos) << words << ": " << c.sentence[0];
    close_all(&c);
}

TEST_P(Control, WithoutTheSecretNobodyIsLetIn)
{
    Channels c;
    struct swl_control_address wrong[2];

    c.timeout_ns = 300 * ms;
    open_all(&c, 2, GetParam());
    wrong[0] = c.address[0];
    wrong[1] = c.address[1];
    wrong[0].bytes[3] ^= 1; // of the secret, which comes first
    on_fibers(2, [&](uint32_t r) { connect_rank(&c, r, r == 1 ? wrong : c.address); });
    EXPECT_EQ(c.connected[0], ncclSystemError);
    EXPECT_NE(c.sentence[0].find("rank 1 has not connected"), std::string::npos) << c.sentence[0];
    close_all(&c);
}

TEST_P(Control, WhoLeavesInGoodOrderIsNotGone)
{
    Channels c;
    swl_control_message m;
    uint32_t peer;

    meet(&c, 2, GetParam());
    m = message(1);
    EXPECT_TRUE(swl_control_send(c.control[1], 0, &m));
    swl_control_close(c.control[1]);
    c.control[1] = nullptr;
    ASSERT_TRUE(receive(c.control[0], &peer, &m));
    EXPECT_EQ(m.kind, SWL_CONTROL_USER);
    for (int i = 0; i < 60000 && swl_control_connected(c.control[0], 0); i++) {
        EXPECT_FALSE(swl_control_receive(c.control[0], &peer, &m));
        usleep(1000);
    }
    EXPECT_FALSE(swl_control_connected(c.control[0], 0));
    EXPECT_FALSE(swl_control_receive(c.control[0], &peer, &m));
    m = message(2);
    EXPECT_FALSE(swl_control_send(c.control[0], 0, &m));
    close_all(&c);
}

// A child of this process, forked meanwhile, has every descriptor too, so that closing one alone
// ends nothing: the other end waits on, and the epoll set goes on telling of a connection that
// nobody reads.
TEST_P(Control, D_C10_AConnectionEndsAlsoWhereAChildHasItToo)
{
    Channels c;
    swl_control_message m;
    struct epoll_event event;
    uint32_t peer;

    meet(&c, 3, GetParam());
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    m = message(1);
    m.magic = 0; // nonsense, for which rank 0 hangs up
    EXPECT_EQ(write(c.control[1]->peers[0].fd, &m, sizeof(m)), static_cast<ssize_t>(sizeof(m)));
    ASSERT_TRUE(receive(c.control[0], &peer, &m));
    EXPECT_EQ(m.kind, SWL_CONTROL_GONE);
    EXPECT_EQ(epoll_wait(c.control[0]->epoll, &event, 1, 0), 0);
    ASSERT_TRUE(receive(c.control[1], &peer, &m));
    EXPECT_EQ(m.kind, SWL_CONTROL_GONE);
    EXPECT_EQ(m.from, 0);
    m = message(2); // the others are as before
    EXPECT_TRUE(swl_control_send(c.control[0], 1, &m));
    ASSERT_TRUE(receive(c.control[2], &peer, &m));
    EXPECT_EQ(m.value[0], 2u);
    close_all(&c);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

// What waits for a peer that does not read is bounded, and nothing that was taken is lost.
TEST_P(Control, APeerThatDoesNotReadHoldsUpItsSenderOnly)
{
    Channels c;
    uint64_t sent = 0;
    swl_control_message m = message(0);
    uint32_t peer;

    meet(&c, 3, GetParam());
    while (sent < 200000 && swl_control_send(c.control[0], 0, &m))
        m = message(++sent);
    EXPECT_GT(sent, 16u);
    EXPECT_LT(sent, 200000u) << "somebody holds it all";
    m = message(7);
    EXPECT_TRUE(swl_control_send(c.control[0], 1, &m)); // to rank 2
    ASSERT_TRUE(receive(c.control[2], &peer, &m));
    for (uint64_t i = 0; i < sent; i++) {
        if (!receive(c.control[1], &peer, &m))
            break;
        ASSERT_EQ(m.value[0], i);
        (void)swl_control_receive(c.control[0], &peer, &m); // which pushes on
    }
    EXPECT_EQ(m.value[0], sent - 1);
    close_all(&c);
}

// Ranks of a process end together, so only TCP tells of it.
TEST(OobProcess, ARankThatIsKilledIsGoneBehindItsLastWord)
{
    int to_child[2], to_parent[2];
    Channels c;
    swl_control_message m = {};
    uint32_t peer;
    pid_t child;

    ASSERT_EQ(pipe(to_child) + pipe(to_parent), 0);
    c.nranks = 2;
    c.tcp = true;
    child = fork();
    if (child == 0) {
        open_rank(&c, 1);
        (void)!write(to_parent[1], &c.address[1], sizeof(c.address[1]));
        (void)!read(to_child[0], &c.address[0], sizeof(c.address[0]));
        on_fibers(1, [&c](uint32_t) { connect_rank(&c, 1, c.address); });
        for (uint64_t i = 0; i < 3; i++) {
            m = message(i);
            (void)swl_control_send(c.control[1], 0, &m);
        }
        kill(getpid(), SIGKILL);
    }
    open_rank(&c, 0);
    EXPECT_EQ(write(to_child[1], &c.address[0], sizeof(c.address[0])),
              static_cast<ssize_t>(sizeof(c.address[0])));
    EXPECT_EQ(read(to_parent[0], &c.address[1], sizeof(c.address[1])),
              static_cast<ssize_t>(sizeof(c.address[1])));
    on_fibers(1, [&c](uint32_t) { connect_rank(&c, 0, c.address); });
    EXPECT_EQ(c.connected[0], ncclSuccess) << c.sentence[0];
    for (uint64_t i = 0; i < 3; i++) {
        ASSERT_TRUE(receive(c.control[0], &peer, &m));
        EXPECT_EQ(m.kind, SWL_CONTROL_USER);
        EXPECT_EQ(m.value[0], i);
    }
    ASSERT_TRUE(receive(c.control[0], &peer, &m));
    EXPECT_EQ(m.kind, SWL_CONTROL_GONE);
    EXPECT_EQ(m.from, 1);
    EXPECT_FALSE(swl_control_receive(c.control[0], &peer, &m)) << "once";
    waitpid(child, nullptr, 0);
    for (int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]})
        close(fd);
    close_all(&c);
}

// A process that has bound the name of rank 0's local socket: everybody can read it.
pid_t impostor(const struct swl_control_address &address)
{
    struct control_endpoint place;
    struct sockaddr_un name = {};
    int told[2];
    char byte = 0;

    memcpy(&place, address.bytes, sizeof(place));
    name.sun_family = AF_UNIX;
    std::string text = "swimlane-";
    for (uint8_t b : place.name) {
        char hex[4];

        snprintf(hex, sizeof(hex), "%02x", b);
        text += hex;
    }
    memcpy(name.sun_path + 1, text.data(), text.size());
    EXPECT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        const socklen_t bytes =
            static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + 1 + text.size());

        byte =
            bind(fd, reinterpret_cast<struct sockaddr *>(&name), bytes) == 0 && listen(fd, 8) == 0;
        (void)!write(told[1], &byte, 1);
        pause();
    }
    EXPECT_EQ(read(told[0], &byte, 1), 1);
    EXPECT_EQ(byte, 1) << "the name is not free";
    close(told[0]);
    close(told[1]);
    return child;
}

TEST(OobProcess, D_C2_AnotherProcessAtTheSocketOfARankIsNamed)
{
    Channels c;

    c.timeout_ns = 300 * ms;
    open_all(&c, 2, false);
    swl_control_close(c.control[0]);
    c.control[0] = nullptr;
    const pid_t child = impostor(c.address[0]);
    on_fibers(2, [&c](uint32_t r) {
        if (r == 1)
            connect_rank(&c, 1, c.address);
    });
    EXPECT_EQ(c.connected[1], ncclSystemError);
    EXPECT_NE(c.sentence[1].find("from a local socket: another process listens there"),
              std::string::npos)
        << c.sentence[1];
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close_all(&c);
}

// More than may wait at the door, all there before rank 0 looks.
TEST(OobProcess, ManyCallersOfAProcessAreNoStrangers)
{
    const uint32_t n = 100;
    std::vector<struct swl_control *> control(n);
    std::vector<struct swl_control_address> address(n);
    std::vector<uint32_t> others;

    for (uint32_t r = 0; r < n; r++) {
        swl_control_config config = {};

        config.rank = r;
        config.nranks = n;
        config.process = 100;
        config.timeout_ns = config.silence_ns = 60000 * ms;
        config.socket_ifname = "lo";
        ASSERT_EQ(swl_control_open(&control[r], &config, &address[r]), ncclSuccess);
        if (r > 0)
            others.push_back(r);
    }
    testing::internal::CaptureStderr();
    on_fibers(n, [&](uint32_t r) {
        const uint32_t first = 0;

        swl_gpu_sleep_ns(r == 0 ? 100 * ms : 1);
        EXPECT_EQ(swl_control_connect(control[r], address.data(), r == 0 ? others.data() : &first,
                                      r == 0 ? n - 1 : 1),
                  ncclSuccess);
    });
    EXPECT_EQ(testing::internal::GetCapturedStderr().find("stranger"), std::string::npos);
    for (struct swl_control *o : control)
        swl_control_close(o);
}

TEST_P(Control, RanksThatCannotListenAreNamed)
{
    Channels c;
    struct swl_control_address all[3] = {};
    char why[160];

    open_all(&c, 3, GetParam());
    EXPECT_TRUE(swl_control_possible(c.address, 3, why, sizeof(why)));
    all[0] = c.address[0];
    all[1] = c.address[1];
    EXPECT_FALSE(swl_control_possible(all, 3, why, sizeof(why)));
    EXPECT_NE(std::string(why).find("rank 2 cannot listen"), std::string::npos) << why;
    close_all(&c);
}

// Two hosts with loopback and nothing else: said before anybody waits for the other.
TEST(OobProcess, F92_HostsThatCannotMeanEachOtherAreNamed)
{
    Channels c;
    struct control_endpoint place;
    char why[320] = "";

    open_all(&c, 2, true);
    EXPECT_TRUE(swl_control_possible(c.address, 2, why, sizeof(why))) << why;
    memcpy(&place, c.address[1].bytes, sizeof(place));
    place.at.host++;
    memcpy(c.address[1].bytes, &place, sizeof(place));
    EXPECT_FALSE(swl_control_possible(c.address, 2, why, sizeof(why)));
    EXPECT_NE(std::string(why).find("rank 1, on another host, at 127.0.0.1:"), std::string::npos)
        << why;
    EXPECT_NE(std::string(why).find("neither reaches the other"), std::string::npos) << why;
    close_all(&c);
}

// Both ranks are in this process, which may open `more` descriptors while they connect. Who gives
// up first returns its own, so that the other one may find some again.
TEST_P(Control, LackOfDescriptorsIsNamed)
{
    for (const rlim_t more : {0, 2}) { // nothing; what waits, but no connection
        Channels c;
        struct rlimit old, few;
        std::string said;

        c.timeout_ns = 200 * ms;
        open_all(&c, 2, GetParam());
        const int lowest = dup(0);
        close(lowest);
        ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
        few = old;
        few.rlim_cur = static_cast<rlim_t>(lowest) + more;
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        on_fibers(2, [&c](uint32_t r) { connect_rank(&c, r, c.address); });
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
        for (uint32_t r = 0; r < 2; r++) {
            EXPECT_EQ(c.connected[r], ncclSystemError);
            said += c.sentence[r];
        }
        EXPECT_NE(said.find("(ulimit -n)"), std::string::npos) << more << ": " << said;
        close_all(&c);
    }
}

std::string wire_name(const testing::TestParamInfo<bool> &tcp)
{
    return tcp.param ? "Tcp" : "LocalSockets";
}

INSTANTIATE_TEST_SUITE_P(Over, Control, testing::Bool(), wire_name);

} // namespace
