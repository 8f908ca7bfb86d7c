/* step.h: what all tests of whole steps have in common: buffers between guards, the tensors over
 * them, the three calls, and a rank with a group, a handle and a stream.
 *
 * Layer: tests. group_step.h adds tokens that are easy to change, field_slot.h the oracle. */
#ifndef SWL_STEP_H
#define SWL_STEP_H

#include "tests/support/group_fixture.h"

#include <memory>

/* Device memory between guards, filled with one byte. */
struct StepBuffer {
    static constexpr size_t guard = 256;
    static constexpr uint8_t guard_byte = 0xc3;

    char *base = nullptr;
    size_t bytes;
    uint8_t fill;

    StepBuffer(size_t n, uint8_t byte) : bytes(n), fill(byte)
    {
        base = static_cast<char *>(pool_take(bytes + 2 * guard));
        EXPECT_EQ(cudaMemset(base, guard_byte, bytes + 2 * guard), cudaSuccess);
        if (bytes) {
            EXPECT_EQ(cudaMemset(data(), fill, bytes), cudaSuccess);
        }
    }
    ~StepBuffer()
    {
        pool_give(base, bytes + 2 * guard);
    }
    StepBuffer(const StepBuffer &) = delete;
    StepBuffer &operator=(const StepBuffer &) = delete;

    char *data() const
    {
        return base + guard;
    }
    void put(const void *from, size_t n) const
    {
        if (n) {
            EXPECT_EQ(cudaMemcpy(data(), from, n, cudaMemcpyHostToDevice), cudaSuccess);
        }
    }
    /* The contents; empty when a guard was written. */
    std::vector<char> get() const
    {
        std::vector<char> all(bytes + 2 * guard);

        EXPECT_EQ(cudaMemcpy(all.data(), base, all.size(), cudaMemcpyDeviceToHost), cudaSuccess);
        for (size_t i = 0; i < guard; i++)
            if ((uint8_t)all[i] != guard_byte || (uint8_t)all[guard + bytes + i] != guard_byte)
                return {};
        return {all.begin() + guard, all.end() - guard};
    }
    /* The first values. */
    template <class V> std::vector<V> values(size_t n) const
    {
        std::vector<V> all(n);

        EXPECT_EQ(cudaMemcpy(all.data(), data(), n * sizeof(V), cudaMemcpyDeviceToHost),
                  cudaSuccess);
        return all;
    }
    void poison(uint8_t byte) const
    {
        EXPECT_EQ(cudaMemset(data(), byte, bytes), cudaSuccess);
        settle();
    }
    /* Every byte is this one, the guards are whole. */
    bool holds_only(uint8_t byte) const
    {
        const std::vector<char> all = get();

        for (char c : all)
            if ((uint8_t)c != byte)
                return false;
        return all.size() == bytes;
    }
};

/* The tensor of a call; one dimension where b is 0. */
struct StepTensor {
    size_t sizes[2];
    ncclEpTensor_t t = NCCL_EP_TENSOR_INIT;

    StepTensor(ncclDataType_t type, void *data, size_t a, size_t b = 0) : sizes{a, b}
    {
        t.ndim = b ? 2 : 1;
        t.datatype = type;
        t.data = data;
        t.sizes = sizes;
    }
    StepTensor(ncclDataType_t type, const StepBuffer &buffer, size_t a, size_t b = 0)
        : StepTensor(type, buffer.bytes ? buffer.data() : nullptr, a, b) /* no tokens: no storage */
    {
    }
    StepTensor(const StepTensor &) = delete;
    StepTensor &operator=(const StepTensor &) = delete;
};

struct StepShape {
    size_t tokens, topk, hidden, budget; /* budget: rows of the tensors of received rows */
    ncclDataType_t type;
    size_t row_bytes;
};

/* One rank's buffers of a step, with known bytes in them, and the calls on them. */
struct StepBuffers {
    StepShape shape;
    StepBuffer id_list, weights, in, expert_counters, total, source_counters, rows, row_weights,
        row_ids, results, out;
    void *ids_at, *rows_at;                    /* the tensors of ids and of received rows */
    std::unique_ptr<StepBuffer> handle_memory; /* of a test that brings it */

