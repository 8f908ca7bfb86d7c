/* api_cases_test.cc: field reports that end in equal results: index types, who applies the weights,
 * tensors at offsets of library memory. Two ranks, on one node and on two. */
#include "tests/support/step.h"

#include <algorithm>
#include <cstring>

namespace
{
constexpr size_t T = 12, K = 2, H = 16, X = 32, E = 4, L = 2; /* fp32 rows of 64 bytes */
constexpr size_t guard = 64;

struct Result {
    std::vector<float> rows, weights, out;
    std::vector<int32_t> ids;
    std::vector<int64_t> counters;
};

/* What a step is run with. */
struct Variant {
    ncclDataType_t id_type = ncclInt64;
    long library_offset = -1; /* of the received rows in library memory; -1 = plain memory */
};

template <class V> std::vector<V> get(const void *from, size_t n)
{
    std::vector<V> to(n);
    EXPECT_EQ(cudaMemcpy(to.data(), from, n * sizeof(V), cudaMemcpyDeviceToHost), cudaSuccess);
    return to;
}

int64_t id_of(int rank, size_t i)
{
    return i % 7 == 6 ? -1 : (int64_t)((i * 3 + (size_t)rank) % E);
}

float weight_of(size_t i)
{
    return i % 2 ? 0.25f : 0.5f;
}

void put_ids(const StepBuffer &to, int rank, ncclDataType_t type)
{
    std::vector<int64_t> wide;
    for (size_t i = 0; i < T * K; i++)
        wide.push_back(id_of(rank, i));
    if (type == ncclInt64)
        to.put(wide.data(), wide.size() * 8);
    else
        to.put(std::vector<int32_t>(wide.begin(), wide.end()).data(), wide.size() * 4);
}

std::vector<float> tokens_of(int rank)
{
    std::vector<float> in;
    for (size_t i = 0; i < T * H; i++)
        in.push_back((float)(rank * 1000 + (int)i));
    return in;
}

/* One update, dispatch and combine with identity experts on a group of its own. */
void run_step(const swl_rank *rank, const Variant &v, Result *result)
{
    ncclEpGroupConfig_t config = small_config();
    ncclEpGroup_t group;
    ncclEpHandle_t handle;
    cudaStream_t stream;
    void *library = nullptr;

    config.num_experts = E;
    config.max_recv_tokens_per_rank = X;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess) << swimlaneLastError();

    std::vector<float> weights;
    for (size_t i = 0; i < T * K; i++)
        weights.push_back(weight_of(i));
    const StepBuffer ids(T * K * 8, 0), in(T * H * 4, 0), w(T * K * 4, 0), out(T * H * 4, 0),
        counters(L * 8, 0);
    const StepBuffer plain(X * H * 4 + 2 * guard, 0x5a), out_w(X * K * 4, 0), out_ids(X * K * 4, 0);
    const size_t library_bytes = 8192 + X * H * 4;
    char *rows = plain.data() + guard;
    if (v.library_offset >= 0) {
        ASSERT_EQ(swimlaneMemAlloc(group, library_bytes, &library), ncclSuccess);
        EXPECT_EQ(cudaMemset(library, 0x5a, library_bytes), cudaSuccess);
        rows = (char *)library + v.library_offset;
    }
    put_ids(ids, rank->rank, v.id_type);
    in.put(tokens_of(rank->rank).data(), in.bytes);
    w.put(weights.data(), w.bytes);

    StepTensor d_ids(v.id_type, ids, T, K), d_in(ncclFloat32, in, T, H);
    StepTensor d_w(ncclFloat32, w, T, K), d_rows(ncclFloat32, rows, X, H);
    StepTensor d_out_w(ncclFloat32, out_w, X, K), d_out_ids(ncclInt32, out_ids, X, K);
    StepTensor d_out(ncclFloat32, out, T, H), d_counters(ncclInt64, counters, L);
    ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;
    ncclEpDispatchInputs_t di = NCCL_EP_DISPATCH_INPUTS_INIT;
    ncclEpDispatchOutputs_t dout = NCCL_EP_DISPATCH_OUTPUTS_INIT;
    ncclEpCombineInputs_t ci = NCCL_EP_COMBINE_INPUTS_INIT;
    ncclEpCombineOutputs_t cout = NCCL_EP_COMBINE_OUTPUTS_INIT;
    info.expert_counters = &d_counters.t;
    di.tokens = &d_in.t;
    di.topk_weights = &d_w.t;
    dout.tokens = &d_rows.t;
    dout.topk_weights = &d_out_w.t;
    dout.topk_idx = &d_out_ids.t;
    ci.tokens = &d_rows.t;
    cout.tokens = &d_out.t;
    ASSERT_EQ(
        ncclEpCreateHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, &d_ids.t, &info, nullptr, stream),
        ncclSuccess)
        << swimlaneLastError();
    ASSERT_EQ(ncclEpDispatch(handle, &di, &dout, &info, nullptr, stream), ncclSuccess)
        << swimlaneLastError();
    ASSERT_EQ(ncclEpCombine(handle, &ci, &cout, nullptr, stream), ncclSuccess)
        << swimlaneLastError();
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(ncclEpComplete(handle, nullptr, stream), ncclSuccess);

    int64_t n = -1;
    EXPECT_EQ(swimlaneHandleRecvCount(handle, &n), ncclSuccess);
    ASSERT_GE(n, 0);
    result->rows = get<float>(rows, (size_t)n * H);
    result->weights = out_w.values<float>(X * K);
    result->ids = out_ids.values<int32_t>(X * K);
    result->counters = counters.values<int64_t>(L);
    result->out = out.values<float>(T * H);

    /* Nothing but the received rows was written. */
    const char *whole = library ? (char *)library : plain.data();
    const auto bytes = get<uint8_t>(whole, library ? library_bytes : plain.bytes);
    const size_t first = (size_t)(rows - whole), end = first + (size_t)n * H * 4;
    for (size_t i = 0; i < bytes.size(); i++)
        ASSERT_TRUE((i >= first && i < end) || bytes[i] == 0x5a) << "byte " << i;
    EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
    EXPECT_EQ(swimlaneMemFree(group, library), ncclSuccess);
    EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

