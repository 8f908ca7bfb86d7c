/* field_slot.h: whole steps of ranks, emulated or on GPUs, compared with the oracle bit by bit.
 *
 * Layer: tests. A FieldSlot owns a rank's device buffers of one step: guard bytes around each,
 * known bytes in each output. A FieldRank owns its group, handle and stream. */
#ifndef SWL_FIELD_SLOT_H
#define SWL_FIELD_SLOT_H

#include "src/runtime/runtime.h"
#include "tests/support/field_step.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>

/* Device memory between guards, filled with one byte. */
struct FieldBuffer {
    static constexpr size_t guard = 256;
    static constexpr uint8_t guard_byte = 0xc3;

    char *base = nullptr;
    size_t bytes;
    uint8_t fill;

    FieldBuffer(size_t n, uint8_t byte) : bytes(n), fill(byte)
    {
        base = static_cast<char *>(pool_take(bytes + 2 * guard));
        EXPECT_EQ(cudaMemset(base, guard_byte, bytes + 2 * guard), cudaSuccess);
        if (bytes) {
            EXPECT_EQ(cudaMemset(data(), fill, bytes), cudaSuccess);
        }
    }
    ~FieldBuffer()
    {
        pool_give(base, bytes + 2 * guard);
    }
    FieldBuffer(const FieldBuffer &) = delete;
    FieldBuffer &operator=(const FieldBuffer &) = delete;

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

struct FieldSlot {
    const FieldStep &step;
    const FieldJob &job;
    int rank;
    size_t tokens, topk;
    FieldBuffer ids, weights, in, expert_counters, total, source_counters, rows, row_weights,
        row_ids, results, out;
    void *rows_at; /* the tensor of received rows */

    FieldSlot(const FieldStep &of, int rank_)
        : step(of), job(of.job), rank(rank_), tokens((size_t)of.ntokens[(size_t)rank_]),
          topk((size_t)job.topk), ids(tokens * topk * 8, 0x5a), weights(tokens * topk * 4, 0x5a),
          in(tokens * job.row_bytes(), 0xee),
          expert_counters((size_t)job.local_experts() * 4, 0x5a), total(4, 0x5a),
          source_counters((size_t)job.nranks() * 4, 0x5a),
          rows(job.budget() * job.row_bytes(), 0xee), row_weights(job.budget() * topk * 4, 0x5a),
          row_ids(job.budget() * topk * 8, 0x5a), results(job.budget() * job.row_bytes(), 0xee),
          out(tokens * job.row_bytes(), 0xee), rows_at(rows.data())
    {
        const struct swl_oracle_rows &expected = step.rows(rank);
        std::vector<char> image(std::max(tokens, job.budget()) * job.row_bytes());

        ids.put(step.ids[(size_t)rank].data(), ids.bytes);
        weights.put(step.weights[(size_t)rank].data(), weights.bytes);
        for (size_t t = 0; t < tokens; t++)
            step.token_row(rank, (int)t, &image[t * job.row_bytes()]);
        in.put(image.data(), in.bytes);
        for (int64_t i = 0; i < expected.nrows; i++)
            step.result_row(rank, i, expected.src[i], expected.token[i],
                            &image[(size_t)i * job.row_bytes()]);
        results.put(image.data(), (size_t)expected.nrows * job.row_bytes());
        settle();
    }

    ncclResult_t update(ncclEpHandle_t handle, cudaStream_t stream)
    {
        Desc t(ncclInt64, ids, tokens, topk);
        Desc e(ncclInt32, expert_counters, (size_t)job.local_experts()), n(ncclInt32, total, 1);
        Desc s(ncclInt32, source_counters, (size_t)job.nranks());
        ncclEpLayoutInfo_t info = NCCL_EP_LAYOUT_INFO_INIT;

        info.expert_counters = &e.t;
        info.recv_total_counter = &n.t;
        info.src_rank_counters = &s.t;
        return ncclEpUpdateHandle(handle, &t.t, &info, stream);
    }
    ncclResult_t dispatch(ncclEpHandle_t handle, cudaStream_t stream)
    {
        Desc t(job.dtype(), in, tokens, (size_t)job.hidden), w(ncclFloat32, weights, tokens, topk);
        Desc ot(job.dtype(), rows, job.budget(), (size_t)job.hidden);
        Desc ow(ncclFloat32, row_weights, job.budget(), topk);
        Desc oi(ncclInt64, row_ids, job.budget(), topk);
        ncclEpDispatchInputs_t inputs = NCCL_EP_DISPATCH_INPUTS_INIT;
        ncclEpDispatchOutputs_t outputs = NCCL_EP_DISPATCH_OUTPUTS_INIT;

        ot.t.data = rows_at;
        inputs.tokens = &t.t;
        inputs.topk_weights = &w.t;
        outputs.tokens = &ot.t;
        outputs.topk_weights = &ow.t;
        outputs.topk_idx = &oi.t;
        return ncclEpDispatch(handle, &inputs, &outputs, nullptr, nullptr, stream);
    }
    ncclResult_t combine(ncclEpHandle_t handle, cudaStream_t stream)
    {
        Desc t(job.dtype(), step.identity ? rows : results, job.budget(), (size_t)job.hidden);
        Desc o(job.dtype(), out, tokens, (size_t)job.hidden);
        ncclEpCombineInputs_t inputs = NCCL_EP_COMBINE_INPUTS_INIT;
        ncclEpCombineOutputs_t outputs = NCCL_EP_COMBINE_OUTPUTS_INIT;

        if (step.identity)
            t.t.data = rows_at;
        inputs.tokens = &t.t;
        outputs.tokens = &o.t;
        return ncclEpCombine(handle, &inputs, &outputs, nullptr, stream);
    }

