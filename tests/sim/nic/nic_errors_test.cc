// Tests of what the software NIC refuses: each wrong entry gives the hardware's syndrome, moves the
// queue pair to the error state and touches no memory.
#include "tests/support/nic_fixture.h"

#include <functional>

namespace
{

const uint32_t size_bytes = 1 << 20; // payload of nic_options

struct scene {
    nic_world *w;
    nic_rank *me, *peer;
    struct swl_qp *qp;
};

struct swl_wqe write_of(const scene &s, uint64_t from, uint64_t to, uint32_t bytes)
{
    struct swl_wqe e;

    swl_wqe_move(&e, s.qp->reserved, SWL_WQE_WRITE, s.qp->qpn,
                 {s.me->data_at(from), s.me->payload.lkey, bytes},
                 {s.peer->data_at(to), s.peer->payload.rkey});
    return e;
}

struct swl_wqe add_of(const scene &s, uint64_t remote, uint32_t rkey)
{
    struct swl_wqe e;

    swl_wqe_fetch_add(&e, s.qp->reserved, s.qp->qpn, 1, {s.qp->sink, s.qp->sink_lkey, 8},
                      {remote, rkey});
    return e;
}

struct wrong {
    const char *name;
    uint32_t syndrome;
    std::function<struct swl_wqe(const scene &)> make;
};

void set_word(struct swl_wqe *e, int word, uint32_t value)
{
    e->word[word] = swl_be32(value);
}

std::vector<wrong> wrongs()
{
    std::vector<wrong> v;
    auto changed = [&v](const char *name, uint32_t syndrome, int word,
                        std::function<uint32_t(uint32_t)> change) {
        v.push_back({name, syndrome, [word, change](const scene &s) {
                         struct swl_wqe e = write_of(s, 0, 0, 64);

                         set_word(&e, word, change(swl_be32(e.word[word])));
                         return e;
                     }});
    };

    changed("unknown opcode", SWL_SYNDROME_LOCAL_OPERATION, 0,
            [](uint32_t x) { return (x & ~0xffu) | 0x0a; });
    changed("opcode modifier", SWL_SYNDROME_LOCAL_OPERATION, 0,
            [](uint32_t x) { return x | 0x08000000; });
    changed("index of the next entry", SWL_SYNDROME_LOCAL_OPERATION, 0,
            [](uint32_t x) { return x + 0x100; });
    changed("other queue", SWL_SYNDROME_LOCAL_OPERATION, 1, [](uint32_t x) { return x ^ 0x100; });
    changed("segment count", SWL_SYNDROME_LOCAL_OPERATION, 1, [](uint32_t x) { return x + 1; });
    changed("reserved flags", SWL_SYNDROME_LOCAL_OPERATION, 2,
            [](uint32_t x) { return x | 0x01000000; });
    changed("reserved word", SWL_SYNDROME_LOCAL_OPERATION, 7, [](uint32_t) { return 1u; });
    changed("no bytes", SWL_SYNDROME_LOCAL_LENGTH, 8, [](uint32_t) { return 0u; });
    changed("too many bytes", SWL_SYNDROME_LOCAL_LENGTH, 8,
            [](uint32_t) { return SWL_WQE_BYTES_MAX + 1; });
    changed("inline too long", SWL_SYNDROME_LOCAL_LENGTH, 8,
            [](uint32_t) { return SWL_WQE_INLINE | 29; });
    changed("lkey of another generation", SWL_SYNDROME_LOCAL_PROTECTION, 9,
            [](uint32_t x) { return x + 1; });
    changed("lkey of another index", SWL_SYNDROME_LOCAL_PROTECTION, 9,
            [](uint32_t x) { return x + 0x100; });
    changed("lkey zero", SWL_SYNDROME_LOCAL_PROTECTION, 9, [](uint32_t) { return 0u; });
    changed("rkey of another generation", SWL_SYNDROME_REMOTE_ACCESS, 6,
            [](uint32_t x) { return x + 1; });
    changed("rkey with other high bits", SWL_SYNDROME_REMOTE_ACCESS, 6,
            [](uint32_t x) { return x ^ 0x100000; });
    changed("remote address in nobody's memory", SWL_SYNDROME_REMOTE_ACCESS, 4,
            [](uint32_t x) { return x ^ 0x40000000; });

    v.push_back({"my key as rkey", SWL_SYNDROME_REMOTE_ACCESS, [](const scene &s) {
                     struct swl_wqe e = write_of(s, 0, 0, 64);

                     set_word(&e, 6, s.me->payload.rkey);
                     return e;
                 }});
    v.push_back({"peer's key as lkey", SWL_SYNDROME_LOCAL_PROTECTION, [](const scene &s) {
                     struct swl_wqe e = write_of(s, 0, 0, 64);

                     set_word(&e, 9, s.peer->payload.lkey);
                     return e;
                 }});
    v.push_back({"local end one byte too far", SWL_SYNDROME_LOCAL_PROTECTION,
                 [](const scene &s) { return write_of(s, size_bytes - 63, 0, 64); }});
    v.push_back({"remote end one byte too far", SWL_SYNDROME_REMOTE_ACCESS,
                 [](const scene &s) { return write_of(s, 0, size_bytes - 63, 64); }});
    v.push_back({"remote begin one byte too early", SWL_SYNDROME_REMOTE_ACCESS,
                 [](const scene &s) { return write_of(s, 0, static_cast<uint64_t>(-1), 64); }});
    v.push_back({"length wraps the address", SWL_SYNDROME_REMOTE_ACCESS, [](const scene &s) {
                     struct swl_wqe e = write_of(s, 0, 0, 64);

                     set_word(&e, 4, UINT32_MAX);
                     set_word(&e, 5, UINT32_MAX - 15);
                     return e;
                 }});
    v.push_back({"add to relaxed payload", SWL_SYNDROME_REMOTE_ACCESS, [](const scene &s) {
                     return add_of(s, s.peer->data_at(0), s.peer->payload.rkey);
                 }});
    v.push_back({"add to a misaligned word", SWL_SYNDROME_REMOTE_REQUEST, [](const scene &s) {
                     return add_of(s, s.peer->word_at(0) + 4, s.peer->signal.rkey);
                 }});
    v.push_back({"add past the signals", SWL_SYNDROME_REMOTE_ACCESS, [](const scene &s) {
                     return add_of(s, s.peer->word_at(nic_signal_bytes / 8), s.peer->signal.rkey);
                 }});
    v.push_back({"sink without a key", SWL_SYNDROME_LOCAL_PROTECTION, [](const scene &s) {
                     struct swl_wqe e = add_of(s, s.peer->word_at(0), s.peer->signal.rkey);

                     set_word(&e, 13, 5);
                     return e;
                 }});
    v.push_back({"sink of 4 bytes", SWL_SYNDROME_LOCAL_LENGTH, [](const scene &s) {
                     struct swl_wqe e = add_of(s, s.peer->word_at(0), s.peer->signal.rkey);

                     set_word(&e, 12, 4);
                     return e;
                 }});
    return v;
}

bool all_zero(const nic_rank &k)
{
    for (uint64_t i = 0; i < k.window_bytes - 8; i++)
        if (k.window[i] != 0 && k.window + i < reinterpret_cast<uint8_t *>(k.watch.poison))
            return false;
    return true;
}

size_t which;

// Devices differ in what they call a bad local end and a misaligned add; without atomics the sink
// is not used at all.
bool on_every_device(const wrong &x)
{
    return x.syndrome != SWL_SYNDROME_LOCAL_PROTECTION && x.syndrome != SWL_SYNDROME_REMOTE_REQUEST;
}

// One good entry, the wrong one, two more: completed, its syndrome, flushed.
void one_wrong(nic_world &w)
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};
    wrong x = wrongs()[which];
    struct swl_wqe nop;
    nic_seen seen;

    SCOPED_TRACE(x.name);
    swl_wqe_nop(&nop, s.qp->reserved, s.qp->qpn);
    nic_raw(s.qp, nop);
    nic_raw(s.qp, x.make(s));
    memset(s.me->data(4096), 9, 64);
    nic_raw(s.qp, write_of(s, 4096, 0, 64));
    nic_raw(s.qp, add_of(s, s.peer->word_at(0), s.peer->signal.rkey));
    nic_raw_ring(s.qp);
    seen = nic_await(s.qp);
    EXPECT_EQ(seen.opcode, static_cast<uint32_t>(SWL_CQE_ERROR));
    EXPECT_EQ(seen.syndrome, x.syndrome);
    EXPECT_EQ(seen.index, (s.qp->ready - 3) & 0xffff);
    nic_sleep(1000000);
    nic_look(&seen);
    EXPECT_EQ(seen.syndrome, static_cast<uint32_t>(SWL_SYNDROME_FLUSHED));
    EXPECT_EQ(seen.index, (s.qp->ready - 1) & 0xffff);
    EXPECT_EQ(nic_status(*s.me).state, SWL_NIC_QP_ERROR);
    EXPECT_EQ(nic_status(*s.me).syndrome, x.syndrome);
    EXPECT_EQ(nic_status(*s.me).index, s.qp->ready - 3);
    nic_expect_count(w, &swl_soft_stats::errors, 3u);
    EXPECT_TRUE(all_zero(*s.peer));

    /* later entries are flushed as well */
    nic_raw(s.qp, write_of(s, 4096, 0, 64));
    nic_raw_ring(s.qp);
    nic_sleep(1000000);
    nic_look(&seen);
    EXPECT_EQ(seen.index, (s.qp->ready - 1) & 0xffff);
    EXPECT_EQ(seen.syndrome, static_cast<uint32_t>(SWL_SYNDROME_FLUSHED));
    EXPECT_TRUE(all_zero(*s.peer));
}

