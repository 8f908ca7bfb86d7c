// ring_test.cc: windows of finished slots, and when their coordinator posts them.
#include "kernels/common/ring.cuh"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

namespace
{

TEST(Ring, WindowCountsWithoutAGap)
{
    for (const uint64_t from : {0ull, 1ull, 63ull, 64ull, 1000003ull, ~0ull - 9})
        for (uint32_t n = 0; n <= 64; n++) {
            const uint64_t bits = mask_bits(from, n);

            EXPECT_EQ(mask_run(bits, from), n);
            for (uint32_t i = 0; i < 64; i++)
                EXPECT_EQ((bits & mask_bit(from + i)) != 0, i < n);
            EXPECT_EQ(mask_run(bits & ~mask_bit(from + n / 2), from), n / 2);
        }
}

swl_shape rings_of(uint32_t slots, uint32_t chunk)
{
    swl_shape s = {};

    s.ring_slots = slots;
    s.chunk_slots = chunk;
    return s;
}

/* What a coordinator posts of a call of `count` slots from `begin` on, when `arrive` more are
 * finished before each of its looks. */
std::vector<uint32_t> posts(const swl_shape &s, uint64_t begin, uint32_t count, uint32_t arrive)
{
    const uint64_t end = begin + count;
    uint64_t sent = begin, finished = begin;
    std::vector<uint32_t> all;

    while (sent != end) {
        const uint64_t more = finished + arrive, most = sent + s.ring_slots;

        finished = std::min(std::min(more, most), end); /* each posted slot is freed at once */
        const uint32_t ready = (uint32_t)(finished - sent);
        const uint32_t n = slots_to_post(&s, ready, begin, sent, end);

        EXPECT_LE(n, ready);
        EXPECT_LE(n, s.chunk_slots);
        EXPECT_LE(sent % s.ring_slots + n, s.ring_slots) << "a write would wrap";
        EXPECT_TRUE(n || (ready < s.chunk_slots && sent + ready != end)) << "held back for ever";
        if (::testing::Test::HasFailure())
            break;
        sent += n;
        if (n)
            all.push_back(n);
    }
    return all;
}

TEST(Ring, PostsTheFirstSlotAtOnceAndThenMore)
{
    const swl_shape s = rings_of(64, 8);

    EXPECT_EQ(posts(s, 0, 40, 1), (std::vector<uint32_t>{1, 1, 2, 4, 8, 8, 8, 8}));
    EXPECT_EQ(posts(s, 64, 8, 1), (std::vector<uint32_t>{1, 1, 2, 4}));
    EXPECT_EQ(posts(s, 64, 7, 1), (std::vector<uint32_t>{7})) << "too few to be worth it";
    EXPECT_EQ(posts(s, 0, 1, 1), (std::vector<uint32_t>{1}));
    EXPECT_EQ(posts(s, 0, 20, 64), (std::vector<uint32_t>{8, 8, 4})) << "what is there is posted";
    EXPECT_EQ(posts(s, 62, 12, 12), (std::vector<uint32_t>{2, 8, 2})) << "cut where the ring ends";
    EXPECT_EQ(slots_to_post(&s, 0, 5, 5, 9), 0u);
    EXPECT_EQ(slots_to_post(&s, 7, 0, 8, 40), 0u) << "a chunk is waited for";
    EXPECT_EQ(slots_to_post(&s, 7, 0, 8, 15), 7u) << "nothing more will come";
}

TEST(Ring, AnySequencePostsEverything)
{
    for (uint32_t slots = 2; slots <= 64; slots *= 2)
        for (uint32_t chunk = 1; chunk <= slots / 2; chunk *= 2)
            for (uint64_t begin : {0ull, 5ull, (1ull << 32) - 3})
                for (uint32_t arrive : {1u, 3u, 7u, 64u})
                    for (uint32_t count : {1u, 2u, 63u, 64u, 200u}) {
                        const swl_shape s = rings_of(slots, chunk);
                        uint64_t sum = 0;

                        for (uint32_t n : posts(s, begin, count, arrive))
                            sum += n;
                        EXPECT_EQ(sum, count) << slots << " " << chunk << " " << begin;
                        if (HasFailure())
                            return;
                    }
}

} // namespace
