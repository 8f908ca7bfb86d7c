/* fake_place.cc: see fake_place.h. */
#include "tests/support/fake_place.h"
#include "tests/support/thread_slot.h"

#include "src/base/log.h"

#include <cstdlib>
#include <cstring>

FakeState fake;

struct ncclEpGroup {
    struct swl_group_info info;
    std::vector<swl_region> regions;
    std::vector<ncclEpHandle *> handles;
};

struct ncclEpHandle {
    struct swl_handle_info info;
};

struct swl_gpu_mutex {
    bool held;
};

extern "C" {

/* ---- device runtime ---- */

cudaError_t swl_gpu_count(int *n_p)
{
    *n_p = fake.ndevices;
    return cudaSuccess;
}

cudaError_t swl_gpu_current(int *device_p)
{
    *device_p = fake.device;
    return cudaSuccess;
}

cudaError_t swl_gpu_use(int device)
{
    fake.device = device;
    return cudaSuccess;
}

cudaError_t swl_gpu_info(int, struct swl_gpu_info *info_p)
{
    memset(info_p, 0, sizeof(*info_p));
    info_p->nsms = fake.nsms;
    info_p->cc_major = fake.cc_major;
    return cudaSuccess;
}

cudaError_t swl_gpu_pending_error(void)
{
    return fake.pending_error;
}

const char *swl_gpu_error_text(cudaError_t)
{
    return "a fake error";
}

cudaError_t swl_gpu_where(const void *, enum swl_gpu_memory_kind *place_p, void **base_p,
                          size_t *bytes_p)
{
    *place_p = fake.memory_unknown ? SWL_GPU_MEMORY_UNKNOWN : SWL_GPU_MEMORY_DEVICE;
    *base_p = at(0x100000); /* everything lies in one allocation of 16 MiB */
    *bytes_p = 0x1000000;
    return cudaSuccess;
}

cudaError_t swl_gpu_stream_capturing(cudaStream_t, bool *capturing_p)
{
    *capturing_p = fake.capturing;
    return cudaSuccess;
}

void swl_gpu_mutex_lock(struct swl_gpu_mutex *mutex)
{
    EXPECT_FALSE(mutex->held);
    mutex->held = true;
    fake.locks++;
}

void swl_gpu_mutex_unlock(struct swl_gpu_mutex *mutex)
{
    EXPECT_TRUE(mutex->held);
    mutex->held = false;
    fake.unlocks++;
}

/* ---- NCCL ---- */

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->nranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    *device = comm->device;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t)
{
    return "a fake NCCL error";
}

/* ---- group and handle ---- */

ncclResult_t swl_group_create(struct ncclEpGroup **group_p, ncclComm_t comm,
                              const struct swl_group_config *config, ncclResult_t refused)
{
    static struct swl_gpu_mutex mutex;

    fake.refused = refused;
    fake.config = *config;
    if (refused != ncclSuccess)
        return refused;
    auto *group = new ncclEpGroup();
    struct swl_group_info *info = &group->info;
    info->alive = SWL_GROUP_ALIVE;
    info->algorithm = config->algorithm;
    info->level = config->level;
    info->nranks = static_cast<uint32_t>(comm->nranks);
    info->rank = static_cast<uint32_t>(comm->rank);
    info->nexperts = config->nexperts;
    info->nlocal = (config->nexperts + info->nranks - 1) / info->nranks;
    info->max_tokens = config->max_tokens;
    info->recv_rows = config->recv_rows;
    info->max_token_bytes = config->max_token_bytes;
    info->max_topk = config->max_topk;
    info->zero_copy = config->zero_copy;
    info->overflow = config->overflow;
    info->device = comm->device;
    info->comm = comm;
    info->nccl_version = 22809;
    info->lock = &mutex;
    mutex.held = false;
    *group_p = group;
    fake.groups_created++;
    return ncclSuccess;
}

ncclResult_t swl_group_destroy(struct ncclEpGroup *group)
{
    for (ncclEpHandle *handle : group->handles)
        handle->info.group = nullptr;
    delete group;
    fake.groups_destroyed++;
    return ncclSuccess;
}

ncclResult_t swl_group_async_bits(struct ncclEpGroup *, int *bits_p)
{
    *bits_p = 5;
    return ncclSuccess;
}

ncclResult_t swl_group_clear(struct ncclEpGroup *)
{
    return ncclSuccess;
}

ncclResult_t swl_group_query(struct ncclEpGroup *, int key, uint64_t *value_p)
{
    *value_p = 100u + static_cast<unsigned int>(key);
    return ncclSuccess;
}