void expect_works(const scene &s, uint64_t word)
{
    uint64_t before = *s.peer->word(word);

    nic_raw(s.qp, add_of(s, s.peer->word_at(word), s.peer->signal.rkey));
    nic_raw_ring(s.qp);
    EXPECT_EQ(nic_await(s.qp).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
    EXPECT_EQ(*s.peer->word(word), before + 1);
}

void bad_doorbells(nic_world &w)
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};

    expect_works(s, 0);
    expect_works(s, 0);
    /* going back by one is 65535 forward: more than the queue holds */
    __atomic_store_n(s.qp->doorbell, swl_doorbell_value(s.qp->ready - 1, s.qp->qpn),
                     __ATOMIC_RELEASE);
    nic_sleep(1000000);
    nic_expect_count(w, &swl_soft_stats::bad_doorbells, 1u);
    EXPECT_EQ(nic_status(*s.me).state, SWL_NIC_QP_ERROR);
    EXPECT_EQ(nic_status(*s.me).syndrome, static_cast<uint32_t>(SWL_SYNDROME_LOCAL_OPERATION));
}

NIC_TEST(NicErrors, DoorbellBeforeItsRecordIsAnError, nic_run_all, 1, nic_options())
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};

    nic_raw(s.qp, add_of(s, s.peer->word_at(0), s.peer->signal.rkey));
    __atomic_store_n(s.qp->doorbell, swl_doorbell_value(s.qp->ready, s.qp->qpn), __ATOMIC_RELEASE);
    nic_sleep(1000000);
    nic_expect_count(w, &swl_soft_stats::bad_doorbells, 1u);
    EXPECT_EQ(*s.peer->word(0), 0u);
}

