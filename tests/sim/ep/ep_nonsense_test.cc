// ep_nonsense_test.cc: what another node writes is nonsense, in every field that crosses the
// border. It is never more than a fault with a sentence: nothing outside of the rings is touched,
// nobody waits for ever, and the ranks recover. The software NIC lets a chosen field arrive
// changed.
#include "tests/sim/ep/ep_failure.h"

extern "C" {
#include "src/group/group.h"
}

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace
{

// Bytes of an element, or how many there are.
using of_shape = uint64_t (*)(const struct swl_shape *s);
const of_shape word = [](const struct swl_shape *) -> uint64_t { return 8; };
const of_shape slot_bytes = [](const struct swl_shape *s) -> uint64_t { return swl_slot_bytes(s); };
const of_shape request_bytes = [](const struct swl_shape *s) -> uint64_t {
    return swl_request_bytes(s);
};
const of_shape partial_bytes = [](const struct swl_shape *s) -> uint64_t {
    return swl_partial_bytes(s);
};
const of_shape count_bytes = [](const struct swl_shape *s) -> uint64_t {
    return 4ull * swl_count_words(s);
};
const of_shape base_bytes = [](const struct swl_shape *s) -> uint64_t {
    return 4ull * s->max_local;
};
const of_shape fix_bytes = [](const struct swl_shape *s) -> uint64_t {
    return 4ull * s->max_local * s->nlocal_experts;
};
const of_shape one = [](const struct swl_shape *) -> uint64_t { return 1; };
const of_shape in_slots = [](const struct swl_shape *s) -> uint64_t {
    return (uint64_t)s->nserved * s->nrings * s->ring_slots;
};
const of_shape out_slots = [](const struct swl_shape *s) -> uint64_t {
    return (uint64_t)swl_remote_nodes(s) * s->nrings * s->ring_slots;
};
const of_shape in_words = [](const struct swl_shape *s) -> uint64_t {
    return (uint64_t)s->nserved * s->nrings;
};
const of_shape out_words = [](const struct swl_shape *s) -> uint64_t {
    return (uint64_t)swl_remote_nodes(s) * s->nrings;
};
const of_shape sources = [](const struct swl_shape *s) -> uint64_t { return s->nserved; };
const of_shape nodes = [](const struct swl_shape *s) -> uint64_t { return swl_remote_nodes(s); };

// A field of the elements of a region of the window that NICs write, or a word that they add to.
struct Field {
    const char *name;
    size_t region;          // of its offset in swl_window
    of_shape stride, count; // of elements
    uint64_t at;
    uint32_t bytes;
    uint64_t most; // a larger value is named as such; UINT64_MAX: other checks see it, or none
};

constexpr uint32_t nlocal = 2, nexperts = 2; // of a node; of a rank
constexpr uint64_t any = UINT64_MAX;
constexpr uint64_t sel = sizeof(struct swl_slot_head), row = sizeof(struct swl_request);

const Field messages[] = {
    {"slot.gen_call", offsetof(swl_window, ht.recv_ring), slot_bytes, in_slots, 0, 8, any},
    {"slot.token", offsetof(swl_window, ht.recv_ring), slot_bytes, in_slots, 8, 4, any},
    {"slot.n", offsetof(swl_window, ht.recv_ring), slot_bytes, in_slots, 12, 4, any},
    {"slot.row", offsetof(swl_window, ht.recv_ring), slot_bytes, in_slots, sel, 4, 255},
    {"slot.expert", offsetof(swl_window, ht.recv_ring), slot_bytes, in_slots, sel + 4, 4,
     nexperts - 1},
    {"slot.weight", offsetof(swl_window, ht.recv_ring), slot_bytes, in_slots, sel + 8, 4, any},
    {"slot.gpu", offsetof(swl_window, ht.recv_ring), slot_bytes, in_slots, sel + 12, 2, nlocal - 1},
    {"slot.k", offsetof(swl_window, ht.recv_ring), slot_bytes, in_slots, sel + 14, 2, any},
    {"request.gen_call", offsetof(swl_window, ht.request_in), request_bytes, in_slots, 0, 8, any},
    {"request.token", offsetof(swl_window, ht.request_in), request_bytes, in_slots, 8, 4, any},
    {"request.n", offsetof(swl_window, ht.request_in), request_bytes, in_slots, 12, 4, any},
    {"request.row", offsetof(swl_window, ht.request_in), request_bytes, in_slots, row, 4, 255},
    {"request.gpu", offsetof(swl_window, ht.request_in), request_bytes, in_slots, row + 4, 4,
     nlocal - 1},
    {"partial", offsetof(swl_window, ht.partial_in), partial_bytes, out_slots, 0, 8, any},
    {"counts.tokens", offsetof(swl_window, counts_in), count_bytes, sources, 0, 4, 16},
    {"counts.selections", offsetof(swl_window, counts_in), count_bytes, sources, 4 * nlocal, 4, 16},
    {"counts.slots", offsetof(swl_window, counts_in), count_bytes, sources,
     4 * nlocal *(1 + nexperts), 4, 16},
    {"base", offsetof(swl_window, bases_in), base_bytes, nodes, 0, 4, 16 * 4},
};
const Field counters[] = {
    {"send_credit", offsetof(swl_window, ht.send_credit), word, out_words, 0, 8, any},
    {"request_credit", offsetof(swl_window, ht.request_credit), word, out_words, 0, 8, any},
    {"partial_tail", offsetof(swl_window, ht.partial_tail), word, out_words, 0, 8, any},
    {"bases_tail", offsetof(swl_window, bases_tail), word, nodes, 0, 8, any},
    {"recv_tail", offsetof(swl_window, ht.recv_tail), word, in_words, 0, 8, any},
    {"request_tail", offsetof(swl_window, ht.request_tail), word, in_words, 0, 8, any},
    {"partial_credit", offsetof(swl_window, ht.partial_credit), word, in_words, 0, 8, any},
    {"counts_tail", offsetof(swl_window, counts_tail), word, sources, 0, 8, any},
};

struct Spoil {
    ncclEpGroup_t groups[4] = {}; // while they live
    const Field *field = nullptr;
    uint64_t value = 0;
    bool armed = false;
};
Spoil spoil;

// Change the first such field that lands whole.
void spoil_field(void *, void *to, uint64_t bytes)
{
    for (ncclEpGroup_t group : spoil.groups) {
        if (!spoil.armed || !group)
            continue;
        const struct swl_shape *shape = &group->plan.shape;
        uint64_t region = 0;

        memcpy(&region, reinterpret_cast<char *>(&group->plan.at) + spoil.field->region,
               sizeof(region));
        char *first = static_cast<char *>(group->window.base) + region + spoil.field->at;

        for (uint64_t i = 0; i < spoil.field->count(shape) && spoil.armed; i++) {
            char *at = first + i * spoil.field->stride(shape);

            if (at < to || at + spoil.field->bytes > static_cast<char *>(to) + bytes)
                continue;
            if (spoil.field->bytes == 8) // lanes may be looking at it
                __atomic_store_n(reinterpret_cast<uint64_t *>(at), spoil.value, __ATOMIC_RELAXED);
            else
                memcpy(at, &spoil.value, spoil.field->bytes);
            spoil.armed = false;
        }
    }
}

struct Spoiled : FailingRank {
    bool told = false; // beyond its bound

    Spoiled(const swl_rank *rank) : FailingRank(rank, 0)
    {
        spoil.groups[rank->rank] = group;
        expect_comm_works(rank);
    }
    ~Spoiled()
    {
        spoil.groups[self->rank] = nullptr;
    }
    void listen()
    {
        if (bits() & ASYNC_TIMEOUT) {
            EXPECT_EQ(update(), ncclSystemError);
            told = told || strstr(swimlaneLastError(), "out of bounds");
        }
    }
    // Two steps, of which the first meets the value and either may fail; within the limits.
    void steps_with(const Field *field, uint64_t value, bool lands = true)
    {
        told = false;
        expect_comm_works(self); // nobody is in a call of before
        if (self->rank == 0) {
            spoil.field = field;
            spoil.value = value;
            spoil.armed = true;
        }
        for (int i = 0; i < 2; i++) {
            const uint64_t began = swl_gpu_now_ns();

            expect_comm_works(self);
            route_everywhere();
            (void)step(); // a rank that was told refuses
            sync();
            EXPECT_LE(swl_gpu_now_ns() - began, 3 * failure_most_ns);
            expect_comm_works(self);
            EXPECT_FALSE(spoil.armed && lands) << "no such field has landed";
            listen();
        }
        expect_comm_works(self);
        if (self->rank == 0)
            spoil.armed = false;
    }
};

class EpNonsense : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        swl_host_spoil(spoil_field, nullptr);
    }
    void TearDown() override
    {
        swl_host_spoil(nullptr, nullptr);
        spoil = Spoil();
    }
};

