// Tests of the thread that serves a proxy NIC, in real time: where it runs, what disturbs it, and
// what it costs when nobody calls. The wire takes everything and does nothing, or fails while it
// connects.
#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "transport/host/executor.h"
#include "transport/proxy/front.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <string>
#include <sys/resource.h>
#include <time.h>

namespace
{

// What the wire has seen.
struct seen {
    cpu_set_t cpus;
    uint32_t turns, posted;
    sigset_t blocked;
    uint32_t failing; // 1: the next poll says so; 2: it has
} seen;

void sleep_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, nullptr);
}

char near_cpus[128];

ncclResult_t wire_open(struct swl_wire **wire_p, const struct swl_wire_config *);

ncclResult_t wire_close(struct swl_wire *)
{
    return ncclSuccess;
}

void wire_caps(const struct swl_wire *, struct swl_wire_caps *caps_p)
{
    memset(caps_p, 0, sizeof(*caps_p));
    caps_p->max_depth = caps_p->max_qps = 64;
    memcpy(caps_p->cpus, near_cpus, sizeof(caps_p->cpus));
}

ncclResult_t wire_reg(struct swl_wire *, void *, uint64_t, unsigned, struct swl_nic_region *region)
{
    memset(region, 0, sizeof(*region));
    return ncclSuccess;
}

ncclResult_t wire_create_qp(struct swl_wire *, uint32_t *qp_p)
{
    *qp_p = 0;
    return ncclSuccess;
}

ncclResult_t wire_address(struct swl_wire *, uint32_t, struct swl_wire_address *address_p)
{
    memset(address_p, 0, sizeof(*address_p));
    return ncclSuccess;
}

// The connection may break before the host comes back from here.
ncclResult_t wire_connect(struct swl_wire *, uint32_t, const struct swl_wire_address *)
{
    uint32_t turns;

    for (int i = 0; i < 1000 && __atomic_load_n(&seen.failing, __ATOMIC_ACQUIRE) == 1; i++)
        sleep_ms(1);
    turns = __atomic_load_n(&seen.turns, __ATOMIC_ACQUIRE);
    for (int i = 0; i < 1000 && __atomic_load_n(&seen.failing, __ATOMIC_ACQUIRE) &&
                    __atomic_load_n(&seen.turns, __ATOMIC_ACQUIRE) == turns;
         i++)
        sleep_ms(1);
    return ncclSuccess;
}

ncclResult_t wire_to_error(struct swl_wire *, uint32_t)
{
    return ncclSuccess;
}

uint32_t wire_post(struct swl_wire *, uint32_t, const struct swl_wire_request *, uint32_t n)
{
    __atomic_fetch_add(&seen.posted, n, __ATOMIC_RELEASE);
    return n;
}

uint32_t wire_poll(struct swl_wire *, struct swl_wire_done *done, uint32_t)
{
    if (__atomic_load_n(&seen.failing, __ATOMIC_ACQUIRE) != 1)
        return 0;
    *done = {0, 0, SWL_SYNDROME_RETRY};
    __atomic_store_n(&seen.failing, 2, __ATOMIC_RELEASE);
    return 1;
}

bool wire_progress(struct swl_wire *)
{
    if (seen.turns == 0)
        (void)sched_getaffinity(0, sizeof(seen.cpus), &seen.cpus);
    if (seen.turns == 0)
        (void)pthread_sigmask(SIG_BLOCK, nullptr, &seen.blocked);
    __atomic_fetch_add(&seen.turns, 1, __ATOMIC_RELEASE);
    return false;
}

const struct swl_wire_ops *wire_ops()
{
    static const struct swl_wire_ops ops = []() {
        struct swl_wire_ops o = {};

        o.name = "none";
        o.open = wire_open;
        o.close = wire_close;
        o.caps = wire_caps;
        o.reg_mr = wire_reg;
        o.create_qp = wire_create_qp;
        o.address = wire_address;
        o.connect = wire_connect;
        o.to_error = wire_to_error;
        o.post = wire_post;
        o.poll = wire_poll;
        o.progress = wire_progress;
        return o;
    }();

    return &ops;
}