NIC_TEST(NicErrors, DoorbellOfAnotherQueueIsAnError, nic_run_all, 1, nic_options())
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};

    nic_raw(s.qp, add_of(s, s.peer->word_at(0), s.peer->signal.rkey));
    s.qp->dbr[SWL_DBR_SEND] = swl_dbr_value(s.qp->ready);
    __atomic_store_n(s.qp->doorbell, swl_doorbell_value(s.qp->ready, s.qp->qpn + 1),
                     __ATOMIC_RELEASE);
    nic_sleep(1000000);
    nic_expect_count(w, &swl_soft_stats::bad_doorbells, 1u);
    EXPECT_EQ(*s.peer->word(0), 0u);
}

NIC_TEST(NicErrors, EntryRewrittenBeforeItsCompletionIsAnError, nic_run_on_host, 1, nic_options())
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};
    struct swl_wqe nop;

    nic_raw(s.qp, write_of(s, 0, 0, 4096));
    nic_raw_ring(s.qp);
    nic_sleep(200);
    swl_wqe_nop(&nop, s.qp->ready + 127, s.qp->qpn);
    memcpy(s.qp->sq, &nop, sizeof(nop));
    EXPECT_EQ(nic_await(s.qp).syndrome, static_cast<uint32_t>(SWL_SYNDROME_LOCAL_OPERATION));
    nic_expect_count(w, &swl_soft_stats::rewritten, 1u);
}

