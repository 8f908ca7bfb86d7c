// Tests of the TCP wire against a peer of the test: damaged, cut and unexpected frames, peers that
// do not read, and connecting again. Strangers are in tcp_strangers_test.cc, what all NICs have in
// common in nic_… and qp_test.cc.
#include "tests/sim/tcp/tcp_peer.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace
{

NIC_TEST(Tcp, WholeFrameIsPlacedAndAcknowledged, nic_run, 1, over_tcp())
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

// A child of the NIC's process, forked meanwhile, has the connection, too: the peer hears of the
// end all the same.
NIC_TEST(Tcp, D_C10_AConnectionEndsAlsoWhereAChildHasItToo, nic_run, 1, over_tcp())
{
    scene s(w, first_nonce);
    char byte;
    ssize_t n = -1;

    s.meet();
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    std::vector<uint8_t> v = s.write(0, 4711);
    v[sizeof(struct tcp_frame) + 3] ^= 0x10;
    s.p.put(v);
    s.expect_failed(SWL_SYNDROME_BAD_RESPONSE);
    for (int i = 0; i < 2000 && n < 0; i++) {
        n = recv(s.p.fd, &byte, 1, MSG_DONTWAIT);
        nic_sleep(100000);
    }
    EXPECT_EQ(n, 0);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

NIC_TEST(Tcp, ConnectionCutInsideAFrameEndsTheQueuePair, nic_run, 1, over_tcp())
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

NIC_TEST(Tcp, WhatKeysDoNotAllowIsRefused, nic_run, 1, over_tcp())
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
NIC_TEST(Tcp, PeerThatDoesNotReadCostsBoundedMemoryAndTime, nic_run, 1, over_tcp())
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
NIC_TEST(Tcp, SilentPeerIsMissedWithNothingUnderWay, nic_run, 1, over_tcp())
{
    scene s(w, first_nonce);

    s.meet();
    nic_sleep(950000000);
    EXPECT_EQ(nic_status(*s.me).state, SWL_NIC_QP_READY);
    nic_sleep(100000000);
    s.expect_failed(SWL_SYNDROME_RETRY);
}

// A peer that only says that it lives is none that answers.
NIC_TEST(Tcp, PeerThatOnlyBeatsIsMissedWhenAnAnswerIsDue, nic_run, 1, over_tcp())
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

// The NIC's end is accepted before its host has named the peer: it beats, and nobody is missed
// meanwhile.
NIC_TEST(Tcp, EndWithoutItsHostBeats, nic_run, 1, over_tcp())
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
NIC_TEST(Tcp, TwoBusyEndsDoNotWaitForEachOther, nic_run, 1, over_tcp())
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

// The process has no descriptor left: the log says so, once, and the peer is let in when there is
// one.
NIC_TEST(Tcp, LackOfDescriptorsIsSaid, nic_run, 1, over_tcp())
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
NIC_TEST(Tcp, DestroyedPeerIsAnErrorOnlyForWhoWantsSomething, nic_run, 1, over_tcp())
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

int damage; // 0 to 3

void damaged(nic_world &w)
{
    scene s(w, first_nonce);

    s.meet();
    std::vector<uint8_t> v = s.write(0, 4711);
    if (damage == 0) // corrupted
        v[sizeof(struct tcp_frame) + 3] ^= 0x10;
    if (damage == 1) // an alien
        v.assign(200, 'x');
    if (damage == 2) // an answer without a question
        v = s.p.frame(TCP_OLD, {}, "");
    s.p.put(v);
    if (damage == 3) // sent twice
        s.p.put(v);
    s.expect_failed(SWL_SYNDROME_BAD_RESPONSE);
    EXPECT_EQ(word_at(*s.me, 64), damage == 3 ? 4711u : 0u);
}

TEST(Tcp, DamagedFrameEndsTheQueuePairAndIsNotPlaced)
{
    for (damage = 0; damage < 4; damage++)
        nic_run(0, over_tcp(), damaged);
}

TEST(Tcp, ConnectSaysWhyThereIsNobody)
{
    nic_run(0, over_tcp(), nobody_listens);
    nic_run(0, over_tcp(), nobody_answers);
}

} // namespace
