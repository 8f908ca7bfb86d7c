/* field_step.h: the inputs of all ranks for one step of a group, and what must come out.
 *
 * Layer: tests. Made before the ranks run and shared by them; owns its host memory. */
#ifndef SWL_FIELD_STEP_H
#define SWL_FIELD_STEP_H

#include "tests/support/group_fixture.h"
#include "tools/support/oracle.h"
#include "tools/support/payload.h"
#include "tools/support/routing.h"

#include <functional>
#include <mutex>
#include <numeric>

/* One group; the default of the field reports, with few SMs. */
struct FieldJob {
    std::vector<int> nodes = {2};
    int experts = 8, topk = 2, hidden = 512, max_tokens = 32;
    enum swl_oracle_type type = SWL_ORACLE_BF16;
    unsigned sms = 2, channels = 0;
    uint64_t timeout_ns = 0;
    bool wire_fp32 = false;

    int nranks() const
    {
        return std::accumulate(nodes.begin(), nodes.end(), 0);
    }
    size_t budget() const
    {
        return (size_t)nranks() * (size_t)max_tokens;
    }
    size_t row_bytes() const
    {
        return swl_oracle_type_bytes(type) * (size_t)hidden;
    }
    int local_experts() const
    {
        return (experts + nranks() - 1) / nranks();
    }
    ncclDataType_t dtype() const
    {
        static const ncclDataType_t dtypes[] = {ncclBfloat16, ncclFloat16, ncclFloat32};

        return dtypes[type];
    }
    ncclEpGroupConfig_t config() const
    {
        ncclEpGroupConfig_t c = NCCL_EP_GROUP_CONFIG_INIT;

        c.algorithm = NCCL_EP_ALGO_HIGH_THROUGHPUT;
        c.num_experts = (unsigned)experts;
        c.max_dispatch_tokens_per_rank = (unsigned)max_tokens;
        c.max_recv_tokens_per_rank = (unsigned)budget();
        c.max_token_bytes = (unsigned)row_bytes();
        c.max_num_sms = sms;
        c.num_channels = channels;
        c.num_topk = (unsigned)topk;
        c.timeout_ns = timeout_ns;
        return c;
    }
};

/* Seeded routing with distinct experts per token; ids and weights may be changed before seal(). */
struct FieldStep {
    const FieldJob &job;
    uint64_t seed;
    std::vector<int> ntokens;                /* [nranks] */
    std::vector<std::vector<int64_t>> ids;   /* [nranks][T * K] */
    std::vector<std::vector<float>> weights; /* [nranks][T * K] */
    bool identity = false; /* combine takes the dispatched rows, not other random ones */
    /* Replaces the random rows that enter combine. */
    std::function<void(int dst, int64_t row, int src, int token, void *out)> result;

    FieldStep(const FieldJob &group, uint64_t of_seed, std::vector<int> tokens)
        : job(group), seed(of_seed), ntokens(std::move(tokens))
    {
        struct swl_routing routing = {};

        routing.seed = seed;
        for (int r = 0; r < job.nranks(); r++) {
            const struct swl_routing_size size = {job.nranks(), ntokens[(size_t)r], job.topk,
                                                  job.experts};
            const size_t n = (size_t)size.ntokens * (size_t)size.topk;

            ids.emplace_back(n + 1); /* never without storage */
            weights.emplace_back(n + 1);
            EXPECT_TRUE(
                swl_routing_make(&routing, &size, r, 0, ids.back().data(), weights.back().data()));
            ids.back().resize(n);
            weights.back().resize(n);
        }
    }
    FieldStep(const FieldJob &group, uint64_t of_seed)
        : FieldStep(group, of_seed, std::vector<int>((size_t)group.nranks(), group.max_tokens))
    {
    }
    ~FieldStep()
    {
        swl_oracle_destroy(oracle_);
    }
    FieldStep(const FieldStep &) = delete;
    FieldStep &operator=(const FieldStep &) = delete;

    /* Inputs are final: work out what must come of them. */
    FieldStep &seal()
    {
        for (size_t n = 0; n < job.nodes.size(); n++)
            node_of_.insert(node_of_.end(), (size_t)job.nodes[n], (int)n);
        for (size_t r = 0; r < ids.size(); r++)
            sources_.push_back({ntokens[r], 8, ids[r].data(), weights[r].data()});
        const struct swl_oracle_shape shape = {
            job.nranks(), node_of_.data(),       job.experts, job.topk,     job.hidden,
            job.type,     (int64_t)job.budget(), false,       job.wire_fp32};

        oracle_ = swl_oracle_create(&shape, sources_.data());
        EXPECT_NE(oracle_, nullptr);
        return *this;
    }
    const struct swl_oracle *oracle() const
    {
        return oracle_;
    }
    const struct swl_oracle_rows &rows(int rank) const
    {
        return *swl_oracle_rows_of(oracle_, rank);
    }
    void token_row(int src, int token, void *out) const
    {
        swl_payload_row(job.type, job.hidden,
                        swl_random_of(seed, 1000 + (uint64_t)src, (uint64_t)token), out);
    }
    /* What rank dst hands to combine in this row. */
    void result_row(int dst, int64_t row, int src, int token, void *out) const
    {
        if (identity)
            token_row(src, token, out);
        else if (result)
            result(dst, row, src, token, out);
        else
            swl_payload_row(job.type, job.hidden,
                            swl_random_of(seed, 2000 + (uint64_t)dst, (uint64_t)row), out);
    }
    void combined_row(int src, int token, void *out) const
    {
        const std::lock_guard<std::mutex> alone(scratch_);

        swl_oracle_combine(
            oracle_, src, token,
            [](void *arg, int dst, int64_t row, int s, int t, void *to) {
                static_cast<const FieldStep *>(arg)->result_row(dst, row, s, t, to);
                return true;
            },
            const_cast<FieldStep *>(this), out);
    }

  private:
    std::vector<int> node_of_;
    std::vector<struct swl_oracle_source> sources_;
    struct swl_oracle *oracle_ = nullptr;
    mutable std::mutex scratch_; /* the oracle's rows for sums, which ranks on threads share */
};

#endif