uint32_t opened_depth;

ncclResult_t wire_open(struct swl_wire **wire_p, const struct swl_wire_config *config)
{
    static struct swl_wire wire;

    opened_depth = config->depth;
    wire.ops = wire_ops();
    *wire_p = &wire;
    return ncclSuccess;
}

double cpu_seconds()
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return static_cast<double>(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           static_cast<double>(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

class ProxyThread : public ::testing::Test
{
  protected:
    struct swl_nic *nic = nullptr;

    void start(const char *cpus, uint32_t depth = 16)
    {
        static const struct swl_nic_ops ops = SWL_PROXY_OPS("none", nullptr);
        struct swl_nic_config config = {};

        memset(&seen, 0, sizeof(seen));
        snprintf(near_cpus, sizeof(near_cpus), "%s", cpus);
        config.depth = depth;
        config.max_qps = 1;
        config.timeout_ns = 1000000000;
        ASSERT_EQ(swl_proxy_create(&nic, &config, &ops, wire_ops()), ncclSuccess);
        for (int i = 0; i < 60000 && __atomic_load_n(&seen.turns, __ATOMIC_ACQUIRE) == 0; i++)
            sleep_ms(1);
    }
    ~ProxyThread() override
    {
        EXPECT_EQ(swl_proxy_destroy(nic), ncclSuccess);
    }
};

TEST_F(ProxyThread, D_C9_QueuesAreNoDeeperThanTheDeviceHasThem)
{
    struct swl_qp view;
    uint32_t qp;

    start("", 256);
    EXPECT_EQ(opened_depth, 64u);
    ASSERT_EQ(swl_proxy_create_qp(nic, &qp), ncclSuccess);
    ASSERT_EQ(swl_proxy_view(nic, qp, &view), ncclSuccess);
    EXPECT_EQ(view.depth_log2, 6u);
}

TEST_F(ProxyThread, RunsNearItsNic)
{
    cpu_set_t mine;
    int last = 0;

    ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        last = CPU_ISSET(i, &mine) ? i : last;
    start(std::to_string(last).c_str());
    EXPECT_EQ(CPU_COUNT(&seen.cpus), 1);
    EXPECT_TRUE(CPU_ISSET(last, &seen.cpus));
}

TEST_F(ProxyThread, RunsAnywhereWhereNothingIsKnown)
{
    cpu_set_t mine;

    ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    start("");
    EXPECT_TRUE(CPU_EQUAL(&mine, &seen.cpus));
}

TEST_F(ProxyThread, RunsAnywhereWhereTheJobMayNotUseThoseCpus)
{
    cpu_set_t mine;

    ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
    start("1000-1003");
    EXPECT_TRUE(CPU_EQUAL(&mine, &seen.cpus));
}

// Handlers of the application run where it expects them; faults are still those of who makes them.
TEST_F(ProxyThread, SignalsOfTheProcessAreForItsOwnThreads)
{
    sigset_t mine;

    start("");
    for (int number : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1, SIGPIPE})
        EXPECT_EQ(sigismember(&seen.blocked, number), 1) << number;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
        EXPECT_EQ(sigismember(&seen.blocked, number), 0) << number;
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &mine), 0);
    EXPECT_EQ(sigismember(&mine, SIGTERM), 0) << "this thread is as it was";
}

