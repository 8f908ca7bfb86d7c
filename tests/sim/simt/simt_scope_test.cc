/* Tests of word primitives and their checks: sim/simt_scope.cc, sim/device.h. */
#include "tests/sim/simt/simt_fixture.h"

#include <math.h>

namespace
{

class SimtScope : public SimtTest
{
  protected:
    /* One lane of (gpu 0, block 0) writes, one of `reader` reads until it sees the word. */
    std::string hand_over(int reader_gpu, int reader_block, std::function<void(uint64_t *)> write,
                          std::function<uint64_t(uint64_t *)> read, int *rc_p)
    {
        static uint64_t word;
        auto body = [&](int gpu) {
            if (lane_id() || warp_id() > 1)
                return;
            bool writer = gpu == 0 && block_id() == 0 && warp_id() == 0;
            bool reader = gpu == reader_gpu && block_id() == reader_block && warp_id() == 1;

            if (writer)
                write(&word);
            if (reader)
                WAIT_UNTIL(read(&word), "test: word");
        };

        word = 0;
        return report(
            {{0, 2, 64, [&] { body(0); }, "first"}, {1, 2, 64, [&] { body(1); }, "second"}}, rc_p);
    }
};

TEST_F(SimtScope, EachScopeReachesItsReaders)
{
    struct {
        int gpu, block, scope; /* smallest scope that is enough */
    } readers[] = {{0, 0, 0}, {0, 1, 1}, {1, 0, 2}};

    for (auto &reader : readers)
        for (int written = 0; written < 3; written++)
            for (int seen = 0; seen < 3; seen++) {
                int rc;
                std::string text = hand_over(
                    reader.gpu, reader.block,
                    [&](uint64_t *w) {
                        if (written == 0)
                            publish_in_block(w, 1);
                        else if (written == 1)
                            publish_in_gpu(w, 1);
                        else
                            publish_to_peer(w, 1);
                    },
                    [&](uint64_t *w) {
                        return seen == 0   ? read_in_block(w)
                               : seen == 1 ? read_in_gpu(w)
                                           : read_from_peer(w);
                    },
                    &rc);
                bool good = written >= reader.scope && seen >= reader.scope;

                EXPECT_EQ(rc, good ? 0 : 1) << written << seen << reader.scope << text;
                EXPECT_EQ(simt_stats().faults > 0, !good);
                EXPECT_EQ(text.find("too small a scope") == std::string::npos, good) << text;
            }
}

TEST_F(SimtScope, AViolationNamesBothPlaces)
{
    int rc, write_line = 0, read_line = 0;
    std::string text = hand_over(
        1, 1,
        [&](uint64_t *w) {
            write_line = __LINE__ + 1;
            publish_in_gpu(w, 1);
        },
        [&](uint64_t *w) {
            read_line = __LINE__ + 1;
            return read_from_peer(w);
        },
        &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("gpu 1 second block 1 warp 1 lane 0"), std::string::npos) << text;
    EXPECT_NE(text.find("gpu 0 first block 0"), std::string::npos) << text;
    for (int line : {write_line, read_line})
        EXPECT_NE(text.find("simt_scope_test.cc:" + std::to_string(line)), std::string::npos)
            << text;
}

TEST_F(SimtScope, ForgottenMemoryHasNoWriter)
{
    static uint64_t word;
    int rc;

    word = 0;
    ASSERT_EQ(run({{0, 1, 32, [&] { publish_in_block(&word, uint64_t(1)); }}}), 0);
    report({{1, 1, 32, [&] { read_from_peer(&word); }}}, &rc);
    EXPECT_EQ(rc, 1);
    simt_forget_memory(&word, sizeof(word));
    EXPECT_EQ(run({{1, 1, 32, [&] { read_from_peer(&word); }}}), 0);
}

TEST_F(SimtScope, ALaneMustNotStoreToANicWord)
{
    static uint64_t words[4];
    int rc;

    simt_nic_word(&words[1], 16);
    EXPECT_EQ(run(1, 32, [&] { add_to_peer(&words[3], 1); }), 0);
    EXPECT_EQ(run(1, 32,
                  [&] {
                      order_before_publish(SWL_SCOPE_SYS);
                      nic_add(&words[1], 1);
                  }),
              0);
    EXPECT_EQ(run(1, 32, [&] { read_from_nic(&words[1]); }), 0);
    std::string text = report(
        1, 32, [&] { publish_to_peer(&words[2], uint64_t(0)); }, &rc);
    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("a NIC adds to"), std::string::npos) << text;
    simt_forget_memory(words, sizeof(words));
    EXPECT_EQ(run(1, 32, [&] { publish_to_peer(&words[2], uint64_t(0)); }), 0);
}

