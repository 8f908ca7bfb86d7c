/* socket.h: sockets of the TCP wire: listening, connecting, what their ends are called. Layer: transport/tcp.
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
    char interface[16]; /* "": not known */
    uint64_t host;      /* equal where loopback reaches (swl_site_host); 0: not known */
};

struct tcp_why {
    char text[320];
    int error; /* of the call that failed, 0: none did */
};

/* Listen there at a free port, which place then holds. -1: why. */
int swl_tcp_listen(struct tcp_place *place, struct tcp_why *why);
/* Connected at the latest after timeout_ns of real time. -1: why. */
int swl_tcp_connect(const struct tcp_place *place, uint64_t timeout_ns, struct tcp_why *why);
/* The next who has connected, or -1 and errno. */
int swl_tcp_accept(int listener);
/* "10.0.0.1:4711 (eth0)", without what is not known; 80 bytes hold any. */
void swl_tcp_text(const struct tcp_place *place, char *text, size_t bytes);

/* errno of the call of this thread that has just failed. */
int swl_tcp_error(void);
/* That failure says: not now. */
bool swl_tcp_later(void);

#ifdef __cplusplus
}
#endif
#endif
