// devx_fixture.h: NICs of transport/mlx5 over the fake of fake_mlx5.h: by DevX, or by verbs.
#pragma once

#include "tests/support/fake_mlx5.h"

#include "src/base/error.h"
#include "src/base/log.h"
#include "transport/mlx5/nic.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

class Devx : public ::testing::Test
{
  protected:
    Devx() : level(swl_log_set(SWL_LEVEL_NONE)), fds(open_fds())
    {
        fake = FakeMlx5();
        fake.ports = {FakePort(), FakePort()};
        verbs = fake_verbs();
    }
    ~Devx() override
    {
        EXPECT_EQ(fake.leaks(), "");
        EXPECT_EQ(open_fds(), fds);
        swl_log_set(level);
    }

    // A NIC on device mlx5_<n>.
    ncclResult_t create(struct swl_nic **nic_p, int n = 0)
    {
        const std::string name = "=mlx5_" + std::to_string(n);

        ib.hca = name.c_str();
        config.rank = static_cast<uint32_t>(n);
        const ncclResult_t rc = swl_mlx5_make(nic_p, &config, &verbs, maker);
        ib.hca = nullptr;
        return rc;
    }
    // The last sentence has these words.
    static void expect_said(const std::string &words)
    {
        EXPECT_NE(std::string(swl_last_error()).find(words), std::string::npos)
            << swl_last_error() << "\nlacks: " << words;
    }

    const struct mlx5_maker *maker = &swl_devx_maker;
    enum swl_level level;
    int fds;
    struct swl_verbs verbs;
    struct swl_nic_ib ib = {nullptr, -1, -1, -1, 0, 0, -1};
    struct swl_nic_config config = [this] {
        struct swl_nic_config c = {};

        c.max_qps = 4;
        c.depth = 256;
        c.timeout_ns = 1000000000;
        c.settings.ib = &ib;
        return c;
    }();
};

// Two NICs, each with one queue pair.
class Mlx5Pair : public Devx
{
  protected:
    void open()
    {
        for (int n = 0; n < 2; n++) {
            ASSERT_EQ(create(&nic[n], n), ncclSuccess) << swl_last_error();
            ASSERT_EQ(nic[n]->ops->create_qp(nic[n], &qp[n]), ncclSuccess) << swl_last_error();
        }
        exchange();
    }
    void exchange()
    {
        for (int n = 0; n < 2; n++)
            ASSERT_EQ(nic[n]->ops->address(nic[n], qp[n], &address[n]), ncclSuccess);
    }
    ncclResult_t connect(int n)
    {
        return nic[n]->ops->connect(nic[n], qp[n], &address[1 - n]);
    }
    struct swl_nic_qp_status query(int n)
    {
        struct swl_nic_qp_status s = {};

        EXPECT_EQ(nic[n]->ops->query(nic[n], qp[n], &s), ncclSuccess) << swl_last_error();
        return s;
    }
    struct swl_qp view(int n)
    {
        struct swl_qp v = {};

        EXPECT_EQ(nic[n]->ops->view(nic[n], qp[n], &v), ncclSuccess);
        return v;
    }
    void close()
    {
        for (auto &one : nic) {
            EXPECT_TRUE(one == nullptr || one->ops->destroy(one) == ncclSuccess)
                << swl_last_error();
            one = nullptr;
        }
    }
    // A connection that fails by this call, and the next one, which does not.
    void expect_connection_after(const char *call)
    {
        SCOPED_TRACE(call);
        open();
        fake.fail(call);
        EXPECT_EQ(connect(0), ncclSystemError);
        EXPECT_EQ(query(0).state, SWL_NIC_QP_INIT);
        exchange();
        EXPECT_EQ(connect(0), ncclSuccess) << swl_last_error();
        EXPECT_EQ(connect(1), ncclSuccess);
        close();
    }
    ~Mlx5Pair() override
    {
        close();
    }

    struct swl_nic *nic[2] = {nullptr, nullptr};
    uint32_t qp[2] = {0, 0};
    struct swl_nic_address address[2] = {};
};
