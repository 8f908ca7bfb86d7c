// Adds by the receiver's host and payload in memory of a GPU: the fake device says that a WRITE is
// complete while it is on its way, until a READ of that memory.
#include "tests/sim/proxy/verbs_fixture.h"

#include "src/runtime/runtime.h"

namespace
{

class VerbsFlush : public VerbsWire
{
  protected:
    ~VerbsFlush() override
    {
        EXPECT_EQ(swl_gpu_free(gpu), cudaSuccess);
    }
    // The peer's memory is a GPU's.
    ncclResult_t open_gpu()
    {
        fake.late = true;
        SWL_TRY(open_both(SWL_ADDS_MESSAGES, SWL_ADDS_MESSAGES));
        return register_gpu();
    }
    ncclResult_t register_gpu()
    {
        void *ptr = gpu;

        if (!gpu && swl_gpu_malloc(&ptr, 4096) != cudaSuccess)
            return ncclSystemError;
        gpu = static_cast<uint64_t *>(ptr);
        memset(gpu, 0, 4096);
        return wire[1]->ops->reg_mr(wire[1], gpu, 4096, everything, &of_gpu);
    }
    struct swl_wire_request to_gpu(uint32_t opcode, int from, int to, uint64_t value = 0)
    {
        struct swl_wire_request r = request(opcode, from, 0, value);

        r.remote = reinterpret_cast<uintptr_t>(&gpu[to]);
        r.rkey = of_gpu.rkey;
        return r;
    }
    // Until the peer's word has this value; what is behind it must be seen then.
    void expect_behind(const uint64_t *word, uint64_t value, const uint64_t *payload)
    {
        for (int i = 0; i < 8 && __atomic_load_n(word, __ATOMIC_ACQUIRE) != value; i++)
            (void)poll(1);
        EXPECT_EQ(*word, value);
        EXPECT_EQ(*payload, value) << "the add was seen before what it stands for";
    }

