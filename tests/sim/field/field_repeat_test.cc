/* field_repeat_test.cc: the field report about long repetition: steps of 2 x 4 ranks that the host
 * never waits for, each rank held back at random. The long run has 200 pairs for each count. */
#include "tests/support/ep_bench.h"
#include "tests/support/field_slot.h"

namespace
{

void repeat(int tokens, int pairs)
{
    const std::string line = "--nodes 2 --ranks-per-node 4 --experts 32 --topk 8 --hidden 256 "
                             "--pipelined --warmup 0 --delay 200 --sms 4 --tokens " +
                             std::to_string(tokens);

    if (field_long()) { /* inputs of so many pairs are held at a time */
        const int held = tokens > 512 ? 4 : 20;

        for (int done = 0; done < 200; done += held)
            EXPECT_BENCH(line + " --iterations " + std::to_string(held) + " --seed " +
                         std::to_string(done + 1));
        return;
    }
    if (slow_build && tokens > 128)
        GTEST_SKIP() << "left to the build without sanitizer";
    EXPECT_BENCH(line + " --iterations " + std::to_string(slow_build ? 2 : pairs));
}

TEST(Field, F15_RepetitionStaysExactWith64Tokens)
{
    repeat(64, 10);
}

TEST(Field, F15_RepetitionStaysExactWith128Tokens)
{
    repeat(128, 10);
}

TEST(Field, F15_RepetitionStaysExactWith512Tokens)
{
    repeat(512, 10);
}

TEST(Field, F15_RepetitionStaysExactWith2048Tokens)
{
    repeat(2048, 1);
}

TEST(Field, F15_RepetitionStaysExactWith8192Tokens)
{
    if (!field_long())
        GTEST_SKIP() << "8192 tokens belong to the long run (SWL_TEST_LONG=1)";
    repeat(8192, 1);
}

} // namespace
