/* socket.h: sockets of the TCP wire: which interface, listening, connecting. Layer: transport/tcp.
 * Failures are sentences in `why`; errno is not kept. All sockets are non-blocking. */
#ifndef SWL_TCP_SOCKET_H
#define SWL_TCP_SOCKET_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tcp_place {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    char interface[16];
};

struct tcp_why {
    char text[256];
};

/* Does the list (syntax of NCCL_SOCKET_IFNAME: prefixes, "=" exact names, "^" none of these) take the
 * interface? NULL and "" take every one but loopback and docker's. */
bool swl_tcp_named(const char *list, const char *interface);
/* Address of the first interface that is up and that the list takes, IPv4 first; loopback if there is
 * nothing else and no list. */
bool swl_tcp_choose(const char *list, struct tcp_place *place_p, struct tcp_why *why);
/* Listen there at a free port, which place then holds. -1: why. */
int swl_tcp_listen(struct tcp_place *place, struct tcp_why *why);
/* Connected at the latest after timeout_ns of real time. -1: why. */
int swl_tcp_connect(const struct tcp_place *place, uint64_t timeout_ns, struct tcp_why *why);
/* The next who has connected, or -1 and errno. */
int swl_tcp_accept(int listener);
/* "10.0.0.1:4711" */
void swl_tcp_text(const struct tcp_place *place, char *text, size_t bytes);

/* errno of the call of this thread that has just failed. */
int swl_tcp_error(void);
/* That failure says: not now. */
bool swl_tcp_later(void);

#ifdef __cplusplus
}
#endif
#endif
