/* interface.h: which network interface of this host the sockets between hosts use. Layer:
 * transport. The choice is a pure function of what the kernel tells (struct tcp_interface); no
 * state. */
#ifndef SWL_INTERFACE_H
#define SWL_INTERFACE_H

#include "transport/tcp_endpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TCP_NO_ROUTE UINT32_MAX

/* One address of an interface; at.any.sa_family 0: it has none. */
struct tcp_interface {
    struct tcp_endpoint place;
    bool up, carrier, loopback;
    bool bridge; /* of containers or virtual machines, as far as can be told */
    /* of its default route of this family, smaller is better; TCP_NO_ROUTE: none */
    uint32_t metric;
};

/* Does the list take the interface? Syntax of NCCL_SOCKET_IFNAME: beginnings of names, separated by
 * commas; "=" before the list: whole names; "^" before it: all but these. Blanks and a ":port"
 * behind a name mean nothing. A list without a name takes every interface, as NULL does. */
bool swl_tcp_named(const char *list, const char *interface);

/* The best of all[n] that the list takes, or -1. Best is: with a default route (of several the
 * smaller metric), then any other, a bridge, an address of the link only, loopback; IPv4 before
 * IPv6, else as listed. What is down, has no carrier or no address is never taken. `why` says what
 * decided, or for each interface why it was not taken; variable: whose value the list is. */
int swl_tcp_pick(const struct tcp_interface *all, uint32_t n, const char *list,
                 const char *variable, struct tcp_why *why);

/* The same for this host. The list comes from SWIMLANE_SOCKET_IFNAME or NCCL_SOCKET_IFNAME. */
bool swl_tcp_choose(const char *list, struct tcp_endpoint *place_p, struct tcp_why *why);

/* false: they are on hosts apart and cannot mean each other: loopback, or one address for both. */
bool swl_tcp_reaches(const struct tcp_endpoint *a, const struct tcp_endpoint *b);

#ifdef __cplusplus
}
#endif
#endif
