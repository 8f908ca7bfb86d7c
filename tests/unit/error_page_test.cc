// error_page_test.cc: which error words count for a rank, before and after ErrorClear and the
// recovery.
#include "src/failure/error_page.h"

#include "kernels/common/faults.h"

#include <gtest/gtest.h>

namespace
{

struct Node {
    uint64_t words[3] = {};
    struct swl_error_page page = {};
    uint64_t clears = 0, settled = swl_settled_word(0, 1);

    Node()
    {
        page.memory.ptr = words;
        page.nwords = 3;
    }
    bool rings()
    {
        return swl_error_page_is_set(&page, clears, settled);
    }
    void clear()
    {
        swl_error_page_clear(&page, settled);
        clears++;
    }
    void kernel_ran(uint64_t gen)
    {
        settled = swl_settled_word(clears, gen);
    }
};

TEST(ErrorPage, IsSilentWhereNothingFailed)
{
    Node n;

    EXPECT_FALSE(n.rings());
    n.clear();
    EXPECT_FALSE(n.rings());
    n.kernel_ran(1);
    EXPECT_FALSE(n.rings());
}

TEST(ErrorPage, OfAnyRankOfTheNodeIsHeard)
{
    for (int i = 0; i < 3; i++) {
        Node n;

        n.words[i] = swl_poison_word(1, 7);
        EXPECT_TRUE(n.rings());
        EXPECT_EQ(swl_poison_missing(n.page.heard), 7u);
    }
}

TEST(ErrorPage, EndsWithTheClearAndStaysEnded)
{
    Node n;

    n.words[1] = swl_poison_word(1, 7);
    EXPECT_TRUE(n.rings());
    n.clear();
    EXPECT_FALSE(n.rings());
    n.kernel_ran(2);
    EXPECT_FALSE(n.rings());
}

// The rank had not heard of it when it cleared: it is the failure that all ranks clear.
TEST(ErrorPage, ThatComesLateDoesNotCount)
{
    Node n;

    n.clear();
    n.words[2] = swl_poison_word(1, SWL_NO_PEER);
    EXPECT_FALSE(n.rings());
    n.kernel_ran(2);
    EXPECT_FALSE(n.rings());
}

TEST(ErrorPage, OfAClearedFailureThatWasNoneHereCountsAgain)
{
    Node n;

    n.clear();
    n.kernel_ran(1); /* nothing to recover */
    n.words[0] = swl_poison_word(1, 2);
    EXPECT_TRUE(n.rings());
}

// A peer has cleared, recovered and failed again before this rank called anything.
TEST(ErrorPage, OfAPeerThatIsAheadIsHeardBeforeTheNextCall)
{
    Node n;

    n.words[0] = swl_poison_word(1, 2);
    n.clear();
    n.words[1] = swl_poison_word(2, 0);
    EXPECT_TRUE(n.rings());
    n.clear();
    EXPECT_FALSE(n.rings());
    n.kernel_ran(3);
    EXPECT_FALSE(n.rings());
    n.words[2] = swl_poison_word(4, 0);
    EXPECT_TRUE(n.rings());
}

TEST(ErrorPage, OfAnOlderGenerationDoesNotHideANewerOne)
{
    Node n;

    n.kernel_ran(5);
    n.words[0] = swl_poison_word(5, 2);
    EXPECT_TRUE(n.rings());
    n.words[0] = swl_poison_word(4, 1); /* a late write of a peer that was behind */
    EXPECT_TRUE(n.rings());
    EXPECT_EQ(swl_poison_missing(n.page.heard), 2u);
}

} // namespace
