// Tests of transport/rdma.c: the collective creation of every rank's network.
#include "sim/simt.h"
#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "tests/support/rails.h"
#include "transport/host/probe.h"
#include "transport/qp_view.h"
#include "transport/rdma.h"
#include "transport/soft/soft.h"
#include "transport/wqe.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string.h>
#include <vector>

namespace
{

const uint32_t nranks = 4;
const uint64_t signal_bytes = 4096, window_bytes = 65536;

// An all-gather between host fibers. Words are atomic: fibers of different GPUs are not ordered.
struct meeting {
    uint8_t bytes[65536];
    uint32_t arrived, left;
    uint64_t round;
};
meeting meet;

bool next_round(void *arg)
{
    return __atomic_load_n(&meet.round, __ATOMIC_ACQUIRE) != *static_cast<uint64_t *>(arg);
}

bool all_left(void *)
{
    return __atomic_load_n(&meet.left, __ATOMIC_ACQUIRE) == 0;
}

ncclResult_t allgather(void *context, const void *mine, void *all, size_t each)
{
    uint32_t rank = *static_cast<const uint32_t *>(context);
    uint64_t round;

    if (each * nranks > sizeof(meet.bytes))
        return ncclInternalError;
    simt_park(SIMT_WHY("test: the last exchange is read", 0, 0), all_left, nullptr, UINT64_MAX);
    round = __atomic_load_n(&meet.round, __ATOMIC_ACQUIRE);
    memcpy(meet.bytes + rank * each, mine, each);
    if (__atomic_add_fetch(&meet.arrived, 1, __ATOMIC_ACQ_REL) == nranks) {
        meet.arrived = 0;
        __atomic_store_n(&meet.left, nranks, __ATOMIC_RELEASE);
        __atomic_add_fetch(&meet.round, 1, __ATOMIC_ACQ_REL);
    }
    if (!simt_park(SIMT_WHY("test: exchange", 0, 0), next_round, &round,
                   simt_now_ns() + 1000000000ull))
        return ncclSystemError;
    memcpy(all, meet.bytes, each * nranks);
    __atomic_sub_fetch(&meet.left, 1, __ATOMIC_ACQ_REL);
    return ncclSuccess;
}

struct rank_result {
    ncclResult_t created, destroyed;
    std::string text, name;
    uint64_t bytes, sum, payload_sum;
    std::set<uint32_t> keys; // of own payload, on its NICs
    // of the payload at both ends of each link: peer and key of the link
    std::map<std::pair<uint32_t, uint64_t>, std::pair<uint32_t, uint32_t>> ends;
};
rank_result results[nranks];

struct scenario {
    const char *what;
    bool links;        // full mesh of two links a pair, else none
    uint32_t odd_rank; // does it differently
    void (*change)(struct swl_rdma_config *config, struct swl_rdma_connection *links);
    bool traffic;
    uint32_t nics[nranks] = {};
    bool mixed = false;    // between ranks of odd distance over TCP
    bool backward = false; // odd ranks list their links the other way round
};
const scenario *now;

// On every link, by hand: write own payload's last word to a word of the peer's payload that is the
// link's, then add 1 + rank to word `rank` of the peer.
void post(const struct swl_rdma_view *v, uint32_t rank, const uint8_t *window)
{
    for (uint32_t i = 0; i < v->nconnections; i++) {
        struct swl_qp *qp = &v->qps[i];
        const struct swl_rdma_remote *r = &v->remotes[i];
        struct swl_wqe e[2];

        swl_wqe_move(&e[0], qp->reserved, SWL_WQE_WRITE, qp->qpn,
                     {reinterpret_cast<uint64_t>(window + window_bytes - 8), r->payload_lkey, 8},
                     {r->base + signal_bytes + 8 * (rank * 2 + i % 2), r->payload_rkey});
        swl_wqe_fetch_add(&e[1], qp->reserved + 1, qp->qpn, 1 + rank, {qp->sink, qp->sink_lkey, 8},
                          {r->base + 8 * rank, r->signal_rkey});
        memcpy(qp->sq, e, sizeof(e));
        qp->reserved = qp->ready = qp->rung = qp->reserved + 2;
        __atomic_store_n(&qp->dbr[SWL_DBR_SEND], swl_dbr_value(qp->ready), __ATOMIC_RELEASE);
        __atomic_store_n(qp->doorbell, swl_doorbell_value(qp->ready, qp->qpn), __ATOMIC_RELEASE);
    }
}

bool never(void *)
{
    return false;
}

// What arrives at a rank if everybody posts.
uint64_t expected(uint32_t rank)
{
    return (2 + 200) * (10 - (1 + rank));
}

void look(const uint64_t *window, rank_result *out)
{
    simt_park(SIMT_WHY("test: traffic", 0, 0), never, nullptr, simt_now_ns() + 1000000);
    out->sum = out->payload_sum = 0;
    for (uint32_t i = 0; i < nranks; i++)
        out->sum += __atomic_load_n(&window[i], __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < 2 * nranks; i++)
        out->payload_sum += __atomic_load_n(&window[signal_bytes / 8 + i], __ATOMIC_ACQUIRE);
}

void expect_ready(struct swl_rdma *rdma, uint32_t nconnections)
{
    struct swl_nic_qp_status s;

    for (uint32_t i = 0; i < nconnections; i++) {
        ASSERT_EQ(swl_rdma_query(rdma, i, &s), ncclSuccess);
        EXPECT_EQ(s.state, SWL_NIC_QP_READY);
    }
}

void rank_main(void *arg)
{
    uint32_t rank = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(arg));
    std::vector<struct swl_rdma_connection> links;
    struct swl_rdma_config c = {};
    struct swl_rdma *rdma = nullptr;
    uint64_t *window = nullptr;
    rank_result &out = results[rank];

