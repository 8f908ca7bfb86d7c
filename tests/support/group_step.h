/* group_step.h: the buffers of one rank and whole steps on them, with identity experts: every token
 * comes back as its row times the number of ranks it went to. Layer: tests; owns its memory. */
#ifndef SWL_GROUP_STEP_H
#define SWL_GROUP_STEP_H

#include "tests/support/group_fixture.h"

#include <set>

struct GroupStep {
    static constexpr size_t tokens = 12, topk = 2, hidden = 16, rows = 256; /* fp32: 64 bytes */

    ncclEpGroup_t group = nullptr;
    ncclEpHandle_t handle = nullptr;
    cudaStream_t stream = nullptr;
    int nranks = 0, nexperts = 0;
    size_t columns = topk; /* of ids and weights */
    std::vector<int64_t> ids;
    std::vector<float> in;
    int64_t *d_ids = nullptr, *d_out_ids = nullptr;
    float *d_in = nullptr, *d_weights = nullptr, *d_rows = nullptr, *d_out_weights = nullptr,
          *d_out = nullptr;

    GroupStep(const swl_rank *rank, ncclEpGroupConfig_t config) : nranks(rank->nranks)
    {
        nexperts = (int)config.num_experts;
        EXPECT_EQ(ncclEpCreateGroup(&group, rank->comm, &config), ncclSuccess);
        EXPECT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, topk, nullptr),
                  ncclSuccess);
        EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        allocate(d_ids, tokens * topk);
        allocate(d_out_ids, rows * topk);
        allocate(d_in, tokens * hidden);
        allocate(d_weights, tokens * topk);
        allocate(d_rows, rows * hidden);
        allocate(d_out_weights, rows * topk);
        allocate(d_out, tokens * hidden);
        EXPECT_EQ(cudaMemset(d_weights, 0, tokens * topk * sizeof(float)), cudaSuccess);
        for (size_t i = 0; i < tokens * topk; i++)
            ids.push_back((int64_t)(i * 5 + (size_t)rank->rank) % nexperts);
        for (size_t i = 0; i < tokens * hidden; i++)
            in.push_back((float)(rank->rank * 1000 + (int)i));
        EXPECT_EQ(cudaMemcpy(d_in, in.data(), in.size() * 4, cudaMemcpyHostToDevice), cudaSuccess);
        settle();
    }
    ~GroupStep()
    {
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess);
        pool_give(d_ids, tokens * topk * sizeof(*d_ids));
        pool_give(d_out_ids, rows * topk * sizeof(*d_out_ids));
        pool_give(d_in, tokens * hidden * sizeof(*d_in));
        pool_give(d_weights, tokens * topk * sizeof(*d_weights));
        pool_give(d_rows, rows * hidden * sizeof(*d_rows));
        pool_give(d_out_weights, rows * topk * sizeof(*d_out_weights));
        pool_give(d_out, tokens * hidden * sizeof(*d_out));
        pool_give(memory, memory_bytes);
        EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
    GroupStep(const GroupStep &) = delete;
    GroupStep &operator=(const GroupStep &) = delete;

    /* In the order of the stream: an update before may still read them. */
    void copy_ids()
    {
        EXPECT_EQ(
            cudaMemcpyAsync(d_ids, ids.data(), ids.size() * 8, cudaMemcpyHostToDevice, stream),
            cudaSuccess);
    }
    ncclResult_t enqueue_update()
    {
        size_t sizes[] = {tokens, columns};
        ncclEpTensor_t t = tensor(ncclInt64, d_ids, sizes, 2);

        return ncclEpUpdateHandle(handle, &t, nullptr, stream);
    }
    ncclResult_t update()
    {
        copy_ids();
        return enqueue_update();
    }
    ncclResult_t dispatch(size_t elements = hidden)
    {
        size_t in_sizes[] = {tokens, elements}, k_sizes[] = {tokens, columns};
        size_t row_sizes[] = {rows, elements}, row_k_sizes[] = {rows, columns};
        ncclEpTensor_t t = tensor(ncclFloat32, d_in, in_sizes, 2);
        ncclEpTensor_t w = tensor(ncclFloat32, d_weights, k_sizes, 2);
        ncclEpTensor_t ot = tensor(ncclFloat32, d_rows, row_sizes, 2);
        ncclEpTensor_t ow = tensor(ncclFloat32, d_out_weights, row_k_sizes, 2);
        ncclEpTensor_t oi = tensor(ncclInt64, d_out_ids, row_k_sizes, 2);
        ncclEpDispatchInputs_t inputs = NCCL_EP_DISPATCH_INPUTS_INIT;
        ncclEpDispatchOutputs_t outputs = NCCL_EP_DISPATCH_OUTPUTS_INIT;

        inputs.tokens = &t;
        inputs.topk_weights = &w;
        outputs.tokens = &ot;
        outputs.topk_weights = &ow;
        outputs.topk_idx = &oi;
        return ncclEpDispatch(handle, &inputs, &outputs, nullptr, nullptr, stream);
    }
    ncclResult_t combine(size_t in_rows = rows, size_t elements = hidden,
                         ncclDataType_t type = ncclFloat32)
    {
        size_t out_sizes[] = {tokens, elements}, row_sizes[] = {in_rows, elements};
        ncclEpTensor_t t = tensor(type, d_rows, row_sizes, 2);
        ncclEpTensor_t o = tensor(type, d_out, out_sizes, 2);
        ncclEpCombineInputs_t inputs = NCCL_EP_COMBINE_INPUTS_INIT;
        ncclEpCombineOutputs_t outputs = NCCL_EP_COMBINE_OUTPUTS_INIT;

        inputs.tokens = &t;
        outputs.tokens = &o;
        return ncclEpCombine(handle, &inputs, &outputs, nullptr, stream);
    }
    /* The first refusal, if any. */
    ncclResult_t step()
    {
        ncclResult_t rc = update();

        rc = rc == ncclSuccess ? dispatch() : rc;
        return rc == ncclSuccess ? combine() : rc;
    }
    void sync()
    {
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    }
    int bits()
    {
        int value = -1;

        EXPECT_EQ(ncclEpGetAsyncError(group, &value), ncclSuccess);
        return value;
    }
    /* After sync() of a whole step. */
    void expect_exact()
    {
        const int local = (nexperts + nranks - 1) / nranks;
        std::vector<float> out(in.size());

        ASSERT_EQ(cudaMemcpy(out.data(), d_out, out.size() * 4, cudaMemcpyDeviceToHost),
                  cudaSuccess);
        for (size_t t = 0; t < tokens; t++) {
            std::set<int64_t> ranks;

            for (size_t k = 0; k < topk; k++) {
                const int64_t id = ids[t * topk + k];

                if (id >= 0 && id < nexperts)
                    ranks.insert(id / local);
            }
            for (size_t h = 0; h < hidden; h++)
                ASSERT_EQ(out[t * hidden + h], in[t * hidden + h] * (float)ranks.size())
                    << "token " << t;
        }
    }

    /* A new handle over memory of the caller, filled with `byte`; the old handle goes. */
    void use_memory_of(int byte)
    {
        memory_bytes = 0;
        EXPECT_EQ(ncclEpHandleMemSize(group, NCCL_EP_LAYOUT_FLAT, nullptr, &memory_bytes, topk),
                  ncclSuccess);
        memory = pool_take(memory_bytes);
        EXPECT_EQ(cudaMemset(memory, byte, memory_bytes), cudaSuccess);
        settle();
        open_memory();
    }
    /* The bytes of that memory at another address, and a new handle there. */
    void move_memory()
    {
        void *old = memory;

        memory = pool_take(memory_bytes);
        EXPECT_EQ(cudaMemcpy(memory, old, memory_bytes, cudaMemcpyDeviceToDevice), cudaSuccess);
        settle();
        open_memory();
        EXPECT_EQ(cudaMemset(old, 0xee, memory_bytes), cudaSuccess);
        settle(); /* before another rank may get it */
        pool_give(old, memory_bytes);
    }
    void use_library_memory(size_t new_columns = topk)
    {
        columns = new_columns;
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        EXPECT_EQ(
            ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, (int)columns, nullptr),
            ncclSuccess);
    }

  private:
    void *memory = nullptr;
    size_t memory_bytes = 0;

    void open_memory()
    {
        ncclEpTensor_t t = tensor(ncclUint8, memory, &memory_bytes, 1);

        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        EXPECT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, topk, &t),
                  ncclSuccess);
    }
    template <class T> static void allocate(T *&ptr, size_t n)
    {
        ptr = static_cast<T *>(pool_take(n * sizeof(T)));
    }
    static ncclEpTensor_t tensor(ncclDataType_t dtype, void *data, size_t *sizes, unsigned ndim)
    {
        ncclEpTensor_t t = NCCL_EP_TENSOR_INIT;

        t.ndim = ndim;
        t.datatype = dtype;
        t.data = data;
        t.sizes = sizes;
        return t;
    }
};

#endif
