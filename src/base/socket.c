/* socket.c: see socket.h. Layer: src/base. */
#include "src/base/socket.h"

#include "src/base/clock.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG        1024
#define CONNECT_MAX_MS 60000

/* A fiber of the emulator reads the word of the thread that runs it, which to TSan is another
 * one. */
__attribute__((no_sanitize("thread"))) int swl_socket_error(void)
{
    return errno;
}

bool swl_socket_later(void)
{
    const int error = swl_socket_error();

    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

bool swl_socket_ended(ssize_t n)
{
    return n == 0 || (n < 0 && !swl_socket_later());
}

/* The socket is of no use; returns `error`. */
static int give_up(int fd, int error)
{
    if (fd >= 0)
        close(fd);
    return -error;
}

static socklen_t length_of(const union swl_address *at)
{
    return at->any.sa_family == AF_INET6 ? sizeof(at->v6) : sizeof(at->v4);
}

static int open_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void set(int fd, int level, int option)
{
    const int yes = 1;

    (void)setsockopt(fd, level, option, &yes, sizeof(yes));
}

int swl_socket_listen(union swl_address *at)
{
    const int fd = open_socket(at->any.sa_family);
    socklen_t length = length_of(at);

    if (fd >= 0 && at->v4.sin_port != 0) /* the last owner's connections may still be ending */
        set(fd, SOL_SOCKET, SO_REUSEADDR);
    if (fd >= 0 && at->any.sa_family == AF_INET6)
        set(fd, IPPROTO_IPV6, IPV6_V6ONLY);
    if (fd < 0 || bind(fd, &at->any, length) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, &at->any, &length) != 0)
        return give_up(fd, swl_socket_error());
    return fd;
}

/* Wait for the end of a connect that has begun; 0 or a number of errno. */
static int finish_connect(int fd, uint64_t timeout_ns)
{
    const uint64_t ms = timeout_ns / 1000000, most = CONNECT_MAX_MS;
    const uint64_t end = swl_real_ns() / 1000000 + (ms < most ? ms : most);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int error = 0, n;
    socklen_t length = sizeof(error);

    do {
        const uint64_t now = swl_real_ns() / 1000000;

        n = poll(&p, 1, now < end ? (int)(end - now) : 0);
    } while (n < 0 && swl_socket_error() == EINTR);
    if (n < 0)
        return swl_socket_error();
    if (n == 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : swl_socket_error();
}

int swl_socket_connect(const union swl_address *to, uint64_t timeout_ns)
{
    const int fd = open_socket(to->any.sa_family);
    int error = 0;

    if (fd < 0 || connect(fd, &to->any, length_of(to)) != 0)
        error = swl_socket_error();
    if (fd >= 0 && error == EINPROGRESS)
        error = finish_connect(fd, timeout_ns);
    if (error != 0)
        return give_up(fd, error);
    set(fd, IPPROTO_TCP, TCP_NODELAY);
    return fd;
}

int swl_socket_accept(int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0)
        return -swl_socket_error();
    set(fd, IPPROTO_TCP, TCP_NODELAY); /* no local socket has it */
    return fd;
}

/* ---- local ---- */

socklen_t swl_socket_local(const char *name, struct sockaddr_un *address)
{
    const size_t bytes = strnlen(name, sizeof(address->sun_path) - 1);

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path + 1, name, bytes); /* behind a zero byte: no file */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
}

int swl_socket_listen_local(const char *name, int backlog)
{
    const int fd = open_socket(AF_UNIX);
    struct sockaddr_un address;
    const socklen_t bytes = swl_socket_local(name, &address);

    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, bytes) != 0 ||
        listen(fd, backlog) != 0)
        return give_up(fd, swl_socket_error());
    return fd;
}

int swl_socket_connect_local(const char *name)
{
    const int fd = open_socket(AF_UNIX);
    struct sockaddr_un address;
    const socklen_t bytes = swl_socket_local(name, &address);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, bytes) != 0)
        return give_up(fd, swl_socket_error());
    return fd;
}

static bool other_end(int fd, struct ucred *other)
{
    socklen_t bytes = sizeof(*other);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, other, &bytes) == 0;
}

bool swl_socket_of_process(int fd)
{
    struct ucred other;

    return other_end(fd, &other) && other.pid == getpid();
}

bool swl_socket_of_user(int fd)
{
    struct ucred other;

    return other_end(fd, &other) && other.uid == geteuid();
}
