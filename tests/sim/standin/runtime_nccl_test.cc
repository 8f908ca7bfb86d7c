/* The stand-in NCCL between fibers. */
#include "tests/support/runtime_run.h"

#include "src/runtime/runtime.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <string.h>

#define OK(call)   ASSERT_EQ((call), cudaSuccess)
#define DONE(call) ASSERT_EQ((call), ncclSuccess)

struct team {
    int nRanks, rank, stride;
};
extern "C" team ncclTeamLsa(ncclComm_t comm);

namespace
{

/* A stream and two buffers of pinned memory. */
struct buffers {
    cudaStream_t stream = nullptr;
    unsigned char *in = nullptr, *out = nullptr;

    buffers()
    {
        EXPECT_EQ(swl_gpu_stream_create(&stream), cudaSuccess);
        EXPECT_EQ(swl_gpu_host_malloc((void **)&in, 4096), cudaSuccess);
        EXPECT_EQ(swl_gpu_host_malloc((void **)&out, 65536), cudaSuccess);
    }
    ~buffers()
    {
        EXPECT_EQ(swl_gpu_host_free(in), cudaSuccess);
        EXPECT_EQ(swl_gpu_host_free(out), cudaSuccess);
        EXPECT_EQ(swl_gpu_stream_destroy(stream), cudaSuccess);
    }
    template <class T> T *input()
    {
        return reinterpret_cast<T *>(in);
    }
    template <class T> T *output()
    {
        return reinterpret_cast<T *>(out);
    }
};

void all_gather_of(ncclComm_t comm, int rank, int nranks)
{
    buffers b;

    for (int call = 0; call < 4; call++) {
        for (int i = 0; i < 10; i++)
            b.input<int>()[i] = call * 10000 + rank * 100 + i;
        DONE(ncclAllGather(b.in, b.out, 10, ncclInt32, comm, b.stream));
        OK(cudaStreamSynchronize(b.stream));
        for (int r = 0; r < nranks; r++)
            for (int i = 0; i < 10; i++)
                ASSERT_EQ(b.output<int>()[r * 10 + i], call * 10000 + r * 100 + i);
    }
}

template <class T>
void reduce_of(ncclComm_t comm, ncclDataType_t type, ncclRedOp_t op, T mine, T expect)
{
    buffers b;

    for (int i = 0; i < 33; i++)
        b.input<T>()[i] = mine;
    DONE(ncclAllReduce(b.in, b.in, 33, type, op, comm, b.stream));
    OK(cudaStreamSynchronize(b.stream));
    for (int i = 0; i < 33; i++)
        ASSERT_EQ(b.input<T>()[i], expect) << "type " << type << " op " << op;
}

} // namespace

TEST(Nccl, NamesItsVersionAndErrors)
{
    int version = 0;

    DONE(ncclGetVersion(&version));
    EXPECT_EQ(version, 22809);
    EXPECT_EQ(version, NCCL_VERSION(2, 28, 9));
    EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
    for (int code = 0; code < ncclNumResults; code++)
        EXPECT_GT(strlen(ncclGetErrorString((ncclResult_t)code)), 5u);
    EXPECT_STREQ(ncclGetLastError(nullptr), "");
}

TEST(Nccl, GathersBetweenFibers)
{
    for (uint64_t seed = 0; seed < 8; seed++)
        EXPECT_EQ(run_ranks({3, 2}, SWL_PLACE_FIBERS, seed,
                            [](struct swl_rank *r) {
                                int count = 0, rank = -1, device = -1;
                                DONE(ncclCommCount(r->comm, &count));
                                DONE(ncclCommUserRank(r->comm, &rank));
                                DONE(ncclCommCuDevice(r->comm, &device));
                                EXPECT_EQ(count, 5);
                                EXPECT_EQ(rank, r->rank);
                                EXPECT_EQ(device, r->device);
                                all_gather_of(r->comm, r->rank, r->nranks);
                            }),
                  0);
}

TEST(Nccl, BroadcastsFromAnyRoot)
{
    EXPECT_EQ(
        run_ranks({4}, SWL_PLACE_FIBERS, 1,
                  [](struct swl_rank *r) {
                      buffers b;
                      for (int root = 0; root < 4; root++) {
                          b.in[0] = (unsigned char)(10 + r->rank);
                          DONE(ncclBroadcast(b.in, b.out, 1, ncclUint8, root, r->comm, b.stream));
                          OK(cudaStreamSynchronize(b.stream));
                          EXPECT_EQ(b.out[0], 10 + root);
                      }
                      EXPECT_EQ(ncclBroadcast(b.in, b.out, 1, ncclUint8, 4, r->comm, b.stream),
                                ncclInvalidArgument);
                  }),
        0);
}

