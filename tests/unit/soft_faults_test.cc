// Tests of transport/host/faults.c: the grammar of docs/testing.md.
#include "transport/host/faults.h"

#include "transport/wqe.h"

#include <gtest/gtest.h>

#include <string.h>
#include <string>

namespace
{

struct soft_faults parse(const char *text, uint32_t rank = 0)
{
    struct soft_faults f;
    size_t at = 0;

    EXPECT_TRUE(swl_faults_parse(&f, text, rank, &at)) << text << " at " << at;
    return f;
}

} // namespace

TEST(SoftFaults, NothingMeansReorderingAndNoRule)
{
    struct soft_faults f = parse("");

    EXPECT_EQ(f.reorder, 1u);
    EXPECT_EQ(f.nrules, 0u);
    EXPECT_EQ(f.delay_ns, 0u);
}

TEST(SoftFaults, SettingsTakeUnits)
{
    struct soft_faults f = parse("seed=7; delay=2us;jitter=3ms;retry=1s;reorder=off");

    EXPECT_EQ(f.seed, 7u);
    EXPECT_EQ(f.delay_ns, 2000u);
    EXPECT_EQ(f.jitter_ns, 3000000u);
    EXPECT_EQ(f.retry_ns, 1000000000u);
    EXPECT_EQ(f.reorder, 0u);
}

TEST(SoftFaults, RulesOfOtherRanksAreLeftOut)
{
    struct soft_faults f = parse("rank1:error=3;rank2:error=4;rank1.link5:drop=0+", 1);

    ASSERT_EQ(f.nrules, 2u);
    EXPECT_EQ(swl_faults_error(&f, 0, 3), static_cast<uint32_t>(SWL_SYNDROME_RETRY));
    EXPECT_EQ(swl_faults_error(&f, 0, 4), 0u);
    EXPECT_TRUE(swl_faults_drop(&f, 5, 1000));
    EXPECT_FALSE(swl_faults_drop(&f, 4, 1000));
}

TEST(SoftFaults, ErrorsTakeRangesAndSyndromes)
{
    struct soft_faults f = parse("error=5-6/access;error=10+/0x04");

    EXPECT_EQ(swl_faults_error(&f, 9, 4), 0u);
    EXPECT_EQ(swl_faults_error(&f, 9, 5), static_cast<uint32_t>(SWL_SYNDROME_REMOTE_ACCESS));
    EXPECT_EQ(swl_faults_error(&f, 9, 6), static_cast<uint32_t>(SWL_SYNDROME_REMOTE_ACCESS));
    EXPECT_EQ(swl_faults_error(&f, 9, 7), 0u);
    EXPECT_EQ(swl_faults_error(&f, 9, 1u << 20),
              static_cast<uint32_t>(SWL_SYNDROME_LOCAL_PROTECTION));
}

TEST(SoftFaults, StalledLinkMovesAgainAfterItsTime)
{
    struct soft_faults f = parse("stall=10us+5us;stall=16us+4us");

    f.begin_ns = 1000;
    EXPECT_EQ(swl_faults_clear(&f, f.begin_ns, 0, 10999), 10999u);
    EXPECT_EQ(swl_faults_clear(&f, f.begin_ns, 0, 11000), 16001u);
    EXPECT_EQ(swl_faults_clear(&f, f.begin_ns, 0, 17000), 21001u);
}

TEST(SoftFaults, DeadRankStaysDead)
{
    struct soft_faults f = parse("rank0:dead=1us");

    EXPECT_FALSE(swl_faults_dead(&f, f.begin_ns, 999));
    EXPECT_TRUE(swl_faults_dead(&f, f.begin_ns, 1000));
}

TEST(SoftFaults, RestartIsATimeWithoutAnswers)
{
    struct soft_faults f = parse("restart=10us+5us;restart=30us+5us");

    f.begin_ns = 1000;
    EXPECT_FALSE(swl_faults_down(&f, 10999));
    EXPECT_TRUE(swl_faults_down(&f, 11000));
    EXPECT_TRUE(swl_faults_down(&f, 15999));
    EXPECT_FALSE(swl_faults_down(&f, 16000));
    EXPECT_EQ(swl_faults_back(&f, 1000), 16000u);
    EXPECT_EQ(swl_faults_back(&f, 16000), 36000u);
    EXPECT_EQ(swl_faults_back(&f, 36000), UINT64_MAX);
    EXPECT_EQ(swl_faults_falls(&f, 1000), 11000u);
    EXPECT_EQ(swl_faults_falls(&f, 12000), 11000u);
    EXPECT_EQ(swl_faults_falls(&f, 16000), 31000u);
    EXPECT_EQ(swl_faults_falls(&f, 36000), UINT64_MAX);
}

TEST(SoftFaults, WhatATextNeedsIsKnown)
{
    EXPECT_EQ(parse("delay=1us;error=1;drop=2;stall=1+1;dead=3;seed=4;reorder=off").asked, 0u);
    EXPECT_EQ(parse("loss=20").loss, 20u);
    EXPECT_EQ(parse("hold=2us").hold_ns, 2000u);
    for (const char *text : {"jitter=1us", "reorder=on", "loss=1", "hold=1", "restart=1+1"}) {
        const struct soft_faults mine = parse(text);
        const struct soft_faults others = parse((std::string("rank1:") + text).c_str());

        ASSERT_NE(swl_faults_beyond(&mine, 0), nullptr) << text;
        EXPECT_EQ(strncmp(swl_faults_beyond(&mine, 0), text, 4), 0);
        EXPECT_EQ(swl_faults_beyond(&mine, SOFT_CAN_ALL), nullptr);
        EXPECT_EQ(swl_faults_beyond(&others, 0), nullptr) << "for somebody else";
    }
}

TEST(SoftFaults, NamesOfRanksAndLinksAreKnown)
{
    EXPECT_EQ(parse("drop=1").ranks, 0u);
    EXPECT_EQ(parse("rank7:drop=1;rank2.link9:drop=1").ranks, 8u);
    EXPECT_EQ(parse("rank7:drop=1;rank2.link9:drop=1").links, 0u);
    EXPECT_EQ(parse("rank7:drop=1;rank2.link9:drop=1", 2).links, 10u);
}

TEST(SoftFaults, MalformedTextNamesTheClause)
{
    const struct {
        const char *text;
        size_t at;
    } bad[] = {{"delay", 0},         {"delay=1us;nonsense=1", 10},
               {"error=", 0},        {"error=5-3", 0},
               {"drop=1x", 0},       {"drop=99999999999999999999", 0},
               {"rank1 error=1", 0}, {"rank1.link2:seed=1", 0},
               {"reorder=maybe", 0}, {"stall=1us", 0},
               {"error=1/wrong", 0}, {"delay=99999999999999s", 0},
               {"loss=1001", 0},     {"restart=1us", 0},
               {"restart=5us+0", 0}};

    for (const auto &b : bad) {
        struct soft_faults f;
        size_t at = 99;

        EXPECT_FALSE(swl_faults_parse(&f, b.text, 0, &at)) << b.text;
        EXPECT_EQ(at, b.at) << b.text;
    }
}
