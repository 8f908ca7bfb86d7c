// Tests of the TCP wire against a peer of the test: damaged, cut and unexpected frames, strangers,
// peers that do not read, and connecting again. What all NICs have in common is in nic_… and qp_test.cc.
#include "tests/sim/nic_fixture.h"
#include "transport/tcp/interface.h"
#include "transport/tcp/tcp.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace
{

const uint8_t first_nonce = 0x00, last_nonce = 0xff; // of the test's peer: it connects, it listens

// The test's end of a connection.
struct peer {
    struct tcp_address mine = {}, nic = {};
    int listener = -1, fd = -1;
    uint64_t out = 0, in = 0, beats = 0;
    std::vector<uint8_t> bytes;

    ~peer()
    {
        hang_up();
        if (listener >= 0)
            close(listener);
    }
    void hang_up()
    {
        if (fd >= 0)
            close(fd);
        fd = -1;
        out = in = 0;
        bytes.clear();
    }
    void listen_as(uint8_t nonce)
    {
        struct tcp_why why;

        ASSERT_TRUE(swl_tcp_choose("lo", &mine.place, &why)) << why.text;
        listener = swl_tcp_listen(&mine.place, &why);
        ASSERT_GE(listener, 0) << why.text;
        memset(mine.nonce, nonce, sizeof(mine.nonce));
        mine.qp = 5;
        mine.generation = 9;
    }
    // What connect of the NIC is given.
    struct swl_nic_address address_like(const struct swl_nic_address &of_nic)
    {
        struct swl_nic_address a = of_nic;

        memcpy(&nic, a.bytes + 24, sizeof(nic));
        memcpy(a.bytes + 24, &mine, sizeof(mine));
        return a;
    }
    void dial()
    {
        struct tcp_why why;

        fd = swl_tcp_connect(&nic.place, 1000000000ull, &why);
        ASSERT_GE(fd, 0) << why.text;
    }
    std::vector<uint8_t> frame(uint16_t kind, struct tcp_frame head, const void *payload)
    {
        std::vector<uint8_t> v(tcp_frame_bytes(head.bytes));
        struct tcp_frame *f = reinterpret_cast<struct tcp_frame *>(v.data());

        *f = head;
        f->kind = kind;
        if (head.bytes)
            memcpy(f + 1, payload, head.bytes);
        swl_tcp_seal(f, out++);
        return v;
    }
    void put(const std::vector<uint8_t> &v)
    {
        ASSERT_EQ(::send(fd, v.data(), v.size(), MSG_NOSIGNAL), static_cast<ssize_t>(v.size()));
    }
    void hello()
    {
        struct tcp_hello h = {};
        struct tcp_frame head = {};

        memcpy(h.to, nic.nonce, sizeof(h.to));
        memcpy(h.from, mine.nonce, sizeof(h.from));
        h.to_qp = nic.qp;
        h.to_generation = nic.generation;
        h.from_qp = mine.qp;
        h.from_generation = mine.generation;
        head.bytes = sizeof(h);
        put(frame(TCP_HELLO, head, &h));
    }
    void beat()
    {
        put(frame(TCP_BEAT, {}, ""));
    }
    // The next frame that is no beat, or kind 0 after 100 ms or at the end of the connection.
    struct tcp_frame get()
    {
        struct tcp_frame f = {};

        for (int i = 0; i < 1000; i++) {
            uint8_t part[4096];
            const ssize_t n = recv(fd, part, sizeof(part), 0);

            if (n > 0)
                bytes.insert(bytes.end(), part, part + n);
            if (swl_tcp_look(bytes.data(), bytes.size(), in, &f) == TCP_LOOK_FRAME) {
                bytes.erase(bytes.begin(),
                            bytes.begin() + static_cast<long>(tcp_frame_bytes(f.bytes)));
                in++;
                if (f.kind != TCP_BEAT)
                    return f;
                beats++;
            }
            if (n == 0)
                break;
            nic_sleep(100000);
        }
        return {};
    }
};

nic_options over_tcp()
{
    nic_options o;

    o.ops = swl_tcp_ops();
    o.executor = SWL_SOFT_ENGINE;
    return o;
}

// Queue pair 1 of rank 0 is the test's: the fixture's partner gets none.
struct scene {
    nic_rank *me;
    peer p;

    scene(nic_world &w, uint8_t nonce) : me(&w.rank[0])
    {
        struct swl_nic_address a;

        EXPECT_EQ(me->nic->ops->reset(me->nic, 0), ncclSuccess);
        EXPECT_EQ(me->nic->ops->address(me->nic, 0, &a), ncclSuccess);
        p.listen_as(nonce);
        given = p.address_like(a);
    }
    ncclResult_t connect()
    {
        const ncclResult_t rc = me->nic->ops->connect(me->nic, 0, &given);

        if (rc == ncclSuccess) {
            EXPECT_EQ(me->nic->ops->view(me->nic, 0, &me->qps[0]), ncclSuccess);
        }
        return rc;
    }
    void meet() // the test connects
    {
        ASSERT_EQ(connect(), ncclSuccess) << swl_last_error();
        p.dial();
        p.hello();
        ASSERT_EQ(p.get().kind, TCP_WELCOME);
    }
    std::vector<uint8_t> write(uint64_t index, uint64_t value)
    {
        struct tcp_frame f = {};

        f.bytes = f.total = 8;
        f.index = index;
        f.remote = me->data_at(64);
        f.rkey = me->payload.rkey;
        return p.frame(TCP_WRITE, f, &value);
    }
    void expect_failed(uint32_t syndrome)
    {
        for (int i = 0; i < 100 && nic_status(*me).state != SWL_NIC_QP_ERROR; i++)
            nic_sleep(1000000);
        EXPECT_EQ(nic_status(*me).state, SWL_NIC_QP_ERROR);
        EXPECT_EQ(nic_status(*me).syndrome, syndrome);
        EXPECT_EQ(connect(), ncclInvalidUsage) << "before a reset";
    }
    struct swl_nic_address given;
};

uint64_t word_at(const nic_rank &k, uint64_t at)
{
    uint64_t v;

    memcpy(&v, k.data(at), sizeof(v));
    return v;
}

void whole_frame(nic_world &w)
{
    scene s(w, first_nonce);
    struct tcp_frame ack;

    s.meet();
    s.p.put(s.write(0, 4711));
    ack = s.p.get();
    EXPECT_EQ(ack.kind, TCP_ACK);
    EXPECT_EQ(ack.index, 1u);
    EXPECT_EQ(word_at(*s.me, 64), 4711u);
}

void corrupted_frame(nic_world &w)
{
    scene s(w, first_nonce);
    std::vector<uint8_t> v;

    s.meet();
    v = s.write(0, 4711);
    v[sizeof(struct tcp_frame) + 3] ^= 0x10;
    s.p.put(v);
    s.expect_failed(SWL_SYNDROME_BAD_RESPONSE);
    EXPECT_EQ(word_at(*s.me, 64), 0u);
}

void frame_twice(nic_world &w)
{
    scene s(w, first_nonce);
    std::vector<uint8_t> v;

    s.meet();
    v = s.write(0, 1);
    s.p.put(v);
    s.p.put(v);
    s.expect_failed(SWL_SYNDROME_BAD_RESPONSE);
}

void alien_frame(nic_world &w)
{
    scene s(w, first_nonce);

    s.meet();
    s.p.put(std::vector<uint8_t>(200, 'x'));
    s.expect_failed(SWL_SYNDROME_BAD_RESPONSE);
}

void answer_without_question(nic_world &w)
{
    scene s(w, first_nonce);

    s.meet();
    s.p.put(s.p.frame(TCP_OLD, {}, ""));
    s.expect_failed(SWL_SYNDROME_BAD_RESPONSE);
}

void truncated_frame(nic_world &w)
{
    scene s(w, first_nonce);
    std::vector<uint8_t> v;

    s.meet();
    v = s.write(0, 4711);
    v.resize(v.size() - 4);
    s.p.put(v);
    nic_sleep(1000000);
    EXPECT_EQ(nic_status(*s.me).state, SWL_NIC_QP_READY) << "the rest may follow";
    s.p.hang_up();
    s.expect_failed(SWL_SYNDROME_RETRY);
    EXPECT_EQ(word_at(*s.me, 64), 0u);
}

void bad_key(nic_world &w)
{
    scene s(w, first_nonce);
    struct tcp_frame f = {}, nak;

    s.meet();
    f.bytes = f.total = 8;
    f.remote = s.me->data_at(w.options.payload_bytes - 7);
    f.rkey = s.me->payload.rkey;
    s.p.put(s.p.frame(TCP_WRITE, f, &f));
    nak = s.p.get();
    EXPECT_EQ(nak.kind, TCP_NAK);
    EXPECT_EQ(nak.index, 0u);
    EXPECT_EQ(nak.value, static_cast<uint64_t>(SWL_SYNDROME_REMOTE_ACCESS));
    f.total = 1 << 20; // a part that would fit, of a request that does not
    f.remote = s.me->data_at(64);
    s.p.put(s.p.frame(TCP_WRITE, f, &f));
    nic_sleep(1000000);
    EXPECT_EQ(word_at(*s.me, 64), 0u);
}

void strangers(nic_world &w)
{
    scene s(w, first_nonce);
    struct tcp_frame f;
    peer other;

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

void nobody_listens(nic_world &w)
{
    scene s(w, last_nonce);

    close(s.p.listener);
    s.p.listener = -1;
    EXPECT_EQ(s.connect(), ncclSystemError);
    for (const char *words : {"from 127.0.0.1 (lo): cannot connect to 127.0.0.1:", " (lo): ",
                              "Connection refused"}) // D-C.2
        EXPECT_NE(strstr(swl_last_error(), words), nullptr) << words << ": " << swl_last_error();
}

// The NIC connects, to a peer that never answers.
void nobody_answers(nic_world &w)
{
    scene s(w, last_nonce);
    const uint64_t begin = simt_now_ns();

    EXPECT_EQ(s.connect(), ncclSystemError);
    EXPECT_NE(strstr(swl_last_error(), "does not answer"), nullptr) << swl_last_error();
    EXPECT_LT(simt_now_ns() - begin, 3000000000ull);
}

// A peer that does not read: what was posted waits in bounded memory, then fails by the time limit.
void slow_reader(nic_world &w)
{
    scene s(w, first_nonce);
    struct swl_qp *qp = &w.rank[0].qps[0];
    struct swl_wqe e;
    nic_seen seen;

    s.meet();
    for (int i = 0; i < 64; i++) {
        swl_wqe_move(&e, qp->reserved, SWL_WQE_WRITE, qp->qpn,
                     {s.me->data_at(0), s.me->payload.lkey, 1 << 20}, {4096, 7});
        nic_raw(qp, e);
    }
    nic_raw_ring(qp);
    nic_sleep(100000000);
    EXPECT_EQ(nic_status(*s.me).state, SWL_NIC_QP_READY);
    seen = nic_await(qp, 5000000000ull);
    EXPECT_EQ(seen.opcode, static_cast<uint32_t>(SWL_CQE_ERROR));
    EXPECT_EQ(seen.syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
    EXPECT_EQ(seen.index, 0u);
    s.expect_failed(SWL_SYNDROME_RETRY);
}

// Nothing is under way: the peer is missed all the same, and not before the limit of a second.
void silent_peer(nic_world &w)
{
    scene s(w, first_nonce);

    s.meet();
    nic_sleep(950000000);
    EXPECT_EQ(nic_status(*s.me).state, SWL_NIC_QP_READY);
    nic_sleep(100000000);
    s.expect_failed(SWL_SYNDROME_RETRY);
}

// A peer that only says that it lives is none that answers.
void living_peer(nic_world &w)
{
    scene s(w, first_nonce);
    struct swl_qp *qp = &w.rank[0].qps[0];
    struct swl_wqe nop;

    s.meet();
    for (int i = 0; i < 25; i++) {
        nic_sleep(100000000);
        s.p.beat();
    }
    EXPECT_EQ(nic_status(*s.me).state, SWL_NIC_QP_READY);
    EXPECT_EQ(s.p.get().kind, 0);
    EXPECT_GE(s.p.beats, 15u) << "one each eighth of the limit";
    EXPECT_LE(s.p.beats, 22u);
    swl_wqe_nop(&nop, qp->reserved, qp->qpn);
    nic_raw(qp, nop);
    nic_raw_ring(qp);
    for (int i = 0; i < 9; i++) {
        nic_sleep(100000000);
        s.p.beat();
    }
    EXPECT_EQ(nic_status(*s.me).state, SWL_NIC_QP_READY);
    for (int i = 0; i < 2; i++) {
        nic_sleep(100000000);
        s.p.beat();
    }
    s.expect_failed(SWL_SYNDROME_RETRY);
}

// The NIC's end is accepted before its host has named the peer: it beats, and nobody is missed meanwhile.
void late_host(nic_world &w)
{
    scene s(w, first_nonce);

    s.p.dial();
    s.p.hello();
    EXPECT_EQ(s.p.get().kind, TCP_WELCOME);
    nic_sleep(2000000000);
    s.p.beats = 0;
    EXPECT_EQ(s.p.get().kind, 0);
    EXPECT_GE(s.p.beats, 12u);
    ASSERT_EQ(s.connect(), ncclSuccess) << swl_last_error();
    nic_sleep(500000000);
    s.p.put(s.write(0, 4711));
    EXPECT_EQ(s.p.get().kind, TCP_ACK);
}

// Both ends send a great deal before either has read: nobody waits for ever.
void both_busy(nic_world &w)
{
    for (int r = 0; r < 2; r++) {
        nic_rank &me = w.rank[r], &peer = w.rank[1 - r];
        struct swl_qp *qp = &me.qps[0];
        struct swl_wqe e;

        memset(me.data(0), r + 1, 1 << 19);
        for (int i = 0; i < 100; i++) {
            const uint32_t opcode = i % 3 == 2 ? SWL_WQE_READ : SWL_WQE_WRITE;
            const uint64_t at = opcode == SWL_WQE_READ ? 768 << 10 : 0;

            swl_wqe_move(&e, qp->reserved, opcode, qp->qpn,
                         {me.data_at(at), me.payload.lkey, 200000},
                         {peer.data_at(512 << 10), peer.payload.rkey});
            nic_raw(qp, e);
        }
        nic_raw_ring(qp);
    }
    for (int r = 0; r < 2; r++) {
        EXPECT_EQ(nic_await(&w.rank[r].qps[0], 5000000000ull).opcode,
                  static_cast<uint32_t>(SWL_CQE_DONE));
        EXPECT_EQ(*w.rank[r].data(512 << 10), 2 - r);
        EXPECT_EQ(*w.rank[r].data((768 << 10) + 199999), r + 1);
    }
}

// The process has no descriptor left: the log says so, once, and the peer is let in when there is one.
void no_descriptor(nic_world &w)
{
    scene s(w, first_nonce);
    struct rlimit all, few;
    std::string said;
    size_t at;
    int next;

    ASSERT_EQ(s.connect(), ncclSuccess) << swl_last_error();
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &all), 0);
    ::testing::internal::CaptureStderr();
    s.p.dial();
    next = dup(0);
    ASSERT_GE(next, 0);
    close(next);
    few = all;
    few.rlim_cur = static_cast<rlim_t>(next);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    nic_sleep(10000000);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &all), 0);
    said = ::testing::internal::GetCapturedStderr();
    at = said.find("cannot take connections of its peers: Too many open files (ulimit -n)");
    EXPECT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find("cannot take", at + 1), std::string::npos) << said;
    s.p.hello();
    EXPECT_EQ(s.p.get().kind, TCP_WELCOME);
}

