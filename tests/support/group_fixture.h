/* group_fixture.h: groups of ranks, emulated or on GPUs, for tests of the public functions. */
#ifndef SWL_GROUP_FIXTURE_H
#define SWL_GROUP_FIXTURE_H

#include "tests/support/pool.h"
#include "tests/support/variable.h"
#include "tests/support/words.h"

#include <cuda_runtime.h>
#include <swimlane.h>

#include <vector>

/* Two SMs: few fibers, so that the tests are fast. */
inline ncclEpGroupConfig_t small_config()
{
    ncclEpGroupConfig_t config = NCCL_EP_GROUP_CONFIG_INIT;

    config.algorithm = NCCL_EP_ALGO_HIGH_THROUGHPUT;
    config.num_experts = 8;
    config.max_dispatch_tokens_per_rank = 16;
    config.max_recv_tokens_per_rank = 256;
    config.max_token_bytes = 64;
    config.max_num_sms = 2;
    config.num_topk = 2;
    config.timeout_ns = 2000000000;
    return config;
}

inline uint64_t query(ncclEpGroup_t group, int key)
{
    uint64_t value = 0;

    EXPECT_EQ(swimlaneGroupQuery(group, key, &value), ncclSuccess);
    return value;
}

inline ncclEpGroup_t create_group(const swl_rank *rank, unsigned topk = 2)
{
    ncclEpGroupConfig_t config = small_config();
    ncclEpGroup_t group = nullptr;

    config.num_topk = topk;
    EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess) << swimlaneLastError();
    return group;
}

inline ncclEpHandle_t init_handle(ncclEpGroup_t group, int topk = 2,
                                  const ncclEpTensor_t *memory = nullptr)
{
    ncclEpHandle_t handle = nullptr;

    EXPECT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, topk, memory),
              ncclSuccess)
        << swimlaneLastError();
    return handle;
}

/* What every rank says, in the order of ranks: they reach each other through the communicator. */
inline std::vector<int> said_by_all(const swl_rank *rank, int mine)
{
    std::vector<int> all((size_t)rank->nranks, -1);
    const size_t bytes = sizeof(int) * (size_t)(rank->nranks + 1);
    int *words = (int *)pool_take(bytes);
    cudaStream_t stream;

    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(words, &mine, sizeof(int), cudaMemcpyHostToDevice), cudaSuccess);
    settle();
    EXPECT_EQ(ncclAllGather(words, words + 1, 1, ncclInt32, rank->comm, stream), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(all.data(), words + 1, bytes - sizeof(int), cudaMemcpyDeviceToHost),
              cudaSuccess);
    pool_give(words, bytes);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    return all;
}

inline void expect_comm_works(const swl_rank *rank)
{
    const std::vector<int> all = said_by_all(rank, rank->rank);

    for (int r = 0; r < rank->nranks; r++)
        EXPECT_EQ(all[(size_t)r], r);
}

/* The last sentence of this rank holds every one of `words`. */
inline void expect_sentence(std::initializer_list<const char *> words)
{
    const std::string sentence = swimlaneLastError();

    for (const char *word : words)
        EXPECT_NE(sentence.find(word), std::string::npos) << "'" << word << "' in: " << sentence;
}

#endif