TEST(Nccl, Reduces)
{
    EXPECT_EQ(
        run_ranks({3}, SWL_PLACE_FIBERS, 1,
                  [](struct swl_rank *r) {
                      ncclComm_t c = r->comm;
                      int me = r->rank + 1; /* 1 2 3 */
                      reduce_of<int32_t>(c, ncclInt32, ncclSum, -me, -6);
                      reduce_of<int32_t>(c, ncclInt32, ncclProd, me, 6);
                      reduce_of<int64_t>(c, ncclInt64, ncclMin, -me, -3);
                      reduce_of<int64_t>(c, ncclInt64, ncclMax, -me, -1);
                      reduce_of<uint64_t>(c, ncclUint64, ncclMax, (uint64_t)me << 62, 3ull << 62);
                      reduce_of<uint8_t>(c, ncclUint8, ncclSum, 100, 44);
                      reduce_of<int8_t>(c, ncclInt8, ncclMin, (int8_t)-me, -3);
                      reduce_of<uint32_t>(c, ncclUint32, ncclAvg, (uint32_t)me, 2);
                      reduce_of<float>(c, ncclFloat32, ncclSum, 0.5f * (float)me, 3.0f);
                      reduce_of<double>(c, ncclFloat64, ncclMax, me * 1e9, 3e9);
                      uint16_t bf[] = {0x3f80, 0x4000, 0x4040}, half[] = {0x3c00, 0x4000, 0x4200};
                      reduce_of<uint16_t>(c, ncclBfloat16, ncclSum, bf[r->rank], 0x40c0);
                      reduce_of<uint16_t>(c, ncclFloat16, ncclSum, half[r->rank], 0x4600);
                      uint16_t tiny[] = {0x0001, 0x0002, 0x8001};
                      reduce_of<uint16_t>(c, ncclFloat16, ncclSum, tiny[r->rank], 0x0002);
                      reduce_of<uint16_t>(c, ncclFloat16, ncclProd, 0x7bff, 0x7c00);
                      buffers b;
                      EXPECT_EQ(ncclAllReduce(b.in, b.out, 1, ncclFloat8e4m3, ncclSum, c, b.stream),
                                ncclInvalidArgument);
                      EXPECT_EQ(ncclAllReduce(nullptr, b.out, 1, ncclInt32, ncclSum, c, b.stream),
                                ncclInvalidArgument);
                      EXPECT_GT(strlen(ncclGetLastError(c)), 10u);
                  }),
        0);
}

TEST(Nccl, SplitsByColorAndKey)
{
    for (uint64_t seed : {0, 7})
        EXPECT_EQ(run_ranks({3, 3}, SWL_PLACE_FIBERS, seed,
                            [](struct swl_rank *r) {
                                ncclComm_t part = nullptr, second = nullptr;
                                int color = r->rank == 5 ? NCCL_SPLIT_NOCOLOR : r->rank % 2;
                                DONE(ncclCommSplit(r->comm, color, -r->rank, &part, nullptr));
                                DONE(ncclCommSplit(r->comm, 0, 0, &second, nullptr));
                                all_gather_of(second, r->rank, 6);
                                DONE(ncclCommDestroy(second));
                                if (r->rank == 5) {
                                    EXPECT_EQ(part, nullptr);
                                    return;
                                }
                                int rank = -1, count = -1;
                                DONE(ncclCommUserRank(part, &rank));
                                DONE(ncclCommCount(part, &count));
                                /* even: 4 2 0, odd: 3 1 */
                                EXPECT_EQ(count, color ? 2 : 3);
                                EXPECT_EQ(rank, color ? (3 - r->rank) / 2 : (4 - r->rank) / 2);
                                all_gather_of(part, rank, count);
                                DONE(ncclCommFinalize(part));
                                DONE(ncclCommDestroy(part));
                            }),
                  0);
}

TEST(Nccl, OneThreadInitsAllRanks)
{
    on_host([](struct swl_rank *) {
        ncclComm_t comms[3], halves[3];
        const int devices[] = {4, 4, 6};
        buffers b[3];
        DONE(ncclCommInitAll(comms, 3, devices));
        int device;
        OK(cudaGetDevice(&device));
        EXPECT_EQ(device, 0);
        DONE(ncclGroupStart());
        for (int r = 0; r < 3; r++)
            DONE(ncclCommSplit(comms[r], 0, -r, &halves[r], nullptr));
        DONE(ncclGroupEnd());
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
        for (int r = 0; r < 3; r++) {
            int split_rank;
            DONE(ncclCommCuDevice(comms[r], &device));
            EXPECT_EQ(device, devices[r]);
            DONE(ncclCommUserRank(halves[r], &split_rank));
            EXPECT_EQ(split_rank, 2 - r);
            *b[r].in = (unsigned char)(r + 1);
            DONE(ncclAllGather(b[r].in, b[r].out, 1, ncclUint8, halves[r], b[r].stream));
        }
        for (int r = 0; r < 3; r++) {
            OK(cudaStreamSynchronize(b[r].stream));
            EXPECT_EQ(memcmp(b[r].out, "\3\2\1", 3), 0);
        }
        for (int r = 0; r < 3; r++) {
            DONE(ncclCommDestroy(halves[r]));
            DONE(ncclCommDestroy(comms[r]));
        }
    });
}

