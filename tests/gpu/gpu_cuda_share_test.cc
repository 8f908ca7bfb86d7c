/* Memory that ranks map (src/runtime/cuda/share.c), against a driver of this file: which handles
 * are asked for, which one a peer uses, and what it says where there is none. No GPU and no driver
 * needed. */
#include "src/runtime/cuda/driver.h"
#include "src/runtime/runtime.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

namespace
{

const int fd_type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, fabric_type = 8;
const CUdevice_attribute fabric_attribute = (CUdevice_attribute)128;
const int ndevices = 2;

/* What this machine has, and what was done with it. */
struct machine {
    uint64_t process = 1;
    int device = 0;
    bool fabric_device = false, fabric_allowed = true, fabric_import_allowed = true;
    bool fds_travel = true, peers = true;
    int requested = 0, imported = 0; /* handle types */
    int fd = -1;
    std::set<uint64_t> physical, mapped;
    uint64_t last = 0;
};
machine m;

CUresult device_get(CUdevice *unit, int device)
{
    *unit = device;
    return CUDA_SUCCESS;
}

CUresult attribute(int *value, CUdevice_attribute which, CUdevice)
{
    if (which == fabric_attribute)
        *value = m.fabric_device;
    else
        *value = 1;
    return CUDA_SUCCESS;
}

CUresult uuid_of(CUuuid *uuid, CUdevice unit)
{
    memset(uuid, 'a' + unit, sizeof(*uuid));
    return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle *handle, size_t, const CUmemAllocationProp *prop,
                unsigned long long)
{
    if ((prop->requestedHandleTypes & fabric_type) && !m.fabric_allowed)
        return CUDA_ERROR_NOT_PERMITTED;
    m.requested = prop->requestedHandleTypes;
    *handle = ++m.last;
    m.physical.insert(*handle);
    return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle handle)
{
    return m.physical.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult reserve(CUdeviceptr *at, size_t, size_t, CUdeviceptr, unsigned long long)
{
    *at = ++m.last << 21;
    return CUDA_SUCCESS;
}

CUresult address_free(CUdeviceptr, size_t)
{
    return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr at, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)
{
    m.mapped.insert(at);
    return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr at, size_t)
{
    return m.mapped.erase(at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult set_access(CUdeviceptr, size_t, const CUmemAccessDesc *access, size_t)
{
    return access->location.id == 0 || m.peers ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult export_handle(void *to, CUmemGenericAllocationHandle, CUmemAllocationHandleType type,
                       unsigned long long)
{
    if ((int)type == fabric_type)
        memset(to, 'f', 64);
    else
        *(int *)to = dup(0);
    return CUDA_SUCCESS;
}

CUresult import_handle(CUmemGenericAllocationHandle *handle, void *from,
                       CUmemAllocationHandleType type)
{
    m.imported = type;
    if ((int)type == fabric_type && !m.fabric_import_allowed)
        return CUDA_ERROR_NOT_PERMITTED;
    if ((int)type == fabric_type) {
        EXPECT_EQ(*(char *)from, 'f');
    }
    *handle = ++m.last;
    m.physical.insert(*handle);
    return CUDA_SUCCESS;
}

class Share : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        m = machine();
    }
    void TearDown() override
    {
        EXPECT_TRUE(m.physical.empty());
        EXPECT_TRUE(m.mapped.empty());
    }
    void allocate()
    {
        ASSERT_EQ(swl_gpu_shared_malloc(&own, 100, &share), cudaSuccess);
    }
    /* As another process, then as the owner again. */
    cudaError_t map_elsewhere(int device = 0)
    {
        void *at = nullptr;

        m.process = 2;
        m.device = device;
        cudaError_t error = swl_gpu_shared_map(&share, &at);
        if (error == cudaSuccess) {
            EXPECT_NE(at, own);
            EXPECT_EQ(swl_gpu_shared_unmap(at), cudaSuccess);
        }
        m.process = 1;
        m.device = 0;
        return error;
    }
    void release_own()
    {
        EXPECT_EQ(swl_gpu_shared_free(own), cudaSuccess);
    }
    void *own = nullptr;
    swl_gpu_share share = {};
};

} // namespace

/* ---- the parts that runtime.c, fd.c and the runtime have ---- */

cudaError_t swl_driver_get(const struct swl_driver **driver_p)
{
    static struct swl_driver driver = {};

    driver.cuDeviceGet = device_get;
    driver.cuDeviceGetAttribute = attribute;
    driver.cuDeviceGetUuid = uuid_of;
    driver.cuMemCreate = create;
    driver.cuMemRelease = release;
    driver.cuMemAddressReserve = reserve;
    driver.cuMemAddressFree = address_free;
    driver.cuMemMap = map;
    driver.cuMemUnmap = unmap;
    driver.cuMemSetAccess = set_access;
    driver.cuMemExportToShareableHandle = export_handle;
    driver.cuMemImportFromShareableHandle = import_handle;
    *driver_p = &driver;
    return cudaSuccess;
}

uint64_t swl_gpu_process_id(void)
{
    return m.process;
}

cudaError_t swl_fd_export(uint64_t, int fd)
{
    m.fd = fd;
    return cudaSuccess;
}

void swl_fd_withdraw(uint64_t)
{
    m.fd = -1;
}

cudaError_t swl_fd_fetch(uint64_t process, uint64_t, int *fd_p)
{
    EXPECT_EQ(process, 1u);
    if (!m.fds_travel)
        return cudaErrorOperatingSystem;
    *fd_p = dup(m.fd);
    return cudaSuccess;
}

extern "C" {
cudaError_t cudaFree(void *)
{
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device)
{
    *device = m.device;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = ndevices;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int, int)
{
    *can = m.peers;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = nullptr;
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t)
{
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}
}

TEST_F(Share, IsMappedByDescriptorWhereThereIsNoFabric)
{
    allocate();
    EXPECT_EQ(m.requested, fd_type);
    EXPECT_STREQ(swl_gpu_shared_how(&share), "file descriptor; the device has no fabric handles");
    EXPECT_EQ(map_elsewhere(), cudaSuccess);
    EXPECT_EQ(m.imported, fd_type);
    release_own();
}

TEST_F(Share, HasAFabricHandleForOtherMachines)
{
    m.fabric_device = true;
    allocate();
    EXPECT_EQ(m.requested, fd_type | fabric_type);
    EXPECT_STREQ(swl_gpu_shared_how(&share), "file descriptor and fabric handle");
    EXPECT_EQ(map_elsewhere(), cudaSuccess);
    EXPECT_EQ(m.imported, fd_type) << "on one machine the descriptor is enough";
    m.fds_travel = false;
    EXPECT_EQ(map_elsewhere(), cudaSuccess);
    EXPECT_EQ(m.imported, fabric_type);
    release_own();
}

TEST_F(Share, FallsBackToTheDescriptorAndSaysWhy)
{
    m.fabric_device = true;
    m.fabric_allowed = false;
    allocate();
    EXPECT_EQ(m.requested, fd_type);
    EXPECT_NE(strstr(swl_gpu_shared_how(&share), "no IMEX channel"), nullptr);
    EXPECT_EQ(map_elsewhere(), cudaSuccess);
    release_own();
}

TEST_F(Share, NamesWhatIsMissing)
{
    allocate();
    m.fds_travel = false;
    EXPECT_EQ(map_elsewhere(), cudaErrorOperatingSystem);
    release_own();
    m.fabric_device = true;
    m.fabric_import_allowed = false;
    allocate();
    EXPECT_EQ(map_elsewhere(), cudaErrorNotPermitted);
    m.fds_travel = true;
    m.peers = false;
    EXPECT_EQ(map_elsewhere(1), cudaErrorPeerAccessUnsupported);
    EXPECT_EQ(map_elsewhere(0), cudaSuccess) << "the same GPU needs no peer access";
    release_own();
}

TEST_F(Share, IsOneAddressForTheRanksOfAProcess)
{
    void *at = nullptr;

    allocate();
    m.device = 1;
    ASSERT_EQ(swl_gpu_shared_map(&share, &at), cudaSuccess);
    EXPECT_EQ(at, own);
    m.peers = false;
    void *none = nullptr;
    EXPECT_EQ(swl_gpu_shared_map(&share, &none), cudaErrorPeerAccessUnsupported);
    release_own();
    EXPECT_EQ(m.mapped.size(), 1u) << "it lives as long as its last user";
    EXPECT_EQ(swl_gpu_shared_unmap(at), cudaSuccess);
}
