// The life of two connected mlx5 NICs over the fake, by each driver, with a failure of every single
// call on the way: it is an error with its reason, or another way makes up for it, and nothing is
// left behind.
#include "tests/unit/devx_fixture.h"

#include <set>
#include <string>

namespace
{

// The life of two connected NICs; the code of the first step that failed. Leaves the NICs to the
// caller. Steps after a failure that a caller would still make: none.
ncclResult_t live(const struct mlx5_maker *maker, struct swl_nic **nic,
                  struct swl_nic_config *config, struct swl_nic_ib *ib,
                  const struct swl_verbs *verbs)
{
    static uint64_t words[64];
    struct swl_nic_address address[2];
    struct swl_nic_qp_status status;
    struct swl_nic_region region;
    uint32_t qp[2];

    for (int n = 0; n < 2; n++) {
        ib->hca = n ? "=mlx5_1" : "=mlx5_0";
        config->rank = static_cast<uint32_t>(n);
        SWL_TRY(swl_mlx5_make(&nic[n], config, verbs, maker));
        SWL_TRY(nic[n]->ops->reg_mr(nic[n], words, sizeof(words), SWL_NIC_REMOTE_ADD, &region));
        SWL_TRY(nic[n]->ops->create_qp(nic[n], &qp[n]));
        SWL_TRY(nic[n]->ops->create_qp(nic[n], &qp[n]));
    }
    for (int round = 0; round < 2; round++) {
        for (int n = 0; n < 2; n++)
            SWL_TRY(nic[n]->ops->address(nic[n], qp[n], &address[n]));
        for (int n = 0; n < 2; n++)
            SWL_TRY(nic[n]->ops->connect(nic[n], qp[n], &address[1 - n]));
        SWL_TRY(nic[0]->ops->query(nic[0], qp[0], &status));
        SWL_TRY(nic[0]->ops->to_error(nic[0], qp[0]));
        for (int n = 0; n < 2; n++)
            SWL_TRY(nic[n]->ops->reset(nic[n], qp[n]));
    }
    return nic[1]->ops->dereg_mr(nic[1], &region);
}

// Calls whose failure another way makes up for.
bool replaced(const std::string &name)
{
    for (const char *n : {"swl_gpu_dmabuf", "mlx5dv_devx_umem_reg", "mlx5dv_devx_umem_reg_ex",
                          "mlx5dv_devx_alloc_uar", "ibv_reg_dmabuf_mr", "ibv_destroy_ah"})
        if (name == n)
            return true;
    return false;
}

class DevxFailures : public Devx
{
  protected:
    // Make call number n fail; false: there are fewer calls.
    bool fail(int n, uint8_t status)
    {
        struct swl_nic *nic[2] = {nullptr, nullptr};

        fake = FakeMlx5();
        fake.ports = {FakePort(), FakePort()};
        fake.fail_at = n;
        fake.fail_status = status;
        swl_call_begin("test", 0); // a public call: its first sentence stays
        ncclResult_t rc = live(maker, nic, &config, &ib, &verbs);
        for (struct swl_nic *one : nic)
            if (one) {
                const ncclResult_t ended = one->ops->destroy(one);
                rc = rc != ncclSuccess ? rc : ended;
            }
        const std::string said = swl_last_error();
        swl_call_end();
        EXPECT_EQ(fake.leaks(), "") << "call " << n << " " << fake.failed;
        EXPECT_EQ(open_fds(), fds) << "call " << n << " " << fake.failed;
        if (fake.failed.empty()) {
            EXPECT_EQ(rc, ncclSuccess) << said;
            return false;
        }
        if (replaced(fake.failed)) {
            EXPECT_EQ(rc, ncclSuccess) << fake.failed << ": " << said;
            return true;
        }
        EXPECT_NE(rc, ncclSuccess) << "call " << n << " " << fake.failed;
        expect_reason(said, status);
        names.insert(fake.failed);
        return true;
    }
    void expect_reason(const std::string &said, uint8_t status) const
    {
        const bool command = fake.failed.find(" 0x") != std::string::npos;
        const bool gpu = fake.failed.compare(0, 7, "swl_gpu") == 0;
        std::string reason = "Cannot allocate memory";

        if (gpu)
            reason = "a fake error";
        else if (command && status)
            reason =
                "firmware status 0x09 (resource is not in the right state), syndrome 0x00abc123";
        if (fake.failed == "swl_gpu_host_malloc" && maker == &swl_mlx5_verbs_maker)
            reason = said.find("no pinned memory") != std::string::npos ? "no pinned memory"
                                                                        : "Cannot allocate memory";
        if (fake.failed == "swl_gpu_stream_wait")
            reason = "not done within the time limit";
        if (fake.failed == "ibv_get_device_list")
            reason = "no RDMA device";
        if (fake.failed == "ibv_query_port")
            reason = "does not tell the state of port 1";
        if (fake.failed == "_ibv_query_gid_ex")
            reason = "no routable RoCE v2 address";
        EXPECT_NE(said.find(reason), std::string::npos) << fake.failed << ": " << said;
        const auto has = [&](const char *words) { return said.find(words) != std::string::npos; };

        EXPECT_TRUE(gpu || fake.failed == "ibv_get_device_list" || has("mlx5_"))
            << fake.failed << ": " << said;
        EXPECT_TRUE(fake.failed.compare(0, 10, "obj_modify") != 0 || has("queue pair 0x")) << said;
    }