std::string field_name(const ::testing::TestParamInfo<Field> &info)
{
    std::string name;

    for (const char *c = info.param.name; *c; c++)
        name += isalnum(*c) ? *c : '_';
    return name;
}

const uint64_t values[] = {2, 17, 100, 0xffff, 0x10000000, 0x7ffffff0, 0xffffffff, 1ull << 40, any};

class EpNonsenseMessage : public EpNonsense, public ::testing::WithParamInterface<Field>
{
};

TEST_P(EpNonsenseMessage, D_E5_IsAFaultWithASentenceAtMost)
{
    const Field field = GetParam();

    on_ranks({2, 2}, [&field](swl_rank *rank) {
        Spoiled s(rank);

        s.exact_steps(1);
        for (uint64_t value : values) {
            const uint64_t seen = field.bytes < 8 ? value & ((1ull << 8 * field.bytes) - 1) : value;

            if (field.bytes < 8 && seen != value)
                continue;
            SCOPED_TRACE(testing::Message() << field.name << " " << value);
            s.steps_with(&field, value);
            const std::vector<int> all = said_by_all(rank, s.told);

            if (field.most != any) {
                EXPECT_EQ(std::count(all.begin(), all.end(), 1) > 0, seen > field.most);
            }
            s.clear();
            s.exact_steps(2);
            if (testing::Test::HasFailure())
                return;
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Fields, EpNonsenseMessage, ::testing::ValuesIn(messages), field_name);

// Counts that have been changed do not come right again; the group goes on to say so.
class EpNonsenseCount : public EpNonsense, public ::testing::WithParamInterface<Field>
{
};

TEST_P(EpNonsenseCount, D_E5_IsAFaultWithASentenceAtMost)
{
    const Field field = GetParam();

    for (uint64_t value : {static_cast<uint64_t>(1), static_cast<uint64_t>(1000),
                           static_cast<uint64_t>(1) << 40, any})
        on_ranks({2, 2}, [&field, value](swl_rank *rank) {
            Spoiled s(rank);

            SCOPED_TRACE(testing::Message() << field.name << " " << value);
            s.exact_steps(1);
            s.steps_with(&field, value);
        });
}

INSTANTIATE_TEST_SUITE_P(Fields, EpNonsenseCount, ::testing::ValuesIn(counters), field_name);

// After an update that failed: no later call may use the routing that it has stored.
void expect_no_handle(GroupStep &s, const swl_rank *rank)
{
    enum { BAD_HANDLE = 8 };
    int64_t rows = 0;

    EXPECT_EQ(swimlaneHandleRecvCount(s.handle, &rows), ncclSuccess);
    EXPECT_EQ(ncclEpErrorClear(s.group), ncclSuccess);
    expect_comm_works(rank);
    if (s.dispatch() != ncclSuccess) // another rank has found out before
        expect_sentence({"another rank gave up"});
    s.sync();
    expect_comm_works(rank);
    const int bits = s.bits();

    EXPECT_TRUE(bits & ASYNC_TIMEOUT) << "the call comes through on rank " << rank->rank;
    if (bits & BAD_HANDLE) {
        EXPECT_EQ(rows, -1) << "rows of an update that failed are shown";
    }
    const std::vector<int> bad = said_by_all(rank, bits & BAD_HANDLE);

    EXPECT_EQ(*std::max_element(bad.begin(), bad.end()), BAD_HANDLE);
}

// Rows beyond the budget are dropped, so that the third trip of an update takes place.
TEST_F(EpNonsense, D_E5_CountsOfTheThirdTripAreBounded)
{
    const Field field = {"fix", offsetof(swl_window, overflow_in), fix_bytes, sources, 0, 4, 16};

    on_ranks({2, 2}, [&field](swl_rank *rank) {
        ncclEpGroupConfig_t config = failure_config(rank->nranks, 0);

        config.max_recv_tokens_per_rank = 20;
        config.overflow_policy = NCCL_EP_OVERFLOW_DROP;
        GroupStep s(rank, config);

        spoil.groups[rank->rank] = s.group;
        std::fill(s.ids.begin(), s.ids.end(), -1);
        for (size_t t = 0; t < GroupStep::tokens; t++)
            s.ids[t * GroupStep::topk] = 1; // all to rank 0
        for (uint64_t value : {static_cast<uint64_t>(0), static_cast<uint64_t>(0x10000000)}) {
            expect_comm_works(rank);
            // rank 1 is of rank 0's own node: its tokens stay away, so that rank 2 crosses the
            // budget
            if (rank->rank == 1)
                std::fill(s.ids.begin(), s.ids.end(), -1);
            if (rank->rank == 0) {
                spoil.field = &field;
                spoil.value = value;
                spoil.armed = true;
            }
            expect_comm_works(rank);
            EXPECT_EQ(s.update(), ncclSuccess) << swimlaneLastError();
            s.sync();
            expect_comm_works(rank);
            EXPECT_FALSE(spoil.armed) << "no third trip";
            EXPECT_EQ(s.bits() != 0, value != 0);
            if (value != 0)
                expect_no_handle(s, rank);
            EXPECT_EQ(ncclEpErrorClear(s.group), ncclSuccess);
        }
        expect_comm_works(rank);
        spoil.groups[rank->rank] = nullptr;
    });
}

// Marks of a recovery, and the words that tell of a failure.
TEST_F(EpNonsense, D_E5_MarksAndPoisonAreAFaultWithASentenceAtMost)
{
    const Field slot = messages[0];
    const Field words[] = {
        {"forth_mark", offsetof(swl_window, ht.forth_mark), word, in_words, 0, 8, any},
        {"back_mark", offsetof(swl_window, ht.back_mark), word, out_words, 0, 8, any},
        {"poison", offsetof(swl_window, poison), word, one, 0, 8, any},
    };

    for (const Field &field : words)
        for (uint64_t value : {static_cast<uint64_t>(0), static_cast<uint64_t>(7),
                               static_cast<uint64_t>(3) << 32, any})
            on_ranks({2, 2}, [&](swl_rank *rank) {
                Spoiled s(rank);

                SCOPED_TRACE(testing::Message() << field.name << " " << value);
                s.exact_steps(1);
                s.steps_with(&slot, 3);
                s.clear();
                s.steps_with(&field, value, false);
                s.steps_with(&slot, 3, false);
            });
}

} // namespace
