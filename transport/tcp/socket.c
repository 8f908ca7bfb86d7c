/* socket.c: see socket.h. Layer: transport/tcp. */
#include "transport/tcp/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A fiber of the emulator reads the word of the thread that runs it, which to TSan is another one. */
__attribute__((no_sanitize("thread"))) int swl_tcp_error(void)
{
    return errno;
}

bool swl_tcp_later(void)
{
    const int error = swl_tcp_error();

    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static bool fail(struct tcp_why *why, const char *what, const char *where, int error)
{
    snprintf(why->text, sizeof(why->text), "%s %s: %s", what, where, strerror(error));
    return false;
}

static bool item_takes(const char *item, size_t n, bool exact, const char *interface)
{
    return strncmp(item, interface, n) == 0 && (!exact || interface[n] == '\0');
}

bool swl_tcp_named(const char *list, const char *interface)
{
    bool none = false, exact = false, any = false;

    if (list == NULL || list[0] == '\0')
        return strncmp(interface, "lo", 2) != 0 && strncmp(interface, "docker", 6) != 0;
    if (*list == '^') {
        none = true;
        list++;
    }
    if (*list == '=') {
        exact = true;
        list++;
    }
    while (*list) {
        const size_t n = strcspn(list, ",");

        any = any || (n > 0 && item_takes(list, n, exact, interface));
        list += n + (list[n] == ',');
    }
    return any != none;
}

/* The first usable address of a family, of an interface that the list takes. */
static bool find(const struct ifaddrs *all, int family, const char *list, bool loopback,
                 struct tcp_place *place_p)
{
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP))
            continue;
        if (loopback ? !(i->ifa_flags & IFF_LOOPBACK) : !swl_tcp_named(list, i->ifa_name))
            continue;
        memset(place_p, 0, sizeof(*place_p));
        memcpy(&place_p->at, i->ifa_addr,
               family == AF_INET ? sizeof(place_p->at.v4) : sizeof(place_p->at.v6));
        if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&place_p->at.v6.sin6_addr))
            continue;
        snprintf(place_p->interface, sizeof(place_p->interface), "%s", i->ifa_name);
        return true;
    }
    return false;
}

bool swl_tcp_choose(const char *list, struct tcp_place *place_p, struct tcp_why *why)
{
    const bool named = list && list[0];
    struct ifaddrs *all;
    bool found;

    if (getifaddrs(&all) != 0)
        return fail(why, "cannot list", "the network interfaces", swl_tcp_error());
    found = find(all, AF_INET, list, false, place_p) || find(all, AF_INET6, list, false, place_p);
    if (!found && !named)
        found = find(all, AF_INET, list, true, place_p);
    freeifaddrs(all);
    if (!found)
        snprintf(why->text, sizeof(why->text),
                 "no network interface with an address is up%s%s (SWIMLANE_SOCKET_IFNAME)",
                 named ? " and matches " : "", named ? list : "");
    return found;
}

void swl_tcp_text(const struct tcp_place *place, char *text, size_t bytes)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (place->at.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &place->at.v6.sin6_addr, host, sizeof(host));
        snprintf(text, bytes, "[%s]:%u", host, ntohs(place->at.v6.sin6_port));
    } else {
        inet_ntop(AF_INET, &place->at.v4.sin_addr, host, sizeof(host));
        snprintf(text, bytes, "%s:%u", host, ntohs(place->at.v4.sin_port));
    }
}

static socklen_t length_of(const struct tcp_place *place)
{
    return place->at.any.sa_family == AF_INET6 ? sizeof(place->at.v6) : sizeof(place->at.v4);
}

static int open_socket(const struct tcp_place *place)
{
    return socket(place->at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int swl_tcp_listen(struct tcp_place *place, struct tcp_why *why)
{
    socklen_t length = length_of(place);
    int fd = open_socket(place);
    char text[64];

    swl_tcp_text(place, text, sizeof(text));
    if (fd < 0 || bind(fd, &place->at.any, length) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, &place->at.any, &length) != 0) {
        fail(why, "cannot listen at", text, swl_tcp_error());
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

static void tune(int fd)
{
    const int yes = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

static uint64_t real_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Wait for the end of a connect that has begun; 0 or an error number. Signals do not end it. */
static int finish_connect(int fd, uint64_t timeout_ns)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    const uint64_t ms = timeout_ns / 1000000, end = real_ms() + (ms < 60000 ? ms : 60000);
    int error = 0, n;
    socklen_t length = sizeof(error);

    do {
        const uint64_t now = real_ms();

        n = poll(&p, 1, now < end ? (int)(end - now) : 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return swl_tcp_error();
    if (n == 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : swl_tcp_error();
}

int swl_tcp_connect(const struct tcp_place *place, uint64_t timeout_ns, struct tcp_why *why)
{
    int fd = open_socket(place), error = 0;
    char text[64];

    if (fd < 0 || connect(fd, &place->at.any, length_of(place)) != 0)
        error = swl_tcp_error();
    if (fd >= 0 && error == EINPROGRESS)
        error = finish_connect(fd, timeout_ns);
    if (error == 0) {
        tune(fd);
        return fd;
    }
    swl_tcp_text(place, text, sizeof(text));
    fail(why, "cannot connect to", text, error);
    if (fd >= 0)
        close(fd);
    return -1;
}

int swl_tcp_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0)
        tune(fd);
    return fd;
}
