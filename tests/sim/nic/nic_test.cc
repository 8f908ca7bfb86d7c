// Tests of the software NIC: what it places, in which order, and when.
#include "tests/support/nic_fixture.h"

namespace
{

struct job {
    nic_world *w;
    uint32_t rounds, bytes;
};

struct waiter here(const nic_rank &k, uint32_t kind)
{
    return {&k.watch, kind, SWL_WARP_NONE, 0, 1};
}

bool await_word(const nic_rank &k, const uint64_t *word, uint64_t value)
{
    uint64_t seen;

    while ((seen = read_from_nic(word)) < value)
        if (!wait_again({&k.watch, SWL_FAULT_ARRIVAL, SWL_WARP_NONE, 0, 0}, value, seen,
                        SWL_PAUSE("test: data of the peer", 0, 0)))
            return false;
    return true;
}

uint32_t pattern(uint32_t round, uint32_t i)
{
    return round * 2654435761u + i * 40503u + 1;
}

// Rank 0: per round four WRITEs of one quarter each from a changing source, then one add.
void send(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[0], &peer = j->w->rank[1];
    uint32_t words = j->bytes / 4, part = j->bytes / 4;

    if (lane_id() != 0)
        return;
    for (uint32_t round = 1; round <= j->rounds; round++) {
        uint32_t *source = reinterpret_cast<uint32_t *>(me.data(0));

        for (uint32_t i = 0; i < words; i++)
            source[i] = pattern(round, i);
        for (uint32_t q = 0; q < 4; q++)
            if (!qp_write(&me.qps[0], here(me, SWL_FAULT_QUEUE),
                          qp_local(me.data(q * part), me.payload.lkey, part),
                          {peer.data_at(q * part), peer.payload.rkey}))
                return;
        if (!qp_add(&me.qps[0], here(me, SWL_FAULT_QUEUE), peer.word_at(0), peer.signal.rkey, 1))
            return;
        qp_ring(&me.qps[0]);
        if (!qp_flush(&me.qps[0], here(me, SWL_FAULT_QUEUE)) || !await_word(me, me.word(1), round))
            return;
    }
}

// Rank 1: checks each round's bytes after its add, then adds back.
void receive(const void *arg)
{
    const job *j = static_cast<const job *>(arg);
    nic_rank &me = j->w->rank[1], &peer = j->w->rank[0];
    uint32_t words = j->bytes / 4;

    if (lane_id() != 0)
        return;
    for (uint32_t round = 1; round <= j->rounds; round++) {
        const uint32_t *got = reinterpret_cast<const uint32_t *>(me.data(0));

        if (!await_word(me, me.word(0), round))
            return;
        for (uint32_t i = 0; i < words; i++)
            if (got[i] != pattern(round, i)) {
                or_in_gpu(&me.bits, 0x80000000u);
                break;
            }
        if (!qp_add(&me.qps[0], here(me, SWL_FAULT_QUEUE), peer.word_at(1), peer.signal.rkey, 1))
            return;
        qp_ring(&me.qps[0]);
    }
    (void)qp_flush(&me.qps[0], here(me, SWL_FAULT_QUEUE));
}

void exchange_of(nic_world &w, uint32_t rounds, uint32_t bytes)
{
    job j = {&w, rounds, bytes};

    nic_grids(j, send, receive);
    EXPECT_EQ(*w.rank[1].word(0), rounds);
    EXPECT_EQ(*w.rank[0].word(1), rounds);
    EXPECT_EQ(w.rank[0].bits | w.rank[1].bits, 0u);
}

void exchange(nic_world &w)
{
    exchange_of(w, 20, 16384);
}

void exchange_long(nic_world &w) // of many pieces each, the last one shorter
{
    exchange_of(w, 4, 4 * 50016);
}

void exchange_uneven(nic_world &w) // only words are aligned
{
    exchange_of(w, 4, 4 * 10004);
}

struct swl_wqe move(const nic_rank &me, const nic_rank &peer, struct swl_qp *qp, uint64_t from,
                    uint64_t to, uint32_t bytes, uint32_t opcode = SWL_WQE_WRITE)
{
    struct swl_wqe e;

    swl_wqe_move(&e, qp->reserved, opcode, qp->qpn, {me.data_at(from), me.payload.lkey, bytes},
                 {peer.data_at(to), peer.payload.rkey});
    return e;
}

struct swl_wqe add(const nic_rank &peer, struct swl_qp *qp, uint64_t word, uint64_t value)
{
    struct swl_wqe e;