ncclResult_t swl_mem_alloc(struct ncclEpGroup *group, uint64_t bytes, ncclResult_t refused,
                           void **ptr_p)
{
    fake.mem_alloc_bytes = bytes;
    if (refused != ncclSuccess)
        return refused;
    *ptr_p = at(0x200000);
    group->regions.push_back({*ptr_p, bytes, 0x4000});
    group->info.regions = group->regions.data();
    group->info.nregions = static_cast<uint32_t>(group->regions.size());
    return ncclSuccess;
}

ncclResult_t swl_mem_free(struct ncclEpGroup *group, void *, ncclResult_t refused)
{
    if (refused != ncclSuccess)
        return refused;
    group->regions.clear();
    group->info.nregions = 0;
    return ncclSuccess;
}

uint64_t swl_handle_mem_bytes(const struct ncclEpGroup *, ncclEpLayout_t, uint32_t topk, uint32_t)
{
    return 1024ull * topk;
}

ncclResult_t swl_handle_init(struct ncclEpHandle **handle_p, struct ncclEpGroup *group,
                             const struct swl_handle_config *config)
{
    auto *handle = new ncclEpHandle();

    handle->info.alive = SWL_HANDLE_ALIVE;
    handle->info.group = group;
    handle->info.layout = config->layout;
    handle->info.topk = config->topk;
    handle->info.ntokens = -1;
    handle->info.own_memory = config->memory == nullptr;
    group->handles.push_back(handle);
    fake.memory_seen = config->memory;
    fake.handles_created++;
    *handle_p = handle;
    return ncclSuccess;
}

ncclResult_t swl_handle_update(struct ncclEpHandle *handle, const struct swl_update_call *call)
{
    fake.updates++;
    fake.update = *call;
    if (fake.result != ncclSuccess)
        return fake.result;
    handle->info.topk = call->topk;
    handle->info.ntokens = call->ntokens;
    handle->info.id_bytes = call->topk_idx.elem_bytes;
    handle->info.updated = true;
    return ncclSuccess;
}

ncclResult_t swl_handle_destroy(struct ncclEpHandle *handle)
{
    if (handle->info.group) {
        auto &list = handle->info.group->handles;
        for (size_t i = 0; i < list.size(); i++) {
            if (list[i] == handle)
                list.erase(list.begin() + static_cast<long>(i--));
        }
    }
    delete handle;
    fake.handles_destroyed++;
    return ncclSuccess;
}

int64_t swl_handle_recv_rows(const struct ncclEpHandle *)
{
    return fake.recv_rows;
}

ncclResult_t swl_dispatch(struct ncclEpHandle *, const struct swl_dispatch_call *call)
{
    fake.dispatches++;
    fake.dispatch = *call;
    return fake.result;
}

ncclResult_t swl_combine(struct ncclEpHandle *, const struct swl_combine_call *call)
{
    fake.combines++;
    fake.combine = *call;
    return fake.result;
}

} /* extern "C" */

/* ---- fixture ---- */

void expect_code(ncclResult_t got, ncclResult_t code, std::vector<std::string> words, int line)
{
    EXPECT_EQ(got, code) << "line " << line << ": " << swimlaneLastError();
    if (got == ncclSuccess)
        return;
    for (const std::string &word : words)
        EXPECT_NE(std::string(swimlaneLastError()).find(word), std::string::npos)
            << "line " << line << ": '" << word << "' is not in: " << swimlaneLastError();
}

FakePlace::FakePlace()
{
    fake = FakeState();
    swl_log_set(SWL_LEVEL_NONE);
}

FakePlace::~FakePlace()
{
    fake.capturing = false;
    if (handle)
        ncclEpHandleDestroy(handle);
    if (group)
        ncclEpGroupDestroy(group);
    EXPECT_EQ(fake.locks, fake.unlocks);
    EXPECT_EQ(fake.groups_created, fake.groups_destroyed);
    EXPECT_EQ(fake.handles_created, fake.handles_destroyed);
}

ncclEpGroupConfig_t FakePlace::good_config()
{
    ncclEpGroupConfig_t c = NCCL_EP_GROUP_CONFIG_INIT;

    c.algorithm = NCCL_EP_ALGO_HIGH_THROUGHPUT;
    c.num_experts = 8;
    c.max_dispatch_tokens_per_rank = 64;
    c.max_recv_tokens_per_rank = 100;
    c.max_token_bytes = 256;
    return c;
}

void FakePlace::make_group()
{
    ASSERT_EQ(ncclEpCreateGroup(&group, &comm, &config), ncclSuccess) << swimlaneLastError();
}

void FakePlace::make_handle(int topk)
{
    make_group();
    ASSERT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, topk, nullptr),
              ncclSuccess)
        << swimlaneLastError();
}