// A NIC that is destroyed is no error for who wants nothing from it.
void goodbye(nic_world &w)
{
    struct swl_qp *qp = &w.rank[0].qps[0];
    struct swl_wqe nop;

    nic_close(w, 1);
    nic_sleep(10000000);
    EXPECT_EQ(nic_status(w.rank[0]).state, SWL_NIC_QP_READY);
    swl_wqe_nop(&nop, qp->reserved, qp->qpn);
    nic_raw(qp, nop);
    nic_raw_ring(qp);
    EXPECT_EQ(nic_await(qp).syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
}

} // namespace

TEST(Tcp, WholeFrameIsPlacedAndAcknowledged)
{
    nic_run(0, over_tcp(), whole_frame);
}

TEST(Tcp, DamagedFrameEndsTheQueuePairAndIsNotPlaced)
{
    nic_run(0, over_tcp(), corrupted_frame);
    nic_run(0, over_tcp(), frame_twice);
    nic_run(0, over_tcp(), alien_frame);
    nic_run(0, over_tcp(), answer_without_question);
}

TEST(Tcp, ConnectionCutInsideAFrameEndsTheQueuePair)
{
    nic_run(0, over_tcp(), truncated_frame);
}

TEST(Tcp, WhatKeysDoNotAllowIsRefused)
{
    nic_run(0, over_tcp(), bad_key);
}

