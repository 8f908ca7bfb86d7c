/* interface.c: see interface.h. Layer: transport; no state, no memory that stays. */
#include "transport/interface.h"

#include "src/base/options.h"
#include "transport/sysfs.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RTF_IS_UP     0x1u /* <net/route.h> and <linux/ipv6_route.h> do not go together */
#define RTF_IS_REJECT 0x200u
#define HAS_CARRIER   0x10000u /* IFF_LOWER_UP of <linux/if.h> */
#define ROUTES_MAX    16

/* ---- lists ---- */

/* "^=": what stands before the names; `list` behind it. */
static const char *list_kind(const char *list, bool *none_p, bool *exact_p)
{
    *none_p = *exact_p = false;
    while (list && (isspace((unsigned char)*list) || *list == '^' || *list == '=')) {
        *none_p = *none_p || *list == '^';
        *exact_p = *exact_p || *list == '=';
        list++;
    }
    return list ? list : "";
}

/* The next name of the list, without blanks; empty ones are left out. NULL: there is none. */
static const char *next_name(const char **list_p, size_t *n_p)
{
    while (**list_p) {
        const char *name = *list_p + strspn(*list_p, " \t");
        size_t n = strcspn(name, ",");

        *list_p = name + n + (name[n] == ',');
        while (n > 0 && isspace((unsigned char)name[n - 1]))
            n--;
        *n_p = n;
        if (n > 0)
            return name;
    }
    return NULL;
}

static bool name_takes(const char *name, size_t n, bool exact, const char *interface)
{
    const char *colon = memchr(name, ':', n);

    if (strncmp(name, interface, n) == 0 && (!exact || interface[n] == '\0'))
        return true;
    if (colon == NULL || colon == name)
        return false;
    for (const char *c = colon + 1; c < name + n; c++)
        if (!isdigit((unsigned char)*c))
            return false;
    return name_takes(name, (size_t)(colon - name), exact, interface);
}

bool swl_tcp_named(const char *list, const char *interface)
{
    bool none, exact, any = false, empty = true;
    const char *name;
    size_t n;

    list = list_kind(list, &none, &exact);
    while ((name = next_name(&list, &n)) != NULL) {
        any = any || name_takes(name, n, exact, interface);
        empty = false;
    }
    return empty || any != none;
}

/* ---- the choice ---- */

/* How good an interface is, best first. */
enum standing { ROUTE, PLAIN, BRIDGE, LINK_ONLY, LOOPBACK, NOT_TAKEN };