    ASSERT_EQ(swl_gpu_use(static_cast<int>(rank)), cudaSuccess);
    ASSERT_EQ(swl_gpu_malloc(reinterpret_cast<void **>(&window), window_bytes), cudaSuccess);
    memset(window, 0, window_bytes);
    window[window_bytes / 8 - 1] = 100 * (1 + rank);
    for (uint32_t p = 0; now->links && p < nranks; p++)
        for (uint64_t k = 0; k < 2; k++)
            if (p != rank)
                links.push_back(
                    {p, 100 + k, now->mixed && (p + rank) % 2 ? uint32_t{SWL_TRANSPORT_TCP} : 0u});
    if (now->backward && rank % 2)
        std::reverse(links.begin(), links.end());
    c.rank = rank;
    c.nranks = nranks;
    c.device = static_cast<int>(rank);
    c.connections = links.data();
    c.nconnections = static_cast<uint32_t>(links.size());
    c.window = window;
    c.signal_bytes = signal_bytes;
    c.window_bytes = window_bytes;
    if (c.nconnections) {
        ASSERT_EQ(swl_gpu_malloc(&c.tables, swl_rdma_table_bytes(c.nconnections)), cudaSuccess);
    }
    c.nics = now->nics[rank];
    c.driver = SWL_TRANSPORT_SOFT;
    c.settings.socket_ifname = "lo";
    c.timeout_ns = 1000000000ull;
    c.allgather = allgather;
    c.context = &rank;
    if (rank == now->odd_rank && now->change)
        now->change(&c, links.data());
    out = rank_result();
    out.created = swl_rdma_create(&rdma, &c);
    out.text = swl_last_error();
    if (out.created == ncclSuccess) {
        out.name = swl_rdma_name(rdma);
        out.bytes = swl_rdma_device_bytes(rdma);
        expect_ready(rdma, c.nconnections);
        EXPECT_EQ(swl_rdma_view(rdma)->nconnections, c.nconnections);
        if (now->traffic)
            post(swl_rdma_view(rdma), rank, reinterpret_cast<uint8_t *>(window));
        // sockets take time that is not virtual
        for (int i = 0; i < 2000 && out.payload_sum + out.sum < now->traffic * expected(rank); i++)
            look(window, &out);
        for (uint32_t i = 0; i < c.nconnections; i++) {
            const struct swl_rdma_remote &r = swl_rdma_view(rdma)->remotes[i];

            out.keys.insert(r.payload_lkey);
            out.ends[{links[i].peer, links[i].key}] = {r.payload_lkey, r.payload_rkey};
        }
        expect_ready(rdma, c.nconnections);
    }
    out.destroyed = swl_rdma_destroy(rdma);
    EXPECT_EQ(swl_gpu_free(c.tables), cudaSuccess);
    EXPECT_EQ(swl_gpu_free(window), cudaSuccess);
}

