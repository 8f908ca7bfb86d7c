// fault_test.cc: the sentence of a fault record.
#include "src/failure/fault.h"

#include <gtest/gtest.h>

#include <string>

namespace
{

swl_fault_record sample()
{
    swl_fault_record r = {};

    r.kind = SWL_FAULT_LINK_ARRIVAL;
    r.role = SWL_WARP_RECEIVER;
    r.channel = 3;
    r.peer = 2;
    r.op = SWL_OP_DISPATCH;
    r.expected = 40;
    r.seen = 17;
    r.call = 7;
    r.waited_ns = 2000000000;
    return r;
}

std::string text_of(const swl_fault_record &r, uint64_t limit_ns = 2000000000)
{
    char text[400];

    swl_fault_text(&r, 1, limit_ns, text, sizeof(text));
    return text;
}

TEST(FaultText, F65NamesEverythingThatHelps)
{
    EXPECT_EQ(text_of(sample()),
              "dispatch call 7: rank 1 (dispatch receiver, channel 3) gave up after 2000 ms (limit "
              "2000 ms): rank 2 has not delivered all rows, expected 40, seen 17");
}

TEST(FaultText, ShortLimitsAreInMicroseconds)
{
    swl_fault_record r = sample();

    r.waited_ns = 1500000;
    EXPECT_NE(text_of(r, 1500000).find("after 1500 us (limit 1500 us)"), std::string::npos);
}

TEST(FaultText, LastEntryOfThePeerIsAdded)
{
    swl_fault_record r = sample();

    r.peer_entry = (uint64_t)1 << 48 | 6;
    EXPECT_NE(text_of(r).find("entering call 6"), std::string::npos);
}

TEST(FaultText, UpdatesHaveOtherNumbersThanTheCallsThatAPeerEnters)
{
    swl_fault_record r = sample();

    r.op = SWL_OP_UPDATE;
    r.peer_entry = (uint64_t)1 << 48 | 6;
    EXPECT_NE(text_of(r).find("entering dispatch or combine call 6"), std::string::npos);
}

TEST(FaultText, OwnEntryIsNotShown)
{
    swl_fault_record r = sample();

    r.peer = 1;
    r.peer_entry = (uint64_t)1 << 48 | 6;
    EXPECT_EQ(text_of(r).find("last seen"), std::string::npos);
}

TEST(FaultText, PositionsAreShownWithoutGeneration)
{
    swl_fault_record r = sample();

    r.expected = (uint64_t)1 << 48 | 7;
    r.seen = (uint64_t)1 << 48 | 6;
    EXPECT_NE(text_of(r).find("expected 7, seen 6"), std::string::npos);
}

TEST(FaultText, AWordOfAnOlderGenerationIsNotThePositionThatWasExpected)
{
    swl_fault_record r = sample();

    r.expected = (uint64_t)1 << 48;
    r.seen = 0;
    EXPECT_NE(text_of(r).find("expected 0, seen nothing since the start"), std::string::npos);
    r.expected = (uint64_t)3 << 48 | 5;
    r.seen = (uint64_t)2 << 48 | 5;
    EXPECT_NE(text_of(r).find("expected 5, seen nothing since the last failure"),
              std::string::npos);
}

TEST(FaultText, SentencesHaveOneSubject)
{
    swl_fault_record r = sample();

    const uint32_t kinds[] = {SWL_FAULT_STAGE, SWL_FAULT_GRID, SWL_FAULT_QUEUE, SWL_FAULT_HANDLE,
                              SWL_FAULT_ABORT};

    for (uint32_t kind : kinds)
        for (uint32_t peer : {1u, SWL_NO_PEER}) {
            r.kind = kind;
            r.peer = peer;
            EXPECT_EQ(text_of(r).find("): this rank"), std::string::npos) << text_of(r);
            EXPECT_EQ(text_of(r).find("): a peer"), std::string::npos) << text_of(r);
        }
    r.kind = SWL_FAULT_QUEUE;
    r.peer = 2;
    EXPECT_NE(text_of(r).find("a queue pair has no free entry toward rank 2, "), std::string::npos)
        << text_of(r);
}

TEST(FaultText, RanksThatWereToldNameTheMissingRank)
{
    swl_fault_record r = sample();

    r.kind = SWL_FAULT_POISON;
    EXPECT_NE(text_of(r).find("another rank gave up before, missing rank 2"), std::string::npos);
    r.peer = 1;
    EXPECT_NE(text_of(r).find("missing this rank"), std::string::npos);
}

TEST(FaultText, ErrorCompletionsNameQueuePairAndSyndrome)
{
    swl_fault_record r = sample();

    r.kind = SWL_FAULT_COMPLETION;
    r.seen = 0x80102a13;
    EXPECT_NE(text_of(r).find("a queue pair to rank 2 ended with an error completion, queue pair "
                              "0x80102a, remote access error (syndrome 0x13), at or after entry "
                              "40"),
              std::string::npos)
        << text_of(r);
}

TEST(FaultText, UnknownNumbersAreSurvived)
{
    swl_fault_record r = sample();

    r.kind = r.role = r.op = 12345;
    r.peer = SWL_NO_PEER;
    EXPECT_NE(text_of(r).find("unknown"), std::string::npos);
}

TEST(FaultText, EveryKindAndRoleFits)
{
#define KIND(name, tier, text) SWL_FAULT_##name,
    const uint32_t kinds[] = {SWL_DEVICE_FAULTS(KIND) SWL_CALL_FAULTS(KIND)};
#undef KIND
    for (uint32_t kind : kinds)
        for (uint32_t role = 0; role < SWL_WARP_ROLE_KINDS; role++) {
            swl_fault_record r = sample();

            r.kind = kind;
            r.role = role;
            r.expected = r.seen = r.call = r.waited_ns = UINT64_MAX;
            r.channel = r.peer = 4294967294u;
            r.peer_entry = UINT64_MAX;
            EXPECT_LT(text_of(r, UINT64_MAX).size(), 399u);
        }
}

// A kernel finds the tier of a wait in the kind, so both tables together number their rows.
TEST(FaultKinds, HaveTheTierOfTheirRow)
{
    uint32_t place = 0;

#define ROW(name, tier, text)                                                                      \
    EXPECT_EQ(swl_fault_place(SWL_FAULT_##name), place++) << text;                                 \
    EXPECT_EQ(swl_fault_tier(SWL_FAULT_##name), tier##u) << text;
    SWL_DEVICE_FAULTS(ROW)
    SWL_CALL_FAULTS(ROW)
#undef ROW
    EXPECT_EQ(place, static_cast<uint32_t>(SWL_FAULT_KINDS));
    EXPECT_EQ(swl_fault_tier(SWL_FAULT_ENTRY), 0u);
    EXPECT_EQ(swl_fault_tier(SWL_FAULT_QUEUE), 1u);
    EXPECT_EQ(swl_fault_tier(SWL_FAULT_ARRIVAL), 2u);
}

TEST(AlarmText, NamesTheRankThatIsMissing)
{
    char text[200];

    swl_error_word_text(swl_poison_word(3, 2), 1, text, sizeof(text));
    EXPECT_STREQ(text,
                 "rank 1 was told of a failed call: another rank gave up before, missing rank 2");
    swl_error_word_text(swl_poison_word(3, 1), 1, text, sizeof(text));
    EXPECT_NE(std::string(text).find("missing this rank"), std::string::npos);
    swl_error_word_text(swl_poison_word(3, SWL_NO_PEER), 1, text, sizeof(text));
    EXPECT_NE(std::string(text).find("missing a peer"), std::string::npos);
}

} // namespace
