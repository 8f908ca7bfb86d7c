// nic_fixture.h: software NICs with a window each, connected in a ring of pairs, for tests of
// transport/. Everything runs in one host fiber (nic_run) that starts grids and waits for them.
#ifndef SWL_TESTS_NIC_FIXTURE_H
#define SWL_TESTS_NIC_FIXTURE_H

#include "device.h"
#include "kernels/common/faults.h"
#include "sim/simt.h"
#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "tests/support/loop_wire.h"
#include "tests/support/proxies.h"
#include "transport/host/probe.h"
#include "transport/qp.cuh"
#include "transport/soft/blocks.cuh"
#include "transport/soft/soft.h"

#include <gtest/gtest.h>
#include <string.h>
#include <vector>

struct nic_options {
    uint32_t nqps = 1; // between rank 0 and rank 1
    uint32_t depth = 128;
    uint64_t first_index = 0;
    uint64_t payload_bytes = 1 << 20;
    const char *faults = "";
    struct swl_wire_model link = {};
    uint64_t timeout_ns = 1000000000ull; // of kernels
    unsigned preempt_per_1000 = 50;
    uint32_t executor = SWL_SOFT_AUTO;                // AUTO: one run with each executor
    const struct swl_nic_ops *ops = nullptr;          // a proxy; NULL: the software NIC
    uint32_t room_bytes = NIC_TEAMS * NIC_ROOM_BYTES; // of a block that runs the NIC
};

const uint64_t nic_signal_bytes = 4096;
const uint32_t nic_blocks = 2;

// One rank: NIC, window = signals + payload, queue pairs, everything a watch points to.
struct nic_rank {
    struct swl_nic *nic = nullptr;
    uint8_t *window = nullptr;
    uint64_t window_bytes = 0;
    struct swl_nic_region signal = {}, payload = {};
    struct swl_qp *qps = nullptr; // [nqps]
    struct swl_watch watch = {};
    struct swl_fault_record record = {};
    uint64_t stop = 0, entry[2] = {0, 0};
    uint32_t claimed = 0, bits = 0, local_rank = 0;
    char *own_window = nullptr;
    // of the grid that runs the NIC, if blocks do
    struct swl_watch nic_watch = {};
    uint32_t closing = 0;
    uint64_t gen = 1;
    int served = 1; // it has ended

    uint64_t *word(uint64_t i) const
    {
        return reinterpret_cast<uint64_t *>(window) + i;
    }
    uint8_t *data(uint64_t at) const
    {
        return window + nic_signal_bytes + at;
    }
    uint64_t word_at(uint64_t i) const // as a remote address
    {
        return signal.address + 8 * i;
    }
    uint64_t data_at(uint64_t at) const
    {
        return payload.address + at;
    }
};

struct nic_world {
    nic_options options;
    nic_rank rank[2];
};

inline void nic_open(nic_world &w, int r)
{
    const nic_options &o = w.options;
    nic_rank &k = w.rank[r];
    struct swl_nic_config config = {};
    unsigned all = SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE | SWL_NIC_REMOTE_READ;

    config.rank = static_cast<uint32_t>(r);
    config.device = r;
    config.max_qps = o.nqps;
    config.depth = o.depth;
    config.first_index = o.first_index;
    config.timeout_ns = 1000000000ull;
    config.settings.executor = o.executor;
    config.gpu_blocks = nic_blocks;
    config.settings.link = o.link;
    config.settings.faults = o.faults;
    config.settings.socket_ifname = "lo";
    ASSERT_EQ(swl_gpu_use(r), cudaSuccess);
    ASSERT_EQ((o.ops ? o.ops : swl_soft_ops())->create(&k.nic, &config), ncclSuccess)
        << swl_last_error();
    k.window_bytes = nic_signal_bytes + o.payload_bytes;
    ASSERT_EQ(swl_gpu_malloc(reinterpret_cast<void **>(&k.window), k.window_bytes), cudaSuccess);
    memset(k.window, 0, k.window_bytes);
    ASSERT_EQ(
        k.nic->ops->reg_mr(k.nic, k.window, nic_signal_bytes, all | SWL_NIC_REMOTE_ADD, &k.signal),
        ncclSuccess);
    ASSERT_EQ(k.nic->ops->reg_mr(k.nic, k.window + nic_signal_bytes, o.payload_bytes,
                                 all | SWL_NIC_RELAXED, &k.payload),
              ncclSuccess);
    ASSERT_EQ(swl_gpu_malloc(reinterpret_cast<void **>(&k.qps), o.nqps * sizeof(struct swl_qp)),
              cudaSuccess);
    for (uint32_t i = 0; i < o.nqps; i++) {
        uint32_t qp = 99;

        ASSERT_EQ(k.nic->ops->create_qp(k.nic, &qp), ncclSuccess);
        ASSERT_EQ(qp, i);
    }
}