    std::set<std::string> names; // of the calls whose failure was an error
};

TEST_F(DevxFailures, EveryCallFailsOnceAndNothingIsLeft)
{
    int n = 1;

    while (fail(n, 0))
        n++;
    EXPECT_GT(n, 100);
    for (const char *name :
         {"mlx5dv_open_device",     "ibv_alloc_pd",     "mlx5dv_init_obj",
          "general_cmd 0x100",      "obj_create 0x400", "obj_create 0x500",
          "obj_modify 0x502",       "obj_modify 0x503", "obj_modify 0x504",
          "obj_modify 0x507",       "obj_modify 0x50a", "obj_query 0x50b",
          "ibv_create_ah",          "ibv_reg_mr",       "swl_gpu_registers_map",
          "swl_gpu_malloc",         "swl_gpu_copy",     "mlx5dv_devx_obj_destroy",
          "mlx5dv_devx_umem_dereg", "ibv_dereg_mr",     "ibv_dealloc_pd",
          "ibv_close_device",       "swl_gpu_free"})
        EXPECT_EQ(names.count(name), 1u) << name << " was not among the calls";
}

TEST_F(DevxFailures, EveryCommandIsRefusedOnceByTheFirmware)
{
    int n = 1;

    while (fail(n, 9))
        n++;
    EXPECT_GT(n, 100);
}

class VerbsFailures : public DevxFailures
{
  protected:
    VerbsFailures()
    {
        maker = &swl_mlx5_verbs_maker;
    }
};

TEST_F(VerbsFailures, EveryCallFailsOnceAndNothingIsLeft)
{
    int n = 1;

    while (fail(n, 0))
        n++;
    EXPECT_GT(n, 80);
    for (const char *name : {"ibv_open_device",
                             "ibv_alloc_pd",
                             "ibv_query_device",
                             "mlx5dv_set_context_attr",
                             "mlx5dv_create_cq",
                             "ibv_create_qp",
                             "mlx5dv_init_obj",
                             "ibv_modify_qp 1",
                             "ibv_modify_qp 2",
                             "ibv_modify_qp 3",
                             "ibv_modify_qp 6",
                             "ibv_query_qp",
                             "ibv_reg_mr",
                             "swl_gpu_registers_map",
                             "swl_gpu_registers_unmap",
                             "swl_gpu_host_malloc",
                             "swl_gpu_host_free",
                             "ibv_destroy_qp",
                             "ibv_destroy_cq",
                             "ibv_dereg_mr",
                             "ibv_dealloc_pd",
                             "ibv_close_device"})
        EXPECT_EQ(names.count(name), 1u) << name << " was not among the calls";
}

TEST_F(DevxFailures, EveryCallFailsOnceWithRingsInTheHost)
{
    for (int n = 1; n < 1000; n++) {
        struct swl_nic *nic[2] = {nullptr, nullptr};

        fake = FakeMlx5();
        fake.ports = {FakePort(), FakePort()};
        fake.gpu_dmabuf = fake.peer_memory = false;
        fake.fail_at = n;
        const ncclResult_t rc = live(maker, nic, &config, &ib, &verbs);
        for (struct swl_nic *one : nic)
            if (one)
                (void)one->ops->destroy(one);
        ASSERT_EQ(fake.leaks(), "") << "call " << n << " " << fake.failed;
        ASSERT_EQ(open_fds(), fds) << "call " << n << " " << fake.failed;
        if (fake.failed.empty()) {
            EXPECT_EQ(rc, ncclSuccess) << swl_last_error();
            EXPECT_GT(n, 80);
            return;
        }
    }
    ADD_FAILURE() << "the life of a NIC has no end";
}

} // namespace