    std::vector<const FieldBuffer *> buffers() const
    {
        return {&ids,  &weights,     &in,      &expert_counters, &total, &source_counters,
                &rows, &row_weights, &row_ids, &results,         &out};
    }
    /* After a whole step: the first thing that is not as it must be, or "". */
    std::string complaint() const
    {
        std::ostringstream why;

        if (counters_wrong(why) || ids_wrong(why) || rows_wrong(why) || combined_wrong(why) ||
            inputs_wrong(why))
            return "rank " + std::to_string(rank) + ": " + why.str();
        return "";
    }

  private:
    struct Desc {
        size_t sizes[2];
        ncclEpTensor_t t = NCCL_EP_TENSOR_INIT;

        Desc(ncclDataType_t dtype, const FieldBuffer &buffer, size_t a, size_t b = 0) : sizes{a, b}
        {
            t.ndim = b ? 2 : 1;
            t.datatype = dtype;
            t.data = buffer.bytes ? buffer.data() : nullptr; /* no tokens: no storage */
            t.sizes = sizes;
        }
        Desc(const Desc &) = delete;
        Desc &operator=(const Desc &) = delete;
    };

    bool got(const FieldBuffer &buffer, const char *name, std::vector<char> *all,
             std::ostream &why) const
    {
        *all = buffer.get();
        if (all->size() == buffer.bytes)
            return true;
        why << "bytes around " << name << " were written";
        return false;
    }
    template <class V> static V at(const std::vector<char> &all, size_t i)
    {
        V value;

        memcpy(&value, &all[i * sizeof(V)], sizeof(V));
        return value;
    }
    bool counter_wrong(const FieldBuffer &buffer, const char *name, const int64_t *expected,
                       std::ostream &why) const
    {
        std::vector<char> all;

        if (!got(buffer, name, &all, why))
            return true;
        for (size_t i = 0; i < all.size() / 4; i++)
            if (at<int32_t>(all, i) != expected[i]) {
                why << name << "[" << i << "] is " << at<int32_t>(all, i) << ", not "
                    << expected[i];
                return true;
            }
        return false;
    }
    bool counters_wrong(std::ostream &why) const
    {
        const struct swl_oracle_rows &expected = step.rows(rank);

        return counter_wrong(total, "recv_total_counter", &expected.total, why) ||
               counter_wrong(expert_counters, "expert_counters", expected.expert_rows, why) ||
               counter_wrong(source_counters, "src_rank_counters", expected.source_rows, why);
    }
    bool ids_wrong(std::ostream &why) const
    {
        const struct swl_oracle_rows &expected = step.rows(rank);
        const size_t used = (size_t)expected.nrows * topk;
        std::vector<char> found_ids, found_weights;

        if (!got(row_ids, "topk_idx", &found_ids, why) ||
            !got(row_weights, "topk_weights", &found_weights, why))
            return true;
        for (size_t i = 0; i < job.budget() * topk; i++) {
            const float weight = i < used ? expected.weights[i] : 0.0f;

            if (at<int64_t>(found_ids, i) != (i < used ? expected.idx[i] : -1) ||
                memcmp(&found_weights[i * 4], &weight, 4) != 0) {
                why << "row " << i / topk << " of " << expected.nrows << ", entry " << i % topk
                    << ": id " << at<int64_t>(found_ids, i) << ", weight "
                    << at<float>(found_weights, i);
                return true;
            }
        }
        return false;
    }
    bool row_wrong(const char *name, size_t row, const char *found, const void *expected,
                   std::ostream &why) const
    {
        int i = 0;

        if (swl_oracle_equal(job.type, job.hidden, found, expected, &i))
            return false;
        why << name << " row " << row << ", element " << i << " is "
            << swl_oracle_load(job.type, found, i) << ", not "
            << swl_oracle_load(job.type, expected, i);
        return true;
    }
    bool rows_wrong(std::ostream &why) const
    {
        const struct swl_oracle_rows &expected = step.rows(rank);
        std::vector<char> all, row(job.row_bytes());

        if (!got(rows, "the received rows", &all, why))
            return true;
        if (rows_at != rows.data()) {
            EXPECT_EQ(cudaMemcpy(all.data(), rows_at, all.size(), cudaMemcpyDeviceToHost),
                      cudaSuccess);
        }
        for (size_t i = 0; i < job.budget(); i++) {
            if (i < (size_t)expected.nrows)
                step.token_row(expected.src[i], expected.token[i], row.data());
            else
                memset(row.data(), rows.fill, row.size());
            if (row_wrong("received", i, &all[i * row.size()], row.data(), why))
                return true;
        }
        return false;
    }
    bool combined_wrong(std::ostream &why) const
    {
        std::vector<char> all, row(job.row_bytes());

        if (!got(out, "the combined rows", &all, why))
            return true;
        for (size_t t = 0; t < tokens; t++) {
            step.combined_row(rank, (int)t, row.data());
            if (row_wrong("combined", t, &all[t * row.size()], row.data(), why))
                return true;
        }
        return false;
    }
    bool inputs_wrong(std::ostream &why) const
    {
        std::vector<char> all;

        return !got(ids, "the ids", &all, why) || !got(weights, "the weights", &all, why) ||
               !got(in, "the tokens", &all, why) || !got(results, "the results", &all, why);
    }
};

struct FieldRank {
    const FieldJob &job;
    const swl_rank *self;
    ncclEpGroup_t group = nullptr;
    ncclEpHandle_t handle = nullptr;
    cudaStream_t stream = nullptr;

