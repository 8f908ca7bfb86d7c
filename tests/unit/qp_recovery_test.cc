// qp_recovery_test.cc: queue pairs connected anew at both ends (qp_recovery.c), alone: queue pairs,
// positions and the channel are those of this test, and every step of every rank can fail, be late
// or be the last one.
#include "src/failure/qp_recovery.h"

#include "src/base/error.h"
#include "transport/nic.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace
{

const uint64_t limit_ns = 50000000;

// One end of a queue pair. Every reset gives it a new address, and nothing arrives at an older one.
struct End {
    uint32_t peer = 0;
    uint64_t key = 0, address = 1, connected_to = 1;
    bool broken = false, reset = false;
    uint64_t word[SWL_QP_RECOVERY_WORDS] = {}, counted[SWL_QP_RECOVERY_WORDS] = {};
};

struct World;

struct Rank {
    World *world = nullptr;
    uint32_t rank = 0;
    std::vector<End> ends;
    struct swl_qp_recovery *recovery = nullptr;
    std::deque<swl_control_message> in;
    int ops = 0, fail_at = -1; // the operation of this number fails
    bool ended = false;
    ncclResult_t result = ncclSuccess;
    std::string sentence;
};

struct World {
    std::vector<std::unique_ptr<Rank>> ranks;
    std::mt19937 random{1};
    size_t room = SIZE_MAX; // messages that wait for a rank
    int messages = 0,
        cut_at = -1; // the connection breaks instead of carrying the message of this number
    uint32_t cut[2] = {UINT32_MAX, UINT32_MAX};

    explicit World(uint32_t nranks, uint64_t links = 2);
    ~World();
    bool is_cut(uint32_t a, uint32_t b) const
    {
        return (cut[0] == a && cut[1] == b) || (cut[0] == b && cut[1] == a);
    }
    End &other(const End &e, uint32_t rank)
    {
        for (End &end : ranks[e.peer]->ends)
            if (end.peer == rank && end.key == e.key)
                return end;
        abort();
    }
};

Rank *rank_of(void *context)
{
    return static_cast<Rank *>(context);
}

ncclResult_t operation(Rank *r, const char *what)
{
    if (r->ops++ != r->fail_at)
        return ncclSuccess;
    return swl_fail(ncclSystemError, "test: %s fails", what);
}

ncclResult_t reset(void *context, uint32_t link, struct swl_nic_address *mine_p)
{
    Rank *r = rank_of(context);
    End &e = r->ends[link];

    if (operation(r, "reset") != ncclSuccess)
        return ncclSystemError;
    e.address++;
    e.connected_to = 0;
    e.reset = true;
    memset(mine_p, 0, sizeof(*mine_p));
    memcpy(mine_p->bytes, &e.address, sizeof(e.address));
    return ncclSuccess;
}

ncclResult_t connect(void *context, uint32_t link, const struct swl_nic_address *theirs)
{
    Rank *r = rank_of(context);
    End &e = r->ends[link];

    EXPECT_TRUE(e.reset) << "connected without a reset";
    if (operation(r, "connect") != ncclSuccess)
        return ncclSystemError;
    memcpy(&e.connected_to, theirs->bytes, sizeof(e.connected_to));
    EXPECT_EQ(e.connected_to, r->world->other(e, r->rank).address) << "an old address";
    e.reset = e.broken = false;
    return ncclSuccess;
}

ncclResult_t read_words(void *context, uint32_t link, uint64_t words[SWL_QP_RECOVERY_WORDS])
{
    Rank *r = rank_of(context);
    End &e = r->ends[link];

    EXPECT_NE(e.connected_to, 0u) << "read before it is connected";
    if (operation(r, "read") != ncclSuccess)
        return ncclSystemError;
    memcpy(words, e.word, sizeof(e.word));
    return ncclSuccess;
}

ncclResult_t adopt(void *context, uint32_t link, const uint64_t words[SWL_QP_RECOVERY_WORDS])
{
    Rank *r = rank_of(context);

    if (operation(r, "adopt") != ncclSuccess)
        return ncclSystemError;
    memcpy(r->ends[link].counted, words, sizeof(r->ends[link].counted));
    return ncclSuccess;
}

bool send(void *context, uint32_t to, const struct swl_control_message *message)
{
    Rank *r = rank_of(context);
    World *w = r->world;
    swl_control_message m = *message;

    if (w->is_cut(r->rank, to) || w->ranks[to]->in.size() >= w->room)
        return false;
    if (w->messages++ == w->cut_at) {
        w->cut[0] = r->rank;
        w->cut[1] = to;
        return false;
    }
    m.from = static_cast<uint16_t>(r->rank);
    w->ranks[to]->in.push_back(m);
    return true;
}

const struct swl_qp_recovery_ops ops = {reset, connect, read_words, adopt, send};

World::World(uint32_t nranks, uint64_t nkeys)
{
    for (uint32_t r = 0; r < nranks; r++) {
        std::vector<swl_qp_recovery_connection> links;

        ranks.push_back(std::make_unique<Rank>());
        ranks[r]->world = this;
        ranks[r]->rank = r;
        for (uint64_t key = 0; key < nkeys; key++)
            for (uint32_t p = 0; p < nranks; p++) {
                End e;

                if (p == r)
                    continue;
                e.peer = p;
                e.key = key;
                ranks[r]->ends.push_back(e);
                links.push_back({p, key});
            }
        EXPECT_EQ(swl_qp_recovery_open(&ranks[r]->recovery, &ops, ranks[r].get(), links.data(),
                                       static_cast<uint32_t>(links.size())),
                  ncclSuccess);
    }
}

World::~World()
{
    for (const auto &r : ranks)
        swl_qp_recovery_close(r->recovery);
}

// Both ends have posted; of what the one at `r` has, `lost` adds have not come through.
void lose(World *w, Rank *r, size_t link, uint64_t lost)
{
    End &e = r->ends[link];
    End &o = w->other(e, r->rank);

    e.broken = true;
    for (uint64_t i = 0; i < SWL_QP_RECOVERY_WORDS; i++) {
        e.counted[i] += 10 * i + 7;
        o.word[i] = e.counted[i] - lost;
    }
}

void begin(Rank *r, uint64_t gen)
{
    std::vector<uint8_t> broken;

    for (const End &e : r->ends)
        broken.push_back(e.broken);
    r->ended = false;
    r->result = ncclSuccess;
    r->sentence.clear();
    swl_qp_recovery_begin(r->recovery, reinterpret_cast<const bool *>(broken.data()), gen);
}

void hear(Rank *r)
{
    for (uint32_t p = 0; p < r->world->ranks.size(); p++)
        if (r->world->is_cut(r->rank, p))
            swl_qp_recovery_gone(r->recovery, p);
    while (!r->in.empty()) {
        const swl_control_message m = r->in.front();

        r->in.pop_front();
        swl_qp_recovery_on_message(r->recovery, &m);
    }
}

void end(Rank *r, ncclResult_t rc)
{
    r->ended = true;
    r->result = rc;
    r->sentence = swl_last_error();
}

void step(Rank *r)
{
    bool done = false;

    hear(r);
    if (r->ended)
        return;
    const ncclResult_t rc = swl_qp_recovery_step(r->recovery, &done);

    if (rc != ncclSuccess || done)
        end(r, rc);
}

// Ranks move in any order until all have ended or nothing moves; then the limit passes for those in
// a round.
void run(World *w, const std::vector<uint32_t> &in_round, int turns = 4000)
{
    for (int i = 0; i < turns; i++)
        step(w->ranks[in_round[w->random() % in_round.size()]].get());
    for (uint32_t r : in_round)
        if (!w->ranks[r]->ended)
            end(w->ranks[r].get(), swl_qp_recovery_expire(w->ranks[r]->recovery, limit_ns));
}

std::vector<uint32_t> all_of(const World &w)
{
    std::vector<uint32_t> all;

    for (uint32_t r = 0; r < w.ranks.size(); r++)
        all.push_back(r);
    return all;
}

void expect_whole(World *w)
{
    for (const auto &r : w->ranks) {
        EXPECT_EQ(r->result, ncclSuccess) << "rank " << r->rank << ": " << r->sentence;
        for (const End &e : r->ends) {
            const End &o = w->other(e, r->rank);

            EXPECT_FALSE(e.broken);
            EXPECT_EQ(e.connected_to, o.address);
            for (uint64_t i = 0; i < SWL_QP_RECOVERY_WORDS; i++)
                EXPECT_EQ(e.counted[i], o.word[i]) << "counts what its peer has not got";
        }
    }
}

void begin_all(World *w, uint64_t gen = 1)
{
    for (const auto &r : w->ranks)
        begin(r.get(), gen);
}

// ---- what should happen ----

TEST(QpRecovery, BothEndsOfABrokenPairAreConnectedAnewAndAgree)
{
    for (unsigned seed = 0; seed < 200; seed++) {
        World w(2 + seed % 4, 1 + seed % 3);

        w.random.seed(seed);
        w.room = seed % 2 ? SIZE_MAX : 1; // a slow channel
        lose(&w, w.ranks[seed % w.ranks.size()].get(), 0, 1 + seed % 5);
        begin_all(&w);
        run(&w, all_of(w));
        expect_whole(&w);
        if (testing::Test::HasFailure())
            FAIL() << "seed " << seed;
    }
}

TEST(QpRecovery, HealthyPairsAreLeftAlone)
{
    World w(4);

    lose(&w, w.ranks[0].get(), 0, 3); // its queue pair of key 0 to rank 1
    begin_all(&w);
    run(&w, all_of(w));
    expect_whole(&w);
    for (const auto &r : w.ranks)
        for (const End &e : r->ends)
            EXPECT_EQ(e.address, (r->rank < 2 && e.peer < 2) ? 2u : 1u) << r->rank << e.peer;
}

TEST(QpRecovery, ManyRoundsOneAfterTheOther)
{
    World w(3);

    for (unsigned i = 0; i < 50; i++) {
        lose(&w, w.ranks[i % 3].get(), i % w.ranks[i % 3]->ends.size(), i % 4);
        begin_all(&w, i + 1);
        run(&w, all_of(w));
        expect_whole(&w);
    }
}

// ---- a rank that fails, at each of its steps ----

TEST(QpRecovery, AfterAFailureAnywhereAllEndAndTheNextRoundMends)
{
    int failures = 0;

    for (uint32_t victim = 0; victim < 3; victim++)
        for (int at = 0;; at++) {
            World w(3);

            w.random.seed(static_cast<unsigned>(at));
            for (const auto &r : w.ranks)
                for (size_t link = 0; link < 2; link++)
                    lose(&w, r.get(), link, 2);
            w.ranks[victim]->fail_at = at;
            begin_all(&w);
            run(&w, all_of(w));
            if (w.ranks[victim]->result == ncclSuccess)
                break; // fewer steps than that
            failures++;
            EXPECT_NE(w.ranks[victim]->sentence.find("test: "), std::string::npos);
            for (const auto &r : w.ranks) {
                EXPECT_TRUE(r->ended);
                if (r->rank != victim && r->result != ncclSuccess) {
                    EXPECT_NE(r->sentence.find("rank "), std::string::npos) << r->sentence;
                }
            }
            w.ranks[victim]->fail_at = -1;
            begin_all(&w, 2);
            run(&w, all_of(w));
            expect_whole(&w);
            if (testing::Test::HasFailure())
                FAIL() << "rank " << victim << " at operation " << at;
        }
    EXPECT_GE(failures, 3 * 16) << "four operations on each of four queue pairs";
}

TEST(QpRecovery, AStoppedPeerIsNamedAtOnce)
{
    World w(2, 1);

    lose(&w, w.ranks[0].get(), 0, 1);
    w.ranks[1]->fail_at = 1;
    begin_all(&w);
    run(&w, all_of(w));
    EXPECT_NE(w.ranks[0]->sentence.find("rank 1 has given up"), std::string::npos)
        << w.ranks[0]->sentence;
}

// ---- a connection that breaks instead of carrying the n-th message ----

TEST(QpRecovery, ABrokenConnectionEndsBothInTimeAndIsNamed)
{
    int cuts = 0;

    for (int at = 0;; at++) {
        World w(2, 2);

        lose(&w, w.ranks[0].get(), 0, 1);
        w.cut_at = at;
        begin_all(&w);
        run(&w, all_of(w));
        if (w.cut[0] == UINT32_MAX)
            break;
        cuts++;
        for (const auto &r : w.ranks) {
            EXPECT_TRUE(r->ended);
            if (r->result != ncclSuccess) {
                EXPECT_NE(r->sentence.find("rank " + std::to_string(1 - r->rank) +
                                           " cannot be connected anew: that rank is gone"),
                          std::string::npos)
                    << r->sentence;
            }
        }
        EXPECT_TRUE(w.ranks[0]->result != ncclSuccess || w.ranks[1]->result != ncclSuccess);
    }
    EXPECT_GE(cuts, 10);
}

// ---- a rank that does not come, comes late, or gives up and comes again ----

TEST(QpRecovery, WhoDoesNotComeIsNamed)
{
    World w(3);

    lose(&w, w.ranks[0].get(), 0, 1);
    begin(w.ranks[0].get(), 1);
    begin(w.ranks[2].get(), 1);
    run(&w, {0, 2});
    for (uint32_t r : {0u, 2u}) {
        EXPECT_EQ(w.ranks[r]->result, ncclSystemError);
        EXPECT_NE(w.ranks[r]->sentence.find("rank 1 has not come"), std::string::npos)
            << w.ranks[r]->sentence;
    }
    hear(w.ranks[1].get());
    EXPECT_TRUE(swl_qp_recovery_asked(w.ranks[1]->recovery));
}

TEST(QpRecovery, WhoGaveUpAtAnyMomentIsMetAgain)
{
    for (unsigned seed = 0; seed < 300; seed++) {
        World w(3);
        const uint32_t victim = seed % 3;

        w.random.seed(seed);
        for (const auto &r : w.ranks)
            lose(&w, r.get(), seed % r->ends.size(), 1 + seed % 3);
        begin_all(&w);
        for (unsigned i = 0; i < seed % 40; i++)
            step(w.ranks[w.random() % 3].get());
        if (!w.ranks[victim]->ended)
            end(w.ranks[victim].get(), swl_qp_recovery_expire(w.ranks[victim]->recovery, limit_ns));
        if (w.ranks[victim]->result == ncclSuccess)
            continue; // it had finished
        /* the others hear of it, or run into the limit; then all come again, one after the other */
        run(&w, all_of(w));
        for (const auto &r : w.ranks)
            begin(r.get(), 2);
        run(&w, all_of(w));
        expect_whole(&w);
        if (testing::Test::HasFailure())
            FAIL() << "seed " << seed;
    }
}

// One rank restarts while the other is in its first round: that one begins again with it, unless it
// had all it needed to finish. Then it knows that it has been asked, and comes again as well.
TEST(QpRecovery, APeerInANewRoundIsFollowed)
{
    for (unsigned seed = 0; seed < 100; seed++) {
        World w(2);

        w.random.seed(seed);
        lose(&w, w.ranks[0].get(), 0, 2);
        begin_all(&w);
        for (unsigned i = 0; i < 2 + seed % 10; i++)
            step(w.ranks[w.random() % 2].get());
        if (w.ranks[0]->ended || w.ranks[1]->ended)
            continue;
        begin(w.ranks[1].get(), 2); // without a word to the other
        run(&w, all_of(w));
        if (w.ranks[0]->result == ncclSuccess && w.ranks[1]->result != ncclSuccess) {
            EXPECT_TRUE(swl_qp_recovery_asked(w.ranks[0]->recovery));
            begin_all(&w, 3);
            run(&w, all_of(w));
        }
        expect_whole(&w);
        if (testing::Test::HasFailure())
            FAIL() << "seed " << seed;
    }
}

// One rank has all it needs and comes again before the other has heard the last message. That one's
// end was reset in a round which has not come to its end, so both must reset again, at once.
TEST(QpRecovery, D_A2_AnEndResetInAnOldRoundIsMendedInThePeersNewOne)
{
    World w(2, 1);
    Rank *first = w.ranks[0].get(), *second = w.ranks[1].get();

    lose(&w, first, 0, 2);
    begin_all(&w);
    step(first);
    while (!first->ended) {
        step(second);
        step(first);
    }
    ASSERT_EQ(first->result, ncclSuccess) << first->sentence;
    ASSERT_FALSE(second->ended);
    begin(first, 2);
    step(first); // its ASK comes together with the last message of the round before
    run(&w, all_of(w));
    expect_whole(&w);
}

// A rank gives up and comes again before the other has looked. The old round's STOP does not end
// the new one.
TEST(QpRecovery, D_A2_AStopCountsNoLongerWhenItsRankIsInANewRound)
{
    World w(2, 1);
    Rank *first = w.ranks[0].get(), *second = w.ranks[1].get();

    lose(&w, first, 0, 2);
    begin_all(&w);
    step(first);
    step(second);
    step(first); // the STOP is of its round
    end(second, swl_qp_recovery_expire(second->recovery, limit_ns));
    begin(second, 2);
    step(second);
    run(&w, all_of(w));
    expect_whole(&w);
}

TEST(QpRecovery, MessagesOfStrangersAndOfOtherRoundsAreIgnored)
{
    World w(2, 1);
    swl_control_message m = {};

    begin_all(&w);
    m.from = 9;
    m.kind = SWL_QP_RECOVERY_ASK;
    swl_qp_recovery_on_message(w.ranks[0]->recovery, &m);
    m.from = 1;
    for (int kind = SWL_QP_RECOVERY_ADDRESS; kind <= SWL_QP_RECOVERY_STOP; kind++) {
        m.kind = static_cast<uint16_t>(kind);
        m.value[0] = 77;
        m.value[1] = 78;
        swl_qp_recovery_on_message(w.ranks[0]->recovery, &m);
    }
    run(&w, all_of(w));
    expect_whole(&w);
}

} // namespace