void expect_equal(const Result &a, const Result &b)
{
    EXPECT_EQ(a.rows, b.rows);
    EXPECT_EQ(a.weights, b.weights);
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.counters, b.counters);
    EXPECT_EQ(a.out, b.out);
}
} // namespace

class Cases : public ::testing::TestWithParam<std::vector<int>>
{
};
INSTANTIATE_TEST_SUITE_P(OneNodeAndTwo, Cases,
                         ::testing::Values(std::vector<int>{2}, std::vector<int>{1, 1}));

TEST_P(Cases, F69_BothIndexTypesGiveEqualResults)
{
    on_ranks(GetParam(), [](const swl_rank *rank) {
        Result wide, narrow;
        run_step(rank, {ncclInt64, -1}, &wide);
        run_step(rank, {ncclInt32, -1}, &narrow);
        expect_equal(wide, narrow);
    });
}

/* Forward HT FLAT: weights travel beside the rows, combine adds the rows as they are. */
TEST_P(Cases, F71_CombineAddsTheRowsAsGiven)
{
    on_ranks(GetParam(), [](const swl_rank *rank) {
        const std::vector<float> in = tokens_of(rank->rank);
        Result r;
        run_step(rank, {}, &r);
        ASSERT_EQ(r.out.size(), T * H);
        for (size_t t = 0; t < T; t++) {
            bool to[2] = {};
            for (size_t k = 0; k < K; k++) {
                int64_t id = id_of(rank->rank, t * K + k);
                if (id >= 0)
                    to[id / (int64_t)L] = true;
            }
            for (size_t h = 0; h < H; h++)
                ASSERT_EQ(r.out[t * H + h], in[t * H + h] * (float)(to[0] + to[1]))
                    << "token " << t;
        }
        /* Row by row: the source's tokens in order, ids local and ascending, with their weights. */
        size_t row = 0;
        for (int source = 0; source < rank->nranks; source++) {
            const std::vector<float> sent = tokens_of(source);
            for (size_t t = 0; t < T; t++) {
                std::vector<std::pair<int32_t, float>> mine;
                for (size_t k = 0; k < K; k++) {
                    int64_t id = id_of(source, t * K + k);
                    if (id >= 0 && id / (int64_t)L == rank->rank)
                        mine.emplace_back((int32_t)(id % (int64_t)L), weight_of(t * K + k));
                }
                if (mine.empty())
                    continue;
                std::sort(mine.begin(), mine.end());
                ASSERT_LT(row * H, r.rows.size());
                EXPECT_EQ(r.rows[row * H], sent[t * H]);
                for (size_t k = 0; k < K; k++) {
                    EXPECT_EQ(r.ids[row * K + k], k < mine.size() ? mine[k].first : -1);
                    EXPECT_EQ(r.weights[row * K + k], k < mine.size() ? mine[k].second : 0.0f);
                }
                row++;
            }
        }
        EXPECT_EQ(row * H, r.rows.size());
        for (size_t i = row * K; i < X * K; i++) {
            EXPECT_EQ(r.ids[i], -1);
            EXPECT_EQ(r.weights[i], 0.0f);
        }
    });
}

TEST_P(Cases, F23_RowsAtAnyOffsetOfLibraryMemoryEqualPlainOnes)
{
    on_ranks(GetParam(), [](const swl_rank *rank) {
        Result plain;
        run_step(rank, {ncclInt64, -1}, &plain);
        for (long offset : {0L, 16L, 256L, 4096L + 16L}) {
            Result placed;
            run_step(rank, {ncclInt64, offset}, &placed);
            expect_equal(plain, placed);
        }
    });
}