static bool link_only(const struct tcp_endpoint *p)
{
    const uint8_t *v4 = (const uint8_t *)&p->at.v4.sin_addr;

    if (p->at.any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LINKLOCAL(&p->at.v6.sin6_addr);
    return v4[0] == 169 && v4[1] == 254;
}

/* NOT_TAKEN: *reason_p. */
static enum standing standing_of(const struct tcp_interface *i, const char *list,
                                 const char **reason_p)
{
    const int family = i->place.at.any.sa_family;

    *reason_p = !swl_tcp_named(list, i->place.interface) ? "is not in the list"
                : !i->up                                 ? "is down"
                : !i->carrier                            ? "has no carrier"
                : family == 0                            ? "has no address"
                : family == AF_INET6 && link_only(&i->place)
                    ? "has an IPv6 address of the link only"
                    : NULL;
    if (*reason_p)
        return NOT_TAKEN;
    return i->loopback                 ? LOOPBACK
           : link_only(&i->place)      ? LINK_ONLY
           : i->metric != TCP_NO_ROUTE ? ROUTE
           : i->bridge                 ? BRIDGE
                                       : PLAIN;
}

/* Smaller is better; the order of the list decides between equal ones. */
static uint64_t rank_of(const struct tcp_interface *i, enum standing standing)
{
    const uint64_t v6 = i->place.at.any.sa_family == AF_INET6;

    return (uint64_t)standing << 40 | v6 << 36 | i->metric;
}

/* Has an earlier address of the same interface the same fault? */
static bool said_before(const struct tcp_interface *all, uint32_t i, const char *list,
                        const char *reason)
{
    const char *other;

    for (uint32_t k = 0; k < i; k++)
        if (strcmp(all[k].place.interface, all[i].place.interface) == 0 &&
            standing_of(&all[k], list, &other) == NOT_TAKEN && other == reason)
            return true;
    return false;
}

static void say_nothing_fits(const struct tcp_interface *all, uint32_t n, const char *list,
                             const char *variable, struct tcp_why *why)
{
    const bool named = list && list[0];
    const char *reason;
    size_t at = (size_t)snprintf(why->text, sizeof(why->text),
                                 "no network interface can be used%s%s%s%.60s%s", named ? " (" : "",
                                 named ? variable : "", named ? " " : "", named ? list : "",
                                 named ? ")" : "");

    for (uint32_t i = 0; i < n && at < sizeof(why->text); i++)
        if (standing_of(&all[i], list, &reason) == NOT_TAKEN && !said_before(all, i, list, reason))
            at += (size_t)snprintf(why->text + at, sizeof(why->text) - at, "%s %s %s",
                                   i ? "," : ":", all[i].place.interface, reason);
    if (n == 0)
        snprintf(why->text + at, sizeof(why->text) - at, ": this host has none");
}

int swl_tcp_pick(const struct tcp_interface *all, uint32_t n, const char *list,
                 const char *variable, struct tcp_why *why)
{
    static const char *const what[] = {
        "it has the default route",
        "the first that is up; none has a default route",
        "a bridge, as nothing better is up",
        "its address is of the link only, as nothing better is up",
        "this host only, as nothing else is up",
    };
    const char *const by = list && list[0] ? variable : NULL;
    uint64_t best = (uint64_t)NOT_TAKEN << 40;
    enum standing standing;
    const char *reason;
    int at = -1;

    for (uint32_t i = 0; i < n; i++) {
        standing = standing_of(&all[i], list, &reason);
        if (standing != NOT_TAKEN && rank_of(&all[i], standing) < best) {
            best = rank_of(&all[i], standing);
            at = (int)i;
        }
    }
    if (at >= 0)
        snprintf(why->text, sizeof(why->text), "%s%s%.60s%s", by ? by : "", by ? " " : "",
                 by ? list : "", by ? ": " : "");
    if (at >= 0)
        snprintf(why->text + strlen(why->text), sizeof(why->text) - strlen(why->text), "%s",
                 what[standing_of(&all[at], list, &reason)]);
    else
        say_nothing_fits(all, n, list, variable, why);
    return at;
}

static bool is_loopback(const struct tcp_endpoint *p)
{
    if (p->at.any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&p->at.v6.sin6_addr);
    return ntohl(p->at.v4.sin_addr.s_addr) >> 24 == 127;
}

static bool same_address(const struct tcp_endpoint *a, const struct tcp_endpoint *b)
{
    if (a->at.any.sa_family != b->at.any.sa_family)
        return false;
    return a->at.any.sa_family == AF_INET6
               ? IN6_ARE_ADDR_EQUAL(&a->at.v6.sin6_addr, &b->at.v6.sin6_addr)
               : a->at.v4.sin_addr.s_addr == b->at.v4.sin_addr.s_addr;
}

bool swl_tcp_reaches(const struct tcp_endpoint *a, const struct tcp_endpoint *b)
{
    return a->host == b->host || a->host == 0 || b->host == 0 ||
           !(is_loopback(a) || is_loopback(b) || same_address(a, b));
}

/* ---- this host ---- */

struct route {
    char interface[16];
    int family;
    uint32_t metric;
};

/* Default routes of one family: a line of the kernel's table each. Returns how many there are
 * now. */
static uint32_t read_routes(struct route *routes, uint32_t n, int family)
{
    FILE *file = fopen(family == AF_INET ? "/proc/thread-self/net/route"
                                         : "/proc/thread-self/net/ipv6_route",
                       "re");
    char line[512];

    while (file && n < ROUTES_MAX && fgets(line, sizeof(line), file)) {
        struct route *r = &routes[n];
        unsigned flags, mask, length;
        char to[33];

        r->family = family;
        if (family == AF_INET ? sscanf(line, "%15s %8s %*s %x %*u %*u %u %x", r->interface, to,
                                       &flags, &r->metric, &mask) != 5 ||
                                    mask != 0
                              : sscanf(line, "%32s %x %*s %*s %*s %x %*s %*s %x %15s", to, &length,
                                       &r->metric, &flags, r->interface) != 5 ||
                                    length != 0)
            continue;
        n += strspn(to, "0") == strlen(to) && (flags & RTF_IS_UP) && !(flags & RTF_IS_REJECT);
    }
    if (file)
        (void)fclose(file);
    return n;
}

/* What container engines and virtual machines name theirs, where the kernel does not show it. */
static bool is_bridge(const char *name)
{
    static const char *const names[] = {"docker", "br-",   "cni",  "podman",
                                        "virbr",  "lxcbr", "lxdbr"};
    char path[64];

    snprintf(path, sizeof(path), "/sys/class/net/%.15s/bridge", name);
    if (access(path, F_OK) == 0)
        return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static void describe(const struct ifaddrs *a, const struct route *routes, uint32_t nroutes,
                     struct tcp_interface *i)
{
    const int family = a->ifa_addr ? a->ifa_addr->sa_family : 0;

    memset(i, 0, sizeof(*i));
    snprintf(i->place.interface, sizeof(i->place.interface), "%s", a->ifa_name);
    if (family == AF_INET || family == AF_INET6)
        memcpy(&i->place.at, a->ifa_addr,
               family == AF_INET ? sizeof(i->place.at.v4) : sizeof(i->place.at.v6));
    i->up = (a->ifa_flags & IFF_UP) != 0;
    /* the second tells at once, but not everywhere */
    i->carrier = (a->ifa_flags & (IFF_RUNNING | HAS_CARRIER)) != 0;
    i->loopback = (a->ifa_flags & IFF_LOOPBACK) != 0;
    i->bridge = is_bridge(a->ifa_name);
    i->metric = TCP_NO_ROUTE;
    for (uint32_t r = 0; r < nroutes; r++)
        if (routes[r].family == family && strcmp(routes[r].interface, a->ifa_name) == 0 &&
            routes[r].metric < i->metric)
            i->metric = routes[r].metric;
}

/* An entry without an address counts only for an interface that has no other one. */
static bool counts(const struct ifaddrs *all, const struct ifaddrs *a)
{
    const int family = a->ifa_addr ? a->ifa_addr->sa_family : 0;

    if (family == AF_INET || family == AF_INET6)
        return true;
    for (const struct ifaddrs *o = all; o; o = o->ifa_next)
        if (o->ifa_addr && strcmp(o->ifa_name, a->ifa_name) == 0 &&
            (o->ifa_addr->sa_family == AF_INET || o->ifa_addr->sa_family == AF_INET6))
            return false;
    return true;
}

bool swl_tcp_choose(const char *list, struct tcp_endpoint *place_p, struct tcp_why *why)
{
    struct route routes[ROUTES_MAX];
    struct tcp_interface *found = NULL;
    struct ifaddrs *all;
    uint32_t n = 0, nroutes;
    int at = -1;

    if (getifaddrs(&all) != 0) {
        snprintf(why->text, sizeof(why->text), "cannot list the network interfaces: %s",
                 strerror(swl_socket_error()));
        return false;
    }
    nroutes = read_routes(routes, read_routes(routes, 0, AF_INET), AF_INET6);
    for (const struct ifaddrs *a = all; a; a = a->ifa_next)
        n++;
    found = calloc(n + 1u, sizeof(*found));
    n = 0;
    for (const struct ifaddrs *a = all; a && found; a = a->ifa_next)
        if (counts(all, a))
            describe(a, routes, nroutes, &found[n++]);
    freeifaddrs(all);
    if (found)
        at = swl_tcp_pick(found, n, list, swl_option_variable("SWIMLANE_SOCKET_IFNAME"), why);
    else
        snprintf(why->text, sizeof(why->text), "no memory for the network interfaces");
    if (at >= 0) {
        *place_p = found[at].place;
        place_p->host = swl_sysfs_host(NULL);
    }
    free(found);
    return at >= 0;
}
