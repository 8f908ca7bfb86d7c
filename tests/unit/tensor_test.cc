/* tensor_test.cc: tensor descriptors, theirs and ours, and where their storage lies. */
#include "src/base/error.h"
#include "src/check/tensor.h"
#include "tests/support/fake_place.h"

#include <cstring>

static uintptr_t window_base;

static ncclResult_t fake_window_pointer(ncclComm_t, ncclWindow_t, void **ptr)
{
    *ptr = at(window_base);
    return ncclSuccess;
}

class TensorCheck : public FakePlace
{
  protected:
    ncclResult_t check(ncclEpTensor_t *user, bool payload = true)
    {
        ncclResult_t rc = swl_tensor_copy(&t, user, "t", payload);
        if (rc == ncclSuccess)
            rc = swl_tensor_capable(&t, &info);
        return rc == ncclSuccess ? swl_tensor_check(&t, &info) : rc;
    }
    struct swl_tensor t;
    struct swl_group_info info = {};
};

TEST_F(TensorCheck, ViewsCarryShapeAndPlace)
{
    Tensor a(ncclFloat32, {3, 4, 8}, at(0x100000));
    EXPECT_OK(check(&a));
    EXPECT_EQ(t.view.rows, 3u);
    EXPECT_EQ(t.view.columns, 32u);
    EXPECT_EQ(t.view.row_bytes, 128u);
    EXPECT_EQ(t.view.data, at(0x100000));
    EXPECT_OK(check(nullptr));
    EXPECT_FALSE(t.view.given);
}

TEST_F(TensorCheck, MalformedDescriptorsAreRefused)
{
    Tensor a(ncclFloat32, {3, 4}, at(0x100000));
    a.t.ndim = 0;
    EXPECT_IA(check(&a), "ndim is 0");
    a.t.ndim = 5;
    EXPECT_IA(check(&a), "ndim is 5");
    a.t.ndim = 2;
    a.t.sizes = nullptr;
    EXPECT_IA(check(&a), "sizes is NULL");
    a.t.sizes = a.extent.data();
    a.t.datatype = static_cast<ncclDataType_t>(13);
    EXPECT_IA(check(&a), "datatype 13");
    a.t.datatype = static_cast<ncclDataType_t>(-1);
    EXPECT_IA(check(&a), "datatype -1");
    a.t.datatype = ncclFloat32;
    a.extent[0] = SIZE_MAX / 8;
    EXPECT_IA(check(&a), "overflow");
    a.extent[0] = 3;
    a.t.data = nullptr;
    EXPECT_IA(check(&a), "NULL");
    a.extent[1] = 0;
    EXPECT_OK(check(&a));
    EXPECT_TRUE(t.empty);
}

/* F-74: the block ends where `size` says, AddressSanitizer watches. */
TEST_F(TensorCheck, F74_DescriptorsNotMadeByTheirMacroAreRefused)
{
    Tensor a(ncclFloat32, {4}, at(0x100000));
    ncclEpTensor_t bad = a.t;
    memset(&bad, 0, sizeof(bad));
    EXPECT_IA(check(&bad), "t: size is 0");
    memset(&bad, 0xff, sizeof(bad));
    EXPECT_IA(check(&bad), "t: magic");
    struct {
        ncclEpTensor_t t;
        char more[32];
    } big = {a.t, {}};
    big.t.size = sizeof(big);
    EXPECT_OK(check(&big.t));
    auto *small = static_cast<unsigned int *>(malloc(8));
    small[0] = 8;
    small[1] = NCCL_EP_TENSOR_MAGIC;
    EXPECT_IA(check(reinterpret_cast<ncclEpTensor_t *>(small)), "t: size is 8");
    free(small);
}

TEST_F(TensorCheck, PayloadIsAlignedTo16AndTheRestToElements)
{
    Tensor a(ncclFloat32, {4}, at(0x100004));
    EXPECT_IA(check(&a, true), "aligned to 16");
    EXPECT_OK(check(&a, false));
    a.t.data = at(0x100002);
    EXPECT_IA(check(&a, false), "aligned to 4");
}

