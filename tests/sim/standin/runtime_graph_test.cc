/* Capture and replay. */
#include "tests/support/runtime_run.h"

#include "src/runtime/runtime.h"

#include <cuda_runtime.h>
#include <nccl.h>

#define OK(call) ASSERT_EQ((call), cudaSuccess)

TEST(Graph, ReplaysWhatWasCaptured)
{
    on_host([](struct swl_rank *) {
        cudaStream_t stream;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        unsigned char *a, *b;
        bool capturing;
        OK(swl_gpu_stream_create(&stream));
        OK(swl_gpu_host_malloc((void **)&a, 4));
        OK(swl_gpu_host_malloc((void **)&b, 4));
        OK(swl_gpu_stream_capturing(stream, &capturing));
        EXPECT_FALSE(capturing);
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        OK(swl_gpu_stream_capturing(stream, &capturing));
        EXPECT_TRUE(capturing);
        OK(swl_gpu_copy(b, a, 4, stream));
        OK(swl_gpu_fill(a, 6, 4, stream));
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphDestroy(graph));
        OK(cudaStreamSynchronize(stream));
        EXPECT_EQ(a[0], 0); /* nothing ran yet */
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        EXPECT_EQ(a[0], 6);
        EXPECT_EQ(b[0], 0);
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaGraphExecDestroy(exec));
        OK(cudaStreamSynchronize(stream));
        EXPECT_EQ(b[0], 6);
        OK(swl_gpu_host_free(a));
        OK(swl_gpu_host_free(b));
        OK(swl_gpu_stream_destroy(stream));
    });
}

TEST(Graph, TakesInStreamsThatForkAndJoin)
{
    on_host([](struct swl_rank *) {
        cudaStream_t main, side;
        cudaEvent_t fork, join;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        unsigned char *a;
        OK(swl_gpu_stream_create(&main));
        OK(swl_gpu_stream_create(&side));
        OK(swl_gpu_event_create(&fork));
        OK(swl_gpu_event_create(&join));
        OK(swl_gpu_host_malloc((void **)&a, 4));
        OK(cudaStreamBeginCapture(main, cudaStreamCaptureModeRelaxed));
        OK(swl_gpu_event_record(fork, main));
        OK(swl_gpu_stream_wait_event(side, fork));
        OK(swl_gpu_fill(a, 1, 4, side));
        OK(swl_gpu_event_record(join, side));
        EXPECT_EQ(cudaEventQuery(join), cudaErrorCapturedEvent);
        OK(swl_gpu_stream_wait_event(main, join));
        cudaGraph_t none;
        EXPECT_EQ(cudaStreamEndCapture(side, &none), cudaErrorStreamCaptureUnmatched);
        OK(cudaStreamEndCapture(main, &graph));
        bool capturing;
        OK(swl_gpu_stream_capturing(side, &capturing));
        EXPECT_FALSE(capturing);
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphLaunch(exec, side));
        OK(cudaStreamSynchronize(side));
        EXPECT_EQ(a[3], 1);
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
        OK(swl_gpu_host_free(a));
        OK(swl_gpu_event_destroy(fork));
        OK(swl_gpu_event_destroy(join));
        OK(swl_gpu_stream_destroy(side));
        OK(swl_gpu_stream_destroy(main));
    });
}

TEST(Capture, RefusesWhatCannotBeCaptured)
{
    on_host([](struct swl_rank *) {
        cudaStream_t stream, blocking;
        cudaEvent_t event;
        cudaGraph_t graph;
        void *p;
        OK(swl_gpu_stream_create(&stream));
        OK(cudaStreamCreate(&blocking));
        OK(swl_gpu_event_create(&event));
        OK(swl_gpu_event_record(event, stream));
        EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
        EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
                  cudaErrorStreamCaptureUnsupported);
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        EXPECT_EQ(swl_gpu_stream_wait_event(stream, event), cudaErrorStreamCaptureIsolation);
        EXPECT_EQ(cudaMalloc(&p, 4), cudaErrorStreamCaptureUnsupported);
        EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
        EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
        EXPECT_EQ(graph, nullptr);
        OK(cudaMalloc(&p, 4));
        OK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed));
        EXPECT_EQ(cudaMemsetAsync(p, 0, 4, nullptr), cudaErrorStreamCaptureImplicit);
        OK(cudaStreamEndCapture(blocking, &graph));
        OK(cudaGraphDestroy(graph));
        OK(cudaFree(p));
        OK(swl_gpu_event_destroy(event));
        OK(cudaStreamDestroy(blocking));
        OK(swl_gpu_stream_destroy(stream));
    });
}

TEST(Graph, ReplaysCollectives)
{
    EXPECT_EQ(run_ranks({2, 1}, SWL_PLACE_FIBERS, 4,
                        [](struct swl_rank *rank) {
                            cudaStream_t stream;
                            cudaGraph_t graph;
                            cudaGraphExec_t exec;
                            int *in, *out;
                            OK(swl_gpu_stream_create(&stream));
                            OK(swl_gpu_host_malloc((void **)&in, 4));
                            OK(swl_gpu_host_malloc((void **)&out, 4));
                            OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
                            ASSERT_EQ(
                                ncclAllReduce(in, out, 1, ncclInt32, ncclSum, rank->comm, stream),
                                ncclSuccess);
                            OK(cudaStreamEndCapture(stream, &graph));
                            OK(cudaGraphInstantiate(&exec, graph, 0));
                            for (int i = 1; i <= 3; i++) {
                                *in = i * (rank->rank + 1);
                                OK(cudaGraphLaunch(exec, stream));
                                OK(cudaStreamSynchronize(stream));
                                EXPECT_EQ(*out, 6 * i);
                            }
                            OK(cudaGraphExecDestroy(exec));
                            OK(cudaGraphDestroy(graph));
                            OK(swl_gpu_host_free(in));
                            OK(swl_gpu_host_free(out));
                            OK(swl_gpu_stream_destroy(stream));
                        }),
              0);
}