TEST(Nccl, TeamsAreTheNodesOfTheLauncher)
{
    auto check = [](std::vector<int> nodes, std::vector<team> expect) {
        EXPECT_EQ(run_ranks(nodes, SWL_PLACE_FIBERS, 0,
                            [expect](struct swl_rank *r) {
                                team t = ncclTeamLsa(r->comm);
                                EXPECT_EQ(t.nRanks, expect[(size_t)r->rank].nRanks);
                                EXPECT_EQ(t.rank, expect[(size_t)r->rank].rank);
                                EXPECT_EQ(t.stride, 1);
                            }),
                  0);
    };
    check({2, 2}, {{2, 0, 1}, {2, 1, 1}, {2, 0, 1}, {2, 1, 1}});
    check({3}, {{3, 0, 1}, {3, 1, 1}, {3, 2, 1}});
    check({1, 1}, {{1, 0, 1}, {1, 0, 1}});
    check({1, 2}, {{1, 0, 1}, {1, 0, 1}, {1, 0, 1}});
    check({4, 2}, {{2, 0, 1}, {2, 1, 1}, {2, 0, 1}, {2, 1, 1}, {2, 0, 1}, {2, 1, 1}});
}

TEST(Nccl, RefusesBadArguments)
{
    on_host([](struct swl_rank *) {
        ncclUniqueId id, garbage;
        ncclComm_t comm = nullptr, again = nullptr;
        memset(&garbage, 7, sizeof(garbage));
        DONE(ncclGetUniqueId(&id));
        EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument);
        EXPECT_EQ(ncclCommInitRank(&comm, 1, garbage, 0), ncclInvalidArgument);
        EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
        EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 1), ncclInvalidArgument);
        EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        DONE(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
        EXPECT_EQ(ncclCommInitRank(&again, 1, id, 0), ncclInvalidUsage);
        ncclResult_t error = ncclInternalError;
        DONE(ncclCommGetAsyncError(comm, &error));
        EXPECT_EQ(error, ncclSuccess);
        DONE(ncclCommDestroy(comm));
        DONE(ncclCommDestroy(nullptr));
    });
}

TEST(Nccl, DifferentSizesAreAnAsyncErrorOnAllRanks)
{
    EXPECT_EQ(run_ranks({2}, SWL_PLACE_FIBERS, 3,
                        [](struct swl_rank *r) {
                            buffers b;
                            ncclResult_t error;
                            DONE(ncclAllGather(b.in, b.out, (size_t)(1 + r->rank), ncclInt32,
                                               r->comm, b.stream));
                            OK(cudaStreamSynchronize(b.stream));
                            DONE(ncclCommGetAsyncError(r->comm, &error));
                            EXPECT_EQ(error, ncclInvalidUsage);
                            EXPECT_NE(strstr(ncclGetLastError(r->comm), "different"), nullptr);
                        }),
              0);
}

TEST(Nccl, AbortFreesWhoWaits)
{
    EXPECT_EQ(run_ranks({3}, SWL_PLACE_FIBERS, 2,
                        [](struct swl_rank *r) {
                            buffers b;
                            ncclComm_t extra;
                            ncclResult_t error;
                            DONE(ncclCommSplit(r->comm, 0, 0, &extra, nullptr));
                            if (r->rank == 1) {
                                swl_gpu_sleep_ns(1000000);
                                DONE(ncclCommAbort(extra));
                                return;
                            }
                            DONE(ncclAllGather(b.in, b.out, 1, ncclInt32, extra, b.stream));
                            if (r->rank == 2) { /* own work is given up at once */
                                DONE(ncclCommAbort(extra));
                            }
                            OK(cudaStreamSynchronize(b.stream));
                            if (r->rank == 2)
                                return;
                            DONE(ncclCommGetAsyncError(extra, &error));
                            EXPECT_EQ(error, ncclRemoteError);
                            EXPECT_EQ(ncclAllGather(b.in, b.out, 1, ncclInt32, extra, b.stream),
                                      ncclRemoteError);
                            DONE(ncclCommDestroy(extra));
                        }),
              0);
}

TEST(Nccl, RegistersWindows)
{
    EXPECT_EQ(run_ranks({2}, SWL_PLACE_FIBERS, 1,
                        [](struct swl_rank *r) {
                            char *memory, *host;
                            ncclWindow_t window = nullptr;
                            DONE(ncclMemAlloc((void **)&memory, 100000));
                            OK(swl_gpu_host_malloc((void **)&host, 4096));
                            EXPECT_EQ(ncclCommWindowRegister(r->comm, memory + 16, 64, &window, 0),
                                      ncclInvalidArgument);
                            EXPECT_EQ(ncclCommWindowRegister(r->comm, memory, 200000, &window, 0),
                                      ncclInvalidArgument);
                            EXPECT_EQ(ncclCommWindowRegister(r->comm, host, 64, &window, 0),
                                      ncclInvalidArgument);
                            DONE(ncclCommWindowRegister(r->comm, memory, 100000, &window,
                                                        NCCL_WIN_COLL_SYMMETRIC));
                            EXPECT_NE(window, nullptr);
                            DONE(ncclCommWindowDeregister(r->comm, window));
                            DONE(ncclMemFree(memory));
                            OK(swl_gpu_host_free(host));
                        }),
              0);
}