void old_key(nic_world &w)
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};
    struct swl_nic_region again, old = s.peer->payload;
    unsigned all = SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE;

    ASSERT_EQ(s.peer->nic->ops->dereg_mr(s.peer->nic, &old), ncclSuccess);
    ASSERT_EQ(s.peer->nic->ops->reg_mr(s.peer->nic, s.peer->data(0), w.options.payload_bytes, all,
                                       &again),
              ncclSuccess);
    EXPECT_NE(again.rkey, old.rkey);
    nic_raw(s.qp, write_of(s, 0, 0, 64));
    nic_raw_ring(s.qp);
    EXPECT_EQ(nic_await(s.qp).syndrome, static_cast<uint32_t>(SWL_SYNDROME_REMOTE_ACCESS));
    EXPECT_EQ(s.peer->nic->ops->dereg_mr(s.peer->nic, &old), ncclInvalidArgument);
}

void connect_anew(nic_world &w)
{
    for (int r = 0; r < 2; r++) {
        nic_serve_stop(w, r);
        ASSERT_EQ(w.rank[r].nic->ops->reset(w.rank[r].nic, 0), ncclSuccess);
    }
    for (int r = 0; r < 2; r++) {
        nic_connect(w, r, 0);
        nic_serve_start(w, r);
    }
}

NIC_TEST(NicErrors, QueueIsUsableAgainAfterReset, nic_run_all, 4, nic_options())
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};

    for (int round = 0; round < 3; round++) {
        expect_works(s, 0);
        nic_serve_stop(w, 0); /* queue pairs change state between kernels */
        ASSERT_EQ(s.me->nic->ops->to_error(s.me->nic, 0), ncclSuccess);
        nic_serve_start(w, 0);
        nic_raw(s.qp, add_of(s, s.peer->word_at(0), s.peer->signal.rkey));
        nic_raw_ring(s.qp);
        EXPECT_EQ(nic_await(s.qp).syndrome, static_cast<uint32_t>(SWL_SYNDROME_FLUSHED));
        ASSERT_NO_FATAL_FAILURE(connect_anew(w));
        EXPECT_EQ(nic_status(*s.me).state, SWL_NIC_QP_READY);
    }
    EXPECT_EQ(*s.peer->word(0), 3u);
}

void peer_in_error(nic_world &w)
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};

    nic_serve_stop(w, 1);
    ASSERT_EQ(s.peer->nic->ops->to_error(s.peer->nic, 0), ncclSuccess);
    nic_raw(s.qp, write_of(s, 0, 0, 64));
    nic_raw_ring(s.qp);
    EXPECT_EQ(nic_await(s.qp).syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
}