TEST_F(ProxyThread, FailureBeforeTheHostHasConnectedIsNotLost)
{
    struct swl_nic_qp_status status = {};
    struct swl_nic_address a;
    uint32_t qp;

    start("");
    ASSERT_EQ(swl_proxy_create_qp(nic, &qp), ncclSuccess);
    ASSERT_EQ(swl_proxy_address(nic, qp, &a), ncclSuccess);
    __atomic_store_n(&seen.failing, 1, __ATOMIC_RELEASE);
    ASSERT_EQ(swl_proxy_connect(nic, qp, &a), ncclSuccess) << swl_last_error();
    for (int i = 0; i < 60000 && status.state != SWL_NIC_QP_ERROR; i++) {
        ASSERT_EQ(swl_proxy_query(nic, qp, &status), ncclSuccess);
        sleep_ms(1);
    }
    EXPECT_EQ(status.state, SWL_NIC_QP_ERROR);
    EXPECT_EQ(status.syndrome, static_cast<uint32_t>(SWL_SYNDROME_RETRY));
}

// It looks again after an eighth of the time that nothing has moved, at most a millisecond.
TEST_F(ProxyThread, IdleCostsNextToNothingAndAMillisecondAtMost)
{
    struct swl_nic_address a;
    struct swl_qp view;
    struct swl_wqe nop;
    uint64_t rung;
    uint32_t qp, turns;
    double before;

    start("");
    ASSERT_EQ(swl_proxy_create_qp(nic, &qp), ncclSuccess);
    ASSERT_EQ(swl_proxy_address(nic, qp, &a), ncclSuccess);
    ASSERT_EQ(swl_proxy_connect(nic, qp, &a), ncclSuccess) << swl_last_error();
    ASSERT_EQ(swl_proxy_view(nic, qp, &view), ncclSuccess);
    sleep_ms(100); // more than eight times a millisecond
    before = cpu_seconds();
    turns = __atomic_load_n(&seen.turns, __ATOMIC_ACQUIRE);
    rung = swl_gpu_now_ns();
    for (int i = 0; i < 60000 && __atomic_load_n(&seen.turns, __ATOMIC_ACQUIRE) < turns + 500; i++)
        sleep_ms(1);
    turns = __atomic_load_n(&seen.turns, __ATOMIC_ACQUIRE) - turns;
    EXPECT_GE(turns, 500u) << "it looks";
    /* sleeps of a millisecond end late, never early */
    EXPECT_LT(cpu_seconds() - before, 1e-10 * (double)(swl_gpu_now_ns() - rung))
        << "a tenth of a processor";
    EXPECT_LE(turns, (swl_gpu_now_ns() - rung) / 1000000 + 1);

    swl_wqe_nop(&nop, view.reserved, view.qpn);
    memcpy(view.sq, &nop, sizeof(nop));
    __atomic_store_n(&view.dbr[SWL_DBR_SEND], swl_dbr_value(view.reserved + 1), __ATOMIC_RELEASE);
    __atomic_store_n(view.doorbell, swl_doorbell_value(view.reserved + 1, view.qpn),
                     __ATOMIC_RELEASE);
    for (int i = 0; i < 60000 && __atomic_load_n(&seen.posted, __ATOMIC_ACQUIRE) == 0; i++)
        sleep_ms(1);
    ASSERT_EQ(__atomic_load_n(&seen.posted, __ATOMIC_ACQUIRE), 1u);
}

} // namespace

// The rest of the software NIC, which nobody asks here.
extern "C" {

struct soft_nic *swl_soft_nic_at(uint32_t)
{
    return nullptr;
}

ncclResult_t swl_soft_push_port(struct soft_nic *, const void *, size_t)
{
    return ncclSuccess;
}

ncclResult_t swl_soft_pull_qp(struct soft_nic *, uint32_t, struct soft_qp *)
{
    return ncclSuccess;
}

void swl_soft_thread_main(struct soft_nic *)
{
}

cudaError_t swl_gpu_use(int)
{
    return cudaSuccess;
}

void swl_gpu_sleep_ns(uint64_t ns)
{
    const struct timespec t = {static_cast<time_t>(ns / 1000000000),
                               static_cast<long>(ns % 1000000000)};

    nanosleep(&t, nullptr);
}

} // extern "C"