    uint64_t *gpu = nullptr;
    struct swl_nic_region of_gpu = {};
};

TEST_F(VerbsFlush, D_G_AnAddIsSeenBehindThePayloadWhereverTheWordLies)
{
    ASSERT_EQ(open_gpu(), ncclSuccess) << swl_last_error();
    for (uint64_t i = 1; i <= 40 && !HasFailure(); i++) {
        const bool host = i % 2;
        uint64_t *word = host ? &words[1][3] : &gpu[3];

        words[0][1] = *word + 1;
        ASSERT_EQ(post({to_gpu(SWL_WQE_WRITE, 1, 1), host ? request(SWL_WQE_FETCH_ADD, 5, 3, 1)
                                                          : to_gpu(SWL_WQE_FETCH_ADD, 5, 3, 1)}),
                  2u);
        expect_behind(word, words[0][1], &gpu[1]);
        (void)poll(1);
        expect_done(99 + 2 * i);
    }
    EXPECT_EQ(fake.dry, 0u);
}

TEST_F(VerbsFlush, D_G_OneReadServesAllMessagesThatHaveArrived)
{
    ASSERT_EQ(open_gpu(), ncclSuccess) << swl_last_error();
    for (int i = 0; i < 4; i++) {
        words[0][1] = static_cast<uint64_t>(i) + 1;
        ASSERT_EQ(post({to_gpu(SWL_WQE_WRITE, 1, 1), to_gpu(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 2u);
    }
    expect_behind(&gpu[3], 4, &gpu[1]);
    EXPECT_EQ(fake.flushes, 1u);
}

TEST_F(VerbsFlush, D_G_HostMemoryAndAtomicsNeedNoRead)
{
    fake.late = true;
    ASSERT_EQ(open_both(SWL_ADDS_MESSAGES), ncclSuccess) << swl_last_error();
    ASSERT_EQ(post({request(SWL_WQE_WRITE, 1, 1), request(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 2u);
    (void)poll(1);
    EXPECT_EQ(words[1][3], 1u);
    EXPECT_EQ(fake.flushes, 0u);
}

TEST_F(VerbsFlush, D_G_AReadThatFailsEndsTheQueuePairs)
{
    std::vector<struct swl_wire_done> done;

    ASSERT_EQ(open_gpu(), ncclSuccess) << swl_last_error();
    ASSERT_EQ(post({to_gpu(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 1u);
    fake.next_status = 10;
    for (int i = 0; i < 4 && done.empty(); i++)
        done = poll(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].syndrome, static_cast<uint32_t>(SWL_SYNDROME_LOCAL_OPERATION));
    EXPECT_EQ(gpu[3], 0u);
}

// The queue pair of the READs is made anew with those that it has ended.
TEST_F(VerbsFlush, D_G_AfterAResetMessagesAreFlushedAgain)
{
    ASSERT_EQ(open_gpu(), ncclSuccess) << swl_last_error();
    for (uint64_t round = 1; round <= 3; round++) {
        next = 100;
        ASSERT_EQ(post({to_gpu(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 1u);
        fake.next_status = 10;
        for (int i = 0; i < 4; i++)
            (void)poll(1);
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(wire[n]->ops->reset(wire[n], qp[n]), ncclSuccess) << swl_last_error();
        ASSERT_EQ(connect_both(), ncclSuccess) << swl_last_error();
        next = 100;
        gpu[3] = round - 1;
        words[0][1] = round;
        fake.flushes = 0;
        ASSERT_EQ(post({to_gpu(SWL_WQE_WRITE, 1, 1), to_gpu(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 2u);
        expect_behind(&gpu[3], round, &gpu[1]);
        EXPECT_EQ(fake.flushes, 1u);
        (void)poll(1);
        expect_done(101);
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(wire[n]->ops->reset(wire[n], qp[n]), ncclSuccess) << swl_last_error();
        ASSERT_EQ(connect_both(), ncclSuccess) << swl_last_error();
    }
}

// A limited member of a partition cannot be its own peer.
TEST_F(VerbsFlush, D_G_AtomicsNeedNoQueuePairToItself)
{
    fake.joins_itself = false;
    ASSERT_EQ(open_both(), ncclSuccess) << swl_last_error();
    ASSERT_EQ(register_gpu(), ncclSuccess) << swl_last_error();
    EXPECT_EQ(fake.queues.size(), 2u);
    ASSERT_EQ(post({to_gpu(SWL_WQE_WRITE, 1, 1), to_gpu(SWL_WQE_FETCH_ADD, 5, 3, 1)}), 2u);
    expect_done(101);
    EXPECT_EQ(gpu[3], 1u);
}

TEST_F(VerbsFlush, D_G_MessagesNeedItWhicheverComesFirst)
{
    fake.joins_itself = false;
    ASSERT_EQ(open_apart(SWL_ADDS_MESSAGES, SWL_ADDS_ATOMICS), ncclSuccess) << swl_last_error();
    ASSERT_EQ(register_gpu(), ncclSuccess) << swl_last_error();
    EXPECT_EQ(connect_both(), ncclSystemError);
    EXPECT_NE(strstr(swl_last_error(), "fake0 does not connect a queue pair to itself"), nullptr)
        << swl_last_error();
    EXPECT_EQ(fake.queues.size(), 2u) << "nothing is left of it";
    fake.joins_itself = true;
    ASSERT_EQ(wire[0]->ops->reset(wire[0], qp[0]), ncclSuccess);
    ASSERT_EQ(connect_both(), ncclSuccess) << swl_last_error();
    EXPECT_EQ(fake.queues.size(), 3u);
}

TEST_F(VerbsFlush, D_G_FailureOfAnyCallIsReportedAndNothingIsLeft)
{
    bool failed = true;

    for (int at = 1; failed; at++) {
        ncclResult_t rc, closed = ncclSuccess;

        fake_end();
        verbs = fake_machine();
        ASSERT_EQ(open_both(SWL_ADDS_MESSAGES), ncclSuccess) << swl_last_error();
        fake.fail_at = fake.calls + at;
        rc = register_gpu();
        if (rc == ncclSuccess) {
            next = 100;
            (void)post({to_gpu(SWL_WQE_FETCH_ADD, 5, 3, 1)});
            fake.next_status = 10;
            for (int i = 0; i < 4; i++)
                (void)poll(1);
            rc = wire[1]->ops->reset(wire[1], qp[1]);
        }
        for (struct swl_wire *&w : wire) {
            closed = w->ops->close(w) != ncclSuccess ? ncclSystemError : closed;
            w = nullptr;
        }
        failed = !fake.failed.empty();
        EXPECT_EQ(failed, rc != ncclSuccess || closed != ncclSuccess) << fake.failed;
        EXPECT_TRUE(fake.alive.empty()) << fake.failed;
    }
}

} // namespace
