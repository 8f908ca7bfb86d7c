/* field_slot.h: whole steps of ranks, emulated or on GPUs, compared with the oracle bit by bit.
 *
 * Layer: tests. A FieldSlot owns a rank's device buffers of one step: guard bytes around each,
 * known bytes in each output. A FieldRank owns its group, handle and stream. */
#ifndef SWL_FIELD_SLOT_H
#define SWL_FIELD_SLOT_H

#include "src/runtime/runtime.h"
#include "tests/support/field_step.h"
#include "tests/support/step.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>

struct FieldSlot : StepBuffers {
    const FieldStep &step;
    const FieldJob &job;
    int rank;
    size_t tokens, topk;

    FieldSlot(const FieldStep &of, int rank_)
        : StepBuffers({(size_t)of.ntokens[(size_t)rank_], (size_t)of.job.topk,
                       (size_t)of.job.hidden, of.job.budget(), of.job.dtype(), of.job.row_bytes()},
                      (size_t)of.job.local_experts(), (size_t)of.job.nranks()),
          step(of), job(of.job), rank(rank_), tokens(shape.tokens), topk(shape.topk)
    {
        const struct swl_oracle_rows &expected = step.rows(rank);
        std::vector<char> image(std::max(tokens, job.budget()) * job.row_bytes());

        id_list.put(step.ids[(size_t)rank].data(), id_list.bytes);
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

    ncclResult_t combine(ncclEpHandle_t handle, cudaStream_t stream)
    {
        return StepBuffers::combine(handle, stream, step.identity ? rows_at : results.data(),
                                    job.budget());
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
    bool got(const StepBuffer &buffer, const char *name, std::vector<char> *all,
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
    bool counter_wrong(const StepBuffer &buffer, const char *name, const int64_t *expected,
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

        return !got(id_list, "the ids", &all, why) || !got(weights, "the weights", &all, why) ||
               !got(in, "the tokens", &all, why) || !got(results, "the results", &all, why);
    }
};

struct FieldRank : StepRank {
    const FieldJob &job;

    FieldRank(const FieldJob &of, const swl_rank *rank_, ncclComm_t comm = nullptr)
        : StepRank(rank_, of.config(), of.topk, comm), job(of)
    {
    }

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
    /* The same without a look at the bits. */
    void run_exactly(FieldSlot &slot)
    {
        enqueue(slot);
        sync();
        ASSERT_EQ(slot.complaint(), "");
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