TEST_F(SimtScope, AddsOfANicOnBlocksNeedAFence)
{
    static uint64_t word;
    int rc;
    std::string text = report(
        1, 32, [&] { nic_add(&word, 1); }, &rc);

    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("nic_add without order_before_publish"), std::string::npos) << text;
}

TEST_F(SimtScope, PostsNeedAFenceAfterTheLastDataStore)
{
    static uint64_t word;
    static vec16 data;
    int rc;

    EXPECT_EQ(run(1, 32,
                  [&] {
                      store_data(&data, vec16{});
                      order_before_publish(SWL_SCOPE_SYS);
                      post_to_peer(&word, 1);
                      post_to_peer(&word, 2);
                  }),
              0);
    report(
        1, 32, [&] { post_to_peer(&word, 1); }, &rc);
    EXPECT_EQ(rc, 1);
    report(
        1, 32,
        [&] {
            order_before_publish(SWL_SCOPE_GPU);
            post_to_peer(&word, 1);
        },
        &rc);
    EXPECT_EQ(rc, 1);
    std::string text = report(
        1, 32,
        [&] {
            order_before_publish(SWL_SCOPE_SYS);
            store_data(&data, vec16{});
            post_to_peer(&word, 1);
        },
        &rc);
    EXPECT_EQ(rc, 1);
    EXPECT_NE(text.find("post_to_peer without order_before_publish"), std::string::npos) << text;
}

TEST_F(SimtScope, WordPrimitivesReturnTheOldValue)
{
    uint32_t word = 5;
    uint64_t wide = 1ull << 40;
    std::vector<uint64_t> got;

    ASSERT_EQ(run(1, 32,
                  [&] {
                      if (lane_id())
                          return;
                      got = {add_in_gpu(&word, 3u),         or_in_block(&word, 16u),
                             and_in_gpu(&word, 0x1cu),      cas_in_block(&word, 1u, 2u),
                             cas_in_gpu(&word, 24u, 9u),    read_in_block(&word),
                             add_to_peer(&wide, 2),         read_from_host(&wide),
                             add_relaxed_in_gpu(&word, 4u), load_relaxed_in_gpu(&word)};
                  }),
              0);
    EXPECT_EQ(got,
              (std::vector<uint64_t>{5, 8, 24, 24, 24, 9, 1ull << 40, (1ull << 40) + 2, 9, 13}));
}

TEST_F(SimtScope, NarrowFloatsRoundToNearestEven)
{
    EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
    EXPECT_EQ(float_to_bf16(simt_bits_float(0x3f808000)), 0x3f80);
    EXPECT_EQ(float_to_bf16(simt_bits_float(0x3f818000)), 0x3f82);
    EXPECT_EQ(float_to_bf16(simt_bits_float(0x3f808001)), 0x3f81);
    EXPECT_EQ(float_to_bf16(3.4e38f), 0x7f80);
    EXPECT_EQ(float_to_bf16(-NAN), 0x7fff);
    EXPECT_EQ(float_to_half(-NAN), 0x7fff);
    EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
    EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
    EXPECT_EQ(float_to_half(-1e30f), 0xfc00);
    EXPECT_EQ(float_to_half(0x1p-24f), 1);
    EXPECT_EQ(float_to_half(0x1p-25f), 0);
    EXPECT_EQ(float_to_half(0x1.8p-24f), 2);
    EXPECT_EQ(float_to_half(-0.0f), 0x8000);
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float h = half_to_float(static_cast<uint16_t>(bits));

        if ((bits & 0x7fff) > 0x7c00) {
            EXPECT_TRUE(isnan(h));
            continue;
        }
        EXPECT_EQ(float_to_half(h), bits);
        /* halfway to the next larger magnitude rounds to the even one */
        if ((bits & 0x7fff) < 0x7bff) {
            float next = half_to_float(static_cast<uint16_t>(bits + 1));

            EXPECT_EQ(float_to_half((h + next) / 2), bits & 1 ? bits + 1 : bits);
        }
        EXPECT_EQ(bf16_to_float(float_to_bf16(bf16_to_float(static_cast<uint16_t>(bits)))) ==
                      bf16_to_float(static_cast<uint16_t>(bits)),
                  (bits & 0x7fff) <= 0x7f80);
    }
    EXPECT_EQ(first_bit(0u), -1);
    EXPECT_EQ(first_bit(uint64_t(1) << 40), 40);
    EXPECT_EQ(count_bits(~uint64_t(0)), 64);
}

} // namespace