void run(const scenario &s)
{
    struct swl_soft_stats stats;

    SCOPED_TRACE(s.what);
    now = &s;
    memset(&meet, 0, sizeof(meet));
    for (uint32_t r = 0; r < nranks; r++)
        simt_fiber("rdma test", static_cast<int>(r), static_cast<int>(r), rank_main,
                   reinterpret_cast<void *>(static_cast<uintptr_t>(r)));
    EXPECT_EQ(simt_run(), 0);
    EXPECT_FALSE(swl_host_get_stats(SWL_HOST_ALL_RANKS, &stats)) << "a NIC is left over";
}

void wrong_key(struct swl_rdma_config *, struct swl_rdma_connection *links)
{
    links[1].key = 7;
}

void no_window(struct swl_rdma_config *c, struct swl_rdma_connection *)
{
    c->window = nullptr;
}

void odd_depth(struct swl_rdma_config *c, struct swl_rdma_connection *)
{
    c->queue_depth = 100;
}

void by_hardware(struct swl_rdma_config *c, struct swl_rdma_connection *)
{
    c->driver = SWL_TRANSPORT_MLX5;
}

void bad_peer(struct swl_rdma_config *, struct swl_rdma_connection *links)
{
    links[0].peer = nranks;
}

} // namespace

TEST(Rdma, MeshIsConnectedAndCarriesTraffic)
{
    run({"mesh", true, 99, nullptr, true});
    for (uint32_t r = 0; r < nranks; r++) {
        EXPECT_EQ(results[r].created, ncclSuccess) << results[r].text;
        EXPECT_EQ(results[r].destroyed, ncclSuccess);
        EXPECT_EQ(results[r].name, "soft");
        EXPECT_GT(results[r].bytes, 6u * 256 * 64);
        EXPECT_EQ(results[r].sum, 2u * (10 - (1 + r)));
        EXPECT_EQ(results[r].payload_sum, 200u * (10 - (1 + r)));
    }
}

// Links take the NICs in turn; each has keys of its own, and the ranks need not have as many.
TEST(Rdma, SeveralNicsOfARankShareItsLinks)
{
    run({"two", true, 99, nullptr, true, {2, 2, 2, 2}});
    for (uint32_t r = 0; r < nranks; r++) {
        EXPECT_EQ(results[r].created, ncclSuccess) << results[r].text;
        EXPECT_EQ(results[r].destroyed, ncclSuccess);
        EXPECT_EQ(results[r].sum, 2u * (10 - (1 + r)));
        EXPECT_EQ(results[r].payload_sum, 200u * (10 - (1 + r)));
        EXPECT_EQ(results[r].keys.size(), 2u);
    }
    run({"unequal", true, 99, nullptr, true, {1, 2, 8, 0}});
    for (uint32_t r = 0; r < nranks; r++) {
        EXPECT_EQ(results[r].created, ncclSuccess) << results[r].text;
        EXPECT_EQ(results[r].sum, 2u * (10 - (1 + r)));
        EXPECT_EQ(results[r].payload_sum, 200u * (10 - (1 + r)));
        EXPECT_EQ(results[r].keys.size(), r == 1 || r == 2 ? 2u : 1u);
    }
    run({"too many", true, 99, nullptr, true, {1, 9, 1, 1}});
    for (uint32_t r = 0; r < nranks; r++)
        EXPECT_NE(results[r].created, ncclSuccess);
    EXPECT_NE(results[1].text.find("9 NICs, at most 8"), std::string::npos) << results[1].text;
    EXPECT_NE(results[0].text.find("rank 1"), std::string::npos) << results[0].text;
}

