/* tcp_endpoint.c: see tcp_endpoint.h. Layer: transport. */
#include "transport/tcp_endpoint.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* Returns -1. */
static int fail(struct tcp_why *why, const char *what, const struct tcp_endpoint *where, int error)
{
    char text[80];

    swl_tcp_text(where, text, sizeof(text));
    why->error = error;
    snprintf(why->text, sizeof(why->text), "%s %s: %s", what, text, strerror(error));
    return -1;
}

void swl_tcp_text(const struct tcp_endpoint *place, char *text, size_t bytes)
{
    const bool v6 = place->at.any.sa_family == AF_INET6, named = place->interface[0] != '\0';
    char host[INET6_ADDRSTRLEN] = "?", port[8] = "";

    if (v6)
        inet_ntop(AF_INET6, &place->at.v6.sin6_addr, host, sizeof(host));
    else
        inet_ntop(AF_INET, &place->at.v4.sin_addr, host, sizeof(host));
    if (place->at.v4.sin_port != 0)
        snprintf(port, sizeof(port), ":%u", ntohs(place->at.v4.sin_port));
    snprintf(text, bytes, "%s%s%s%s%s%.15s%s", v6 ? "[" : "", host, v6 ? "]" : "", port,
             named ? " (" : "", place->interface, named ? ")" : "");
}

int swl_tcp_listen(struct tcp_endpoint *place, struct tcp_why *why)
{
    const int fd = swl_socket_listen(&place->at);

    return fd < 0 ? fail(why, "cannot listen at", place, -fd) : fd;
}

int swl_tcp_connect(const struct tcp_endpoint *place, uint64_t timeout_ns, struct tcp_why *why)
{
    const int fd = swl_socket_connect(&place->at, timeout_ns);

    return fd < 0 ? fail(why, "cannot connect to", place, -fd) : fd;
}
