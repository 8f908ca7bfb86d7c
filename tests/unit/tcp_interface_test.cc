// Tests of transport/interface.c: which network interface is taken, on hosts that are made up.
#include "src/base/options.h"
#include "transport/interface.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string>
#include <vector>

namespace
{

enum what { PLAIN, DOWN, NO_CARRIER, BRIDGE, LOOPBACK };

// address: "" for none; metric of the default route, if it has one.
struct tcp_interface one(const char *name, const char *address, enum what kind = PLAIN,
                         uint32_t metric = TCP_NO_ROUTE)
{
    struct tcp_interface i = {};

    snprintf(i.place.interface, sizeof(i.place.interface), "%s", name);
    if (inet_pton(AF_INET, address, &i.place.at.v4.sin_addr) == 1)
        i.place.at.any.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, address, &i.place.at.v6.sin6_addr) == 1)
        i.place.at.any.sa_family = AF_INET6;
    i.up = kind != DOWN;
    i.carrier = kind != DOWN && kind != NO_CARRIER;
    i.bridge = kind == BRIDGE;
    i.loopback = kind == LOOPBACK;
    i.metric = metric;
    return i;
}

typedef std::vector<struct tcp_interface> host;

// Name and address of the choice, or what keeps the host from having one.
std::string picked(const host &all, const char *list, std::string *why_p = nullptr)
{
    struct tcp_why why = {};
    const int at = swl_tcp_pick(all.data(), static_cast<uint32_t>(all.size()), list,
                                "SWIMLANE_SOCKET_IFNAME", &why);
    char text[80];

    if (why_p)
        *why_p = why.text;
    if (at < 0)
        return why.text;
    EXPECT_NE(why.text[0], '\0');
    swl_tcp_text(&all[static_cast<size_t>(at)].place, text, sizeof(text));
    return text;
}

const struct tcp_interface lo = one("lo", "127.0.0.1", LOOPBACK);

} // namespace

TEST(TcpInterface, F94_ListsAreThoseOfNccl)
{
    EXPECT_TRUE(swl_tcp_named(nullptr, "eth0"));
    EXPECT_TRUE(swl_tcp_named("", "lo")); // the choice puts it last
    EXPECT_TRUE(swl_tcp_named("ib,eth", "eth12"));
    EXPECT_FALSE(swl_tcp_named("=eth1", "eth12"));
    EXPECT_TRUE(swl_tcp_named("=eth1,eth12", "eth12"));
    EXPECT_FALSE(swl_tcp_named("^eth,lo", "eth0"));
    EXPECT_TRUE(swl_tcp_named("^=eth,lo", "eth0"));
    EXPECT_FALSE(swl_tcp_named("^=eth0,lo", "eth0"));
}

TEST(TcpInterface, F94_BlanksPortsAndEmptyNamesMeanNothing)
{
    for (const char *list :
         {" eth0", "eth0 ", "ib0 , eth0", ",,eth0,", "eth0:4711", " = eth0", "=eth0:4711"}) {
        EXPECT_TRUE(swl_tcp_named(list, "eth0")) << list;
        EXPECT_FALSE(swl_tcp_named(list, "lo")) << list;
    }
    EXPECT_FALSE(swl_tcp_named(" ^ eth0 ", "eth0"));
    EXPECT_TRUE(swl_tcp_named(" ^ eth0 ", "lo"));
    EXPECT_FALSE(swl_tcp_named("eth0:x", "eth0")); // no port
    EXPECT_TRUE(swl_tcp_named("=eth0:1", "eth0:1")) << "a second address may be called so";
    for (const char *empty : {"^", "=", "^=", " ", ",", " ^ , "}) {
        EXPECT_TRUE(swl_tcp_named(empty, "eth0")) << empty;
        EXPECT_TRUE(swl_tcp_named(empty, "lo")) << empty;
    }
}

TEST(TcpInterface, F91_WhatDoesNotConnectHostsIsNotTakenBeforeWhatDoes)
{
    const host all = {lo,
                      one("eth0", "169.254.7.1"),
                      one("eth1", "10.1.0.1", NO_CARRIER, 50),
                      one("docker0", "172.17.0.1", BRIDGE),
                      one("ib0", ""),
                      one("eth2", "fe80::1"),
                      one("eth3", "192.168.5.1"),
                      one("eth4", "10.4.0.1", PLAIN, 200),
                      one("eth5", "10.5.0.1", PLAIN, 100),
                      one("eth6", "10.6.0.1", DOWN, 1)};

    for (const char *list : {"", "^lo", "^nothing"})
        EXPECT_EQ(picked(all, list), "10.5.0.1 (eth5)") << list;
    EXPECT_EQ(picked(all, "^eth5"), "10.4.0.1 (eth4)");
    EXPECT_EQ(picked(all, "^eth5,eth4"), "192.168.5.1 (eth3)");
    EXPECT_EQ(picked(all, "^eth5,eth4,eth3"), "172.17.0.1 (docker0)");
    EXPECT_EQ(picked(all, "^eth5,eth4,eth3,docker"), "169.254.7.1 (eth0)");
    EXPECT_EQ(picked(all, "^eth,docker"), "127.0.0.1 (lo)");
}

