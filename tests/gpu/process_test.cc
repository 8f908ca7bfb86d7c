/* process_test.cc: ranks as processes: one is killed, each sees other devices, each takes and gives
 * memory beside its calls.
 *
 * With NCCL and two GPUs they are a node; on one GPU NCCL takes them for two, and the stand-in for
 * one. */
#include "tests/gpu/processes.h"
#include "tests/support/field_slot.h"

#include <atomic>
#include <thread>

namespace
{

constexpr uint64_t second = 1000000000;

class Processes : public ::testing::Test
{
  protected:
    static int ngpus;
    static ProcessesPlace place;

    void SetUp() override
    {
        ngpus = gpus_seen_by_a_child();
        if (ngpus == 0)
            GTEST_SKIP() << "no GPU on this machine";
        place = {{"", ""}, {0, ngpus > 1 ? 1 : 0}, {}};
        if (wants_standin)
            place.node_of = {0, 0};
        else if (ngpus == 1)
            place.node_of = {0, 1};
    }

  public:
    static bool two_nodes()
    {
        return !place.node_of.empty() && place.node_of[1] == 1;
    }
    static std::vector<int> run(int limit_s, const process_body &body)
    {
        return run_processes(place, limit_s, body);
    }
};

int Processes::ngpus;
ProcessesPlace Processes::place;

/* Inputs of a job of two ranks; every process makes the same. */
struct Job : FieldJob {
    Job(uint64_t limit_ns)
    {
        if (Processes::two_nodes())
            nodes = {1, 1};
        sms = 8;
        timeout_ns = limit_ns;
    }
};

/* Seconds that a call took. */
template <class Call> double seconds_of(const Call &call)
{
    const uint64_t began = swl_gpu_now_ns();

    call();
    return (double)(swl_gpu_now_ns() - began) / 1e9;
}

TEST_F(Processes, StepsOfTwoAreExact)
{
    const Job job(10 * second);
    const std::vector<int> codes = Processes::run(60, [&](ProcessRank &own) {
        {
            FieldRank field(job, &own.rank);

            for (uint64_t seed = 1; seed <= 20 && !HasFailure(); seed++) {
                FieldStep step(job, seed);

                field.run(step.seal());
            }
        }
        EXPECT_EQ(ncclCommDestroy(own.rank.comm), ncclSuccess);
        return 3;
    });

    EXPECT_EQ(codes, (std::vector<int>{3, 3}));
}

/* cudaFree waits for the work of its own process only, and that gets its turns on a GPU that both
 * share. */
TEST_F(Processes, AllocationsOfAnotherThreadDoNoHarm)
{
    const Job job(10 * second);
    const std::vector<int> codes = run(60, [&](ProcessRank &own) {
        {
            FieldRank field(job, &own.rank);
            std::atomic<bool> stop{false};
            std::thread other([&stop, &own] {
                EXPECT_EQ(cudaSetDevice(own.rank.device), cudaSuccess);
                while (!stop) {
                    void *memory = nullptr;

                    EXPECT_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess);
                    EXPECT_EQ(cudaFree(memory), cudaSuccess);
                }
            });

            for (uint64_t seed = 1; seed <= 20 && !HasFailure(); seed++) {
                FieldStep step(job, seed);

                field.run(step.seal());
            }
            stop = true;
            other.join();
        }
        EXPECT_EQ(ncclCommDestroy(own.rank.comm), ncclSuccess);
        return 3;
    });

    EXPECT_EQ(codes, (std::vector<int>{3, 3}));
}

/* Rank 1 is killed between two calls: rank 0 is told in time, and every call of its way out
 * ends. */