    swl_wqe_fetch_add(&e, qp->reserved, qp->qpn, value, {qp->sink, qp->sink_lkey, 8},
                      {peer.word_at(word), peer.signal.rkey});
    return e;
}

uint64_t order_found;

// Many small WRITEs, then an add: at each moment look which have landed.
void look_at_order(nic_world &w)
{
    nic_rank &me = w.rank[0], &peer = w.rank[1];
    struct swl_qp *qp = &me.qps[0];

    memset(me.data(0), 0x5a, 64 * 64);
    for (int i = 0; i < 64; i++)
        nic_raw(qp, move(me, peer, qp, 64 * i, 64 * i, 64));
    nic_raw(qp, add(peer, qp, 0, 7));
    nic_raw_ring(qp);
    for (;;) {
        uint64_t word = __atomic_load_n(peer.word(0), __ATOMIC_ACQUIRE);
        int landed = 0;
        bool gap = false, after_gap = false;

        for (int i = 0; i < 64; i++) {
            bool here_now = *peer.data(64 * i) == 0x5a;

            landed += here_now;
            gap |= !here_now;
            after_gap |= gap && here_now;
        }
        order_found += after_gap;
        if (word == 0) {
            nic_sleep(50);
            continue;
        }
        EXPECT_EQ(word, 7u);
        EXPECT_EQ(landed, 64) << "an add came before an earlier write";
        break;
    }
    EXPECT_EQ(nic_await(qp).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
}

uint64_t late_found;

// The source changes between doorbell and completion: either value may arrive, torn or not; after
// the completion no change arrives any more.
void change_source(nic_world &w)
{
    nic_rank &me = w.rank[0], &peer = w.rank[1];
    struct swl_qp *qp = &me.qps[0];

    memset(me.data(0), 1, 4096);
    nic_raw(qp, move(me, peer, qp, 0, 0, 4096));
    nic_raw_ring(qp);
    nic_sleep(300);
    memset(me.data(0), 2, 4096);
    EXPECT_EQ(nic_await(qp).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
    memset(me.data(0), 3, 4096);
    nic_sleep(100000);
    for (int i = 0; i < 4096; i++) {
        late_found += *peer.data(i) == 2;
        EXPECT_NE(*peer.data(i), 3);
    }
}

NIC_TEST(Nic, ReadFetchesAndNopCompletes, nic_run_all, 1, nic_options())
{
    nic_rank &me = w.rank[0], &peer = w.rank[1];
    struct swl_qp *qp = &me.qps[0];
    struct swl_wqe nop;

    memset(peer.data(0), 0x77, 1000);
    swl_wqe_nop(&nop, qp->reserved, qp->qpn);
    nic_raw(qp, nop);
    nic_raw(qp, move(me, peer, qp, 5000, 0, 1000, SWL_WQE_READ));
    nic_raw_ring(qp);
    EXPECT_EQ(nic_await(qp).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
    EXPECT_EQ(*me.data(5000), 0x77);
    EXPECT_EQ(*me.data(5999), 0x77);
    EXPECT_EQ(*me.data(6000), 0);
}

NIC_TEST(Nic, AddReturnsTheOldValue, nic_run_all, 1, nic_options())
{
    nic_rank &me = w.rank[0], &peer = w.rank[1];
    struct swl_qp *qp = &me.qps[0];
    uint64_t old;

    *peer.word(3) = 40;
    nic_raw(qp, add(peer, qp, 3, 2));
    nic_raw_ring(qp);
    EXPECT_EQ(nic_await(qp).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
    memcpy(&old, reinterpret_cast<void *>(qp->sink), 8);
    if (!nic_by_message(me.nic)) {
        EXPECT_EQ(old, 40u);
    }
    EXPECT_EQ(*peer.word(3), 42u);
}

NIC_TEST(Nic, InlineWritesCarryEveryLength, nic_run_all, 1, nic_options())
{
    nic_rank &me = w.rank[0], &peer = w.rank[1];
    struct swl_qp *qp = &me.qps[0];
    uint32_t data[7] = {1, 2, 3, 4, 5, 6, 7};

    for (uint32_t bytes = 4; bytes <= 28; bytes += 4) {
        struct swl_wqe e;

        memset(peer.data(0), 0, 64);
        swl_wqe_inline(&e, qp->reserved, qp->qpn, data, bytes,
                       {peer.data_at(0), peer.payload.rkey});
        nic_raw(qp, e);
        nic_raw_ring(qp);
        EXPECT_EQ(nic_await(qp).opcode, static_cast<uint32_t>(SWL_CQE_DONE));
        EXPECT_EQ(memcmp(peer.data(0), data, bytes), 0);
        EXPECT_EQ(*peer.data(bytes), 0);
    }
}

// 400 Gb/s and 3 us: the add after 8 MiB arrives when the wire says so.
void timing(nic_world &w)
{
    nic_rank &me = w.rank[0], &peer = w.rank[1];
    struct swl_qp *qp = &me.qps[0];
    uint64_t begin = simt_now_ns(), took;

    for (int i = 0; i < 8; i++)
        nic_raw(qp, move(me, peer, qp, 0, 0, 1 << 20));
    nic_raw(qp, add(peer, qp, 0, 1));
    nic_raw_ring(qp);
    while (__atomic_load_n(peer.word(0), __ATOMIC_ACQUIRE) == 0)
        nic_sleep(100);
    took = simt_now_ns() - begin;
    EXPECT_GT(took, 8ull * 20971 + 3000);
    EXPECT_LT(took, 8ull * 20973 + 3000 + 2000);
}

} // namespace

TEST(Nic, WritesAreCompleteWhenTheirAddIsSeen)
{
    for (uint64_t seed = 0; seed < 12; seed++)
        nic_run_all(seed, nic_options(), exchange);
}

TEST(Nic, LongAndUnevenWritesAreCompleteWhenTheirAddIsSeen)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        nic_run_all(seed, nic_options(), exchange_long);
        nic_run_all(seed, nic_options(), exchange_uneven);
    }
}

TEST(Nic, ModelledLinkDeliversTheSame)
{
    nic_options o;

    o.link = {400, 3};
    for (uint64_t seed = 0; seed < 4; seed++)
        nic_run(seed, o, exchange);
}

TEST(Nic, WritesOfAQueueLandInAnyOrderButNeverAfterTheAdd)
{
    nic_options o;

#ifdef SIMT_TSAN
    GTEST_SKIP() << "the destination is read while the NIC writes it, on purpose";
#endif
    order_found = 0;
    for (uint64_t seed = 0; seed < 8; seed++)
        nic_run_on_host(seed, o, look_at_order);
    EXPECT_GT(order_found, 0u);
    order_found = 0;
    o.faults = "reorder=off";
    for (uint64_t seed = 0; seed < 8; seed++)
        nic_run_on_host(seed, o, look_at_order);
    EXPECT_EQ(order_found, 0u);
}

TEST(Nic, PayloadIsReadUntilTheCompletionAndNotAfter)
{
#ifdef SIMT_TSAN
    GTEST_SKIP() << "the source is written while the NIC reads it, on purpose";
#endif
    late_found = 0;
    for (uint64_t seed = 1; seed < 9; seed++)
        nic_run_on_host(seed, nic_options(), change_source);
    EXPECT_GT(late_found, 0u);
}

TEST(Nic, LinkModelHoldsInVirtualTime)
{
    nic_options o;

    o.link = {400, 3};
    nic_run(0, o, timing);
}