// Connecting anew at one end does not bring back the other, which is still in error.
void connected_alone(nic_world &w)
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};

    for (int r = 0; r < 2; r++)
        nic_serve_stop(w, r);
    ASSERT_EQ(s.peer->nic->ops->to_error(s.peer->nic, 0), ncclSuccess);
    ASSERT_EQ(s.me->nic->ops->reset(s.me->nic, 0), ncclSuccess);
    nic_connect(w, 0, 0);
    nic_serve_start(w, 0);
    nic_raw(s.qp, write_of(s, 0, 0, 64));
    nic_raw_ring(s.qp);
    EXPECT_EQ(nic_await(s.qp).syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
    ASSERT_NO_FATAL_FAILURE(connect_anew(w));
    expect_works(s, 0);
}

NIC_TEST(NicErrors, DestroyedPeerDoesNotAnswer, nic_run_on_host, 4, nic_options())
{
    scene s = {&w, &w.rank[0], &w.rank[1], &w.rank[0].qps[0]};

    expect_works(s, 0);
    memset(s.me->data(0), 1, 4096);
    nic_raw(s.qp, write_of(s, 0, 0, 4096));
    nic_raw_ring(s.qp);
    nic_close(w, 1); /* parts of the write are under way */
    EXPECT_EQ(nic_await(s.qp).syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
}

NIC_TEST(NicErrors, MisuseByTheHostIsRefusedWithASentence, nic_run, 1, nic_options())
{
    struct swl_nic *nic = w.rank[0].nic;
    struct swl_nic_address a;
    struct swl_nic_region region;
    uint32_t qp;

    EXPECT_EQ(nic->ops->create_qp(nic, &qp), ncclInvalidUsage);
    EXPECT_EQ(nic->ops->reg_mr(nic, nullptr, 8, 0, &region), ncclInvalidArgument);
    EXPECT_EQ(nic->ops->reg_mr(nic, &w, 0, 0, &region), ncclInvalidArgument);
    EXPECT_EQ(nic->ops->reg_mr(nic, &w, 8, SWL_NIC_RELAXED | SWL_NIC_REMOTE_ADD, &region),
              ncclInvalidArgument);
    ASSERT_EQ(w.rank[1].nic->ops->address(w.rank[1].nic, 0, &a), ncclSuccess);
    EXPECT_EQ(nic->ops->connect(nic, 0, &a), ncclInvalidUsage) << "twice";
    a.bytes[8] ^= 1;
    EXPECT_EQ(nic->ops->connect(nic, 0, &a), ncclInvalidUsage);
    if (w.options.executor != SWL_SOFT_BLOCKS) { /* those map the memory of other processes */
        EXPECT_NE(strstr(swl_last_error(), "another process"), nullptr);
    }
    memset(&a, 0, sizeof(a));
    EXPECT_EQ(nic->ops->connect(nic, 0, &a), ncclInvalidUsage);
    EXPECT_NE(strstr(swl_last_error(), "no software NIC"), nullptr);
}

} // namespace

TEST(NicErrors, EachWrongEntryGivesItsSyndromeAndStopsTheQueue)
{
    size_t n = wrongs().size();

    for (which = 0; which < n; which++)
        if (!nic_on_verbs() || on_every_device(wrongs()[which]))
            nic_run_all(which % 4, nic_options(), one_wrong);
}

TEST(NicErrors, DoorbellThatGoesBackIsAnError)
{
    nic_run_all(0, nic_options(), bad_doorbells);
}

TEST(NicErrors, KeyOfAnOldRegistrationIsRefused)
{
    nic_run_on_host(0, nic_options(), old_key);
    nic_run_proxies(0, nic_options(), old_key);
}

TEST(NicErrors, PeerInErrorDoesNotAnswer)
{
    if (nic_on_verbs())
        GTEST_SKIP() << "a device sends again for half a minute, which the emulator's clock does "
                        "not wait for";
    nic_run_all(0, nic_options(), peer_in_error);
}

TEST(NicErrors, PeerInErrorDoesNotAnswerAResetQueueEither)
{
    // with TCP a host waits for the other one to connect
    nic_run(0, nic_options(), connected_alone);
}
