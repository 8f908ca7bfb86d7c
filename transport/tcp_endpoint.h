/* tcp_endpoint.h: where ends of the TCP wire and of control connections are, and sentences about
 * what fails there. Layer: transport, on src/base/socket.h. */
#ifndef SWL_TCP_ENDPOINT_H
#define SWL_TCP_ENDPOINT_H

#include "src/base/socket.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tcp_endpoint {
    union swl_address at;
    char interface[16]; /* "": not known */
    uint64_t host;      /* equal where loopback reaches (swl_sysfs_host); 0: not known */
};

struct tcp_why {
    char text[320];
    int error; /* of the call that failed, 0: none did */
};

/* As swl_socket_listen and swl_socket_connect. -1: why. */
int swl_tcp_listen(struct tcp_endpoint *place, struct tcp_why *why);
int swl_tcp_connect(const struct tcp_endpoint *place, uint64_t timeout_ns, struct tcp_why *why);
/* "10.0.0.1:4711 (eth0)", without what is not known; 80 bytes hold any. */
void swl_tcp_text(const struct tcp_endpoint *place, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
