// Tests of transport/choice.c: what a rank says of itself, and the choice of all ranks.
#include "src/base/error.h"
#include "transport/choice.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <string.h>
#include <string>
#include <vector>

namespace
{

const uint32_t any = SWL_TRANSPORT_PEER | SWL_TRANSPORT_MLX5 | SWL_TRANSPORT_SOFT;

struct swl_driver_report fact(uint32_t usable, uint64_t host, const char *why = "")
{
    struct swl_driver_report f = {any, usable, host, "", {}, false};

    snprintf(f.why, sizeof(f.why), "%s", why);
    return f;
}

uint32_t choose(const std::vector<struct swl_driver_report> &facts, std::string *why)
{
    char text[1024] = "";
    const uint32_t bit =
        swl_choice_of_group(facts.data(), static_cast<uint32_t>(facts.size()), text, sizeof(text));

    *why = text;
    return bit;
}

TEST(Choice, TableNamesEveryDriverOnceAndBestFirst)
{
    uint32_t n, seen = 0;
    const struct swl_nic_driver *d = swl_drivers(&n);

    ASSERT_GE(n, 2u);
    for (uint32_t i = 0; i < n; i++) {
        char name[64];

        swl_transports_text(d[i].bit, name, sizeof(name));
        EXPECT_STREQ(d[i].name, name); // the word of SWIMLANE_TRANSPORT
        EXPECT_EQ(seen & d[i].bit, 0u);
        EXPECT_TRUE(i == 0 || d[i - 1].bit < d[i].bit) << "bits are in the order of quality";
        EXPECT_NE(d[i].ops(), nullptr);
        EXPECT_EQ(swl_driver_of(d[i].bit), &d[i]);
        seen |= d[i].bit;
    }
    EXPECT_EQ(swl_driver_of(SWL_TRANSPORT_PEER), nullptr);
}

// The words stand in the table of options and, but for peer, in that of the drivers.
TEST(Choice, WordsOfTheVariableAreTheDriversInTheirOrder)
{
    size_t nrows;
    const struct swl_option_row *rows = swl_option_rows(&nrows);
    char every[64];
    uint32_t n, all = SWL_TRANSPORT_PEER;
    const struct swl_nic_driver *d = swl_drivers(&n);

    ASSERT_EQ(n, static_cast<uint32_t>(SWL_DRIVERS));
    for (uint32_t i = 0; i < n; i++)
        all |= d[i].bit;
    swl_transports_text(all, every, sizeof(every));
    for (size_t i = 0; i < nrows; i++)
        if (strcmp(rows[i].name, "SWIMLANE_TRANSPORT") == 0) {
            EXPECT_EQ(rows[i].unit, std::string("auto,") + every);
            return;
        }
    FAIL() << "no row";
}

TEST(Choice, PairsTakeTheBestThatBothHaveWhoeverAsks)
{
    const struct swl_driver_report both = fact(SWL_TRANSPORT_MLX5 | SWL_TRANSPORT_SOFT, 1),
                                   soft = fact(SWL_TRANSPORT_SOFT, 1),
                                   other_soft = fact(SWL_TRANSPORT_SOFT, 2),
                                   other_both = fact(SWL_TRANSPORT_MLX5 | SWL_TRANSPORT_SOFT, 2),
                                   none = fact(0, 1);
    const struct {
        const struct swl_driver_report &a, &b;
        uint32_t bit;
    } cases[] = {{both, both, SWL_TRANSPORT_MLX5},
                 {both, soft, SWL_TRANSPORT_SOFT},
                 {both, other_both, SWL_TRANSPORT_MLX5},
                 {soft, other_soft, 0},
                 {both, other_soft, 0},
                 {both, none, 0}};

    for (const auto &c : cases) {
        EXPECT_EQ(swl_choice_of_pair(&c.a, &c.b), c.bit);
        EXPECT_EQ(swl_choice_of_pair(&c.b, &c.a), c.bit);
    }
}

TEST(Choice, GroupTakesTheBestThatAllPairsHave)
{
    const struct swl_driver_report both = fact(SWL_TRANSPORT_MLX5 | SWL_TRANSPORT_SOFT, 1);
    std::string why;

    EXPECT_EQ(choose({both, both, both}, &why), uint32_t(SWL_TRANSPORT_MLX5));
    EXPECT_EQ(choose({both, fact(SWL_TRANSPORT_SOFT, 1), both}, &why),
              uint32_t(SWL_TRANSPORT_SOFT));
    EXPECT_EQ(choose({both, fact(SWL_TRANSPORT_MLX5, 2)}, &why), uint32_t(SWL_TRANSPORT_MLX5));
    EXPECT_EQ(choose({both}, &why), uint32_t(SWL_TRANSPORT_MLX5));
}

TEST(Choice, LinksTakeTheBestOfTheirTwoEnds)
{
    const uint32_t mlx5 = SWL_TRANSPORT_MLX5, verbs = SWL_TRANSPORT_VERBS, tcp = SWL_TRANSPORT_TCP,
                   soft = SWL_TRANSPORT_SOFT;
    const struct swl_driver_report all = fact(mlx5 | verbs | tcp, 1),
                                   refused = fact(verbs | tcp, 2), plain = fact(tcp, 3),
                                   old = fact(mlx5 | tcp, 4);
    std::string why;

    EXPECT_EQ(choose({all, refused, old}, &why), tcp);
    EXPECT_EQ(swl_choice_of_connection(&all, &refused, tcp), verbs);
    EXPECT_EQ(swl_choice_of_connection(&all, &old, tcp), mlx5);
    EXPECT_EQ(swl_choice_of_connection(&old, &all, tcp), mlx5);
    EXPECT_EQ(swl_choice_of_connection(&refused, &old, tcp), tcp);
    EXPECT_EQ(swl_choice_of_connection(&plain, &all, tcp), tcp);
    // none is common to all, but each pair has one: the worst of them is the group's
    const struct swl_driver_report one = fact(mlx5 | verbs, 1), two = fact(verbs | tcp, 2),
                                   three = fact(tcp | mlx5, 3);
    EXPECT_EQ(choose({one, two, three}, &why), tcp);
    EXPECT_EQ(swl_choice_of_connection(&one, &three, tcp), mlx5);
    // the software NIC serves all or nobody
    EXPECT_EQ(choose({fact(mlx5 | soft, 1), fact(soft, 1), fact(mlx5 | soft, 1)}, &why), soft);
    EXPECT_EQ(swl_choice_of_connection(&all, &all, soft), soft);
    EXPECT_EQ(choose({fact(mlx5 | soft, 1), fact(soft, 1), fact(mlx5, 1)}, &why), 0u);
    for (const char *words : {"rank 1", "rank 2"})
        EXPECT_NE(why.find(words), std::string::npos) << why;
}

TEST(Choice, RankWithoutANetworkIsNamedWithItsReasons)
{
    std::string why;

    EXPECT_EQ(
        choose({fact(SWL_TRANSPORT_SOFT, 1), fact(0, 1, "mlx5: no port; soft: no thread")}, &why),
        0u);
    for (const char *words : {"rank 1", "mlx5,soft", "mlx5: no port; soft: no thread"})
        EXPECT_NE(why.find(words), std::string::npos) << why;
}

// One rank may not write registers of its NIC: its links take the next transport, those of the
// others do not.
TEST(Choice, F111_RegistersOutOfReachLeaveTheNextTransport)
{
    const uint32_t mlx5 = SWL_TRANSPORT_MLX5, verbs = SWL_TRANSPORT_VERBS;
    const char *why_not = "mlx5: the GPU may not write doorbells: NVIDIA driver without "
                          "PeerMappingOverride=1";
    const struct swl_driver_report without = fact(verbs, 1, why_not), with = fact(mlx5 | verbs, 2);
    std::string why;

    EXPECT_EQ(choose({without, with, with}, &why), verbs);
    EXPECT_EQ(swl_choice_of_connection(&without, &with, verbs), verbs);
    EXPECT_EQ(swl_choice_of_connection(&with, &with, verbs), mlx5);
    EXPECT_EQ(choose({fact(0, 1, why_not), with}, &why), 0u);
    for (const char *words : {"rank 0", "PeerMappingOverride=1"})
        EXPECT_NE(why.find(words), std::string::npos) << why;
}

TEST(Choice, RanksWithoutACommonNetworkAreNamed)
{
    std::string why;

    EXPECT_EQ(choose({fact(SWL_TRANSPORT_SOFT, 1, "mlx5: no port"), fact(SWL_TRANSPORT_SOFT, 1),
                      fact(SWL_TRANSPORT_SOFT, 7, "mlx5: no library")},
                     &why),
              0u);
    for (const char *words : {"rank 0", "rank 2", "mlx5: no port", "mlx5: no library", "one host"})
        EXPECT_NE(why.find(words), std::string::npos) << why;
    EXPECT_EQ(choose({fact(SWL_TRANSPORT_MLX5, 1), fact(SWL_TRANSPORT_SOFT, 1)}, &why), 0u);
    EXPECT_EQ(why.find("one host"), std::string::npos) << why;
}

TEST(Choice, D_C7_TheVariableThatAllowsNoNetworkIsNamed)
{
    struct swl_nic_config config = {};
    struct swl_driver_report f[2];
    std::string why;

    for (struct swl_driver_report &one : f)
        swl_driver_report_make(SWL_TRANSPORT_PEER, &config, &one);
    EXPECT_EQ(choose({f[0], f[1]}, &why), 0u);
    EXPECT_EQ(why, "no network between nodes: SWIMLANE_TRANSPORT of rank 0 is peer, which allows "
                   "none");
    for (struct swl_driver_report &one : f)
        swl_driver_report_make(SWL_TRANSPORT_PEER | SWL_TRANSPORT_VERBS, &config, &one);
    EXPECT_EQ(choose({f[0], f[1]}, &why), 0u);
    EXPECT_NE(why.find("rank 0 may use verbs by SWIMLANE_TRANSPORT and can use none (verbs: "),
              std::string::npos)
        << why;
}

struct swl_driver_report at(const char *address, uint64_t host)
{
    struct swl_driver_report f = fact(SWL_TRANSPORT_TCP, host);