// Rails of different NICs may not reach each other: the nth NIC of a rank only meets the nth of
// another.
TEST(Rdma, F97_LinksStayOnEqualRails)
{
    for (uint32_t nics : {1u, 2u}) {
        run({"rails", true, 99, nullptr, true, {nics, nics, nics, nics}, false, true});
        for (uint32_t r = 0; r < nranks; r++) {
            std::set<uint32_t> used;

            ASSERT_EQ(results[r].created, ncclSuccess) << results[r].text;
            for (const auto &end : results[r].ends) {
                const uint32_t rail = rail_of(end.second.first);

                used.insert(rail);
                EXPECT_LT(rail, nics);
                EXPECT_EQ(rail, rail_of(end.second.second))
                    << "rank " << r << " to rank " << end.first.first << " link "
                    << end.first.second;
            }
            EXPECT_EQ(used.size(), nics);
        }
    }
}

// Each link over the driver that it names.
TEST(Rdma, LinksOfARankUseSeveralDrivers)
{
    for (uint32_t nics : {1u, 2u}) {
        run({"mixed", true, 99, nullptr, true, {nics, nics, nics, nics}, true});
        for (uint32_t r = 0; r < nranks; r++) {
            EXPECT_EQ(results[r].created, ncclSuccess) << results[r].text;
            EXPECT_EQ(results[r].destroyed, ncclSuccess);
            EXPECT_EQ(results[r].sum, 2u * (10 - (1 + r)));
            EXPECT_EQ(results[r].payload_sum, 200u * (10 - (1 + r)));
            EXPECT_EQ(results[r].keys.size(), 2 * nics);
            EXPECT_EQ(results[r].name, r == 2 ? "soft; tcp" : "tcp; soft") << r;
        }
    }
}

TEST(Rdma, NobodyNeedsANetwork)
{
    run({"none", false, 99, nullptr, false});
    for (uint32_t r = 0; r < nranks; r++) {
        EXPECT_EQ(results[r].created, ncclSuccess);
        EXPECT_EQ(results[r].name, "none");
        EXPECT_EQ(results[r].bytes, 0u);
    }
}

TEST(Rdma, OneRankWithAnErrorEndsAllRanksWithASentence)
{
    const struct {
        const char *what;
        void (*change)(struct swl_rdma_config *, struct swl_rdma_connection *);
        ncclResult_t own;
    } cases[] = {{"no window", no_window, ncclInvalidArgument},
                 {"odd depth", odd_depth, ncclInvalidArgument},
                 {"peer out of range", bad_peer, ncclInvalidArgument},
                 {"key that the peer does not have", wrong_key, ncclInvalidUsage}};

    for (const auto &c : cases) {
        run({c.what, true, 1, c.change, false});
        for (uint32_t r = 0; r < nranks; r++) {
            EXPECT_EQ(results[r].created, c.own) << c.what << " rank " << r;
            EXPECT_NE(results[r].text, "") << c.what << " rank " << r;
        }
    }
}

// No NIC of hardware reaches emulated memory, whatever this machine has.
TEST(Rdma, F61_MissingHardwareIsNamedOnTheRankThatLacksIt)
{
    run({"hardware", true, 1, by_hardware, false});
    for (uint32_t r = 0; r < nranks; r++)
        EXPECT_EQ(results[r].created, ncclSystemError) << results[r].text;
    const std::string &text = results[1].text;
    EXPECT_TRUE(text.find("libibverbs.so.1") != std::string::npos ||
                text.find("libmlx5.so.1") != std::string::npos ||
                text.find("RDMA device") != std::string::npos ||
                text.find("mlx5_") != std::string::npos)
        << text;
    EXPECT_NE(results[0].text.find("rank 1"), std::string::npos) << results[0].text;
}
