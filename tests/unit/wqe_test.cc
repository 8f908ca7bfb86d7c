// Tests of transport/wqe.h that need no other description: indices, doorbells, completions.
#include "transport/wqe.h"

#include <gtest/gtest.h>

TEST(Wqe, IndexAfterFollowsTheSixteenBitsAcrossEveryWrap)
{
    const uint64_t starts[] = {
        0, 1, 0xfffd, 0xffff, 0x10000, 0xfffffffdull, 0x100000000ull, 0x123456789abcffffull};

    for (uint64_t from : starts)
        for (uint64_t step : {0ull, 1ull, 2ull, 3ull, 127ull, 32767ull, 65535ull})
            EXPECT_EQ(swl_index_after(from, static_cast<uint32_t>(from + step) & 0xffffu),
                      from + step);
}

TEST(Wqe, IndexIsTruncatedToSixteenBitsOnTheWire)
{
    struct swl_wqe w;

    swl_wqe_nop(&w, 0x1234500ffull, 0xabcdef);
    EXPECT_EQ(swl_wqe_index(&w), 0x00ffu);
    EXPECT_EQ(swl_wqe_qpn(&w), 0xabcdefu);
    EXPECT_EQ(swl_wqe_opcode(&w), static_cast<uint32_t>(SWL_WQE_NOP));
    EXPECT_EQ(swl_wqe_segments(&w), 1u);
}

TEST(Wqe, DoorbellCarriesOnePastTheLastIndexAndTheQueue)
{
    for (uint64_t end : {1ull, 0xffffull, 0x10000ull, 0x1ffffull, 0x10000000full}) {
        uint64_t d = swl_doorbell_value(end, 0x800123);

        EXPECT_EQ(swl_doorbell_index(d), end & 0xffff);
        EXPECT_EQ(swl_doorbell_qpn(d), 0x800123u);
        EXPECT_EQ(swl_be32(swl_dbr_value(end)), end & 0xffff);
    }
}

TEST(Wqe, CompletionIsDecodedFromItsLastWord)
{
    struct swl_cqe c;

    swl_cqe_make(&c, 0x7fffe, SWL_WQE_WRITE, 0x123456, 0);
    EXPECT_EQ(swl_cqe_opcode(c.word[SWL_CQE_LAST_WORD]), static_cast<uint32_t>(SWL_CQE_DONE));
    EXPECT_EQ(swl_cqe_index(c.word[SWL_CQE_LAST_WORD]), 0xfffeu);
    swl_cqe_make(&c, 0x10001, SWL_WQE_FETCH_ADD, 0x123456, SWL_SYNDROME_REMOTE_ACCESS);
    EXPECT_EQ(swl_cqe_opcode(c.word[SWL_CQE_LAST_WORD]), static_cast<uint32_t>(SWL_CQE_ERROR));
    EXPECT_EQ(swl_cqe_index(c.word[SWL_CQE_LAST_WORD]), 1u);
    EXPECT_EQ(swl_cqe_syndrome(c.word[SWL_CQE_SYNDROME_WORD]),
              static_cast<uint32_t>(SWL_SYNDROME_REMOTE_ACCESS));
}

TEST(Wqe, MemoryOfAllOnesIsNoCompletion)
{
    EXPECT_EQ(swl_cqe_opcode(UINT32_MAX), static_cast<uint32_t>(SWL_CQE_NONE));
}