    StepBuffers(const StepShape &of, size_t local_experts, size_t nranks)
        : shape(of), id_list(of.tokens * of.topk * 8, 0x5a), weights(of.tokens * of.topk * 4, 0x5a),
          in(of.tokens * of.row_bytes, 0xee), expert_counters(local_experts * 4, 0x5a),
          total(4, 0x5a), source_counters(nranks * 4, 0x5a), rows(of.budget * of.row_bytes, 0xee),
          row_weights(of.budget * of.topk * 4, 0x5a), row_ids(of.budget * of.topk * 8, 0x5a),
          results(of.budget * of.row_bytes, 0xee), out(of.tokens * of.row_bytes, 0xee),
          ids_at(id_list.bytes ? id_list.data() : nullptr), rows_at(rows.data())
    {
    }
    std::vector<const StepBuffer *> buffers() const
    {
        return {&id_list, &weights,     &in,      &expert_counters, &total, &source_counters,
                &rows,    &row_weights, &row_ids, &results,         &out};
    }

    ncclResult_t update(ncclEpHandle_t handle, cudaStream_t stream)
    {
        StepTensor t(ncclInt64, ids_at, shape.tokens, shape.topk), n(ncclInt32, total, 1);
        StepTensor e(ncclInt32, expert_counters, expert_counters.bytes / 4);
        StepTensor s(ncclInt32, source_counters, source_counters.bytes / 4);
        ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;

        info.expert_counters = &e.t;
        info.recv_total_counter = &n.t;
        info.src_rank_counters = &s.t;
        return ncclEpUpdateHandle(handle, &t.t, &info, stream);
    }
    ncclResult_t dispatch(ncclEpHandle_t handle, cudaStream_t stream)
    {
        StepTensor t(shape.type, in, shape.tokens, shape.hidden);
        StepTensor w(ncclFloat32, weights, shape.tokens, shape.topk);
        StepTensor ot(shape.type, rows_at, shape.budget, shape.hidden);
        StepTensor ow(ncclFloat32, row_weights, shape.budget, shape.topk);
        StepTensor oi(ncclInt64, row_ids, shape.budget, shape.topk);
        ncclEpDispatchInputs_t inputs = NCCL_EP_DISPATCH_INPUTS_INIT;
        ncclEpDispatchOutputs_t outputs = NCCL_EP_DISPATCH_OUTPUTS_INIT;

        inputs.tokens = &t.t;
        inputs.topk_weights = &w.t;
        outputs.tokens = &ot.t;
        outputs.topk_weights = &ow.t;
        outputs.topk_idx = &oi.t;
        return ncclEpDispatch(handle, &inputs, &outputs, nullptr, nullptr, stream);
    }
    ncclResult_t combine(ncclEpHandle_t handle, cudaStream_t stream, void *from, size_t nrows)
    {
        StepTensor t(shape.type, from, nrows, shape.hidden);
        StepTensor o(shape.type, out, shape.tokens, shape.hidden);
        ncclEpCombineInputs_t inputs = NCCL_EP_COMBINE_INPUTS_INIT;
        ncclEpCombineOutputs_t outputs = NCCL_EP_COMBINE_OUTPUTS_INIT;

        inputs.tokens = &t.t;
        outputs.tokens = &o.t;
        return ncclEpCombine(handle, &inputs, &outputs, nullptr, stream);
    }
};

/* One rank's group, with a handle and a stream. */
struct StepRank {
    const swl_rank *self;
    ncclEpGroup_t group = nullptr;
    ncclEpHandle_t handle = nullptr;
    cudaStream_t stream = nullptr;

    StepRank(const swl_rank *rank, const ncclEpGroupConfig_t &config, int topk,
             ncclComm_t comm = nullptr)
        : self(rank)
    {
        EXPECT_EQ(ncclEpCreateGroup(&group, comm ? comm : self->comm, &config), ncclSuccess)
            << swimlaneLastError();
        open_handle(topk);
        EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    ~StepRank()
    {
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
        EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
    StepRank(const StepRank &) = delete;
    StepRank &operator=(const StepRank &) = delete;

    /* Another handle instead of the one before, over memory of the caller if there is any. */
    void open_handle(int topk, const ncclEpTensor_t *memory = nullptr)
    {
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        handle = init_handle(group, topk, memory);
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
};

#endif