inline void nic_connect(nic_world &w, int r, uint32_t qp)
{
    nic_rank &mine = w.rank[r], &peer = w.rank[1 - r];
    struct swl_nic_address a;

    ASSERT_EQ(peer.nic->ops->address(peer.nic, qp, &a), ncclSuccess);
    ASSERT_EQ(mine.nic->ops->connect(mine.nic, qp, &a), ncclSuccess) << swl_last_error();
    ASSERT_EQ(mine.nic->ops->view(mine.nic, qp, &mine.qps[qp]), ncclSuccess);
}

// Deadline from now on; forget the last fault. The poison word is the last word of the signals.
inline void nic_arm(nic_world &w)
{
    for (int r = 0; r < 2; r++) {
        nic_rank &k = w.rank[r];
        uint64_t last = nic_signal_bytes / 8 - 1;

        k.claimed = k.bits = 0;
        k.record = {};
        k.local_rank = static_cast<uint32_t>(r);
        k.own_window = reinterpret_cast<char *>(k.window);
        *k.word(last) = 0;
        k.watch = {};
        k.watch.poison = k.word(last);
        k.watch.gen = 1;
        k.watch.host_stop = &k.stop;
        k.watch.claimed = &k.claimed;
        k.watch.async_bits = &k.bits;
        k.watch.record = &k.record;
        k.watch.peer_window = &k.own_window;
        k.watch.poison_at = 8 * last;
        k.watch.entry = k.entry;
        k.watch.local_rank = &k.local_rank;
        k.watch.started_ns = simt_now_ns();
        k.watch.deadline_ns = simt_now_ns() + w.options.timeout_ns;
        k.watch.nlocal = 1;
    }
}

inline bool nic_grid_over(void *done)
{
    return __atomic_load_n(static_cast<int *>(done), __ATOMIC_ACQUIRE) != 0;
}

inline void nic_grid_end(void *done)
{
    __atomic_store_n(static_cast<int *>(done), 1, __ATOMIC_RELEASE);
}

inline void nic_serve_body(const void *arg)
{
    nic_rank *k = *static_cast<nic_rank *const *>(arg);
    struct swl_nic_caps caps;

    k->nic->ops->caps(k->nic, &caps);
    nic_serve(static_cast<struct soft_port *>(caps.served),
              {static_cast<uint32_t>(block_id()), nic_blocks, &k->nic_watch, &k->closing, &k->gen},
              {static_cast<char *>(block_shared()), block_shared_bytes()});
}

// Blocks that run the NIC of rank r while the test does: a grid of their own, to the end of the
// test.
inline void nic_serve_start(nic_world &w, int r)
{
    nic_rank *k = &w.rank[r];
    struct simt_grid g = {};

    if (w.options.executor != SWL_SOFT_BLOCKS)
        return;
    k->closing = 0;
    k->served = 0;
    k->nic_watch = k->watch;
    k->nic_watch.deadline_ns = UINT64_MAX / 4;
    g.name = "nic";
    g.gpu = r;
    g.blocks = nic_blocks;
    g.threads = 128;
    g.shared_bytes = w.options.room_bytes;
    g.body = nic_serve_body;
    g.args = &k;
    g.args_bytes = sizeof(k);
    g.done = nic_grid_end;
    g.done_arg = &k->served;
    simt_grid_start(&g);
}

inline void nic_serve_stop(nic_world &w, int r)
{
    nic_rank &k = w.rank[r];

    __atomic_store_n(&k.closing, 2, __ATOMIC_RELEASE); // pairs with nic_next
    simt_park(SIMT_WHY("test: end of the NIC's grid", r, 0), nic_grid_over, &k.served, UINT64_MAX);
}

