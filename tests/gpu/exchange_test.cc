/* exchange_test.cc: whole steps of ranks, compared with the oracle byte by byte: every job shape
 * with changing routing, random configurations, graphs, and allocations beside the calls.
 *
 * The same tests run emulated, with fewer steps. */
#include "tests/support/field_slot.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace
{

struct Shape {
    const char *name;
    std::vector<int> nodes;
    int gpus;             /* that it uses, if there are so many */
    const char *executor; /* of the software NIC; NULL: as built in */
};

void PrintTo(const Shape &shape, std::ostream *out)
{
    *out << shape.name;
}

const Shape shapes[] = {
    {"OneNodeOfOne", {1}, 1, nullptr},
    {"OneNodeOfTwo", {2}, 2, nullptr},
    {"TwoNodesOfOne", {1, 1}, 2, nullptr},
    {"TwoNodesOfOneByThread", {1, 1}, 2, "thread"},
    {"OneNodeOfFour", {4}, 2, nullptr},
    {"TwoNodesOfTwo", {2, 2}, 2, nullptr},
    {"TwoNodesOfFour", {4, 4}, 2, nullptr},
    {"TwoNodesOfFourOnOneGpu", {4, 4}, 1, nullptr},
    {"TwoNodesOfTwoOnOneGpu", {2, 2}, 1, nullptr},
    {"ThreeNodesOfOne", {1, 1, 1}, 2, nullptr},
};

/* Few steps where every lane is a fiber. */
int steps_of(int on_gpu)
{
    return on_gpus ? on_gpu : slow_build ? 2 : 6;
}

/* A rank's tensor of received rows in library memory, for slots of one job. */
struct LibraryRows {
    ncclEpGroup_t group;
    size_t bytes;
    void *at = nullptr;

    LibraryRows(ncclEpGroup_t of, const FieldJob &job)
        : group(of), bytes(job.budget() * job.row_bytes())
    {
        EXPECT_EQ(swimlaneMemAlloc(group, bytes, &at), ncclSuccess) << swimlaneLastError();
    }
    ~LibraryRows()
    {
        EXPECT_EQ(swimlaneMemFree(group, at), ncclSuccess) << swimlaneLastError();
    }
    LibraryRows(const LibraryRows &) = delete;
    LibraryRows &operator=(const LibraryRows &) = delete;

    void use_in(FieldSlot &slot) const
    {
        EXPECT_EQ(cudaMemset(at, slot.rows.fill, bytes), cudaSuccess);
        settle();
        slot.rows_at = at;
    }
};

/* Every rank has some tokens, few, none or all, in turns. */
std::vector<int> ragged(const FieldJob &job, int step)
{
    std::vector<int> tokens;

    for (int r = 0; r < job.nranks(); r++) {
        struct swl_random random = swl_random_of(7, (uint64_t)r, (uint64_t)step);
        const int kind = (int)(swl_random_unit(&random) * 4);

        tokens.push_back(kind == 0   ? job.max_tokens
                         : kind == 1 ? std::min((int)(swl_random_unit(&random) * 4), job.max_tokens)
                                     : (int)(swl_random_unit(&random) * job.max_tokens));
    }
    return tokens;
}

class Exchange : public ::testing::TestWithParam<Shape>
{
};

/* Plain and library memory in turns; combine takes other rows or the received ones in place. */
TEST_P(Exchange, StepsWithChangingRoutingAreExact)
{
    const Shape &shape = GetParam();
    const int steps = steps_of(200);
    FieldJob job;

    for (const Shape &other : shapes)
        if (on_gpus && gpus_here() < shape.gpus && other.gpus == 1 && other.nodes == shape.nodes)
            GTEST_SKIP() << "on one GPU it is " << other.name;

    job.nodes = shape.nodes;
    job.experts = 4 * job.nranks();
    job.topk = 4;
    job.hidden = on_gpus ? 1024 : 128;
    job.max_tokens = on_gpus ? 200 : 24;
    job.sms = on_gpus ? 8 : 2;
    job.timeout_ns = 10000000000ull;
    const Variable executor("SWIMLANE_SOFT_EXECUTOR", shape.executor ? shape.executor : "");

    on_ranks(
        shape.nodes,
        [&](swl_rank *rank) {
            FieldRank field(job, rank);
            const LibraryRows library(field.group, job);

            for (int i = 0; i < steps; i++) {
                FieldStep step(job, (uint64_t)i + 1, ragged(job, i));

                step.identity = i / 2 % 2;
                step.seal();
                FieldSlot slot(step, field.rank());

                if (i % 2)
                    library.use_in(slot);
                field.enqueue(slot);
                field.sync();
                if (!field.expect_exact(slot, "step " + std::to_string(i)))
                    break;
            }
        },
        shape.gpus);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Exchange, ::testing::ValuesIn(shapes),
                         [](const auto &of) { return std::string(of.param.name); });

/* ---- random configurations ---- */

/* All ranks see the answer of rank 0. */
bool rank_0_says(const swl_rank *rank, bool mine)
{
    const int word = mine;
    int all = 0;
    int *words = (int *)pool_take(2 * sizeof(int));

    EXPECT_EQ(cudaMemcpy(words, &word, sizeof(int), cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(ncclBroadcast(words, words + 1, 1, ncclInt32, 0, rank->comm, nullptr), ncclSuccess);
    EXPECT_EQ(cudaMemcpy(&all, words + 1, sizeof(int), cudaMemcpyDeviceToHost), cudaSuccess);
    pool_give(words, 2 * sizeof(int));
    return all != 0;
}

int pick(struct swl_random *random, int low, int high)
{
    const int value = low + (int)(swl_random_unit(random) * (high - low + 1));

    return value > high ? high : value;
}

struct RandomConfiguration {
    FieldJob job;
    bool library, identity, wrong_ids;
    int steps;
    std::string text;

    RandomConfiguration(const std::vector<int> &nodes, uint64_t seed)
    {
        static const char *const types[] = {"bf16", "fp16", "fp32"};
        struct swl_random random = swl_random_of(99, seed, 0);

        job.nodes = nodes;
        job.type = (enum swl_oracle_type)pick(&random, 0, 2);
        job.topk = pick(&random, 1, 8);
        job.experts = pick(&random, job.topk, 64);
        job.hidden = 8 * pick(&random, 1, pick(&random, 0, 3) ? 64 : on_gpus ? 896 : 128);
        job.max_tokens = pick(&random, 1, pick(&random, 0, 3) ? 48 : on_gpus ? 400 : 96);
        job.sms = (unsigned)(on_gpus ? pick(&random, 1, 32) : pick(&random, 1, 4));
        job.timeout_ns = 10000000000ull;
        library = pick(&random, 0, 1);
        identity = pick(&random, 0, 1);
        wrong_ids = pick(&random, 0, 3) == 0;
        steps = pick(&random, 1, 3);
        text = "configuration " + std::to_string(seed) + ": " + types[job.type] + " T " +
               std::to_string(job.max_tokens) + " H " + std::to_string(job.hidden) + " K " +
               std::to_string(job.topk) + " E " + std::to_string(job.experts) + " SMs " +
               std::to_string(job.sms) + (library ? " library" : " plain") +
               (identity ? " identity" : "") + (wrong_ids ? " holes" : "");
    }
};

/* Some entries are -1, some rows repeat the row before. */
void make_holes(FieldStep &step)
{
    const size_t topk = (size_t)step.job.topk;

    for (size_t r = 0; r < step.ids.size(); r++)
        for (size_t t = 0; t < (size_t)step.ntokens[r]; t++) {
            struct swl_random random = swl_random_of(98, step.seed * 64 + r, t);

            if (pick(&random, 0, 3) == 0)
                step.ids[r][t * topk + (size_t)pick(&random, 0, step.job.topk - 1)] = -1;
            if (t && pick(&random, 0, 7) == 0)
                std::copy_n(&step.ids[r][(t - 1) * topk], topk, &step.ids[r][t * topk]);
        }
}

void run_configuration(const RandomConfiguration &c, const swl_rank *rank, uint64_t seed)
{
    SCOPED_TRACE(c.text);
    FieldRank field(c.job, rank);
    std::unique_ptr<LibraryRows> library;

    if (c.library)
        library = std::make_unique<LibraryRows>(field.group, c.job);
    for (int i = 0; i < c.steps; i++) {
        FieldStep step(c.job, seed * 8 + (uint64_t)i,
                       i ? ragged(c.job, (int)seed * 8 + i)
                         : std::vector<int>((size_t)c.job.nranks(), c.job.max_tokens));

        step.identity = c.identity;
        if (c.wrong_ids)
            make_holes(step);
        step.seal();
        FieldSlot slot(step, field.rank());

        if (library)
            library->use_in(slot);
        field.enqueue(slot);
        field.sync();
        if (!field.expect_exact(slot, "step " + std::to_string(i)))
            break;
    }
}

/* As many as fit into the time, all 1000 in the long form. */
TEST(ExchangeRandom, ConfigurationsMatchTheOracle)
{
    const int most = on_gpus ? 1000 : slow_build ? 2 : 8;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    int done = 0;

    on_ranks(
        {2},
        [&](swl_rank *rank) {
            int i = 0;

            for (; i < most; i++) {
                const bool late = std::chrono::steady_clock::now() > end && !field_long();

                if (rank_0_says(rank, late || testing::Test::HasFailure()))
                    break;
                run_configuration(RandomConfiguration({2}, (uint64_t)i + 1), rank, (uint64_t)i + 1);
            }
            if (rank->rank == 0)
                done = i;
        },
        2);
    RecordProperty("configurations", done);
    printf("    %d random configurations\n", done);
}

/* ---- beside and around the calls ---- */

#if !SWL_EMULATED /* threads of a test cannot use an emulated device */
using take_and_give = std::function<void(size_t bytes, cudaStream_t stream)>;

/* Another thread of each rank takes and gives device memory all the time. */
void allocations_beside(const take_and_give &once)
{
    const int steps = 334; /* of three calls */
    FieldJob job;

    job.sms = 8;
    job.timeout_ns = 20000000000ull;
    FieldStep step(job, 3);

    step.seal();
    field_run(job, [&](FieldRank &field) {
        std::atomic<bool> stop{false};
        std::atomic<int> rounds{0};
        const int device = field.self->device;
        std::thread other([&stop, &rounds, &once, device] {
            cudaStream_t stream = nullptr;

            EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
            EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
            for (; !stop; rounds++)
                for (size_t i = 0; i < 3; i++)
                    once((size_t)1 << (12 + 4 * i), stream);
            EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
        });
        FieldSlot slot(step, field.rank());

        /* the first call that fails ends it: those after it would say the same */
        for (int i = 0; i < steps && !testing::Test::HasFailure(); i++) {
            field.enqueue(slot);
            if (i % 16 == 0)
                field.sync();
        }
        field.sync();
        stop = true;
        other.join();
        EXPECT_GT(rounds, 0);
        field.expect_exact(slot, "the last step");
    });
}

/* cudaFree waits for all work of the process on its device. Where ranks share one, that is work
 * which waits for kernels that cannot be launched meanwhile: see docs/tuning.md. */
TEST(ExchangeBeside, AllocationsOfAnotherThreadDoNoHarm)
{
    if (gpus_here() < 2)
        GTEST_SKIP() << "needs a GPU for each of two ranks";
    allocations_beside([](size_t bytes, cudaStream_t) {
        void *memory = nullptr;

        EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
        EXPECT_EQ(cudaFree(memory), cudaSuccess);
    });
}

TEST(ExchangeBeside, AllocationsInOrderOfAStreamDoNoHarm)
{
    allocations_beside([](size_t bytes, cudaStream_t stream) {
        void *memory = nullptr;

        EXPECT_EQ(cudaMallocAsync(&memory, bytes, stream), cudaSuccess);
        EXPECT_EQ(cudaFreeAsync(memory, stream), cudaSuccess);
    });
}
#endif

/* Every byte of one slot's buffers, with the guards. */
void copy_buffers(const FieldSlot &from, const FieldSlot &to)
{
    const std::vector<const StepBuffer *> sources = from.buffers(), targets = to.buffers();

    for (size_t i = 0; i < sources.size(); i++) {
        ASSERT_EQ(sources[i]->bytes, targets[i]->bytes);
        ASSERT_EQ(cudaMemcpy(targets[i]->base, sources[i]->base,
                             sources[i]->bytes + 2 * StepBuffer::guard, cudaMemcpyDeviceToDevice),
                  cudaSuccess);
    }
    settle();
}

/* One graph of update, dispatch and combine, with other ids and rows for each replay. */
TEST(ExchangeGraph, CapturedStepReplaysWithOtherRouting)
{
    const int replays = on_gpus ? 200 : 5;
    FieldJob job;

    job.sms = on_gpus ? 8 : 2;
    job.max_tokens = on_gpus ? 64 : 16;
    job.hidden = on_gpus ? 512 : 64;
    FieldStep first(job, 1000);

    first.seal();
    field_run(job, [&](FieldRank &field) {
        const LibraryRows library(field.group, job);
        FieldSlot captured(first, field.rank());
        cudaGraph_t graph;
        cudaGraphExec_t exec;

        ASSERT_TRUE(field.run(first)); /* eager before */
        captured.rows_at = library.at;
        ASSERT_EQ(cudaStreamBeginCapture(field.stream, cudaStreamCaptureModeThreadLocal),
                  cudaSuccess);
        field.enqueue(captured);
        ASSERT_EQ(cudaStreamEndCapture(field.stream, &graph), cudaSuccess);
        ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
        for (int i = 0; i < replays; i++) {
            FieldStep step(job, (uint64_t)i + 1);

            step.seal();
            FieldSlot slot(step, field.rank());

            library.use_in(slot);
            copy_buffers(slot, captured);
            ASSERT_EQ(cudaGraphLaunch(exec, field.stream), cudaSuccess);
            field.sync();
            copy_buffers(captured, slot);
            ASSERT_EQ(slot.complaint(), "") << "replay " << i;
        }
        EXPECT_EQ(field.bits(), 0) << swimlaneLastError();
        EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
        EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    });
}

} // namespace