    f.tcp.at.v4.sin_family = AF_INET;
    inet_pton(AF_INET, address, &f.tcp.at.v4.sin_addr);
    snprintf(f.tcp.interface, sizeof(f.tcp.interface), "if0");
    f.tcp.host = host;
    return f;
}

TEST(Choice, F92_HostsThatCannotMeanEachOtherAreRefusedWithTheirAddresses)
{
    std::string why;

    EXPECT_EQ(choose({at("127.0.0.1", 1), at("127.0.0.1", 1)}, &why), uint32_t(SWL_TRANSPORT_TCP));
    EXPECT_EQ(choose({at("127.0.0.1", 1), at("127.0.0.1", 2)}, &why), 0u);
    EXPECT_NE(why.find("tcp: rank 0 has the address 127.0.0.1 (if0) and rank 1, on another host, "
                       "127.0.0.1 (if0): neither reaches the other"),
              std::string::npos)
        << why;
    // a pair without rank 0
    EXPECT_EQ(choose({at("10.0.0.1", 1), at("172.17.0.1", 2), at("172.17.0.1", 3)}, &why), 0u);
    EXPECT_NE(why.find("rank 1 has the address 172.17.0.1 (if0) and rank 2"), std::string::npos)
        << why;
}

// Reasons that fill their space, of all ranks, and little room for the sentence.
TEST(Choice, LongReasonsAreCutAndNothingElse)
{
    struct swl_driver_report f = fact(0, 1);
    char why[64];

    memset(f.why, 'w', sizeof(f.why) - 1);
    memset(why, 0x5a, sizeof(why));
    EXPECT_EQ(swl_choice_of_group(&f, 1, why, 40), 0u);
    EXPECT_EQ(strlen(why), 39u);
    EXPECT_EQ(why[40], 0x5a);
}

TEST(Choice, EmulatedRanksStayWithTheSoftwareNic)
{
    struct swl_nic_config config = {};
    struct swl_driver_report f;

    swl_driver_report_make(0, &config, &f);
    EXPECT_EQ(f.allowed, uint32_t(SWL_TRANSPORT_PEER | SWL_TRANSPORT_SOFT));
    EXPECT_EQ(f.usable, uint32_t(SWL_TRANSPORT_SOFT));
    EXPECT_STREQ(f.why, "");
    swl_driver_report_make(any, &config, &f);
    EXPECT_EQ(f.usable, uint32_t(SWL_TRANSPORT_SOFT));
    EXPECT_NE(std::string(f.why).find("mlx5"), std::string::npos) << f.why;
}

// Drivers that miss one library say so once: the reasons of the others have their room.
TEST(Choice, EqualReasonsAreSaidOnce)
{
    struct swl_driver_report f = {};
    size_t last = 0;

    swl_driver_report_add(&f, &last, "mlx5", "no library");
    swl_driver_report_add(&f, &last, "verbs", "no library");
    swl_driver_report_add(&f, &last, "soft", "no thread");
    EXPECT_STREQ(f.why, "mlx5, verbs: no library; soft: no thread");
}

TEST(Choice, NetworksThatAreNotAllowedAreNotAsked)
{
    struct swl_nic_config config = {};
    struct swl_driver_report f;

    swl_driver_report_make(SWL_TRANSPORT_PEER, &config, &f);
    EXPECT_EQ(f.usable, 0u);
    EXPECT_STREQ(f.why, "");
}

TEST(Choice, EveryAllowedNetworkIsUsableOrHasAReason)
{
    struct swl_nic_config config = {};

    for (uint32_t bit = SWL_TRANSPORT_MLX5; bit <= SWL_TRANSPORT_TCP; bit <<= 1) {
        struct swl_driver_report f;
        char name[64];

        swl_driver_report_make(bit, &config, &f);
        swl_transports_text(bit, name, sizeof(name));
        EXPECT_TRUE(f.usable == bit || strncmp(f.why, name, strlen(name)) == 0) << name << f.why;
    }
}

TEST(Choice, FaultsThatNobodyMakesAreSaid)
{
    const uint32_t soft = SWL_TRANSPORT_SOFT;

    EXPECT_EQ(swl_choice_check_faults(nullptr, 0, 2, SWL_TRANSPORT_MLX5), ncclSuccess);
    EXPECT_EQ(swl_choice_check_faults("", 0, 2, SWL_TRANSPORT_MLX5), ncclSuccess);
    EXPECT_EQ(swl_choice_check_faults("drop=1", 1, 2, SWL_TRANSPORT_MLX5), ncclInvalidUsage);
    EXPECT_NE(strstr(swl_last_error(), "cannot fail on purpose"), nullptr) << swl_last_error();
    for (uint32_t able : {SWL_TRANSPORT_SOFT, SWL_TRANSPORT_VERBS, SWL_TRANSPORT_TCP})
        EXPECT_EQ(swl_choice_check_faults("drop=1", 1, 2, able), ncclSuccess);
    for (const char *text : {"rank1:drop=1", "rank2:drop=1"}) {
        ::testing::internal::CaptureStderr();
        EXPECT_EQ(swl_choice_check_faults(text, 0, 2, soft), ncclSuccess);
        EXPECT_EQ(swl_choice_check_faults(text, 1, 2, soft), ncclSuccess);
        EXPECT_EQ(::testing::internal::GetCapturedStderr().empty(), text[4] == '1') << text;
    }
}

} // namespace
