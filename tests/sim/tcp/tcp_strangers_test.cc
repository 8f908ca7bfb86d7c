// tcp_strangers_test.cc: who else connects to the TCP wire, and when nobody can.
#include "tests/sim/tcp/tcp_peer.h"

#include <string>

namespace
{

nic_options two_pairs()
{
    nic_options o = over_tcp();

    o.nqps = 2;
    return o;
}

size_t lines_with(const std::string &text, const char *word)
{
    size_t n = 0;

    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        n++;
    return n;
}

void strangers(nic_world &w)
{
    scene s(w, first_nonce);
    struct tcp_frame f;
    peer other;

    // somebody else is awaited, or nobody would listen when the right one is there
    ASSERT_EQ(w.rank[0].nic->ops->reset(w.rank[0].nic, 1), ncclSuccess);

    ASSERT_EQ(s.connect(), ncclSuccess);
    other.nic = s.p.nic;
    other.mine = s.p.mine;
    other.nic.nonce[15] ^= 1;
    other.dial();
    other.hello();
    f = other.get();
    EXPECT_EQ(f.kind, TCP_REFUSE);
    EXPECT_EQ(f.value, static_cast<uint64_t>(TCP_REFUSAL_NONCE));
    other.hang_up();
    other.nic = s.p.nic;
    other.nic.generation++;
    other.dial();
    other.hello();
    EXPECT_EQ(other.get().value, static_cast<uint64_t>(TCP_REFUSAL_OLD));
    other.hang_up();
    other.dial(); // says something else
    other.put(std::vector<uint8_t>(112, 'x'));
    EXPECT_EQ(other.get().kind, 0);
    other.hang_up();
    // the right one is taken all the same, and nobody after it
    s.p.dial();
    s.p.hello();
    EXPECT_EQ(s.p.get().kind, TCP_WELCOME);
    other.nic = s.p.nic;
    other.dial();
    other.hello();
    EXPECT_EQ(other.get().value, static_cast<uint64_t>(TCP_REFUSAL_TAKEN));
    s.p.put(s.write(0, 12));
    EXPECT_EQ(s.p.get().kind, TCP_ACK);
}

// Calls of somebody who says `word`, or nothing, and stays or not.
std::vector<int> call_often(const peer &p, int n, const char *word, bool stay)
{
    struct tcp_why why;
    std::vector<int> fds;

    for (int i = 0; i < n; i++) {
        const int fd = swl_tcp_connect(&p.nic.place, 60000000000ull, &why);

        EXPECT_GE(fd, 0) << why.text;
        if (*word)
            (void)!send(fd, word, strlen(word), MSG_NOSIGNAL);
        if (stay)
            fds.push_back(fd);
        else
            close(fd);
        if (i % 100 == 99) // fewer than the kernel keeps for a listener
            nic_sleep(1000000);
    }
    return fds;
}

// More than there is room for, on the port, before the peer comes and while it does.
NIC_TEST(Tcp, D_E4ACrowdKeepsNoPeerOut, nic_run, 1, over_tcp())
{
    for (const char *word : {"", "GET / HTTP/1.0\r\n\r\n", "TSWL"}) {
        scene s(w, first_nonce);

        ASSERT_EQ(s.connect(), ncclSuccess);
        std::vector<int> before = call_often(s.p, 300, word, true);
        s.p.dial();
        std::vector<int> after = call_often(s.p, 20, word, true);
        s.p.hello();
        EXPECT_EQ(s.p.get().kind, TCP_WELCOME);
        s.p.put(s.write(0, 4711));
        EXPECT_EQ(s.p.get().kind, TCP_ACK);
        for (int fd : before)
            close(fd);
        for (int fd : after)
            close(fd);
    }
}

// Garbage while somebody is awaited, then with all there: the port is closed, and nothing is said
// of it.
NIC_TEST(Tcp, D_E4GarbageCostsALineASecondAndNothingWhenAllAreConnected, nic_run, 1, over_tcp())
{
    scene s(w, first_nonce);
    struct tcp_why why;
    std::string said;
    uint64_t begin = simt_now_ns(), refused = 0;

    ASSERT_EQ(s.connect(), ncclSuccess);
    ::testing::internal::CaptureStderr();
    (void)call_often(s.p, 3000, "GET / HTTP/1.0\r\n\r\n", false);
    s.p.dial();
    s.p.hello();
    EXPECT_EQ(s.p.get().kind, TCP_WELCOME);
    nic_sleep(10000000);
    said = ::testing::internal::GetCapturedStderr();
    EXPECT_GE(lines_with(said, "stranger"), 1u);
    EXPECT_LE(lines_with(said, "stranger"), 2 + (simt_now_ns() - begin) / 1000000000) << said;
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 20000; i++) {
        const int fd = swl_tcp_connect(&s.p.nic.place, 60000000000ull, &why);

        refused += fd < 0;
        if (fd >= 0)
            close(fd);
    }
    EXPECT_EQ(refused, 20000u);
    s.p.put(s.write(0, 4711));
    EXPECT_EQ(s.p.get().kind, TCP_ACK);
    said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said, "");
}