inline void nic_close(nic_world &w, int r)
{
    nic_rank &k = w.rank[r];

    nic_serve_stop(w, r);
    if (k.nic) {
        EXPECT_EQ(k.nic->ops->destroy(k.nic), ncclSuccess) << swl_last_error();
    }
    k.nic = nullptr;
    if (k.window) {
        EXPECT_EQ(swl_gpu_free(k.window), cudaSuccess);
        EXPECT_EQ(swl_gpu_free(k.qps), cudaSuccess);
    }
    k.window = nullptr;
}

// One warp-multiple grid on each rank; waits for both. A NULL body leaves a rank out.
template <class Args>
void nic_grids(const Args &args, void (*body0)(const void *), void (*body1)(const void *),
               int threads = 32, int blocks = 1)
{
    void (*bodies[2])(const void *) = {body0, body1};
    int done[2] = {0, 0};

    for (int r = 0; r < 2; r++) {
        struct simt_grid g = {};

        if (bodies[r] == nullptr) {
            done[r] = 1;
            continue;
        }
        g.name = "nic test";
        g.gpu = r;
        g.blocks = blocks;
        g.threads = threads;
        g.body = bodies[r];
        g.args = &args;
        g.args_bytes = sizeof(args);
        g.done = nic_grid_end;
        g.done_arg = &done[r];
        simt_grid_start(&g);
    }
    for (int r = 0; r < 2; r++)
        simt_park(SIMT_WHY("test: end of a grid", r, 0), nic_grid_over, &done[r], UINT64_MAX);
}

struct nic_job {
    nic_options options;
    void (*test)(nic_world &);
};

inline void nic_host(void *arg)
{
    const nic_job *job = static_cast<const nic_job *>(arg);
    nic_world w;

    w.options = job->options;
    for (int r = 0; r < 2; r++)
        nic_open(w, r);
    for (uint32_t i = 0; i < w.options.nqps && !::testing::Test::HasFatalFailure(); i++) {
        nic_connect(w, 0, i);
        nic_connect(w, 1, i);
    }
    nic_arm(w);
    for (int r = 0; r < 2 && !::testing::Test::HasFatalFailure(); r++)
        nic_serve_start(w, r);
    if (!::testing::Test::HasFatalFailure())
        job->test(w);
    for (int r = 0; r < 2; r++)
        nic_close(w, r);
}

inline void nic_run(uint64_t seed, const nic_options &options, void (*test)(nic_world &))
{
    if (options.executor == SWL_SOFT_AUTO) {
        for (uint32_t executor : {SWL_SOFT_ENGINE, SWL_SOFT_BLOCKS, SWL_SOFT_THREAD}) {
            nic_options one = options;

#ifdef SIMT_TSAN /* the test's host and copies look into memory of lanes, on purpose */
            if (executor != SWL_SOFT_ENGINE)
                continue;
#endif

            SCOPED_TRACE(::testing::Message() << "executor " << executor);
            one.executor = executor;
            if (seed % 2) // so much that all queue pairs are kept in it
                one.room_bytes = 64u << 10;
            nic_run(seed, one, test);
        }
        return;
    }
    struct simt_config c = simt_config_get();
    nic_job job = {options, test};

    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    c.seed = seed;
    c.preempt_per_1000 = seed ? options.preempt_per_1000 : 0;
    simt_config_set(&c);
    simt_fiber("nic test", 0, 0, nic_host, &job);
    EXPECT_EQ(simt_run(), 0);
}

// Also with a proxy over each wire that works inside a process.
inline void nic_run_proxies(uint64_t seed, const nic_options &options, void (*test)(nic_world &))
{
    for (const struct swl_nic_ops *ops : nic_proxies()) {
        nic_options one = options;

        SCOPED_TRACE(ops->name);
        one.ops = ops;
        one.executor = SWL_SOFT_ENGINE;
        nic_run(seed, one, test);
    }
}

inline void nic_run_all(uint64_t seed, const nic_options &options, void (*test)(nic_world &))
{
    if (!nic_on_verbs())
        nic_run(seed, options, test);
    nic_run_proxies(seed, options, test);
}

