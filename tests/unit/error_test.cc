/* error_test.cc: sentences of failures, their place in a call, and log levels. */
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/runtime/result.h"

#include <gtest/gtest.h>

#include <string>
#include <sys/resource.h>
#include <thread>

class Error : public ::testing::Test
{
  protected:
    Error()
    {
        swl_log_set(SWL_LEVEL_NONE);
    }
    ~Error() override
    {
        swl_call_end();
    }
};

static ncclResult_t tries(ncclResult_t rc)
{
    SWL_TRY(rc);
    return ncclInternalError;
}

static ncclResult_t argument(int value)
{
    SWL_ARG(value > 0, "value is %d", value);
    return ncclSuccess;
}

TEST_F(Error, FailKeepsTheSentenceUntilTheNextFailure)
{
    EXPECT_EQ(swl_fail(ncclSystemError, "rank %d: %s", 3, "gone"), ncclSystemError);
    EXPECT_STREQ(swl_last_error(), "rank 3: gone");
    EXPECT_EQ(argument(1), ncclSuccess);
    EXPECT_STREQ(swl_last_error(), "rank 3: gone");
    EXPECT_EQ(argument(-1), ncclInvalidArgument);
    EXPECT_STREQ(swl_last_error(), "value is -1");
}

TEST_F(Error, TryPassesTheCodeOnSilently)
{
    swl_fail(ncclSystemError, "first");
    EXPECT_EQ(tries(ncclInvalidUsage), ncclInvalidUsage);
    EXPECT_EQ(tries(ncclSuccess), ncclInternalError);
    EXPECT_STREQ(swl_last_error(), "first");
}

TEST_F(Error, InsideACallTheFirstSentenceStaysAndNamesTheFunction)
{
    swl_call_begin("ncclEpDispatch", 2);
    swl_fail(ncclInvalidArgument, "the cause");
    swl_fail(ncclSystemError, "clean-up failed too");
    EXPECT_STREQ(swl_last_error(), "ncclEpDispatch: the cause");
    swl_call_end();
    swl_call_begin("ncclEpCombine", 2);
    EXPECT_STREQ(swl_last_error(), "ncclEpDispatch: the cause");
    swl_fail(ncclSystemError, "another");
    EXPECT_STREQ(swl_last_error(), "ncclEpCombine: another");
}

TEST_F(Error, SentencesArePerThread)
{
    swl_fail(ncclSystemError, "mine");
    std::thread([] {
        EXPECT_STREQ(swl_last_error(), "");
        swl_fail(ncclSystemError, "theirs");
        EXPECT_STREQ(swl_last_error(), "theirs");
    }).join();
    EXPECT_STREQ(swl_last_error(), "mine");
}

TEST_F(Error, LongSentencesAreCut)
{
    swl_fail(ncclSystemError, "%s", std::string(5000, 'x').c_str());
    EXPECT_GT(std::string(swl_last_error()).size(), 500u);
    EXPECT_LT(std::string(swl_last_error()).size(), 1000u);
}

TEST_F(Error, CudaCallsBecomeCodesAndSentences)
{
    EXPECT_EQ(SWL_CUDA(cudaSuccess), ncclSuccess);
    EXPECT_EQ(swl_cuda_result(static_cast<cudaError_t>(2), "swl_gpu_malloc(&p, 5)"),
              ncclUnhandledCudaError);
    EXPECT_EQ(std::string(swl_last_error()).rfind("swl_gpu_malloc: ", 0), 0u) << swl_last_error();
}

TEST_F(Error, AWaitThatRanOutNamesTheTimeLimit)
{
    EXPECT_EQ(swl_cuda_result(cudaErrorNotReady, "swl_gpu_stream_wait(stream, 5)"),
              ncclSystemError);
    EXPECT_NE(std::string(swl_last_error()).find("time limit"), std::string::npos)
        << swl_last_error();
}

TEST_F(Error, WhatACaptureForbidsIsInvalidUsage)
{
    EXPECT_EQ(swl_cuda_result(cudaErrorStreamCaptureUnsupported, "swl_gpu_malloc(&p, 5)"),
              ncclInvalidUsage);
}