void shut_down_after_a_kill(int call)
{
    const Job job(second);
    const std::vector<int> codes = Processes::run(60, [&](ProcessRank &own) {
        FieldStep step(job, 9);

        step.seal();
        auto *field = new FieldRank(job, &own.rank); /* its end is part of the test */
        FieldSlot slot(step, own.rank.rank);
        ncclResult_t rc = ncclSuccess;

        EXPECT_TRUE(field->run(step));
        if (call == 1) {
            EXPECT_EQ(slot.update(field->handle, field->stream), ncclSuccess);
        }
        field->sync();
        own.meet();
        if (own.rank.rank == 1)
            raise(SIGKILL);
        const double waited = seconds_of([&] {
            rc = call == 1 ? slot.dispatch(field->handle, field->stream)
                           : slot.update(field->handle, field->stream);
            field->sync();
        });

        /* the call ends at its limit, or the end of the process was seen before it began */
        if (rc == ncclSuccess) {
            EXPECT_GT(waited, 0.95);
            EXPECT_LT(waited, 1.4);
        } else {
            EXPECT_EQ(rc, ncclSystemError);
            EXPECT_LT(waited, 0.5);
        }
        EXPECT_EQ(field->bits() & 1, 1);
        EXPECT_EQ(slot.combine(field->handle, field->stream), ncclSystemError);
        expect_sentence({"rank 1"});
        if (rc == ncclSuccess)
            expect_sentence({"limit 1000 ms", call == 1 ? "dispatch call" : "update call"});
        else
            expect_sentence({"its connection was closed"});
        EXPECT_EQ(swl_gpu_pending_error(), cudaSuccess);
        EXPECT_LT(seconds_of([&] { EXPECT_EQ(ncclEpHandleDestroy(field->handle), ncclSuccess); }),
                  2.0);
        /* collective: rank 1 is not there, which may be an error but no hang */
        EXPECT_LT(seconds_of([&] { ncclEpGroupDestroy(field->group); }), 6.0);
        EXPECT_LT(seconds_of([&] { EXPECT_EQ(ncclCommAbort(own.rank.comm), ncclSuccess); }), 10.0);
        return 5;
    });

    EXPECT_EQ(codes, (std::vector<int>{5, -1 - SIGKILL}));
}

TEST_F(Processes, F09_ShutDownAfterARankWasKilledBeforeDispatch)
{
    shut_down_after_a_kill(1);
}

TEST_F(Processes, F09_ShutDownAfterARankWasKilledBeforeUpdate)
{
    shut_down_after_a_kill(0);
}

int current_device()
{
    int device = -1;

    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    return device;
}

/* One exact step and one refused call, with this device current; it stays current. */
void expect_device_kept(FieldRank &field, const FieldStep &step, int device)
{
    void *memory = nullptr;

    EXPECT_EQ(cudaSetDevice(field.self->device), cudaSuccess);
    FieldSlot slot(step, field.rank());

    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(slot.update(field.handle, field.stream), ncclSuccess) << swimlaneLastError();
    EXPECT_EQ(current_device(), device);
    EXPECT_EQ(slot.dispatch(field.handle, field.stream), ncclSuccess) << swimlaneLastError();
    EXPECT_EQ(current_device(), device);
    EXPECT_EQ(slot.combine(field.handle, field.stream), ncclSuccess) << swimlaneLastError();
    EXPECT_EQ(current_device(), device);
    EXPECT_EQ(ncclEpUpdateHandle(field.handle, nullptr, nullptr, field.stream),
              ncclInvalidArgument);
    EXPECT_EQ(current_device(), device);
    EXPECT_EQ(swimlaneMemAlloc(field.group, 4096, &memory), ncclSuccess) << swimlaneLastError();
    EXPECT_EQ(current_device(), device);
    EXPECT_EQ(swimlaneMemFree(field.group, memory), ncclSuccess);
    EXPECT_EQ(current_device(), device);
    EXPECT_EQ(field.bits(), 0);
    EXPECT_EQ(current_device(), device);
    EXPECT_EQ(cudaSetDevice(field.self->device), cudaSuccess);
    field.sync();
    EXPECT_EQ(slot.complaint(), "");
}

void with_device_lists(const std::vector<std::string> &lists, int ndevices)
{
    SCOPED_TRACE(lists[0] + " | " + lists[1]);
    const Job job(10 * second);
    const ProcessesPlace place = {lists, {0, 0}, {}};
    const std::vector<int> codes = run_processes(place, 60, [&](ProcessRank &own) {
        FieldStep step(job, 60);

        step.seal();
        {
            FieldRank field(job, &own.rank);

            EXPECT_EQ(current_device(), 0);
            for (int device = 0; device < ndevices; device++)
                expect_device_kept(field, step, device);
        }
        EXPECT_EQ(current_device(), 0);
        EXPECT_EQ(ncclCommDestroy(own.rank.comm), ncclSuccess);
        return 4;
    });

    EXPECT_EQ(codes, (std::vector<int>{4, 4}));
}

TEST_F(Processes, F60_EachSeesOneDevice)
{
    if (ngpus < 2)
        GTEST_SKIP() << "needs 2 GPUs";
    with_device_lists({"1", "0"}, 1);
}

TEST_F(Processes, F60_EachSeesThemInAnotherOrder)
{
    if (ngpus < 2)
        GTEST_SKIP() << "needs 2 GPUs";
    with_device_lists({"1,0", "0,1"}, 2);
}

} // namespace