// What blocks do not do: parts that arrive late or in another order, regions that come and go.
inline void nic_run_on_host(uint64_t seed, const nic_options &options, void (*test)(nic_world &))
{
    for (uint32_t executor : {SWL_SOFT_ENGINE, SWL_SOFT_THREAD}) {
        nic_options one = options;

#ifdef SIMT_TSAN
        if (executor != SWL_SOFT_ENGINE)
            continue;
#endif

        one.executor = executor;
        nic_run(seed, one, test);
    }
}

// With all that know every fault.
inline void nic_run_able(uint64_t seed, const nic_options &options, void (*test)(nic_world &))
{
    if (!nic_on_verbs())
        nic_run_on_host(seed, options, test);
    nic_run_proxies(seed, options, test);
}

inline nic_options nic_with_faults(const char *faults)
{
    nic_options o;

    o.faults = faults;
    return o;
}

// A test whose body takes the world `w` of such a run, with seeds from 0.
#define NIC_TEST(suite, name, run, nseeds, options)                                                \
    static void suite##_##name(nic_world &w);                                                      \
    TEST(suite, name)                                                                              \
    {                                                                                              \
        for (uint64_t seed = 0; seed < (nseeds); seed++)                                           \
            run(seed, options, suite##_##name);                                                    \
    }                                                                                              \
    static void suite##_##name(nic_world &w)

// ---- posting and looking without a kernel ----

inline bool nic_never(void *)
{
    return false;
}

inline void nic_sleep(uint64_t ns)
{
    simt_park(SIMT_WHY("test sleeps", 0, 0), nic_never, nullptr, simt_now_ns() + ns);
}

// Put a raw entry into the queue; no check, no waiting.
inline void nic_raw(struct swl_qp *qp, const struct swl_wqe &e)
{
    uint64_t slot = qp->reserved & ((1ull << qp->depth_log2) - 1);

    memcpy(qp->sq + slot * SWL_WQE_BYTES, &e, sizeof(e));
    qp->reserved++;
    qp->ready = qp->reserved;
}

inline void nic_raw_ring(struct swl_qp *qp)
{
    __atomic_store_n(&qp->dbr[SWL_DBR_SEND], swl_dbr_value(qp->ready), __ATOMIC_RELEASE);
    __atomic_store_n(qp->doorbell, swl_doorbell_value(qp->ready, qp->qpn), __ATOMIC_RELEASE);
    qp->rung = qp->ready;
}

struct nic_seen {
    const struct swl_qp *qp;
    uint32_t low; // 16-bit index that ends the wait
    uint32_t opcode, index, syndrome;
};

inline bool nic_look(void *arg)
{
    nic_seen *s = static_cast<nic_seen *>(arg);
    uint32_t last = __atomic_load_n(s->qp->cq + SWL_CQE_LAST_WORD, __ATOMIC_ACQUIRE);

    s->opcode = swl_cqe_opcode(last);
    s->index = swl_cqe_index(last);
    s->syndrome =
        swl_cqe_syndrome(__atomic_load_n(s->qp->cq + SWL_CQE_SYNDROME_WORD, __ATOMIC_ACQUIRE));
    return s->opcode == SWL_CQE_ERROR || (s->opcode == SWL_CQE_DONE && s->index == s->low);
}

// Wait until everything posted is complete or the queue shows an error.
inline nic_seen nic_await(const struct swl_qp *qp, uint64_t timeout_ns = 100000000ull)
{
    nic_seen s = {qp, static_cast<uint32_t>(qp->ready - 1) & 0xffffu, SWL_CQE_NONE, 0, 0};

    simt_park(SIMT_WHY("test: completion", 0, 0), nic_look, &s, simt_now_ns() + timeout_ns);
    return s;
}

inline struct swl_nic_qp_status nic_status(const nic_rank &k, uint32_t qp = 0)
{
    struct swl_nic_qp_status s = {};

    EXPECT_EQ(k.nic->ops->query(k.nic, qp, &s), ncclSuccess);
    return s;
}

inline struct swl_soft_stats nic_stats(uint32_t rank)
{
    struct swl_soft_stats s = {};

    EXPECT_TRUE(swl_host_get_stats(rank, &s));
    return s;
}

inline void nic_expect_count(const nic_world &, uint64_t swl_soft_stats::*counter, uint64_t value)
{
    EXPECT_EQ(nic_stats(0).*counter, value);
}

#endif