TEST_F(Error, F95_WantOfDescriptorsIsSaid)
{
    struct rlimit before, none;

    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    EXPECT_EQ(swl_cuda_result(cudaErrorOperatingSystem, "swl_gpu_shared_malloc(&p, 5)"),
              ncclUnhandledCudaError);
    EXPECT_EQ(std::string(swl_last_error()).find("descriptor"), std::string::npos);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_EQ(swl_cuda_result(cudaErrorOperatingSystem, "swl_gpu_shared_malloc(&p, 5)"),
              ncclUnhandledCudaError);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_NE(std::string(swl_last_error()).find(": the process has no descriptor left"),
              std::string::npos);
}

TEST_F(Error, NumbersThatAreNoResultOfAPeerAreInternalErrors)
{
    EXPECT_EQ(swl_peer_result(ncclSuccess), ncclSuccess);
    EXPECT_EQ(swl_peer_result(ncclInvalidUsage), ncclInvalidUsage);
    EXPECT_EQ(swl_peer_result(58368), ncclInternalError);
    EXPECT_EQ(swl_peer_result(UINT64_C(1) << 32), ncclInternalError);
    EXPECT_STREQ(swl_result_text(ncclSystemError), "system error");
    EXPECT_STREQ(swl_result_text((ncclResult_t)58368), "internal error");
}

TEST_F(Error, CodesOfNcclThatCallersDoNotKnowAreInternal)
{
    EXPECT_EQ(swl_nccl_code(ncclSystemError), ncclSystemError);
    EXPECT_EQ(swl_nccl_code(ncclInvalidUsage), ncclInvalidUsage);
    EXPECT_EQ(swl_nccl_code(ncclRemoteError), ncclInternalError);
    EXPECT_EQ(swl_nccl_code(ncclInProgress), ncclInternalError);
    EXPECT_EQ(swl_nccl_code(static_cast<ncclResult_t>(99)), ncclInternalError);
}

TEST_F(Error, EveryFailureIsOneLineAtWarnWithRankAndFunction)
{
    swl_log_set(SWL_LEVEL_WARN);
    testing::internal::CaptureStderr();
    swl_call_begin("ncclEpDispatch", 2);
    swl_fail(ncclInvalidArgument, "inputs is NULL");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "swimlane: rank 2 ncclEpDispatch: inputs is NULL\n");
    swl_log_set(SWL_LEVEL_ERROR);
    testing::internal::CaptureStderr();
    swl_fail(ncclInvalidArgument, "inputs is NULL");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Error, LevelsAreOrdered)
{
    EXPECT_EQ(swl_log_set(SWL_LEVEL_INFO), SWL_LEVEL_NONE);
    EXPECT_TRUE(swl_log_on(SWL_LEVEL_WARN));
    EXPECT_TRUE(swl_log_on(SWL_LEVEL_INFO));
    EXPECT_FALSE(swl_log_on(SWL_LEVEL_DEBUG));
    testing::internal::CaptureStderr();
    swl_log(SWL_LEVEL_DEBUG, "hidden");
    swl_log(SWL_LEVEL_INFO, "shown %d", 5);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "swimlane: shown 5\n");
}
TEST_F(Error, MemoryThatThereIsNotIsASentence)
{
    void *none = swl_calloc(0, 8, "%d things", 0);

    EXPECT_NE(none, nullptr) << "nothing is no failure";
    free(none);
    EXPECT_EQ(swl_calloc(UINT64_MAX, 8, "%d things", 7), nullptr);
    EXPECT_STREQ(swl_last_error(), "no host memory for 7 things");
    EXPECT_EQ(swl_no_memory("a %s", "thing"), ncclSystemError);
    EXPECT_STREQ(swl_last_error(), "no host memory for a thing");
}

TEST_F(Error, OfTwoFailuresTheFirstIsReported)
{
    EXPECT_EQ(swl_first_failure(ncclSuccess, ncclSuccess), ncclSuccess);
    EXPECT_EQ(swl_first_failure(ncclSuccess, ncclSystemError), ncclSystemError);
    EXPECT_EQ(swl_first_failure(ncclInvalidUsage, ncclSystemError), ncclInvalidUsage);
    EXPECT_EQ(swl_first_failure(ncclInvalidUsage, ncclSuccess), ncclInvalidUsage);
}
