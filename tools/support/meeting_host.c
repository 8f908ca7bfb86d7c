/* meeting_host.c: rank 0 gives the unique id over TCP. See meeting_wire.h. Layer: tools/support.
 *
 * It listens where the meeting is and nowhere else. Whoever is of another job, of another size or a
 * second time the same rank is told so and changes nothing; whoever says anything else, or nothing,
 * is sent away (src/base/door.h). */
#include "tools/support/meeting_wire.h"

#include "src/base/clock.h"
#include "src/base/door.h"
#include "src/base/socket.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_LISTENERS = 8, MAX_ACCEPTS = 32, POLL_MS = 50 };

struct host {
    const struct swl_meeting *at;
    int nranks, nserved;
    const char *id;
    bool *served; /* [nranks] */
    uint64_t nrefused;
    char refused[128]; /* who was the last */
    int nlisteners, listeners[MAX_LISTENERS];
    struct swl_door door;
    struct swl_why *why;
};

/* ---- listening ---- */

static bool is_loopback(const struct sockaddr *at)
{
    if (at->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)at)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr) >> 24 == 127;
}

/* Debian gives a host's own name the address 127.0.1.1, where nobody else finds it. */
static bool says_nothing(const struct swl_meeting *at, const struct addrinfo *list)
{
    if (at->one_host || strchr(at->host, ':') || strncmp(at->host, "localhost", 9) == 0 ||
        strspn(at->host, "0123456789.") == strlen(at->host))
        return false;
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        if (!is_loopback(a->ai_addr))
            return false;
    return true;
}

/* Listen at one more; of the errors the worst stays: a port that another has. */
static int listen_too(struct host *h, const struct sockaddr *at, socklen_t bytes, int error)
{
    union swl_address address;
    int fd;

    if (error == EADDRINUSE || h->nlisteners == MAX_LISTENERS || bytes > sizeof address)
        return error;
    memcpy(&address, at, bytes);
    fd = swl_socket_listen(&address);
    if (fd < 0)
        return -fd;
    h->listeners[h->nlisteners++] = fd;
    return error;
}

static int listen_everywhere(struct host *h)
{
    const struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(h->at->port)};
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(h->at->port)};
    const int error = listen_too(h, (const struct sockaddr *)&four, sizeof four, 0);

    return listen_too(h, (const struct sockaddr *)&six, sizeof six, error);
}

static bool listen_all(struct host *h, uint64_t end_ns)
{
    struct swl_why last = {""};
    struct addrinfo *list = swl_meeting_lookup(h->at, end_ns, &last);
    char place[300];
    int error = 0;

    swl_meeting_place(h->at, place, sizeof place);
    if (!list)
        return swl_why_set(h->why, "rank 0 cannot listen at %s: %s", place, last.text);
    if (says_nothing(h->at, list)) {
        error = listen_everywhere(h);
    } else {
        for (const struct addrinfo *a = list; a; a = a->ai_next)
            error = listen_too(h, a->ai_addr, a->ai_addrlen, error);
    }
    freeaddrinfo(list);
    if (h->nlisteners > 0 && error != EADDRINUSE)
        return true;
    return swl_why_set(h->why, "rank 0 cannot listen at %s: %s; %s", place, strerror(error),
                       error == EADDRNOTAVAIL
                           ? "SWIMLANE_ROOT must name an address of rank 0's machine"
                           : "choose another port by SWIMLANE_ROOT");
}

/* ---- callers ---- */

/* Takes as long for any difference. */
static bool same(const char *a, const char *b, size_t bytes)
{
    unsigned char differs = 0;

    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}

static enum meeting_verdict judge_guest(struct host *h, const struct meeting_hello *said)
{
    const bool job = same(said->job, h->at->job, sizeof said->job);

    if (!same(said->secret, h->at->secret, sizeof said->secret) || !job) {
        snprintf(h->refused, sizeof h->refused, "was of another job");
        return MEETING_WRONG_JOB;
    }
    if (said->nranks != h->nranks || said->rank < 1 || said->rank >= h->nranks) {
        snprintf(h->refused, sizeof h->refused, "was started as rank %d of %d", said->rank,
                 said->nranks);
        return MEETING_WRONG_SIZE;
    }
    if (h->served[said->rank]) {
        snprintf(h->refused, sizeof h->refused, "was a second rank %d", said->rank);
        return MEETING_TAKEN;
    }
    return MEETING_WELCOME;
}