TEST(Tcp, StrangersAreSentAwayAndDisturbNobody)
{
    nic_run(0, over_tcp(), strangers);
}

TEST(Tcp, ConnectSaysWhyThereIsNobody)
{
    nic_run(0, over_tcp(), nobody_listens);
    nic_run(0, over_tcp(), nobody_answers);
}

TEST(Tcp, PeerThatDoesNotReadCostsBoundedMemoryAndTime)
{
    nic_run(0, over_tcp(), slow_reader);
}

TEST(Tcp, SilentPeerIsMissedWithNothingUnderWay)
{
    nic_run(0, over_tcp(), silent_peer);
}

TEST(Tcp, PeerThatOnlyBeatsIsMissedWhenAnAnswerIsDue)
{
    nic_run(0, over_tcp(), living_peer);
}

TEST(Tcp, EndWithoutItsHostBeats)
{
    nic_run(0, over_tcp(), late_host);
}

TEST(Tcp, LackOfDescriptorsIsSaid)
{
    nic_run(0, over_tcp(), no_descriptor);
}

TEST(Tcp, TwoBusyEndsDoNotWaitForEachOther)
{
    nic_run(0, over_tcp(), both_busy);
}

TEST(Tcp, DestroyedPeerIsAnErrorOnlyForWhoWantsSomething)
{
    nic_run(0, over_tcp(), goodbye);
}
