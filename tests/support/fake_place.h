/* fake_place.h: a device runtime, a communicator and a group that only record, for tests of the
 * public functions and their checks without emulator, GPU or peers. */
#pragma once

#include "src/api/internal.h"

#include <gtest/gtest.h>
#include <swimlane.h>

#include <string>
#include <vector>

struct ncclComm {
    int nranks, rank, device;
};

/* What the fakes answer, and what they were asked. Reset by FakePlace. */
struct FakeState {
    int ndevices = 1, device = 0, nsms = 24, cc_major = 9;
    bool capturing = false;
    bool memory_unknown = false; /* no address is the device runtime's */
    cudaError_t pending_error = cudaSuccess;
    int locks = 0, unlocks = 0;

    ncclResult_t refused = ncclSuccess; /* argument of the last swl_group_create */
    int groups_created = 0, groups_destroyed = 0, handles_created = 0, handles_destroyed = 0;
    int updates = 0, dispatches = 0, combines = 0;
    ncclResult_t result = ncclSuccess; /* of swl_handle_update, swl_dispatch, swl_combine */
    int64_t recv_rows = -1;
    uint64_t mem_alloc_bytes = ~0ull;
    void *memory_seen = nullptr;
    struct swl_group_config config = {};
    struct swl_update_call update = {};
    struct swl_dispatch_call dispatch = {};
    struct swl_combine_call combine = {};
};
extern FakeState fake;

/* A descriptor with its extents, in one object. */
struct Tensor {
    std::vector<size_t> extent;
    ncclEpTensor_t t = NCCL_EP_TENSOR_INIT;

    Tensor(ncclDataType_t dtype, std::vector<size_t> sizes, void *data) : extent(std::move(sizes))
    {
        t.ndim = static_cast<unsigned int>(extent.size());
        t.datatype = dtype;
        t.data = data;
        t.sizes = extent.data();
    }
    Tensor(const Tensor &) = delete;
    Tensor &operator=(const Tensor &) = delete;
    ncclEpTensor_t *operator&()
    {
        return &t;
    }
};

/* Made-up addresses: nothing here touches payload. */
inline void *at(uint64_t address)
{
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

/* Expects `code` and, for a failure, every one of `words` in the sentence. */
void expect_code(ncclResult_t got, ncclResult_t code, std::vector<std::string> words, int line);
#define EXPECT_OK(call)      expect_code((call), ncclSuccess, {}, __LINE__)
#define EXPECT_IA(call, ...) expect_code((call), ncclInvalidArgument, {__VA_ARGS__}, __LINE__)
#define EXPECT_IU(call, ...) expect_code((call), ncclInvalidUsage, {__VA_ARGS__}, __LINE__)

/* One group of rank 1 of 2, E = 8, D = 64, X = 100, rows up to 256 bytes. */
class FakePlace : public ::testing::Test
{
  protected:
    FakePlace();
    ~FakePlace() override;

    static ncclEpGroupConfig_t good_config();
    void make_group();              /* this->group */
    void make_handle(int topk = 2); /* this->handle, not updated */

    ncclComm comm = {2, 1, 0};
    ncclEpGroupConfig_t config = good_config();
    ncclEpGroup_t group = nullptr;
    ncclEpHandle_t handle = nullptr;
};
