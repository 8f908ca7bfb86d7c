/* socket.c: see socket.h. Layer: transport/tcp. */
#include "transport/tcp/socket.h"

#include <arpa/inet.h>
#include <errno.h>
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
    why->error = error;
    snprintf(why->text, sizeof(why->text), "%s %s: %s", what, where, strerror(error));
    return false;
}

void swl_tcp_text(const struct tcp_place *place, char *text, size_t bytes)
{
    const bool v6 = place->at.any.sa_family == AF_INET6, named = place->interface[0] != '\0';
    char host[INET6_ADDRSTRLEN] = "?", port[8] = "";

    if (v6)
        inet_ntop(AF_INET6, &place->at.v6.sin6_addr, host, sizeof(host));
    else
        inet_ntop(AF_INET, &place->at.v4.sin_addr, host, sizeof(host));
    /* both families have it in the same place */
    if (place->at.v4.sin_port != 0)
        snprintf(port, sizeof(port), ":%u", ntohs(place->at.v4.sin_port));
    snprintf(text, bytes, "%s%s%s%s%s%.15s%s", v6 ? "[" : "", host, v6 ? "]" : "", port,
             named ? " (" : "", place->interface, named ? ")" : "");
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
    char text[80];

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
    char text[80];

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
