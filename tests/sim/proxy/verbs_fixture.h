// verbs_fixture.h: two verbs wires with a queue pair each, over the fake of rdma-core.
#ifndef SWL_TESTS_VERBS_FIXTURE_H
#define SWL_TESTS_VERBS_FIXTURE_H

#include "tests/sim/proxy/fake_verbs.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "transport/proxy/verbs/verbs.h"

#include <gtest/gtest.h>
#include <string.h>

const unsigned everything =
    SWL_NIC_LOCAL_WRITE | SWL_NIC_REMOTE_WRITE | SWL_NIC_REMOTE_READ | SWL_NIC_REMOTE_ADD;

class VerbsWire : public ::testing::Test
{
  protected:
    VerbsWire() : level(swl_log_set(SWL_LEVEL_NONE)), verbs(fake_machine())
    {
    }
    ~VerbsWire() override
    {
        for (struct swl_wire *w : wire)
            if (w) {
                EXPECT_EQ(w->ops->close(w), ncclSuccess) << swl_last_error();
            }
        fake_end();
        swl_log_set(level);
    }

    // What each end may use.
    ncclResult_t open_both(uint32_t adds0 = SWL_ADDS_ATOMICS, uint32_t adds1 = SWL_ADDS_ATOMICS)
    {
        SWL_TRY(open_apart(adds0, adds1));
        return connect_both();
    }
    // Not yet connected.
    ncclResult_t open_apart(uint32_t adds0, uint32_t adds1)
    {
        for (int n = 0; n < 2; n++) {
            config.settings.adds = n ? adds1 : adds0;
            config.rank = static_cast<uint32_t>(n);
            SWL_TRY(swl_verbs_wire_open(&wire[n], &config, &verbs));
            SWL_TRY(
                wire[n]->ops->reg_mr(wire[n], words[n], sizeof(words[n]), everything, &region[n]));
            SWL_TRY(wire[n]->ops->create_qp(wire[n], &qp[n]));
        }
        return ncclSuccess;
    }
    ncclResult_t connect_both()
    {
        struct swl_wire_address a[2];

        for (int n = 0; n < 2; n++)
            SWL_TRY(wire[n]->ops->address(wire[n], qp[n], &a[n]));
        for (int n = 0; n < 2; n++)
            SWL_TRY(wire[n]->ops->connect(wire[n], qp[n], &a[1 - n]));
        return ncclSuccess;
    }
    // From words[0][from] to words[1][to].
    struct swl_wire_request request(uint32_t opcode, int from, int to, uint64_t value = 0)
    {
        struct swl_wire_request r = {};

        r.index = next++;
        r.opcode = opcode;
        r.bytes = opcode == SWL_WQE_NOP ? 0 : 8;
        r.local = reinterpret_cast<uintptr_t>(&words[0][from]);
        r.remote = reinterpret_cast<uintptr_t>(&words[1][to]);
        r.value = value;
        r.lkey = region[0].lkey;
        r.rkey = region[1].rkey;
        r.signalled = 1;
        return r;
    }
    uint32_t post(const std::vector<struct swl_wire_request> &r)
    {
        return wire[0]->ops->post(wire[0], qp[0], r.data(), static_cast<uint32_t>(r.size()));
    }
    // What wire n says is complete, if anything.
    std::vector<struct swl_wire_done> poll(int n)
    {
        struct swl_wire_done done[8];
        const uint32_t count = wire[n]->ops->poll(wire[n], done, 8);

        return {done, done + count};
    }
    void expect_done(uint64_t index, uint32_t syndrome = 0)
    {
        const auto d = poll(0);

        ASSERT_EQ(d.size(), 1u);
        EXPECT_EQ(d[0].index, index);
        EXPECT_EQ(d[0].syndrome, syndrome);
    }

    enum swl_level level;
    struct swl_verbs verbs;
    struct swl_wire_config config = {0, 0, 2, 8, 100, 1000000000, 1000000000, nullptr, {}};
    struct swl_wire *wire[2] = {nullptr, nullptr};
    struct swl_nic_region region[2] = {};
    uint32_t qp[2] = {9, 9};
    uint64_t words[2][64] = {}, next = 100;
};

#endif