    FieldRank(const FieldJob &of, const swl_rank *rank_, ncclComm_t comm = nullptr)
        : job(of), self(rank_)
    {
        const ncclEpGroupConfig_t config = job.config();

        EXPECT_EQ(ncclEpCreateGroup(&group, comm ? comm : self->comm, &config), ncclSuccess)
            << swimlaneLastError();
        EXPECT_EQ(ncclEpInitHandle(&handle, group, NCCL_EP_LAYOUT_FLAT, nullptr, job.topk, nullptr),
                  ncclSuccess)
            << swimlaneLastError();
        EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    ~FieldRank()
    {
        EXPECT_EQ(ncclEpHandleDestroy(handle), ncclSuccess);
        EXPECT_EQ(ncclEpGroupDestroy(group), ncclSuccess) << swimlaneLastError();
        EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    }
    FieldRank(const FieldRank &) = delete;
    FieldRank &operator=(const FieldRank &) = delete;

    int rank() const
    {
        return self->rank;
    }
    /* Enqueue update, dispatch and combine. */
    void enqueue(FieldSlot &slot, ncclEpHandle_t other = nullptr)
    {
        ncclEpHandle_t h = other ? other : handle;

        EXPECT_EQ(slot.update(h, stream), ncclSuccess) << swimlaneLastError();
        EXPECT_EQ(slot.dispatch(h, stream), ncclSuccess) << swimlaneLastError();
        EXPECT_EQ(slot.combine(h, stream), ncclSuccess) << swimlaneLastError();
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
    /* What the group says about its failure: the sentence of a refused call. */
    std::string reason(FieldSlot &slot)
    {
        return slot.update(handle, stream) == ncclSuccess ? "no call is refused"
                                                          : swimlaneLastError();
    }
    /* A step that has been waited for left these bits and exact data. Else one failure, which says
     * why. */
    bool expect_exact(FieldSlot &slot, const std::string &where, int expected_bits = 0)
    {
        const int found = bits();
        const std::string complaint = slot.complaint();
        const bool right = complaint.empty() && found == expected_bits;

        if (!right)
            ADD_FAILURE() << where << ", rank " << rank() << ", bits " << found << " of "
                          << expected_bits << ": " << (found & 1 ? reason(slot) : "") << "; "
                          << (complaint.empty() ? "data is right" : complaint);
        return right;
    }
    /* One step, waited for and compared; false when something was wrong. */
    bool run(const FieldStep &step, int expected_bits = 0)
    {
        FieldSlot slot(step, rank());

        enqueue(slot);
        sync();
        return expect_exact(slot, "step of seed " + std::to_string(step.seed), expected_bits);
    }
};

inline void field_run(const FieldJob &job, const std::function<void(FieldRank &)> &body)
{
    on_ranks(job.nodes, [&](swl_rank *rank) {
        FieldRank field(job, rank);

        body(field);
    });
}

/* Up to max_ns later: another time for each rank and number. */
inline void field_hold_back(int rank, uint64_t number, uint64_t max_ns)
{
    struct swl_random random = swl_random_of(77, (uint64_t)rank, number);

    swl_gpu_sleep_ns((uint64_t)(swl_random_unit(&random) * (double)max_ns));
}

/* tools/check --long. */
inline bool field_long()
{
    return getenv("SWL_TEST_LONG") != nullptr;
}

#endif
