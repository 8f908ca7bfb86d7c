// A ConnectX NIC without a GPU, by each of its drivers: two NICs on one port, connected to each
// other, posted to by the CPU through the bytes that kernels write. Linked with the real device
// (real_device.cc), where it skips with the reason when there is none, and with the fake one
// (fake_device.cc).
#include "tests/hw/device.h"

#include "src/base/error.h"
#include "src/runtime/runtime.h"
#include "transport/wqe.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace
{

const uint32_t depth = 128;
const size_t payload_bytes = 1 << 20;

const char *text_of(const char *name)
{
    const char *text = getenv(name);

    return text ? text : "";
}

int32_t number_of(const char *name)
{
    const char *text = text_of(name);

    return *text ? atoi(text) : -1;
}

// One end: a NIC, a queue pair, a word for adds, payload.
struct End {
    struct swl_nic *nic = nullptr;
    uint32_t qp = 0;
    struct swl_qp view = {};
    struct swl_nic_region signal = {}, payload = {};
    uint64_t *word = nullptr;
    uint8_t *data = nullptr;
    uint64_t posted = 0;

    void open(Driver driver, uint32_t rank)
    {
        const std::string hca = text_of("SWIMLANE_IB_HCA");
        const struct swl_nic_ib ib = {hca.c_str(),
                                      number_of("SWIMLANE_IB_GID_INDEX"),
                                      number_of("SWIMLANE_IB_SL"),
                                      number_of("SWIMLANE_IB_TC"),
                                      0,
                                      0,
                                      -1};
        struct swl_nic_config config = {};
        const unsigned all = SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE | SWL_NIC_REMOTE_READ;
        void *memory = nullptr;

        config.rank = rank;
        config.max_qps = 1;
        config.depth = depth;
        config.timeout_ns = 1000000000;
        config.settings.ib = &ib;
        if (device_open(&nic, driver, &config) != ncclSuccess)
            GTEST_SKIP() << swl_last_error();
        ASSERT_EQ(swl_gpu_malloc(&memory, payload_bytes), cudaSuccess);
        data = static_cast<uint8_t *>(memory);
        ASSERT_EQ(swl_gpu_malloc(&memory, 4096), cudaSuccess);
        word = static_cast<uint64_t *>(memory);
        *word = 0;
        ASSERT_EQ(nic->ops->reg_mr(nic, word, 4096, all | SWL_NIC_REMOTE_ADD, &signal), ncclSuccess)
            << swl_last_error();
        ASSERT_EQ(nic->ops->reg_mr(nic, data, payload_bytes, all | SWL_NIC_RELAXED, &payload),
                  ncclSuccess)
            << swl_last_error();
        ASSERT_EQ(nic->ops->create_qp(nic, &qp), ncclSuccess) << swl_last_error();
    }
    ~End()
    {
        EXPECT_TRUE(nic == nullptr || nic->ops->destroy(nic) == ncclSuccess) << swl_last_error();
        (void)swl_gpu_free(data);
        (void)swl_gpu_free(word);
    }
    void start()
    {
        ASSERT_EQ(nic->ops->view(nic, qp, &view), ncclSuccess);
        posted = view.reserved;
    }
    void put(const struct swl_wqe &w)
    {
        memcpy(view.sq + (posted++ & ((1u << view.depth_log2) - 1)) * SWL_WQE_BYTES, &w, sizeof(w));
    }
    void write(const End &to, uint32_t bytes, uint32_t rkey_change = 0)
    {
        struct swl_wqe w;

        swl_wqe_move(&w, posted, SWL_WQE_WRITE, view.qpn, {payload.address, payload.lkey, bytes},
                     {to.payload.address, to.payload.rkey ^ rkey_change});
        put(w);
    }
    void add(const End &to, uint64_t value)
    {
        struct swl_wqe w;

        swl_wqe_fetch_add(&w, posted, view.qpn, value, {view.sink, view.sink_lkey, 8},
                          {to.signal.address, to.signal.rkey});
        put(w);
    }
    void ring()
    {
        // entries, then the record, then the doorbell: the device reads them in this order
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        __atomic_store_n(&view.dbr[1], swl_dbr_value(posted), __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        __atomic_store_n(view.doorbell, swl_doorbell_value(posted, view.qpn), __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    // Until everything posted is complete; the syndrome of the first error, -1: time is over.
    int finish() const
    {
        const uint64_t deadline = swl_gpu_now_ns() + 5000000000u;

        while (swl_gpu_now_ns() < deadline) {
            device_run();
            for (uint32_t place = 0; place <= view.cq_mask; place++) {
                const uint32_t *words = view.cq + place * (SWL_CQE_BYTES / 4);
                // acquire: pairs with the device's write of the completion
                const uint32_t last = __atomic_load_n(&words[SWL_CQE_LAST_WORD], __ATOMIC_ACQUIRE);

                if (swl_cqe_opcode(last) == SWL_CQE_ERROR)
                    return static_cast<int>(swl_cqe_syndrome(words[SWL_CQE_SYNDROME_WORD]));
                if (swl_cqe_opcode(last) != SWL_CQE_NONE &&
                    swl_cqe_index(last) == ((posted - 1) & 0xffffu)) {
                    EXPECT_EQ(place, (posted - 1) & view.cq_mask);
                    return 0;
                }
            }
        }
        return -1;
    }
    struct swl_nic_qp_status query() const
    {
        struct swl_nic_qp_status s = {};

        EXPECT_EQ(nic->ops->query(nic, qp, &s), ncclSuccess) << swl_last_error();
        return s;
    }
};

class Mlx5Hardware : public ::testing::TestWithParam<Driver>
{
  protected:
    void SetUp() override
    {
        for (uint32_t n = 0; n < 2 && !IsSkipped() && !HasFatalFailure(); n++)
            end[n].open(GetParam(), n);
        if (!IsSkipped() && !HasFatalFailure())
            connect();
    }
    void connect()
    {
        struct swl_nic_address address[2];

        for (int n = 0; n < 2; n++)
            ASSERT_EQ(end[n].nic->ops->address(end[n].nic, end[n].qp, &address[n]), ncclSuccess);
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(end[n].nic->ops->connect(end[n].nic, end[n].qp, &address[1 - n]), ncclSuccess)
                << swl_last_error();
        for (End &e : end)
            e.start();
    }
    void reset()
    {
        for (End &e : end)
            ASSERT_EQ(e.nic->ops->reset(e.nic, e.qp), ncclSuccess) << swl_last_error();
        connect();
    }
    void expect_exchange(uint64_t value)
    {
        const uint64_t before = *end[1].word;

        for (size_t i = 0; i < payload_bytes; i++)
            end[0].data[i] = static_cast<uint8_t>(i * 7 + value);
        memset(end[1].data, 0, payload_bytes);
        end[0].write(end[1], payload_bytes);
        end[0].add(end[1], value);
        end[0].ring();
        ASSERT_EQ(end[0].finish(), 0);
        EXPECT_EQ(*end[1].word, before + value); // the host's byte order
        EXPECT_EQ(memcmp(end[0].data, end[1].data, payload_bytes), 0);
    }

    End end[2];
};

TEST_P(Mlx5Hardware, WritesArriveBeforeTheAddBehindThem)
{
    for (uint64_t value = 1; value <= 100; value++)
        expect_exchange(value);
}

TEST_P(Mlx5Hardware, QueuesAndIndicesWrap)
{
    uint64_t sum = 0;

    for (uint64_t i = 0; sum < 70000; i++) { // past 65536 entries
        for (uint32_t n = 0; n < depth; n++, sum++)
            end[0].add(end[1], 1);
        end[0].ring();
        ASSERT_EQ(end[0].finish(), 0) << "round " << i;
        ASSERT_EQ(*end[1].word, sum);
    }
}

TEST_P(Mlx5Hardware, WrongKeyIsAnErrorThatResetEnds)
{
    for (int round = 0; round < 3; round++) {
        end[0].write(end[1], 64, 0x00ffff00);
        end[0].ring();
        EXPECT_EQ(end[0].finish(), SWL_SYNDROME_REMOTE_ACCESS);
        const struct swl_nic_qp_status s = end[0].query();
        EXPECT_EQ(s.state, SWL_NIC_QP_ERROR);
        EXPECT_EQ(s.syndrome, uint32_t{SWL_SYNDROME_REMOTE_ACCESS});
        reset();
        expect_exchange(5);
    }
}

TEST_P(Mlx5Hardware, ErrorOnDemandFlushesWhatIsPosted)
{
    ASSERT_EQ(end[0].nic->ops->to_error(end[0].nic, end[0].qp), ncclSuccess) << swl_last_error();
    end[0].write(end[1], 64);
    end[0].ring();
    EXPECT_EQ(end[0].finish(), SWL_SYNDROME_FLUSHED);
    reset();
    expect_exchange(9);
}

INSTANTIATE_TEST_SUITE_P(Drivers, Mlx5Hardware, ::testing::Values(Driver::gpu, Driver::host),
                         [](const ::testing::TestParamInfo<Driver> &one) {
                             return std::string(one.param == Driver::gpu ? "gpu" : "host");
                         });

} // namespace