/* A rank has said who it is. */
static void greet_guest(struct host *h, int fd, const struct meeting_hello *hello)
{
    struct meeting_answer answer = {.verdict = judge_guest(h, hello)};

    memcpy(answer.magic, meeting_answer_magic, sizeof answer.magic);
    if (answer.verdict == MEETING_WELCOME)
        memcpy(answer.id, h->id, sizeof answer.id);
    else
        h->nrefused++;
    if (answer.verdict == MEETING_WRONG_SIZE)
        answer.nranks = h->nranks;
    const bool sent = send(fd, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer;

    if (sent && answer.verdict == MEETING_WELCOME) { /* else the rank has gone and may come again */
        h->served[hello->rank] = true;
        h->nserved++;
    }
}

static bool like_hello(const uint8_t *in, size_t bytes)
{
    const size_t known = sizeof meeting_hello_magic;

    return memcmp(in, meeting_hello_magic, bytes < known ? bytes : known) == 0;
}

/* Who waited too long for a host that did not run has left, calls again, and is answered there. */
static void hear_all(struct host *h)
{
    struct swl_door_guest *g;
    struct meeting_hello hello;
    char next;

    while ((g = swl_door_next(&h->door)) != NULL) {
        const int fd = swl_door_take(&h->door, g);

        memcpy(&hello, g->in, sizeof hello);
        if (!swl_socket_ended(recv(fd, &next, sizeof next, MSG_PEEK)))
            greet_guest(h, fd, &hello);
        close(fd);
    }
}

static void host_round(struct host *h)
{
    struct pollfd wait_for[MAX_LISTENERS + SWL_DOOR_PLACES];
    const nfds_t n = (nfds_t)h->nlisteners;
    int fd;

    for (nfds_t i = 0; i < n; i++)
        wait_for[i] = (struct pollfd){.fd = h->listeners[i], .events = POLLIN};
    if (poll(wait_for, n + swl_door_watch(&h->door, wait_for + n), POLL_MS) < 0)
        return;
    for (nfds_t i = 0; i < n; i++)
        for (int k = 0; wait_for[i].revents && k < MAX_ACCEPTS; k++) {
            fd = swl_socket_accept(h->listeners[i]);
            if (fd < 0)
                break;
            swl_door_enter(&h->door, fd);
            hear_all(h);
        }
    hear_all(h);
}

/* "1, 4, 5" and so on. */
static void list_missing(const struct host *h, char *text, size_t bytes)
{
    size_t n = 0;

    text[0] = '\0';
    for (int r = 1; r < h->nranks && n + 24 < bytes; r++)
        if (!h->served[r])
            n += (size_t)snprintf(text + n, bytes - n, "%s%d", n ? ", " : "", r);
}

static bool serve_all(struct host *h, uint64_t limit_ns, uint64_t end_ns)
{
    char missing[128], refused[200] = "";

    while (h->nserved < h->nranks - 1) {
        host_round(h);
        if (swl_real_ns() < end_ns)
            continue;
        list_missing(h, missing, sizeof missing);
        if (h->nrefused == 1)
            snprintf(refused, sizeof refused, "; a caller was refused, which %s", h->refused);
        else if (h->nrefused > 1)
            snprintf(refused, sizeof refused,
                     "; %" PRIu64 " callers were refused, the last of which %s", h->nrefused,
                     h->refused);
        return swl_why_set(h->why,
                           "%d of %d ranks have not asked for the unique id at port %u within "
                           "%" PRIu64 " ms: rank %s%s",
                           h->nranks - 1 - h->nserved, h->nranks, h->at->port, limit_ns / 1000000,
                           missing, refused);
    }
    return true;
}

bool swl_meeting_serve(const struct swl_meeting *at, int nranks, uint64_t limit_ns, const char *id,
                       struct swl_why *why)
{
    const struct swl_door_rules rules = {
        .hello_bytes = sizeof(struct meeting_hello), .like = like_hello, .now_ns = swl_real_ns};
    const uint64_t end_ns = swl_real_ns() + limit_ns;
    struct host *h = calloc(1, sizeof *h);
    bool ok = false;

    if (h) {
        *h = (struct host){.at = at, .nranks = nranks, .id = id, .why = why};
        swl_door_open(&h->door, &rules);
        h->served = calloc((size_t)nranks, sizeof *h->served);
    }
    if (!h || !h->served)
        swl_why_set(why, "rank 0 has no host memory for %d ranks", nranks);
    else
        ok = listen_all(h, end_ns) && serve_all(h, limit_ns, end_ns);
    if (h)
        swl_door_close(&h->door);
    for (int i = 0; h && i < h->nlisteners; i++)
        close(h->listeners[i]);
    if (h)
        free(h->served);
    free(h);
    return ok;
}