/* F-23: the parts that need no peers. */
TEST_F(TensorCheck, F23_WindowOffsetsGiveTheSameAddressAsData)
{
    Tensor a(ncclBfloat16, {8, 64}, nullptr);
    a.t.win_hdl = reinterpret_cast<ncclWindow_t>(0x77);
    EXPECT_IU(check(&a), "2.29.2", "NCCL");
    a.t.data = at(0x100000);
    EXPECT_OK(check(&a)); /* an old NCCL: through data */
    EXPECT_TRUE(t.view.window);
    EXPECT_FALSE(t.view.shared);

    info.window_pointer = fake_window_pointer;
    window_base = 0x100000;
    for (uint64_t offset : {0u, 16u, 256u, 4096u + 16u}) {
        a.t.data = nullptr;
        a.t.win_offset = offset;
        EXPECT_OK(check(&a));
        EXPECT_EQ(t.view.data, at(0x100000 + offset));
        a.t.data = at(0x100000 + offset);
        EXPECT_OK(check(&a));
        a.t.data = at(0x100000 + offset + 16);
        EXPECT_IA(check(&a), "win_offset");
    }
    a.t.data = nullptr;
    a.t.win_offset = 8;
    EXPECT_IA(check(&a), "multiple of 16");
    a.t.win_offset = 0x1000000 - 1008; /* the fake allocation has 16 MiB */
    EXPECT_IA(check(&a), "beyond");
    a.t.win_offset = 0x2000000;
    EXPECT_IA(check(&a), "beyond");
    a.t.win_offset = 0x1000000 - 1024;
    EXPECT_OK(check(&a));
}

TEST_F(TensorCheck, F23_LibraryMemoryIsAWindow)
{
    const struct swl_region region = {at(0x300000), 2048, 0x8000};
    Tensor a(ncclBfloat16, {8, 64}, at(0x300000));
    info.regions = &region;
    info.nregions = 1;
    for (uint64_t offset : {0u, 16u, 256u, 1024u}) {
        a.t.data = at(0x300000 + offset);
        EXPECT_OK(check(&a));
        EXPECT_TRUE(t.view.window && t.view.shared);
        EXPECT_EQ(t.view.offset, 0x8000 + offset);
    }
    a.t.data = at(0x300000 + 1040);
    EXPECT_IA(check(&a), "wholly inside");
    a.t.data = at(0x300000 - 16);
    EXPECT_IA(check(&a), "wholly inside");
    a.t.data = at(0x300000 + 2048);
    EXPECT_OK(check(&a));
    EXPECT_FALSE(t.view.window);
}

TEST_F(TensorCheck, LibraryMadeTensorsKeepTheirSizes)
{
    const size_t sizes[] = {3, 4};
    ncclEpTensorAllocConfig_t c = NCCL_EP_TENSOR_ALLOC_CONFIG_INIT;
    ncclEpTensor_t *made = nullptr;
    EXPECT_OK(ncclEpTensorAlloc(&made, 2, ncclFloat32, sizes, &c));
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(made->ndim, 2u);
    EXPECT_EQ(made->sizes[1], 4u);
    EXPECT_EQ(made->data, nullptr);
    made->data = at(0x100000);
    EXPECT_OK(check(made));
    size_t *own = made->sizes, mine[] = {3, 4};
    made->sizes = mine;
    EXPECT_IA(check(made), "replaced");
    EXPECT_IA(ncclEpTensorDestroy(made), "replaced");
    made->sizes = own;
    EXPECT_OK(ncclEpTensorDestroy(made));
    EXPECT_OK(ncclEpTensorDestroy(nullptr));
}

TEST_F(TensorCheck, AllocAndDestroyRefuseBadArguments)
{
    const size_t sizes[] = {3, 4, 1, 1, 1}, huge[] = {SIZE_MAX, 2};
    ncclEpTensorAllocConfig_t c = NCCL_EP_TENSOR_ALLOC_CONFIG_INIT;
    ncclEpTensor_t *made = reinterpret_cast<ncclEpTensor_t *>(1);
    EXPECT_IA(ncclEpTensorAlloc(nullptr, 2, ncclFloat32, sizes, nullptr), "tensor");
    EXPECT_IA(ncclEpTensorAlloc(&made, 2, ncclFloat32, nullptr, nullptr), "sizes");
    EXPECT_EQ(made, nullptr);
    EXPECT_IA(ncclEpTensorAlloc(&made, 0, ncclFloat32, sizes, nullptr), "ndim is 0");
    EXPECT_IA(ncclEpTensorAlloc(&made, 5, ncclFloat32, sizes, nullptr), "ndim is 5");
    EXPECT_IA(ncclEpTensorAlloc(&made, 2, static_cast<ncclDataType_t>(99), sizes, nullptr), "99");
    EXPECT_IA(ncclEpTensorAlloc(&made, 2, ncclFloat32, huge, nullptr), "overflow");
    c.magic = 0;
    EXPECT_IA(ncclEpTensorAlloc(&made, 2, ncclFloat32, sizes, &c), "config", "magic");
    Tensor theirs(ncclFloat32, {4}, nullptr);
    EXPECT_IA(ncclEpTensorDestroy(&theirs), "not made by");
}