TEST(TcpInterface, F91_WhoNamesOneGetsIt)
{
    const host all = {one("eth5", "10.5.0.1", PLAIN, 100), lo, one("eth0", "169.254.7.1"),
                      one("br0", "10.9.0.1", BRIDGE), one("eth2", "2001:db8::2")};

    EXPECT_EQ(picked(all, "lo"), "127.0.0.1 (lo)");
    EXPECT_EQ(picked(all, "eth0"), "169.254.7.1 (eth0)");
    EXPECT_EQ(picked(all, "br0"), "10.9.0.1 (br0)");
    EXPECT_EQ(picked(all, "=eth2"), "[2001:db8::2] (eth2)");
    EXPECT_EQ(picked(all, "eth"), "10.5.0.1 (eth5)");
}

TEST(TcpInterface, F91_ABridgeWithTheDefaultRouteIsTheHostsOwn)
{
    EXPECT_EQ(picked({one("eth1", "10.1.0.1"), one("br0", "10.9.0.1", BRIDGE, 100)}, ""),
              "10.9.0.1 (br0)");
}

TEST(TcpInterface, IPv6IsTakenWhereItIsBetter)
{
    EXPECT_EQ(
        picked({one("eth0", "2001:db8::1", PLAIN, 1), one("eth0", "10.0.0.1", PLAIN, 100)}, ""),
        "10.0.0.1 (eth0)");
    EXPECT_EQ(
        picked({one("docker0", "172.17.0.1", BRIDGE), one("eth0", "2001:db8::1", PLAIN, 1)}, ""),
        "[2001:db8::1] (eth0)");
}

TEST(TcpInterface, F92_ListsThatDoNotMentionLoopbackDoNotPickIt)
{
    const host all = {lo, one("eth0", "10.0.0.1"), one("docker0", "172.17.0.1", BRIDGE)};

    for (const char *list : {"^docker,veth", "^docker", "^=docker0", ""})
        EXPECT_EQ(picked(all, list), "10.0.0.1 (eth0)");
    EXPECT_EQ(picked({lo}, "^docker,veth"), "127.0.0.1 (lo)") << "one host, without a network";
}

TEST(TcpInterface, D_C1_TheReasonIsSaid)
{
    std::string why;

    picked({lo, one("eth0", "10.0.0.1", PLAIN, 5)}, "", &why);
    EXPECT_EQ(why, "it has the default route");
    picked({lo, one("eth0", "10.0.0.1", PLAIN, 5)}, "eth", &why);
    EXPECT_EQ(why, "SWIMLANE_SOCKET_IFNAME eth: it has the default route");
    picked({lo}, "", &why);
    EXPECT_EQ(why, "this host only, as nothing else is up");
}

TEST(TcpInterface, F108_WithoutAnyEveryInterfaceIsNamedWithItsFault)
{
    EXPECT_EQ(picked({}, ""), "no network interface can be used: this host has none");
    EXPECT_EQ(picked({one("lo", "127.0.0.1", DOWN), one("eth0", ""),
                      one("eth1", "10.0.0.1", NO_CARRIER), one("eth2", "fe80::1")},
                     ""),
              "no network interface can be used: lo is down, eth0 has no address, eth1 has no "
              "carrier, eth2 has an IPv6 address of the link only");
    EXPECT_EQ(picked({lo, one("eth0", "10.0.0.1")}, "ib"),
              "no network interface can be used (SWIMLANE_SOCKET_IFNAME ib): lo is not in the "
              "list, eth0 is not in the list");
    EXPECT_EQ(picked({lo, one("eth0", "10.0.0.1"), one("eth0", "2001:db8::1"), lo}, "ib"),
              "no network interface can be used (SWIMLANE_SOCKET_IFNAME ib): lo is not in the "
              "list, eth0 is not in the list")
        << "each address has a line of its own with the kernel";
}

TEST(TcpInterface, F94_TheRefusalNamesTheVariableThatWasSet)
{
    const char *const names[] = {"SWIMLANE_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"};

    for (const char *name : names) {
        struct swl_options o;
        struct tcp_endpoint place;
        struct tcp_why why = {};

        setenv(name, "nosuch", 1);
        swl_options_read(&o);
        EXPECT_FALSE(swl_tcp_choose(o.socket_ifname, &place, &why));
        EXPECT_NE(std::string(why.text).find(std::string("(") + name + " nosuch)"),
                  std::string::npos)
            << why.text;
        unsetenv(name);
    }
}

TEST(TcpInterface, F92_HostsApartDoNotReachEachOthersLoopback)
{
    struct tcp_endpoint a = lo.place, b = lo.place, c = one("eth0", "10.0.0.1").place;

    EXPECT_TRUE(swl_tcp_reaches(&a, &b)) << "nothing is known of the hosts";
    a.host = b.host = c.host = 7;
    EXPECT_TRUE(swl_tcp_reaches(&a, &b));
    EXPECT_TRUE(swl_tcp_reaches(&a, &c));
    b.host = 8;
    EXPECT_FALSE(swl_tcp_reaches(&a, &b));
    EXPECT_FALSE(swl_tcp_reaches(&b, &c));
    EXPECT_FALSE(swl_tcp_reaches(&c, &b));
    b = c;
    b.host = 8;
    EXPECT_FALSE(swl_tcp_reaches(&b, &c)) << "one address on two hosts: bridges of containers";
}
