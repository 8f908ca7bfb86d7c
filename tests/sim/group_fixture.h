/* group_fixture.h: groups of ranks, emulated or on GPUs, for tests of the public functions. */
#ifndef SWL_GROUP_FIXTURE_H
#define SWL_GROUP_FIXTURE_H

#include "tests/sim/pool.h"

#include <cuda_runtime.h>
#include <swimlane.h>

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

/* All ranks still reach each other through the communicator. */
inline void expect_comm_works(const swl_rank *rank)
{
    const size_t bytes = sizeof(int) * (size_t)(rank->nranks + 1);
    int *words = (int *)pool_take(bytes);
    cudaStream_t stream;

    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(words, &rank->rank, sizeof(int), cudaMemcpyHostToDevice), cudaSuccess);
    settle();
    EXPECT_EQ(ncclAllGather(words, words + 1, 1, ncclInt32, rank->comm, stream), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    for (int r = 0; r < rank->nranks; r++) {
        int value = -1;

        EXPECT_EQ(cudaMemcpy(&value, words + 1 + r, sizeof(int), cudaMemcpyDeviceToHost),
                  cudaSuccess);
        EXPECT_EQ(value, r);
    }
    pool_give(words, bytes);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

/* The last sentence of this rank holds every one of `words`. */
inline void expect_sentence(std::initializer_list<const char *> words)
{
    const std::string sentence = swimlaneLastError();

    for (const char *word : words)
        EXPECT_NE(sentence.find(word), std::string::npos) << "'" << word << "' in: " << sentence;
}

/* How often `word` occurs in the text of a log. */
inline size_t occurrences(const std::string &text, const std::string &word)
{
    size_t n = 0;

    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        n++;
    return n;
}

#endif
