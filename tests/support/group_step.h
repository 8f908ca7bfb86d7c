/* group_step.h: the buffers of one rank and whole steps on them, with identity experts: every token
 * comes back as its row times the number of ranks it went to. Layer: tests; owns its memory. */
#ifndef SWL_GROUP_STEP_H
#define SWL_GROUP_STEP_H

#include "tests/support/step.h"

#include <set>

/* The buffers outlive the group, which may use them to its end. */
struct GroupStep : StepBuffers, StepRank {
    static constexpr size_t tokens = 12, topk = 2, hidden = 16, budget = 256; /* fp32: 64 bytes */

    int nranks, nexperts;
    std::vector<int64_t> ids;
    std::vector<float> inputs;

    GroupStep(const swl_rank *rank, ncclEpGroupConfig_t config)
        : StepBuffers({tokens, topk, hidden, budget, ncclFloat32, hidden * 4}, 1, 1),
          StepRank(rank, config, topk), nranks(rank->nranks), nexperts((int)config.num_experts)
    {
        for (size_t i = 0; i < tokens * topk; i++)
            ids.push_back((int64_t)(i * 5 + (size_t)rank->rank) % nexperts);
        for (size_t i = 0; i < tokens * hidden; i++)
            inputs.push_back((float)(rank->rank * 1000 + (int)i));
        in.put(inputs.data(), in.bytes);
        weights.poison(0);
    }

    /* In the order of the stream: an update before may still read them. */
    void copy_ids()
    {
        EXPECT_EQ(
            cudaMemcpyAsync(ids_at, ids.data(), ids.size() * 8, cudaMemcpyHostToDevice, stream),
            cudaSuccess);
    }
    ncclResult_t enqueue_update()
    {
        StepTensor t(ncclInt64, ids_at, tokens, shape.topk);

        return ncclEpUpdateHandle(handle, &t.t, nullptr, stream);
    }
    ncclResult_t update()
    {
        copy_ids();
        return enqueue_update();
    }
    ncclResult_t dispatch(size_t elements = hidden)
    {
        shape.type = ncclFloat32;
        shape.hidden = elements;
        return StepBuffers::dispatch(handle, stream);
    }
    ncclResult_t combine(size_t in_rows = budget, size_t elements = hidden,
                         ncclDataType_t type = ncclFloat32)
    {
        shape.type = type;
        shape.hidden = elements;
        return StepBuffers::combine(handle, stream, rows_at, in_rows);
    }
    /* The first refusal, if any. */
    ncclResult_t step()
    {
        ncclResult_t rc = update();

        rc = rc == ncclSuccess ? dispatch() : rc;
        return rc == ncclSuccess ? combine() : rc;
    }
    /* A step that nobody refuses, waited for and compared. */
    void exact_step()
    {
        ASSERT_EQ(step(), ncclSuccess) << swimlaneLastError();
        sync();
        expect_exact();
    }
    /* After sync() of a whole step. */
    void expect_exact()
    {
        const int local = (nexperts + nranks - 1) / nranks;
        const std::vector<char> bytes = out.get();
        std::vector<float> found(inputs.size());

        ASSERT_EQ(bytes.size(), out.bytes) << "bytes around the combined rows were written";
        memcpy(found.data(), bytes.data(), bytes.size());
        for (size_t t = 0; t < tokens; t++) {
            std::set<int64_t> ranks;

            for (size_t k = 0; k < topk; k++) {
                const int64_t id = ids[t * topk + k];

                if (id >= 0 && id < nexperts)
                    ranks.insert(id / local);
            }
            for (size_t h = 0; h < hidden; h++)
                ASSERT_EQ(found[t * hidden + h], inputs[t * hidden + h] * (float)ranks.size())
                    << "token " << t;
        }
    }

    /* A new handle over memory of the caller, filled with `byte`; the old handle goes. */
    void use_memory_of(uint8_t byte)
    {
        size_t bytes = 0;

        EXPECT_EQ(ncclEpHandleMemSize(group, NCCL_EP_LAYOUT_FLAT, nullptr, &bytes, topk),
                  ncclSuccess);
        open_memory(std::make_unique<StepBuffer>(bytes, byte));
    }
    /* The bytes of that memory at another address, and a new handle there. */
    void move_memory()
    {
        auto moved = std::make_unique<StepBuffer>(handle_memory->bytes, 0);

        EXPECT_EQ(cudaMemcpy(moved->data(), handle_memory->data(), moved->bytes,
                             cudaMemcpyDeviceToDevice),
                  cudaSuccess);
        const std::unique_ptr<StepBuffer> before = open_memory(std::move(moved));

        before->poison(0xee); /* before another rank may get it */
    }
    void use_library_memory(size_t columns = topk)
    {
        shape.topk = columns;
        open_handle((int)columns);
    }

  private:
    /* The memory before. */
    std::unique_ptr<StepBuffer> open_memory(std::unique_ptr<StepBuffer> next)
    {
        StepTensor t(ncclUint8, *next, next->bytes);

        settle();
        open_handle(topk, &t.t);
        std::swap(handle_memory, next);
        return next;
    }
};

#endif
