/* socket.h: sockets: listening, connecting within a limit, accepting. Used by the transport, the
 * device runtime and the tools; who is let in is door.h's. Layer: src/base; no state. All sockets
 * are non-blocking and end with an exec. A failure is a negative number of errno: fibers of the
 * emulator change threads, so nobody looks at errno later. */
#ifndef SWL_BASE_SOCKET_H
#define SWL_BASE_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifdef __cplusplus
extern "C" {
#endif

union swl_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6; /* sin6_port lies where sin_port does */
};

/* Listen there; port 0: at a free one, which *at holds then. */
int swl_socket_listen(union swl_address *at);
/* Connected at the latest after timeout_ns of real time (-ETIMEDOUT); signals do not end it. */
int swl_socket_connect(const union swl_address *to, uint64_t timeout_ns);
/* The next who has connected. */
int swl_socket_accept(int listener);

/* An address of this host without a file: the kernel forgets it with the socket. Everybody can read
 * it in /proc/net/unix. Returns its length. */
socklen_t swl_socket_local(const char *name, struct sockaddr_un *address);
int swl_socket_listen_local(const char *name, int backlog);
/* -EAGAIN: nobody there has room for one more now. */
int swl_socket_connect_local(const char *name);
/* Who is at the other end of a local socket, by what the kernel says: everybody on the host may
 * connect to it, or have bound its name. */
bool swl_socket_of_process(int fd);
bool swl_socket_of_user(int fd);

/* errno of the call of this thread that has just failed. */
int swl_socket_error(void);
/* That failure says: not now. */
bool swl_socket_later(void);
/* After a recv that returned n: the other end has hung up. */
bool swl_socket_ended(ssize_t n);

#ifdef __cplusplus
}
#endif
#endif