// After a reset the address is asked for again; it is of a port that is open.
void again(nic_world &w)
{
    for (int i = 0; i < 3; i++) {
        scene s(w, first_nonce);

        s.meet();
        s.p.put(s.write(0, 4711));
        EXPECT_EQ(s.p.get().kind, TCP_ACK);
        s.p.hang_up();
        s.expect_failed(SWL_SYNDROME_RETRY);
    }
}

// The NIC's end connects to the test's, on a fiber of its own: `hangs_up` times it hangs up, as on
// the oldest of many strangers; then it answers.
struct Server {
    peer *p;
    int hangs_up, calls;
    void (*answer)(peer *p);
};

void serve(void *arg)
{
    Server *me = static_cast<Server *>(arg);

    while (me->calls <= me->hangs_up) {
        const int fd = swl_socket_accept(me->p->listener);

        nic_sleep(1000000);
        if (fd < 0)
            continue;
        if (me->calls++ < me->hangs_up) {
            close(fd);
            continue;
        }
        me->p->fd = fd;
        EXPECT_EQ(me->p->get().kind, TCP_HELLO);
        me->answer(me->p);
    }
}

NIC_TEST(Tcp, D_E4WhoIsHungUpOnBeforeTheWelcomeTriesAgain, nic_run, 1, over_tcp())
{
    scene s(w, last_nonce);
    Server server = {&s.p, 3, 0, [](peer *p) { p->welcome(0x77); }};

    simt_fiber("listener", 0, 0, serve, &server);
    EXPECT_EQ(s.connect(), ncclSuccess) << swl_last_error();
    EXPECT_EQ(server.calls, 4);
}

// Whoever has the peer's port and not its proof is not believed, nor called again.
NIC_TEST(Tcp, D_E1AnImpostorAtThePortOfThePeerIsNotBelieved, nic_run, 1, over_tcp())
{
    void (*const answers[])(peer *) = {
        [](peer *p) { p->welcome(0x78); },
        [](peer *p) { p->put(p->frame(TCP_WELCOME, {}, "")); },
        [](peer *p) { p->put(std::vector<uint8_t>(200, 'x')); },
    };

    for (const auto &answer : answers) {
        scene s(w, last_nonce);
        Server server = {&s.p, 0, 0, answer};

        simt_fiber("listener", 0, 0, serve, &server);
        EXPECT_EQ(s.connect(), ncclSystemError);
        EXPECT_NE(strstr(swl_last_error(), "is not the peer"), nullptr) << swl_last_error();
    }
}

} // namespace

TEST(Tcp, StrangersAreSentAwayAndDisturbNobody)
{
    nic_run(0, two_pairs(), strangers);
}

TEST(Tcp, D_E4ListensAgainForAPairThatWasReset)
{
    nic_run(0, over_tcp(), again);
}
